/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FABRIC_H
#define IPU_FABRIC_H

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"

/* The fabric's packet face: one UD queue pair, as the pump sees it. Only the pump's thread calls
 * these functions, none of them blocks, and all of them take and give batches. The control face is
 * ipoibu/fabric/base.py. A fabric travels to Python as a capsule named IPU_FABRIC_CAPSULE.
 */
#define IPU_FABRIC_CAPSULE "ipoibu.fabric"

/* Of a super-frame that a fabric cuts: what leaves in one or two trains, so that the fabric has
 * done with it soon. */
enum { IPU_CUT_PACKETS = 128 };

enum { IPU_LENT_ROOM = 12 };

/* An address vector with the queue pair behind it; the fields of a path record. */
struct ipu_dest {
    struct in6_addr gid;
    uint32_t qpn; /* 24 bits; IPU_MULTICAST_QPN for a multicast gid (E5) */
    uint32_t flow_label;
    uint16_t dlid; /* 0 where the fabric routes by GID */
    uint8_t sl;
    uint8_t static_rate;
    uint8_t hop_limit;
    uint8_t traffic_class;
    uint8_t pad[2]; /* zero: destinations are compared and hashed as bytes */
};

/* A message in one piece or two: `head`, if head_len is not 0, precedes `addr`. Both lie inside the
 * registered memory. A fabric gathers them (two SGEs) unless it says `one_piece`; the limits of a
 * message (MTU, inline data) are for head_len + len.
 */
struct ipu_send {
    const void *head;
    const void *addr;
    uint32_t head_len;
    uint32_t len;
    uint32_t qpn;
    uint32_t source_qpn; /* a further number of the queue pair, from which it comes; 0: its own */
    uint32_t flow; /* a hash: messages with the same one keep their order; see spreads_flows */
    void *ah;
    uint64_t cookie;           /* sent() returns it */
    const struct ipu_cut *cut; /* a super-frame, for a fabric that `cuts`; else NULL */
};

/*
 * How a fabric cuts a super-frame into datagrams. `head` of its send, or the start of `addr`, are
 * the headers of all of them, the encapsulation header included, as the host gave them: a device
 * that cuts (IBV_WR_TSO) reads these and size_bytes. A fabric in software has make() write each
 * datagram. Everything stays in place until the send has ended.
 */
struct ipu_cut {
    uint32_t packets;
    uint32_t size_bytes; /* payload of each packet; the last may have less */
    /* Writes datagram number k, from the encapsulation header on, with its checksums; returns its
     * length. In any order, and again. */
    uint32_t (*make)(const void *context, uint32_t k, uint8_t *to);
    const void *context;
};

struct ipu_recv {
    void *addr; /* inside the registered memory; 40 bytes of GRH space first (E4) */
    uint32_t len;
    uint64_t cookie;
};

#define IPU_RECEIVED_GRH 1u /* the first 40 bytes hold a GRH */
#define IPU_RECEIVED_FAILED                                                                        \
    2u /* flushed or in error: no data, and the buffer belongs to the caller again                 \
        */
#define IPU_RECEIVED_LENT 4u /* the datagram is in no posted buffer, but where `lent` says */

struct ipu_received {
    uint64_t cookie;
    uint32_t byte_len; /* the GRH space included, as in verbs */
    uint32_t src_qpn;
    uint32_t qpn; /* the number to which it came; 0: the queue pair has no further ones */
    uint32_t flags;
    /* IPU_RECEIVED_LENT: the encapsulation header, and what follows, in memory of the fabric. The
     * pump may write to it, and to the IPU_LENT_ROOM bytes in front, until it calls received()
     * again. */
    uint8_t *lent;
    const uint8_t *lent_grh; /* 40 bytes, if there is a GRH */
};

struct ipu_fabric_ops {
    /* Registers memory that sends and receives lie in, before the first of them. The pump may call
     * it again for another region; a region stays registered until the fabric ends. */
    int (*memory)(void *self, void *base, size_t len);
    /* Returns a handle for the destination, or NULL with errno set. */
    void *(*ah_create)(void *self, const struct ipu_dest *dest);
    /* Safe while sends that use the handle are under way. */
    void (*ah_destroy)(void *self, void *ah);
    /* Returns how many of the n sends the fabric took; the caller keeps the others. Negative errno:
     * the queue pair is broken. */
    int (*send)(void *self, const struct ipu_send *sends, int n);
    int (*post)(void *self, const struct ipu_recv *recvs, int n);
    /* Returns the number of cookies of ended sends, successful or not; a negative errno when the
     * queue pair is broken. */
    int (*sent)(void *self, uint64_t *cookies, int max);
    int (*received)(void *self, struct ipu_received *done, int max);
    /* Makes fd() readable at the next completion. Returns 1 if completions may be waiting already:
     * then the pump polls again. */
    int (*arm)(void *self);
    /* Arms the completions of sends, where arm() covers receives alone and may leave ended sends
     * unreported; the pump calls it after arm(). NULL where arm() covers both. */
    int (*arm_sends)(void *self);
    int (*fd)(void *self);
    /* Brings a broken queue pair back, after it has returned all buffers; 0, or a negative errno,
     * and then the pump tries again later. NULL where nothing breaks. */
    int (*recover)(void *self);
    /* From now on received() may lend datagrams to the pump, where they lie. The pump posts
     * receives as before: the fabric lends what it can, and copies the rest. NULL: it lends none.
     */
    void (*lend)(void *self);
    /* Returns the CLOCK_MONOTONIC time at which the pump polls again even if fd() is not readable,
     * INT64_MAX for none; the pump asks after arm(). NULL where there is no such time. */
    int64_t (*deadline_ns)(void *self);
};

/* A connection of connected mode (RFC 4755): an RC queue pair that the control face makes and
 * programs. It is embedded in the fabric's own object and travels to Python as
 * IPU_CONNECTION_CAPSULE. All of a fabric's connections receive from one shared queue. Messages
 * have no GRH in front. The other fields belong to the pump (they are zero before it knows the
 * connection). The control face moves the queue pair to the error state before it asks the pump for
 * the connection, and destroys the queue pair only after the pump has given the connection back.
 */
#define IPU_CONNECTION_CAPSULE "ipoibu.connection"

struct ipu_ah;

enum { IPU_CONNECTION_SENDS = 64 }; /* messages under way at most; a power of two */

struct ipu_connection {
    uint64_t id;       /* the engine's number of the connection */
    struct ipu_ah *ah; /* the address handle whose packets use this connection, or NULL */
    struct ipu_connection *next;
    struct ipu_connection *chain; /* belongs to the fabric, as qpn does: see qpn_table.h */
    uint32_t qpn;
    uint32_t rail;             /* of a fabric over several rails: the one that it belongs to */
    uint32_t mtu;              /* largest IP packet to the peer, bytes */
    uint32_t superframe_bytes; /* largest message to the peer with vnet header; 0: none */
    uint32_t sending;          /* messages posted and not yet reported by sent(), */
    uint32_t sending_bytes;    /* the bytes of these messages, */
    uint32_t lengths[IPU_CONNECTION_SENDS]; /* the length of each, in a ring */
    uint32_t oldest;                        /* that starts here, modulo its size */
    uint64_t hold_left_ns; /* how long the pump may still wait for room, see connection.c */
    bool superframes;      /* every message has a vnet header in front, both ways */
    bool broken;           /* a send failed; the pump has notified the engine */
    bool leaving;          /* the engine wants the connection back */
    _Atomic uint64_t tx_messages, tx_bytes, rx_messages, rx_bytes;
};

struct ipu_connection_sent {
    uint64_t cookie;
    struct ipu_connection *connection;
    bool failed; /* the connection is broken: every message posted to it fails */
};

struct ipu_connection_received {
    uint64_t cookie;
    struct ipu_connection *connection;
    uint32_t byte_len;
    bool failed; /* no data, and the buffer belongs to the caller again */
};

/* The connected face, which not every fabric has; its rules, descriptor and arm() are those of the
 * packet face. Sends on different connections end in any order, sends on one connection in the
 * order of posting.
 */
struct ipu_connected_ops {
    /* The pump begins and ends to use a connection. sent() and received() name only connections in
     * use; for others `connection` is NULL. 0 or negative errno. */
    int (*add)(void *self, struct ipu_connection *connection);
    void (*remove)(void *self, struct ipu_connection *connection);
    /* Returns how many of the n sends the fabric took: fewer when the send queue is full. ah and
     * qpn mean nothing. A broken connection takes sends and fails them. */
    int (*send)(void *self, struct ipu_connection *connection, const struct ipu_send *sends, int n);
    int (*post)(void *self, const struct ipu_recv *recvs, int n); /* to the shared queue */
    int (*sent)(void *self, struct ipu_connection_sent *sent, int max);
    int (*received)(void *self, struct ipu_connection_received *done, int max);
};

struct ipu_fabric {
    const struct ipu_fabric_ops *ops;
    void *self;
    const struct ipu_connected_ops *connected; /* NULL: datagrams only */
    void *connected_self;
    struct in6_addr gid; /* our own; with qpn it identifies our own multicast echo (E8) */
    uint32_t qpn;
    uint32_t mtu;    /* largest message in bytes: the IB MTU, the encapsulation header included */
    uint32_t max_ah; /* handles that may exist at once; 0: the fabric has no limit of its own */
    /* The least length of a receive, because a longer datagram fails the queue pair. 0: the fabric
     * only drops such a datagram. */
    uint32_t min_recv;
    uint32_t max_recv; /* the most receives that are of use; 0: no such limit */
    /* Takes super-frames to unicast destinations whole, of at most IPU_CUT_PACKETS packets, and
     * cuts them. */
    bool cuts;
    bool one_piece;     /* head_len must be 0: the queue pair has one SGE */
    bool pins_memory;   /* memory() pins the pages, which cannot become huge any more */
    bool spreads_flows; /* different flows may take different ways; else `flow` means nothing */
    /* fd() is an epoll set in which the pump may sleep with descriptors of its own: in a set around
     * it each wake-up costs more, and the scheduler does not learn that the waker makes room. */
    bool shares_epoll;
    /* Further queue pairs that send for us: those of our TX queues, where these have numbers of
     * their own. The list does not change while a pump runs. */
    uint32_t tx_qpns[IPU_TX_QUEUES_MAX - 1];
    uint32_t tx_qpn_count;
};

/* Returns 0 or -ENOSPC. */
static inline int ipu_fabric_add_tx_queue(struct ipu_fabric *fabric, uint32_t qpn)
{
    if (fabric->tx_qpn_count == IPU_TX_QUEUES_MAX - 1)
        return -ENOSPC;
    fabric->tx_qpns[fabric->tx_qpn_count++] = qpn;
    return 0;
}

/* Returns whether a datagram from our GID and this queue pair is our own. */
static inline bool ipu_fabric_sends_as(const struct ipu_fabric *fabric, uint32_t qpn)
{
    bool own = qpn == fabric->qpn;
    for (uint32_t i = 0; i < fabric->tx_qpn_count; i++)
        own |= qpn == fabric->tx_qpns[i];
    return own;
}

#endif
