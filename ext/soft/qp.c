/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

static bool is_free(struct soft_hca *hca, uint32_t qpn)
{
    return qpn > SOFT_QPN_GSI && qpn < SOFT_QPN_MCAST && soft_qp_find(hca, qpn) == NULL &&
           soft_qp_find_number(hca, qpn) == NULL;
}

/* Returns the wanted number, or the next free one. The loop ends: there are 2^24 numbers for at
 * most SOFT_MAX_QP queue pairs. */
static uint32_t allocate_qpn(struct soft_hca *hca, uint32_t wanted)
{
    uint32_t qpn = wanted;

    while (!is_free(hca, qpn)) {
        qpn = hca->next_qpn;
        hca->next_qpn = (qpn + 1) & SOFT_ROCE_QPN_MASK;
    }
    return qpn;
}

static bool attributes_valid(const struct soft_hca *hca, const struct soft_qp_attr *attr)
{
    bool shared = attr->type == SOFT_QPT_RC && attr->srq != NULL;

    return (attr->type == SOFT_QPT_UD || attr->type == SOFT_QPT_GSI || attr->type == SOFT_QPT_RC) &&
           attr->send_cq != NULL && attr->recv_cq != NULL && attr->send_cq->hca == hca &&
           attr->recv_cq->hca == hca && attr->max_send_wr >= 1 &&
           attr->max_send_wr <= SOFT_MAX_WR && attr->source_qpn <= SOFT_ROCE_QPN_MASK &&
           attr->pkey_index < SOFT_MAX_PKEYS &&
           (shared ? attr->srq->hca == hca
                   : attr->max_recv_wr >= 1 && attr->max_recv_wr <= SOFT_MAX_WR);
}

static void release(struct soft_qp *qp)
{
    free(qp->rc);
    free(qp->sq.ring);
    free(qp->rq.ring);
    free(qp);
}

static struct soft_qp *allocate(struct soft_hca *hca, const struct soft_qp_attr *attr)
{
    struct soft_qp *qp = calloc(1, sizeof(*qp));
    bool rc = attr->type == SOFT_QPT_RC;

    if (qp == NULL)
        return NULL;
    qp->hca = hca;
    qp->transport = rc ? &soft_rc : &soft_ud;
    qp->srq = rc ? attr->srq : NULL;
    qp->type = attr->type;
    qp->qkey = attr->type == SOFT_QPT_GSI ? SOFT_QKEY_GSI : attr->qkey;
    qp->pkey_index = attr->pkey_index;
    qp->send_cq = attr->send_cq;
    qp->recv_cq = attr->recv_cq;
    qp->sq.max = attr->max_send_wr;
    qp->sq.mask = soft_round_up(attr->max_send_wr) - 1;
    qp->sq.ring = calloc(qp->sq.mask + 1, sizeof(*qp->sq.ring));
    if (qp->srq == NULL) {
        qp->rq.max = attr->max_recv_wr;
        qp->rq.mask = soft_round_up(attr->max_recv_wr) - 1;
        qp->rq.ring = calloc(qp->rq.mask + 1, sizeof(*qp->rq.ring));
    }
    qp->psn = soft_random(); /* random, so that no UD receiver relies on it */
    if (qp->sq.ring == NULL || (qp->srq == NULL && qp->rq.ring == NULL) ||
        (rc && soft_rc_create(qp) != 0)) {
        release(qp);
        return NULL;
    }
    return qp;
}

int soft_qp_create(struct soft_hca *hca, const struct soft_qp_attr *attr, struct soft_qp **out)
{
    struct soft_qp *qp;
    int error = 0;

    if (!attributes_valid(hca, attr))
        return -EINVAL;
    qp = allocate(hca, attr);
    if (qp == NULL)
        return -ENOMEM;
    soft_lock_acquire(hca);
    if (attr->type == SOFT_QPT_GSI && soft_qp_find(hca, SOFT_QPN_GSI) != NULL)
        error = -EEXIST;
    else if (hca->qp_count == SOFT_MAX_QP)
        error = -ENOSPC;
    if (error == 0) {
        qp->qpn = attr->type == SOFT_QPT_GSI ? SOFT_QPN_GSI : allocate_qpn(hca, attr->qpn);
        qp->source_qpn = attr->source_qpn != 0 ? attr->source_qpn : qp->qpn;
        hca->qp_count++;
        qp->send_cq->users++;
        qp->recv_cq->users++;
        if (qp->srq != NULL)
            qp->srq->users++;
        LIST_INSERT_HEAD(soft_qp_bucket(hca, qp->qpn), qp, entry);
    }
    soft_lock_release(hca);
    if (error != 0) {
        release(qp);
        return error;
    }
    *out = qp;
    return 0;
}

static void flush(struct soft_qp *qp)
{
    struct soft_wc wc = {.status = SOFT_WC_WR_FLUSH_ERR, .opcode = SOFT_WC_RECV, .qp_num = qp->qpn};

    while (qp->sq.head != qp->sq.tail)
        soft_cq_end_send(qp, SOFT_WC_WR_FLUSH_ERR, true);
    while (qp->rq.head != qp->rq.tail) {
        wc.wr_id = qp->rq.ring[qp->rq.head++ & qp->rq.mask].wr_id;
        if (soft_cq_room(qp->recv_cq) > 0)
            soft_cq_push(qp->recv_cq, &wc);
    }
}

int soft_qp_add_number(struct soft_qp *qp, uint32_t wanted, uint32_t *qpn)
{
    struct soft_hca *hca = qp->hca;
    struct soft_number *number;
    bool full;

    if (qp->type != SOFT_QPT_UD)
        return -EINVAL;
    number = malloc(sizeof(*number));
    if (number == NULL)
        return -ENOMEM;
    number->qp = qp;
    soft_lock_acquire(hca);
    full = hca->qp_count == SOFT_MAX_QP;
    if (!full) {
        *qpn = number->qpn = allocate_qpn(hca, wanted & SOFT_ROCE_QPN_MASK);
        hca->qp_count++;
        SLIST_INSERT_HEAD(&qp->numbers, number, entry);
        LIST_INSERT_HEAD(&hca->numbers[number->qpn % SOFT_QP_BUCKETS], number, hash_entry);
    }
    soft_lock_release(hca);
    if (full)
        free(number);
    return full ? -ENOSPC : 0;
}

static void end_numbers(struct soft_qp *qp)
{
    struct soft_number *number;

    while ((number = SLIST_FIRST(&qp->numbers)) != NULL) {
        SLIST_REMOVE_HEAD(&qp->numbers, entry);
        LIST_REMOVE(number, hash_entry);
        qp->hca->qp_count--;
        free(number);
    }
}

void soft_qp_destroy(struct soft_qp *qp)
{
    struct soft_hca *hca = qp->hca;

    soft_mcast_detach_all(qp);
    soft_lock_acquire(hca);
    LIST_REMOVE(qp, entry);
    hca->qp_count--;
    end_numbers(qp);
    soft_progress_unstall(qp);
    soft_progress_supply(qp);
    if (qp->rc != NULL)
        soft_rc_destroy(qp);
    flush(qp);
    qp->send_cq->users--;
    qp->recv_cq->users--;
    if (qp->srq != NULL)
        qp->srq->users--;
    soft_lock_release(hca);
    release(qp);
}

void soft_qp_lend(struct soft_qp *qp)
{
    soft_lock_acquire(qp->hca);
    qp->lends = qp->type == SOFT_QPT_UD;
    soft_lock_release(qp->hca);
}

uint32_t soft_qp_qpn(const struct soft_qp *qp)
{
    return qp->qpn;
}

/* ---- work requests --------------------------------------------------------------------------- */

/* Returns how many bytes a datagram has on the stage. */
static uint64_t staged_bytes(uint32_t bytes)
{
    return SOFT_ROCE_HEAD_MAX + (uint64_t)bytes + SOFT_ROCE_TAIL_MAX;
}

static bool cut_valid(const struct soft_cut *cut)
{
    return cut->packets >= 1 && cut->packets <= SOFT_CUT_PACKETS && cut->last_bytes <= cut->bytes &&
           cut->packets * staged_bytes(cut->bytes) <= SOFT_CUT_BYTES;
}

static bool send_valid(const struct soft_qp *qp, const struct soft_send_wr *wr)
{
    if (qp->rc != NULL)
        return soft_rc_may_send(qp, wr);
    return wr->ah != NULL && wr->ah->hca == qp->hca &&
           (wr->flags & SOFT_SEND_CUT ? cut_valid(&wr->cut) : wr->num_sge <= SOFT_MAX_SGE) &&
           wr->remote_qpn <= SOFT_ROCE_QPN_MASK && wr->source_qpn <= SOFT_ROCE_QPN_MASK;
}

static void enqueue_send(struct soft_qp *qp, const struct soft_send_wr *wr)
{
    struct soft_send_wqe *wqe = &qp->sq.ring[qp->sq.tail++ & qp->sq.mask];
    bool cut = wr->flags & SOFT_SEND_CUT;
    uint64_t bytes = 0; /* 64 bits, because four times 2^32 - 1 must not look small */

    for (int i = 0; i < (cut ? 0 : wr->num_sge); i++)
        bytes += wr->sg[i].length;
    if (cut)
        bytes = (uint64_t)(wr->cut.packets - 1) * wr->cut.bytes + wr->cut.last_bytes;
    wqe->wr = *wr;
    wqe->packets = cut ? (uint8_t)wr->cut.packets : 1;
    wqe->left = 0;
    wqe->bytes = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
    wqe->status = SOFT_WC_SUCCESS;
    wqe->sent = false;
    if (qp->rc != NULL) {
        wqe->wr.ah = NULL;
        soft_rc_number(qp, wqe);
        return;
    }
    if ((cut ? wr->cut.bytes : bytes) > qp->hca->attr.datagram_bytes)
        wqe->status = SOFT_WC_LOC_LEN_ERR;
    wr->ah->references++;
}

int soft_qp_post_send(struct soft_qp *qp, const struct soft_send_wr *wr, int n)
{
    struct soft_send_queue *sq = &qp->sq;
    int accepted = 0;

    soft_lock_acquire(qp->hca);
    while (accepted < n && sq->tail - sq->head < sq->max && send_valid(qp, &wr[accepted]))
        enqueue_send(qp, &wr[accepted++]);
    if (accepted == 0 && n > 0 && sq->tail - sq->head < sq->max)
        accepted = -EINVAL;
    else
        soft_progress_send(qp);
    soft_lock_release(qp->hca);
    return accepted;
}

static bool recv_valid(const struct soft_recv_wr *wr)
{
    return wr->num_sge <= SOFT_MAX_SGE;
}

int soft_qp_post_recv(struct soft_qp *qp, const struct soft_recv_wr *wr, int n)
{
    struct soft_recv_queue *rq = &qp->rq;
    int accepted = 0;

    soft_lock_acquire(qp->hca);
    if (qp->rc != NULL && !soft_rc_may_receive(qp)) {
        soft_lock_release(qp->hca);
        return -EINVAL;
    }
    while (accepted < n && rq->tail - rq->head < rq->max && recv_valid(&wr[accepted]))
        rq->ring[rq->tail++ & rq->mask] = wr[accepted++];
    if (accepted == 0 && n > 0 && rq->tail - rq->head < rq->max)
        accepted = -EINVAL;
    if (accepted > 0)
        soft_progress_supply(qp);
    if (qp->rc != NULL)
        soft_progress_send(qp); /* flushes in the error state */
    soft_lock_release(qp->hca);
    return accepted;
}
