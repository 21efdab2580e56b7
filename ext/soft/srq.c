/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "objects.h"

int soft_srq_create(struct soft_hca *hca, unsigned int max_wr, struct soft_srq **out)
{
    struct soft_srq *srq;
    bool full;

    if (max_wr < 1 || max_wr > SOFT_MAX_WR)
        return -EINVAL;
    srq = calloc(1, sizeof(*srq));
    if (srq == NULL)
        return -ENOMEM;
    srq->hca = hca;
    TAILQ_INIT(&srq->receiving);
    srq->rq.max = max_wr;
    srq->rq.mask = soft_round_up(max_wr) - 1;
    srq->rq.ring = calloc(srq->rq.mask + 1, sizeof(*srq->rq.ring));
    if (srq->rq.ring == NULL) {
        free(srq);
        return -ENOMEM;
    }
    soft_lock_acquire(hca);
    full = hca->srq_count == SOFT_MAX_SRQ;
    if (!full) {
        hca->srq_count++;
        LIST_INSERT_HEAD(&hca->srqs, srq, entry);
    }
    soft_lock_release(hca);
    if (full) {
        free(srq->rq.ring);
        free(srq);
        return -ENOSPC;
    }
    *out = srq;
    return 0;
}

int soft_srq_destroy(struct soft_srq *srq)
{
    struct soft_hca *hca = srq->hca;
    bool busy;

    soft_lock_acquire(hca);
    busy = srq->users > 0;
    if (!busy) {
        LIST_REMOVE(srq, entry);
        hca->srq_count--;
    }
    soft_lock_release(hca);
    if (busy)
        return -EBUSY;
    free(srq->rq.ring);
    free(srq);
    return 0;
}

int soft_srq_post_recv(struct soft_srq *srq, const struct soft_recv_wr *wr, int n)
{
    struct soft_recv_queue *rq = &srq->rq;
    int accepted = 0;

    soft_lock_acquire(srq->hca);
    while (accepted < n && rq->tail - rq->head < rq->max && wr[accepted].num_sge <= SOFT_MAX_SGE)
        rq->ring[rq->tail++ & rq->mask] = wr[accepted++];
    if (accepted == 0 && n > 0 && rq->tail - rq->head < rq->max)
        accepted = -EINVAL;
    soft_lock_release(srq->hca);
    return accepted;
}

/* Takes the buffer posted last, which is still in the cache: a shared queue promises no order of
 * its buffers. Oldest first, the queue would use all buffers in turn, and copy long
 * messages to memory that has left the cache. */
const struct soft_recv_wr *soft_srq_take(struct soft_srq *srq)
{
    const struct soft_recv_wr *wr;

    if (srq->rq.head == srq->rq.tail)
        return NULL;
    wr = &srq->rq.ring[--srq->rq.tail & srq->rq.mask];
    srq->hca->drained |= srq->rq.head == srq->rq.tail;
    return wr;
}
