/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_UDP_H
#define SOFT_UDP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "count.h"
#include "roce.h"

/*
 * Packets to and from the wire: one UDP socket that receives, the outlets that send, batched system
 * calls, trains of equal packets as one UDP_SEGMENT send, and UDP_GRO trains split into packets.
 * This file knows addresses and lengths, and nothing of the packets' contents. It has no lock:
 * every caller holds the HCA's mutex.
 *
 * An outlet is a socket that sends from a UDP port of its own. Networks, network cards and
 * receivers spread packets by their ports and keep the order of packets with equal ports. So a
 * sender puts all packets of a flow on one outlet, and different flows on different outlets.
 */
struct soft_udp;

#define SOFT_UDP_OUTLETS     4      /* a power of two; each costs a descriptor */
#define SOFT_UDP_OUTLET_PORT 0xc000 /* the outlets have the first free ports from here on */

union soft_udp_address {
    struct sockaddr any;
    struct sockaddr_in ip4;
    struct sockaddr_in6 ip6;
};

/* What soft_udp_open needs. The GID, the source of all packets, decides between IPv4 and IPv6. */
struct soft_udp_config {
    const char *netdev;
    unsigned int ifindex;
    struct in6_addr gid;
    uint16_t port;     /* where it receives; 0: it only sends */
    bool sends_singly; /* no trains, and no fragments */
    int adopted_fd; /* not 0: the receiving socket is a duplicate of this one, with its packets */
};

/* Opens the outlets, and the socket that receives, which it binds to one device and to the port, or
 * checks that the adopted one is so. Errors are those of soft_hca_open. */
int soft_udp_open(const struct soft_udp_config *config, struct soft_count *count,
                  struct soft_udp **out);
void soft_udp_close(struct soft_udp *udp);
int soft_udp_fd(const struct soft_udp *udp); /* the socket that receives; -1: none */
int soft_udp_outlet_fd(const struct soft_udp *udp, unsigned int outlet);
uint16_t soft_udp_outlet_port(const struct soft_udp *udp, unsigned int outlet);

/* Returns how many packets the kernel dropped since the open because the receive buffer was
 * full. */
uint64_t soft_udp_overruns(const struct soft_udp *udp);

/* ---- sending: a batch at a time -------------------------------------------------------------- */

struct soft_udp_dest {
    union soft_udp_address address; /* of the GID's family */
    struct in6_addr gid;
    uint32_t flow_label;
    uint8_t hop_limit;
    uint8_t traffic_class;
};

#define SOFT_UDP_SLOT_IOV (SOFT_MAX_SGE + 2)
#define SOFT_UDP_HEAD_MAX 232 /* transport headers, and short data behind them */

/* One packet of the batch: the caller fills iov[0..iov_count) from head, tail and its own data,
 * which must stay in place until it has sent the batch. */
struct soft_udp_slot {
    const struct soft_udp_dest *dest; /* equal pointers are one destination */
    struct iovec *iov;
    unsigned int iov_count;
    unsigned int bytes; /* of all iov together */
    uint8_t outlet;
    bool left;   /* in the batch by soft_udp_send, which cannot send it now */
    bool staged; /* one piece; a train's pieces lie one behind the other, and leave as one */
    uint8_t head[SOFT_UDP_HEAD_MAX + SOFT_ROCE_TAIL_MAX];
    uint8_t tail[SOFT_ROCE_TAIL_MAX];
};

/* Returns the next free slot of the batch, or NULL when the batch is full; a slot counts once
 * committed. */
struct soft_udp_slot *soft_udp_reserve(struct soft_udp *udp);
void soft_udp_commit(struct soft_udp *udp);

/* Returns how many slots are free. */
unsigned int soft_udp_room(const struct soft_udp *udp);

/* Sends the batch, the packets of each outlet in order, and empties it. Returns the number of
 * packets that the kernel took or that an error lost, which a counter counts. If that is not all of
 * them, *stall is EAGAIN (wait for EPOLLOUT of soft_udp_stalled_outlets) or ENOBUFS (wait a
 * little), and the caller must offer those again that are not soft_udp_sent: of each outlet the
 * last ones.
 */
unsigned int soft_udp_send(struct soft_udp *udp, int *stall);

/* Returns whether packet `i` of the last batch needs no further send. */
bool soft_udp_sent(const struct soft_udp *udp, unsigned int i);

/* Returns the outlets that the last batch found full, a bit each. */
unsigned int soft_udp_stalled_outlets(const struct soft_udp *udp);

/* ---- receiving ------------------------------------------------------------------------------- */

struct soft_udp_packet {
    const uint8_t *data; /* valid until the next soft_udp_receive */
    size_t bytes;
    struct in6_addr src; /* IPv4 addresses are mapped */
    struct in6_addr dst;
    uint32_t flow_info; /* traffic class and flow label (0 over IPv4), host order */
    uint16_t src_port;
    uint8_t hop_limit;
    bool same_flow; /* src, dst, src_port and bytes as in the packet before */
};

/* Takes the next packet of the current batch. */
bool soft_udp_next(struct soft_udp *udp, struct soft_udp_packet *out);

/* Returns whether the current batch has packets left. */
bool soft_udp_pending(const struct soft_udp *udp);

/* Fetches the next batch, once nothing is pending; false when the socket has nothing. */
bool soft_udp_receive(struct soft_udp *udp);

/* Keeps the packets of the last batch as they are until soft_udp_drop_left: the next one goes to
 * other memory. False: such memory is kept already, or there is none. Nothing may be pending. */
bool soft_udp_leave_memory(struct soft_udp *udp);
bool soft_udp_has_left(const struct soft_udp *udp);
void soft_udp_drop_left(struct soft_udp *udp);

#endif
