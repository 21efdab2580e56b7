/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_H
#define IPU_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "fabric/fabric.h"

/*
 * A UD queue pair of an RDMA device as a fabric. The queue pair, its completion queues and their
 * channel are somebody else's (pyverbs'), who destroys the queue pair before ipu_verbs_free() and
 * the rest after it; work is posted and polled here, address handles and memory regions are ours.
 *
 * Threads: the pump's calls the fabric. ipu_verbs_break(), ipu_verbs_rebind() and
 * ipu_verbs_events() may be called from any one other thread, the rest while no pump runs.
 */
struct ipu_verbs;

struct ipu_verbs_config {
    struct ibv_qp *qp; /* UD, as created; both completion queues on one completion channel */
    struct in6_addr gid;
    uint32_t mtu;
    uint32_t qkey; /* the link's: E6 */
    uint32_t max_ah;
    uint16_t pkey_index;
    uint8_t port;
    uint8_t sgid_index;
    bool resolves;    /* RoCE: making a unicast address handle waits for neighbour discovery */
    bool owns_events; /* the context is ours alone: its asynchronous events are for us to read */
    /* Of a TX queue: the fabric (the leader) that it sends for; else NULL. The caller opens the TX
     * queue before it makes the leader's pump, and the leader outlives the TX queue. The leader
     * receives the events of the TX queue's queue pair and takes over the TX queue's max_ah. */
    struct ipu_verbs *leader;
};

/* Brings the queue pair to RTS. 0, or negative errno with nothing left behind. */
int ipu_verbs_create(const struct ipu_verbs_config *config, struct ipu_verbs **out);

/* After the queue pair's end: nothing is sent or received any more, and all handles and memory
 * regions end. What of the pump still asks is answered; ipu_verbs_destroy() ends that, too. */
void ipu_verbs_free(struct ipu_verbs *verbs);
void ipu_verbs_destroy(struct ipu_verbs *verbs);

struct ipu_fabric *ipu_verbs_fabric(struct ipu_verbs *verbs);

/* The port's address has changed: the fabric makes every handle anew before its next use. */
void ipu_verbs_rebind(struct ipu_verbs *verbs, const struct in6_addr *gid, uint8_t sgid_index);

/* Breaks the queue pair as a completion error would; the pump recovers it. */
void ipu_verbs_break(struct ipu_verbs *verbs);

/* The context's asynchronous events since the last call, as flags; does not wait. */
enum {
    IPU_VERBS_PORT_DOWN = 1,
    IPU_VERBS_PORT_CHANGED = 2,   /* active again, or another LID or GID */
    IPU_VERBS_FATAL = 4,          /* the device is gone for good */
    IPU_VERBS_PKEYS_CHANGED = 8,  /* another P_Key table */
    IPU_VERBS_SUBNET_CHANGED = 16 /* another subnet manager, or one that has forgotten us */
};
unsigned int ipu_verbs_events(struct ipu_verbs *verbs);

#define IPU_VERBS_COUNTERS(X)                                                                      \
    X(tx_doorbells)        /* calls of ibv_post_send */                                            \
    X(tx_posted)           /* work requests in them */                                             \
    X(tx_signalled)        /* of these, with a completion of their own */                          \
    X(tx_inline)           /* of these, copied into the work request */                            \
    X(tx_too_big)          /* above the port's MTU: refused, rxe would lose them silently */       \
    X(tx_waited)           /* held until their address handle was there */                         \
    X(tx_no_handle)        /* lost: the address handle could not be made, or too many waited */    \
    X(tx_errors)           /* completions in error, flushed ones not counted */                    \
    X(rx_doorbells)        /* calls of ibv_post_recv */                                            \
    X(rx_errors)           /* completions in error, flushed ones not counted */                    \
    X(connected_doorbells) /* calls of ibv_post_send for connections */                            \
    X(connected_posted)    /* messages in them */                                                  \
    X(flushed)             /* work that came back because the queue pair was broken */             \
    X(events)              /* completion events */                                                 \
    X(handles_created)     /* address handles */                                                   \
    X(handles_destroyed)   /* of these */                                                          \
    X(handles_failed)      /* could not be made */                                                 \
    X(recoveries)          /* the queue pair was brought back */

#define IPU_VERBS_COUNTERS_FIELD(name) _Atomic uint64_t name;
#define IPU_VERBS_COUNTERS_ONE(name)   +1
enum { IPU_VERBS_COUNTERS_N = 0 IPU_VERBS_COUNTERS(IPU_VERBS_COUNTERS_ONE) };

/* From any thread; in the order of the names. */
void ipu_verbs_counters(const struct ipu_verbs *verbs, uint64_t values[IPU_VERBS_COUNTERS_N]);
extern const char *const ipu_verbs_counter_names[IPU_VERBS_COUNTERS_N];

#endif
