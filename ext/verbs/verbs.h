/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_H
#define IPU_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "fabric/fabric.h"

/*
 * A UD queue pair of an RDMA device as a fabric. The queue pair, its completion queues and their
 * channel belong to the caller (pyverbs), which destroys the queue pair before ipu_verbs_free() and
 * the rest after it. The fabric posts and polls work, and owns address handles and memory regions.
 *
 * Threads: the pump's thread calls the fabric. Any one other thread may call ipu_verbs_break(),
 * ipu_verbs_rebind() and ipu_verbs_events() at any time, and the other functions while no pump
 * runs.
 */
struct ipu_verbs;

struct ipu_verbs_config {
    struct ibv_qp *qp; /* UD, as created; both completion queues on one completion channel */
    struct in6_addr gid;
    uint32_t mtu;
    uint32_t qkey; /* the link's Q_Key: E6 */
    uint32_t max_ah;
    uint16_t pkey_index;
    uint8_t port;
    uint8_t sgid_index;
    bool resolves;    /* RoCE: to make a unicast address handle, the kernel waits for neighbour
                         discovery */
    bool owns_events; /* the context is ours alone: we read its asynchronous events */
    /* Of a TX queue: the fabric (the leader) that it sends for; else NULL. The caller opens the TX
     * queue before it makes the leader's pump, and the leader outlives the TX queue. The leader
     * receives the events of the TX queue's queue pair and takes over the TX queue's max_ah. */
    struct ipu_verbs *leader;
};

/* Brings the queue pair to RTS. Returns 0, or a negative errno with nothing left behind. */
int ipu_verbs_create(const struct ipu_verbs_config *config, struct ipu_verbs **out);

/* Ends all handles and memory regions, after the queue pair's end: the fabric sends and receives no
 * more. It still answers the pump's calls until ipu_verbs_destroy(). */
void ipu_verbs_free(struct ipu_verbs *verbs);
void ipu_verbs_destroy(struct ipu_verbs *verbs);

struct ipu_fabric *ipu_verbs_fabric(struct ipu_verbs *verbs);

/* The port's address has changed: the fabric makes every handle anew before its next use. */
void ipu_verbs_rebind(struct ipu_verbs *verbs, const struct in6_addr *gid, uint8_t sgid_index);

/* Breaks the queue pair as a completion error would; the pump recovers it. */
void ipu_verbs_break(struct ipu_verbs *verbs);

/* Returns the context's asynchronous events since the last call, as flags; does not wait. */
enum {
    IPU_VERBS_PORT_DOWN = 1,
    IPU_VERBS_PORT_CHANGED = 2,   /* active again, or another LID or GID */
    IPU_VERBS_FATAL = 4,          /* the device is gone for good */
    IPU_VERBS_PKEYS_CHANGED = 8,  /* another P_Key table */
    IPU_VERBS_SUBNET_CHANGED = 16 /* another subnet manager, or one that has forgotten us */
};
unsigned int ipu_verbs_events(struct ipu_verbs *verbs);

#define IPU_VERBS_COUNTERS(X)                                                                      \
    X(tx_doorbells) /* calls of ibv_post_send */                                                   \
    X(tx_posted)    /* work requests in them */                                                    \
    X(tx_signalled) /* of these, with a completion of their own */                                 \
    X(tx_inline)    /* of these, copied into the work request */                                   \
    X(tx_too_big) /* longer than the port's MTU: refused, because rxe would lose them silently */  \
    X(tx_waited)  /* sends that waited for their address handle */                                 \
    X(tx_no_handle)        /* lost: the address handle failed, or too many sends waited */         \
    X(tx_errors)           /* completions in error, without flushed ones */                        \
    X(rx_doorbells)        /* calls of ibv_post_recv */                                            \
    X(rx_errors)           /* completions in error, without flushed ones */                        \
    X(rx_lost)             /* receives that the device took for a message and never completed */   \
    X(connected_doorbells) /* calls of ibv_post_send for connections */                            \
    X(connected_posted)    /* messages in them */                                                  \
    X(flushed)             /* work that came back because the queue pair was broken */             \
    X(events)              /* completion events */                                                 \
    X(handles_created)     /* address handles */                                                   \
    X(handles_destroyed)   /* of these */                                                          \
    X(handles_failed)      /* failed ones */                                                       \
    X(recoveries)          /* times that the queue pair came back */

#define IPU_VERBS_COUNTERS_FIELD(name) _Atomic uint64_t name;
#define IPU_VERBS_COUNTERS_ONE(name)   +1
enum { IPU_VERBS_COUNTERS_N = 0 IPU_VERBS_COUNTERS(IPU_VERBS_COUNTERS_ONE) };

/* Reads the counters, in the order of the names; any thread may call it. */
void ipu_verbs_counters(const struct ipu_verbs *verbs, uint64_t values[IPU_VERBS_COUNTERS_N]);
extern const char *const ipu_verbs_counter_names[IPU_VERBS_COUNTERS_N];

#endif
