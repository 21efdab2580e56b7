/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "objects.h"

/* Creates a queue in the channel of `other`, or, without one, in a channel of its own. */
static int create(struct soft_hca *hca, struct soft_cq *other, unsigned int depth,
                  struct soft_cq **out)
{
    struct soft_cq *cq;
    int error;

    if (depth < 1 || depth > SOFT_MAX_CQE)
        return -EINVAL;
    cq = calloc(1, sizeof(*cq));
    if (cq == NULL)
        return -ENOMEM;
    cq->hca = hca;
    cq->depth = depth;
    cq->mask = soft_round_up(depth) - 1;
    cq->ring = calloc(cq->mask + 1, sizeof(*cq->ring));
    error = cq->ring == NULL ? -ENOMEM : 0;
    if (error == 0 && other == NULL)
        error = soft_channel_create(hca, &cq->channel);
    if (error != 0) {
        free(cq->ring);
        free(cq);
        return error;
    }
    soft_lock_acquire(hca);
    if (other != NULL) {
        cq->channel = other->channel;
        cq->channel->users++;
    }
    LIST_INSERT_HEAD(&hca->cqs, cq, entry);
    soft_lock_release(hca);
    *out = cq;
    return 0;
}

int soft_cq_create(struct soft_hca *hca, unsigned int depth, struct soft_cq **out)
{
    return create(hca, NULL, depth, out);
}

int soft_cq_create_beside(struct soft_cq *other, unsigned int depth, struct soft_cq **out)
{
    return create(other->hca, other, depth, out);
}

int soft_cq_destroy(struct soft_cq *cq)
{
    struct soft_hca *hca = cq->hca;

    soft_lock_acquire(hca);
    if (cq->users > 0) {
        soft_lock_release(hca);
        return -EBUSY;
    }
    if (cq->lent > 0)
        soft_progress_unlend(hca, cq->lent);
    LIST_REMOVE(cq, entry);
    soft_channel_release(cq->channel);
    soft_lock_release(hca);
    free(cq->ring);
    free(cq);
    return 0;
}

void soft_cq_push(struct soft_cq *cq, const struct soft_wc *wc)
{
    cq->ring[cq->tail++ & cq->mask] = *wc;
}

void soft_cq_push_lent(struct soft_cq *cq, const struct soft_wc *wc)
{
    soft_cq_push(cq, wc);
    cq->lent++;
    cq->hca->lent++;
}

/* Gives the packets back that the consumer borrowed by its last poll. */
static void give_back(struct soft_cq *cq)
{
    if (cq->lent_taken == 0)
        return;
    cq->lent -= cq->lent_taken;
    soft_progress_unlend(cq->hca, cq->lent_taken);
    cq->lent_taken = 0;
}

void soft_cq_end_send(struct soft_qp *qp, enum soft_wc_status status, bool signalled)
{
    const struct soft_send_wqe *wqe = &qp->sq.ring[qp->sq.head++ & qp->sq.mask];
    struct soft_wc wc = {
        .wr_id = wqe->wr.wr_id,
        .byte_len = wqe->bytes,
        .qp_num = qp->qpn,
        .status = (uint8_t)status,
        .opcode = SOFT_WC_SEND,
    };

    if (wqe->wr.ah != NULL)
        soft_ah_release(wqe->wr.ah);
    if (signalled && soft_cq_room(qp->send_cq) > 0)
        soft_cq_push(qp->send_cq, &wc);
}

static int take(struct soft_cq *cq, int n, struct soft_wc *wc)
{
    int taken = 0;

    while (taken < n && cq->head != cq->tail) {
        wc[taken] = cq->ring[cq->head++ & cq->mask];
        cq->lent_taken += (wc[taken++].flags & SOFT_WC_LENT) != 0;
    }
    return taken;
}

int soft_cq_poll(struct soft_cq *cq, int n, struct soft_wc *wc)
{
    struct soft_hca *hca = cq->hca;
    int taken;

    soft_lock_acquire(hca);
    give_back(cq);
    taken = take(cq, n, wc);
    soft_progress_retry(hca);
    if (taken < n) {
        soft_progress_receive(hca, cq, (unsigned int)(n - taken));
        taken += take(cq, n - taken, wc + taken);
    }
    soft_lock_release(hca);
    return taken;
}

int soft_cq_take(struct soft_cq *cq, int n, struct soft_wc *wc)
{
    int taken;

    soft_lock_acquire(cq->hca);
    taken = take(cq, n, wc);
    soft_lock_release(cq->hca);
    return taken;
}
