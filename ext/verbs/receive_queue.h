/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_RECEIVE_QUEUE_H
#define IPU_VERBS_RECEIVE_QUEUE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "fabric/fabric.h"
#include "verbs/regions.h"

/* A queue of receives: a queue pair's own, or one that queue pairs share. Only one thread uses
 * it. */
enum { IPU_RECEIVE_BATCH = 64 }; /* work requests in one chain */

struct ipu_receive_queue {
    struct ibv_qp *qp;
    struct ibv_srq *srq; /* NULL: the queue pair's own */
    uint32_t depth, posted;
};

struct ipu_receives_posted {
    int taken;
    bool refused; /* the device did not take all of them */
};

/* Returns how many of n receives fit now. */
static inline int ipu_receive_queue_room(const struct ipu_receive_queue *queue, int n)
{
    int room = (int)(queue->depth - queue->posted);
    if (n > room)
        n = room;
    return n > IPU_RECEIVE_BATCH ? IPU_RECEIVE_BATCH : n;
}

/* Posts n > 0 receives, for which the queue has room, with one doorbell. */
struct ipu_receives_posted ipu_receive_queue_post(struct ipu_receive_queue *queue,
                                                  const struct ipu_regions *regions,
                                                  const struct ipu_recv *recvs, int n);

#endif
