/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_RECEIVE_QUEUE_H
#define IPU_VERBS_RECEIVE_QUEUE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "fabric/fabric.h"
#include "verbs/regions.h"

/* A queue of receives: a queue pair's own, or one that queue pairs share. One thread. */
enum { IPU_RECEIVE_BATCH = 64 }; /* work requests in one chain */

struct ipu_receive_queue {
    struct ibv_qp *qp;
    struct ibv_srq *srq; /* NULL: the queue pair's own */
    uint32_t depth, posted;
};

struct ipu_receives_posted {
    int taken;
    bool refused; /* the device did not take them all */
};

/* How many of n can be posted now. */
static inline int ipu_receive_queue_room(const struct ipu_receive_queue *queue, int n)
{
    int room = (int)(queue->depth - queue->posted);
    if (n > room)
        n = room;
    return n > IPU_RECEIVE_BATCH ? IPU_RECEIVE_BATCH : n;
}

/* One doorbell for n > 0 receives, for which there is room. */
struct ipu_receives_posted ipu_receive_queue_post(struct ipu_receive_queue *queue,
                                                  const struct ipu_regions *regions,
                                                  const struct ipu_recv *recvs, int n);

#endif
