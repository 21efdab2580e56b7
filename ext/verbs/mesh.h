/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_MESH_H
#define IPU_VERBS_MESH_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "fabric.h"

/*
 * A fabric of reliable connections, one to each peer, that the pump takes for a UD queue pair: a
 * GID is a peer's or a group's, a datagram to a group is posted to every peer that belongs, and
 * what arrives gets a GRH made up. The format of messages is in docs/mesh.md.
 *
 * iWARP has no "receiver not ready": a message without a posted receive ends the connection. So
 * every peer may send as many messages as it was granted, and is granted more as receives are
 * posted again.
 *
 * One mutex guards everything, so any thread may call. Queue pairs are somebody else's (pyverbs'):
 * destroyed before ipu_mesh_remove(), all of them before ipu_mesh_free().
 */
struct ipu_mesh;

enum {
    IPU_MESH_PEERS_MAX = 32,
    IPU_MESH_WINDOW_MAX = 28,  /* receives posted for a peer's granted messages, */
    IPU_MESH_RESERVE = 4,      /* and for those that grant */
    IPU_MESH_NOTE_BYTES = 1024 /* the largest that ipu_mesh_tell() takes */
};

struct ipu_mesh_config {
    const struct ibv_qp *pattern; /* an RC queue pair like those to come; not kept */
    struct in6_addr gid;
    uint32_t qpn;
    uint32_t mtu;    /* largest message, the encapsulation header included */
    uint32_t window; /* messages that a peer may have under way, to IPU_MESH_WINDOW_MAX */
};

/* 0, or negative errno with nothing left behind. */
int ipu_mesh_create(const struct ipu_mesh_config *config, struct ipu_mesh **out);

/* After the end of all queue pairs: nothing is sent or received any more. What of the pump still
 * asks is answered; ipu_mesh_destroy() ends that, too. */
void ipu_mesh_free(struct ipu_mesh *mesh);
void ipu_mesh_destroy(struct ipu_mesh *mesh);

struct ipu_fabric *ipu_mesh_fabric(struct ipu_mesh *mesh);

/* What the hello said of the peer. */
struct ipu_mesh_hello {
    struct in6_addr gid;
    uint32_t qpn;
    uint32_t mtu;    /* it takes, the encapsulation header included */
    uint32_t window; /* messages granted to begin with */
    bool we_began;   /* we connected, so we send first (MPA, RFC 5044 §7.1) */
};

/* A queue pair in INIT: its receives are posted. A number for it, never 0, or negative errno: EBUSY
 * when there are as many as can be, EAGAIN before the pump has given receives. */
int64_t ipu_mesh_add(struct ipu_mesh *mesh, struct ibv_qp *qp);
/* It is connected. Sends to the GID go by it from here on. */
int ipu_mesh_establish(struct ipu_mesh *mesh, uint32_t peer, const struct ipu_mesh_hello *hello);
/* After the queue pair's end: what was posted is ours again. */
void ipu_mesh_remove(struct ipu_mesh *mesh, uint32_t peer);

/* Groups that we belong to; every peer is told. 0 or -ENOMEM. */
int ipu_mesh_attach(struct ipu_mesh *mesh, const struct in6_addr *mgid);
void ipu_mesh_detach(struct ipu_mesh *mesh, const struct in6_addr *mgid);

/* A note for the peer's control face; 0 or negative errno, EAGAIN to be tried again later. */
int ipu_mesh_tell(struct ipu_mesh *mesh, uint32_t peer, const void *bytes, uint32_t len);
/* What there is to know, when the descriptor is readable: the length of a note of *peer, 0 when
 * *peer has failed, or -EAGAIN. `note` has IPU_MESH_NOTE_BYTES. */
int ipu_mesh_next(struct ipu_mesh *mesh, uint32_t *peer, void *note);
int ipu_mesh_fd(const struct ipu_mesh *mesh);

/* Fail the peers that have not taken anything for so long though something waits. */
void ipu_mesh_check(struct ipu_mesh *mesh, int64_t patience_ns);

#define IPU_MESH_COUNTERS(X)                                                                       \
    X(tx_messages)  /* posted, each copy of a multicast */                                         \
    X(tx_copies)    /* of these, for groups */                                                     \
    X(tx_no_peer)   /* lost: nobody has the GID */                                                 \
    X(tx_too_big)   /* lost: above what the peer takes */                                          \
    X(tx_overflow)  /* lost: too many waited for the peer's grant */                               \
    X(tx_errors)    /* sends that failed, flushed ones not counted */                              \
    X(rx_messages)  /* datagrams received */                                                       \
    X(rx_control)   /* grants, groups and notes received */                                        \
    X(rx_malformed) /* of these, such as nobody sends */                                           \
    X(rx_overrun)   /* peers that sent more than they were granted */                              \
    X(rx_errors)    /* receives that failed, flushed ones not counted */                           \
    X(grants)       /* messages that granted more */                                               \
    X(notes_lost)   /* came faster than they were read */                                          \
    X(stalled)      /* peers that took nothing for too long */                                     \
    X(peers_added)                                                                                 \
    X(peers_removed)

#define IPU_MESH_COUNTERS_ONE(name) +1
enum { IPU_MESH_COUNTERS_N = 0 IPU_MESH_COUNTERS(IPU_MESH_COUNTERS_ONE) };

/* In the order of the names. */
void ipu_mesh_counters(const struct ipu_mesh *mesh, uint64_t values[IPU_MESH_COUNTERS_N]);
extern const char *const ipu_mesh_counter_names[IPU_MESH_COUNTERS_N];

#endif
