/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_MESH_H
#define IPU_MESH_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>

#include "fabric/fabric.h"

/*
 * A mesh of RC connections as a fabric of datagrams, for devices that support no other transport
 * (iWARP). It is a profile of our own: docs/use/mesh.md. An address handle is a peer or a group.
 * The mesh sends a message to a group to each peer in the group, and puts a GRH made from the
 * peer's identity in front of each received message. iWARP ends a connection when a message arrives
 * and no receive is posted, so every peer has receives of its own and sends no more messages than
 * its window allows.
 *
 * pyverbs owns the queue pairs: it creates and connects them. To end a queue pair, the caller
 * removes it, destroys it after IPU_MESH_GONE, and then forgets it. Only then do its buffers come
 * back: siw does not flush the receives of a queue pair that its peer terminated. Threads: the
 * pump's thread calls the fabric; one other thread may call the functions below that name a peer,
 * and ipu_mesh_next_event(); the other functions need a stopped pump.
 */
struct ipu_mesh;

enum {
    IPU_MESH_TYPE = 0x88b5, /* of control messages: IEEE 802's local experimental Ethertype 1 */
    IPU_MESH_WINDOW = 32,   /* messages that a peer may send before it gets a new window */
    IPU_MESH_SLACK = 8,     /* receives beyond those, for messages about the window */
    IPU_MESH_CONTROL_MAX = 2044, /* bytes of a control message behind its header */
    IPU_MESH_CREDIT = 5,         /* the operation that is handled here */
};

struct ipu_mesh_config {
    const struct ibv_qp *pattern; /* any queue pair like those to come; the mesh does not keep it */
    struct in6_addr gid;          /* with qpn: our own address */
    uint32_t qpn;
    uint32_t mtu;              /* largest message, encapsulation header included */
    uint32_t peers_max;        /* the mesh keeps receives for this many peers */
    struct in6_addr broadcast; /* the broadcast group: every peer is in it */
};

/* Returns 0, or a negative errno with nothing left behind. */
int ipu_mesh_create(const struct ipu_mesh_config *config, struct ipu_mesh **out);

/* Frees the memory, after the end of all queue pairs: the mesh sends and receives no more. */
void ipu_mesh_free(struct ipu_mesh *mesh);
void ipu_mesh_destroy(struct ipu_mesh *mesh);

struct ipu_fabric *ipu_mesh_fabric(struct ipu_mesh *mesh);

/* Adds a queue pair in INIT; IPU_MESH_READY reports that its receives are posted. 0 or -ENOMEM. */
int ipu_mesh_add(struct ipu_mesh *mesh, uint64_t id, struct ibv_qp *qp);
/* Names the peer of a connected queue pair. may_send: we may send first (MPA: the initiator). */
int ipu_mesh_name(struct ipu_mesh *mesh, uint64_t id, const struct in6_addr *gid, uint32_t qpn,
                  uint32_t window, bool may_send);
/* Sets the peer's groups; adds it to one group, or takes it out of one. */
int ipu_mesh_groups(struct ipu_mesh *mesh, uint64_t id, const struct in6_addr *mgids, int n);
int ipu_mesh_group(struct ipu_mesh *mesh, uint64_t id, const struct in6_addr *mgid, bool is_in);
/* Sends a control message, in order, as soon as there is room. */
int ipu_mesh_send_control(struct ipu_mesh *mesh, uint64_t id, const void *message, size_t len);
/* Sends nothing more to the peer; IPU_MESH_GONE reports that its queue pair may be destroyed. */
int ipu_mesh_remove(struct ipu_mesh *mesh, uint64_t id);
/* Forgets a queue pair that the caller has destroyed. */
int ipu_mesh_forget(struct ipu_mesh *mesh, uint64_t id);

enum ipu_mesh_event_type {
    IPU_MESH_READY = 1,
    IPU_MESH_CONTROL, /* a message, behind its header */
    IPU_MESH_BROKEN,  /* a send failed, or too many messages wait for the peer; reported once */
    IPU_MESH_GONE,
};

struct ipu_mesh_event {
    uint64_t id;
    enum ipu_mesh_event_type type;
    uint32_t len;
    uint8_t message[IPU_MESH_CONTROL_MAX];
};

/* Takes the next event; false: there is none. The descriptor is readable while events wait. */
bool ipu_mesh_next_event(struct ipu_mesh *mesh, struct ipu_mesh_event *event);
int ipu_mesh_event_fd(const struct ipu_mesh *mesh);

#define IPU_MESH_COUNTERS(X)                                                                       \
    X(tx_doorbells)   /* calls of ibv_post_send */                                                 \
    X(tx_posted)      /* messages in them */                                                       \
    X(tx_signalled)   /* of these, with a completion of their own */                               \
    X(tx_inline)      /* of these, copied into the work request */                                 \
    X(tx_copies)      /* messages to a group, counted once for each peer */                        \
    X(tx_no_peer)     /* lost: no connection to that peer, or no peer in that group */             \
    X(tx_no_window)   /* lost: the peer has not granted a new window yet */                        \
    X(tx_full)        /* lost: our own queues are full */                                          \
    X(tx_errors)      /* sends refused or completed in error, without flushed ones */              \
    X(rx_doorbells)   /* calls of ibv_post_recv */                                                 \
    X(rx_errors)      /* receives refused or completed in error, without flushed ones */           \
    X(rx_control)     /* control messages */                                                       \
    X(rx_bad_control) /* of these, too short or too long */                                        \
    X(rx_early)       /* messages of a peer that we do not know yet */                             \
    X(rx_runt)        /* messages without a whole header */                                        \
    X(windows_told)   /* messages about the window that we sent */                                 \
    X(windows_heard)  /* messages about the window that peers sent */                              \
    X(stale)          /* completions of queue pairs that the caller destroyed meanwhile */         \
    X(flushed)        /* work that came back because a connection ended */                         \
    X(events)         /* completion events */

#define IPU_MESH_COUNTERS_FIELD(name) _Atomic uint64_t name;
#define IPU_MESH_COUNTERS_ONE(name)   +1
enum { IPU_MESH_COUNTERS_N = 0 IPU_MESH_COUNTERS(IPU_MESH_COUNTERS_ONE) };

/* Reads the counters, in the order of the names; any thread may call it. */
void ipu_mesh_counters(const struct ipu_mesh *mesh, uint64_t values[IPU_MESH_COUNTERS_N]);
extern const char *const ipu_mesh_counter_names[IPU_MESH_COUNTERS_N];

#endif
