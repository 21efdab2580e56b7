/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * States, timers, and the list of connections with work. The HCA sends nothing while it delivers
 * packets: it lists each connection that has a pending acknowledgement or may go on sending, and
 * serves the list when the call that holds the HCA's mutex releases it. So the HCA answers a batch
 * of packets once.
 */

/* ---- states ---------------------------------------------------------------------------------- */

static void begin(struct soft_rc *rc, struct soft_qp *qp)
{
    *rc = (struct soft_rc){
        .qp = qp,
        .state = SOFT_QPS_RESET,
        .attr = {.path_mtu_bytes = SOFT_MAX_MESSAGE}, /* never 0 */
        .timer_ns = SOFT_RC_NO_TIMER,
    };
}

int soft_rc_create(struct soft_qp *qp)
{
    struct soft_rc *rc = calloc(1, sizeof(*rc));

    if (rc == NULL)
        return -ENOMEM;
    qp->rc = rc;
    begin(rc, qp);
    return 0;
}

static void leave_lists(struct soft_rc *rc)
{
    struct soft_hca *hca = rc->qp->hca;

    if (rc->has_work)
        TAILQ_REMOVE(&hca->work, rc, work_entry);
    rc->has_work = false;
    soft_rc_set_timer(rc, SOFT_RC_NO_TIMER);
    soft_rc_return_share(rc);
}

void soft_rc_destroy(struct soft_qp *qp)
{
    struct soft_rc *rc = qp->rc;

    rc->state = SOFT_QPS_ERR;
    (void)soft_rc_retire(rc);
    (void)soft_rc_flush_receives(rc);
    leave_lists(rc);
}

static void reset(struct soft_rc *rc)
{
    struct soft_qp *qp = rc->qp;

    leave_lists(rc);
    soft_progress_unstall(qp);
    qp->sq.head = qp->sq.tail;
    qp->rq.head = qp->rq.tail;
    begin(rc, qp);
}

static bool mtu_valid(const struct soft_hca *hca, unsigned int bytes)
{
    bool is_of_infiniband = (bytes & (bytes - 1)) == 0 && bytes <= hca->attr.active_mtu_bytes;

    return bytes >= 256 && bytes % 4 == 0 &&
           (is_of_infiniband || bytes <= hca->attr.datagram_bytes);
}

static int ready_to_receive(struct soft_rc *rc, const struct soft_rc_attr *attr)
{
    const struct soft_hca *hca = rc->qp->hca;

    if (attr->dest_qpn <= SOFT_QPN_GSI || attr->dest_qpn >= SOFT_QPN_MCAST ||
        attr->rq_psn > SOFT_PSN_MASK || attr->min_rnr_timer > 31 ||
        !mtu_valid(hca, attr->path_mtu_bytes) || IN6_IS_ADDR_MULTICAST(&attr->path.dgid) ||
        !soft_ah_resolve(hca, &attr->path, &rc->dest))
        return -EINVAL;
    rc->attr = *attr;
    rc->local = memcmp(&attr->path.dgid, &hca->attr.gid, sizeof(hca->attr.gid)) == 0;
    rc->outlet = soft_outlet_of(rc->qp->qpn); /* numbers are given in sequence: an even spread */
    rc->expected = attr->rq_psn;
    rc->state = SOFT_QPS_RTR;
    return 0;
}

static int ready_to_send(struct soft_rc *rc, const struct soft_rc_attr *attr)
{
    if (attr->sq_psn > SOFT_PSN_MASK || attr->timeout > 31 || attr->retry_count > 7 ||
        attr->rnr_retry > 7)
        return -EINVAL;
    rc->attr.sq_psn = attr->sq_psn;
    rc->attr.timeout = attr->timeout;
    rc->attr.retry_count = attr->retry_count;
    rc->attr.rnr_retry = attr->rnr_retry;
    rc->state = SOFT_QPS_RTS;
    soft_rc_start_sending(rc);
    return 0;
}

static int walk(struct soft_rc *rc, enum soft_qp_state state, const struct soft_rc_attr *attr)
{
    switch (state) {
    case SOFT_QPS_RESET:
        reset(rc);
        return 0;
    case SOFT_QPS_INIT:
        if (rc->state != SOFT_QPS_RESET)
            return -EINVAL;
        rc->state = SOFT_QPS_INIT;
        return 0;
    case SOFT_QPS_RTR:
        return rc->state == SOFT_QPS_INIT && attr != NULL ? ready_to_receive(rc, attr) : -EINVAL;
    case SOFT_QPS_RTS:
        return rc->state == SOFT_QPS_RTR && attr != NULL ? ready_to_send(rc, attr) : -EINVAL;
    case SOFT_QPS_ERR:
        soft_rc_fail(rc);
        return 0;
    }
    return -EINVAL;
}

int soft_qp_modify(struct soft_qp *qp, enum soft_qp_state state, const struct soft_rc_attr *attr)
{
    int error;

    if (qp->rc == NULL)
        return -EINVAL;
    soft_lock_acquire(qp->hca);
    error = walk(qp->rc, state, attr);
    soft_lock_release(qp->hca);
    return error;
}

enum soft_qp_state soft_qp_state(const struct soft_qp *qp)
{
    enum soft_qp_state state;

    if (qp->rc == NULL)
        return SOFT_QPS_RTS;
    soft_lock_acquire(qp->hca);
    state = qp->rc->state;
    soft_lock_release(qp->hca);
    return state;
}

uint64_t soft_qp_retransmits(const struct soft_qp *qp)
{
    uint64_t retransmits;

    if (qp->rc == NULL)
        return 0;
    soft_lock_acquire(qp->hca);
    retransmits = qp->rc->retransmits;
    soft_lock_release(qp->hca);
    return retransmits;
}

bool soft_rc_may_send(const struct soft_qp *qp, const struct soft_send_wr *wr)
{
    uint64_t bytes = 0;

    if ((qp->rc->state != SOFT_QPS_RTS && qp->rc->state != SOFT_QPS_ERR) ||
        wr->num_sge > SOFT_MAX_SGE || (wr->flags & SOFT_SEND_CUT))
        return false;
    for (int i = 0; i < wr->num_sge; i++)
        bytes += wr->sg[i].length;
    return bytes <= SOFT_MAX_RC_BYTES;
}

bool soft_rc_may_receive(const struct soft_qp *qp)
{
    return qp->rc->state != SOFT_QPS_RESET && qp->srq == NULL;
}

/* ---- packets --------------------------------------------------------------------------------- */

static bool is_from_peer(const struct soft_rc *rc, const struct soft_packet *p)
{
    return (rc->state == SOFT_QPS_RTR || rc->state == SOFT_QPS_RTS) &&
           memcmp(&p->ip->src, &rc->attr.path.dgid, sizeof(p->ip->src)) == 0;
}

static uint8_t *place(const struct soft_qp *qp, const struct soft_packet *p)
{
    return is_from_peer(qp->rc, p) ? soft_rc_place(qp->rc, p) : NULL;
}

static void receive_packet(struct soft_qp *qp, const struct soft_packet *p)
{
    struct soft_rc *rc = qp->rc;
    struct soft_count *count = &qp->hca->count;

    if (!is_from_peer(rc, p))
        soft_count_drop(count, SOFT_C_DROP_CONNECTION, &p->ip->src);
    else if (p->roce.opcode > SOFT_ROCE_RC_SEND_ONLY_INV)
        soft_count_drop(count, SOFT_C_DROP_OPCODE, &p->ip->src);
    else if (!soft_roce_pkey_match(soft_rc_pkey(rc), p->roce.pkey))
        soft_count_drop(count, SOFT_C_DROP_PKEY, &p->ip->src);
    else if (p->roce.opcode == SOFT_ROCE_RC_ACK)
        soft_rc_take_ack(rc, &p->roce);
    else
        soft_rc_take_request(rc, p);
}

/* ---- service --------------------------------------------------------------------------------- */

/* Sends and completes all that the connection may send and complete now. */
static enum soft_stall serve(struct soft_qp *qp)
{
    struct soft_rc *rc = qp->rc;
    bool retired;

    if (rc->pending_ack != SOFT_RC_ACK_NONE) {
        enum soft_stall stall = soft_rc_send_ack(rc);

        if (stall != SOFT_STALL_NONE)
            return stall;
    }
    retired = soft_rc_retire(rc);
    if (rc->state == SOFT_QPS_ERR)
        return soft_rc_flush_receives(rc) && retired ? SOFT_STALL_NONE : SOFT_STALL_CQ;
    if (!retired)
        return SOFT_STALL_CQ;
    return rc->state == SOFT_QPS_RTS ? soft_rc_transmit(rc) : SOFT_STALL_NONE;
}

/* Sends the acknowledgements of all listed connections, with one system call for each outlet. An
 * acknowledgement that the socket does not accept now stays pending; serve() then decides what to
 * wait for. */
static void acknowledge_all(struct soft_hca *hca)
{
    struct soft_rc *rc = TAILQ_FIRST(&hca->work);

    while (rc != NULL) {
        struct soft_rc *acked = rc;
        unsigned int filled = 0, done;
        int reason;

        for (; rc != NULL; rc = TAILQ_NEXT(rc, work_entry)) {
            if (rc->pending_ack == SOFT_RC_ACK_NONE || rc->local)
                continue;
            if (!soft_rc_fill_ack(rc))
                break;
            filled++;
        }
        if (filled == 0)
            return;
        done = soft_udp_send(hca->udp, &reason);
        for (unsigned int i = 0; i < filled; acked = TAILQ_NEXT(acked, work_entry)) {
            if (acked->pending_ack == SOFT_RC_ACK_NONE || acked->local)
                continue;
            if (soft_udp_sent(hca->udp, i++))
                soft_rc_ack_sent(acked);
        }
        if (done < filled)
            return;
    }
}

static void serve_all(struct soft_hca *hca)
{
    struct soft_rc *rc;

    if (hca->udp != NULL)
        acknowledge_all(hca);
    while ((rc = TAILQ_FIRST(&hca->work)) != NULL) {
        TAILQ_REMOVE(&hca->work, rc, work_entry);
        rc->has_work = false;
        soft_progress_send(rc->qp);
    }
}

/* ---- timers ---------------------------------------------------------------------------------- */

static void expire_timers(struct soft_hca *hca)
{
    struct soft_rc *rc, *next;
    int64_t now_ns;

    if (hca->timer_ns == SOFT_RC_NO_TIMER)
        return;
    now_ns = soft_clock_ns();
    if (now_ns < hca->timer_ns)
        return;
    hca->timer_ns = SOFT_RC_NO_TIMER; /* timers that are set again lower it */
    for (rc = TAILQ_FIRST(&hca->timers); rc != NULL; rc = next) {
        next = TAILQ_NEXT(rc, timer_entry);
        if (rc->timer_ns <= now_ns) {
            soft_rc_set_timer(rc, SOFT_RC_NO_TIMER);
            soft_rc_expire(rc);
        } else if (rc->timer_ns < hca->timer_ns) {
            hca->timer_ns = rc->timer_ns;
        }
    }
}

const struct soft_transport soft_rc = {
    .send = serve,
    .receive = receive_packet,
    .place = place,
};

const struct soft_service soft_rc_service = {
    .serve = serve_all,
    .expire_timers = expire_timers,
};
