/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "crc32.h"
#include "icrc.h"
#include "rc.h"

/*
 * The requester. Packets leave in order and at most a window ahead of the acknowledgements; after a
 * loss the requester sends all packets from the lost one on again (go-back-N), straight from the
 * consumer's memory.
 *
 * The window follows losses as TCP's does: a gap halves it, a timeout sets it to its minimum, and
 * acknowledgements make it grow. The cause of nearly all losses is a socket whose receive buffer is
 * full, and fixed windows of enough connections would fill any buffer.
 */

/* ---- positions in the send queue ------------------------------------------------------------- */

static struct soft_send_wqe *request_at(const struct soft_rc *rc, unsigned int request)
{
    return &rc->qp->sq.ring[request & rc->qp->sq.mask];
}

static void step(const struct soft_rc *rc, struct soft_rc_position *at)
{
    at->psn = soft_psn_add(at->psn, 1);
    at->packet++;
    if (at->packet == soft_rc_packets(rc, request_at(rc, at->request)->bytes)) {
        at->request++;
        at->packet = 0;
    }
}

/* Returns the position of a PSN from `unacked` to `sent_end`. Walks over no more requests than a
 * window holds. */
static struct soft_rc_position find(const struct soft_rc *rc, uint32_t psn)
{
    const struct soft_send_queue *sq = &rc->qp->sq;
    struct soft_rc_position at = {.psn = psn, .request = sq->head};

    if (sq->head == sq->tail)
        return at;
    at.packet = soft_psn_distance(psn, request_at(rc, sq->head)->psn);
    while (at.request != sq->tail) {
        uint32_t packets = soft_rc_packets(rc, request_at(rc, at.request)->bytes);

        if (at.packet < packets)
            break;
        at.packet -= packets;
        at.request++;
    }
    return at;
}

void soft_rc_number(struct soft_qp *qp, struct soft_send_wqe *wqe)
{
    struct soft_rc *rc = qp->rc;

    wqe->psn = rc->post_psn;
    rc->post_psn = soft_psn_add(rc->post_psn, soft_rc_packets(rc, wqe->bytes));
}

static uint32_t in_flight(const struct soft_rc *rc)
{
    return soft_psn_distance(rc->next.psn, rc->unacked);
}

/* ---- packets --------------------------------------------------------------------------------- */

static uint32_t packet_bytes(const struct soft_rc *rc, const struct soft_send_wqe *wqe,
                             uint32_t packet)
{
    uint32_t mtu = rc->attr.path_mtu_bytes;
    uint32_t left = wqe->bytes - packet * mtu;

    return left < mtu ? left : mtu;
}

static uint8_t opcode_of(const struct soft_send_wqe *wqe, bool first, bool last)
{
    bool imm = wqe->wr.flags & SOFT_SEND_WITH_IMM;

    if (!last)
        return first ? SOFT_ROCE_RC_SEND_FIRST : SOFT_ROCE_RC_SEND_MIDDLE;
    if (first)
        return imm ? SOFT_ROCE_RC_SEND_ONLY_IMM : SOFT_ROCE_RC_SEND_ONLY;
    return imm ? SOFT_ROCE_RC_SEND_LAST_IMM : SOFT_ROCE_RC_SEND_LAST;
}

static size_t pack_head(const struct soft_rc *rc, const struct soft_rc_position *at, uint8_t *head)
{
    const struct soft_send_wqe *wqe = request_at(rc, at->request);
    bool last = at->packet + 1 == soft_rc_packets(rc, wqe->bytes);
    struct soft_roce roce = {
        .opcode = opcode_of(wqe, at->packet == 0, last),
        .solicited = last && (wqe->wr.flags & SOFT_SEND_SOLICITED),
        .ack_request = last || (at->packet + 1) % SOFT_RC_ACK_EVERY == 0 ||
                       soft_psn_distance(at->psn, rc->unacked) + 1 == rc->window,
        .pad_bytes = -packet_bytes(rc, wqe, at->packet) & 3,
        .pkey = soft_rc_pkey(rc),
        .dest_qpn = rc->attr.dest_qpn,
        .psn = at->psn,
        .imm_data = wqe->wr.imm_data,
    };

    return soft_roce_pack(head, &roce);
}

/* Puts the consumer's memory from `offset` on into iov; returns the number of entries used. */
static unsigned int gather(const struct soft_send_wr *wr, uint32_t offset, uint32_t bytes,
                           struct iovec *iov)
{
    unsigned int n = 0;

    for (int i = 0; i < wr->num_sge && bytes > 0; i++) {
        const struct soft_sge *sge = &wr->sg[i];
        uint32_t part;

        if (offset >= sge->length) {
            offset -= sge->length;
            continue;
        }
        part = sge->length - offset < bytes ? sge->length - offset : bytes;
        iov[n++] = (struct iovec){.iov_base = (uint8_t *)sge->addr + offset, .iov_len = part};
        offset = 0;
        bytes -= part;
    }
    return n;
}

static void fill_slot(struct soft_rc *rc, const struct soft_rc_position *at,
                      struct soft_udp_slot *slot)
{
    const struct soft_send_wqe *wqe = request_at(rc, at->request);
    uint32_t bytes = packet_bytes(rc, wqe, at->packet);
    size_t head_bytes = pack_head(rc, at, slot->head);
    size_t pad_bytes = -bytes & 3;
    unsigned int n = 1;
    uint32_t crc;

    slot->dest = &rc->dest;
    slot->outlet = rc->outlet;
    slot->bytes = (unsigned int)(head_bytes + bytes + pad_bytes + SOFT_ICRC_BYTES);
    slot->head[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc = soft_crc32_update(soft_rc_seed(rc, slot->bytes), slot->head, head_bytes);
    slot->head[SOFT_ROCE_MASKED_BYTE] = 0;
    slot->iov[0] = (struct iovec){.iov_base = slot->head, .iov_len = head_bytes};
    n += gather(&wqe->wr, at->packet * rc->attr.path_mtu_bytes, bytes, slot->iov + 1);
    for (unsigned int i = 1; i < n; i++)
        crc = soft_crc32_update(crc, slot->iov[i].iov_base, slot->iov[i].iov_len);
    memset(slot->tail, 0, pad_bytes);
    crc = soft_crc32_update(crc, slot->tail, pad_bytes);
    soft_roce_put32le(slot->tail + pad_bytes, crc);
    slot->iov[n++] = (struct iovec){.iov_base = slot->tail, .iov_len = pad_bytes + SOFT_ICRC_BYTES};
    slot->iov_count = n;
}

/* ---- sending --------------------------------------------------------------------------------- */

void soft_rc_start_sending(struct soft_rc *rc)
{
    rc->unacked = rc->sent_end = rc->post_psn = rc->attr.sq_psn;
    rc->next = (struct soft_rc_position){.psn = rc->attr.sq_psn, .request = rc->qp->sq.head};
    rc->first_request = rc->qp->sq.head;
    rc->window = SOFT_RC_WINDOW_START;
    rc->slow_until = SOFT_RC_WINDOW_MAX;
    rc->retries_left = rc->attr.retry_count;
    rc->rnr_left = rc->attr.rnr_retry;
}

/* Returns the time to wait for an acknowledgement: what the consumer asked for, and after several
 * time-outs in a row two and four times as long, the most that volume 1, §9.7.6.1.3 allows. A peer
 * whose program gets no CPU for a second keeps its connection. */
static int64_t ack_wait_ns(const struct soft_rc *rc)
{
    unsigned int missed = rc->attr.retry_count - rc->retries_left;
    unsigned int doublings = missed < 2 ? 0 : missed == 2 ? 1 : 2;

    return (int64_t)SOFT_RC_ACK_BASE_NS << (rc->attr.timeout + doublings);
}

static void start_timer(struct soft_rc *rc)
{
    if (in_flight(rc) == 0 || rc->attr.timeout == 0)
        soft_rc_set_timer(rc, SOFT_RC_NO_TIMER);
    else
        soft_rc_set_timer(rc, soft_clock_ns() + ack_wait_ns(rc));
}

static bool may_send(const struct soft_rc *rc, const struct soft_rc_position *at)
{
    return rc->state == SOFT_QPS_RTS && !rc->paused && at->request != rc->qp->sq.tail &&
           soft_psn_distance(at->psn, rc->unacked) < rc->window;
}

/* Advances `next`, whose packet is on the wire, or lost on the way. */
static void sent(struct soft_rc *rc)
{
    const struct soft_send_wqe *wqe = request_at(rc, rc->next.request);
    struct soft_count *count = &rc->qp->hca->count;

    soft_count_add(count, SOFT_C_TX_PACKETS, 1);
    soft_count_add(count, SOFT_C_TX_BYTES, packet_bytes(rc, wqe, rc->next.packet));
    if (rc->next.psn == rc->sent_end) {
        rc->sent_end = soft_psn_add(rc->sent_end, 1);
    } else {
        soft_count_add(count, SOFT_C_RC_RETRANSMITS, 1);
        rc->retransmits++;
    }
    step(rc, &rc->next);
}

/* Sends batches as far as the window allows; the rest follows when the socket has room. */
static enum soft_stall send_batches(struct soft_rc *rc)
{
    struct soft_udp *udp = rc->qp->hca->udp;

    while (may_send(rc, &rc->next)) {
        struct soft_rc_position at = rc->next;
        unsigned int filled = 0, done;
        int reason;

        while (may_send(rc, &at)) {
            struct soft_udp_slot *slot = soft_udp_reserve(udp);

            if (slot == NULL)
                break;
            fill_slot(rc, &at, slot);
            soft_udp_commit(udp);
            step(rc, &at);
            filled++;
        }
        done = soft_udp_send(udp, &reason);
        for (unsigned int i = 0; i < done; i++)
            sent(rc);
        if (done < filled)
            return reason == EAGAIN ? SOFT_STALL_SOCKET : SOFT_STALL_MEMORY;
    }
    return SOFT_STALL_NONE;
}

/* Delivers one packet after the other, because the peer, which may be this very QP, changes the
 * state meanwhile. */
static void loop_packets(struct soft_rc *rc)
{
    uint8_t *loop = rc->qp->hca->loop;

    while (may_send(rc, &rc->next)) {
        const struct soft_send_wqe *wqe = request_at(rc, rc->next.request);
        uint32_t bytes = packet_bytes(rc, wqe, rc->next.packet);
        size_t at = pack_head(rc, &rc->next, loop);
        size_t tail_bytes = (-bytes & 3) + SOFT_ICRC_BYTES;
        struct iovec iov[SOFT_MAX_SGE];
        unsigned int n = gather(&wqe->wr, rc->next.packet * rc->attr.path_mtu_bytes, bytes, iov);

        for (unsigned int i = 0; i < n; i++) {
            memcpy(loop + at, iov[i].iov_base, iov[i].iov_len);
            at += iov[i].iov_len;
        }
        memset(loop + at, 0, tail_bytes);
        sent(rc);
        soft_rc_loop(rc, at + tail_bytes);
    }
}

enum soft_stall soft_rc_transmit(struct soft_rc *rc)
{
    enum soft_stall stall = SOFT_STALL_NONE;

    if (rc->local) {
        loop_packets(rc);
    } else if (rc->qp->hca->udp != NULL) {
        stall = send_batches(rc);
    } else {
        while (may_send(rc, &rc->next)) { /* without a device: lost, as without a cable */
            soft_count_add(&rc->qp->hca->count, SOFT_C_TX_UNREACHABLE, 1);
            sent(rc);
        }
    }
    if (rc->state == SOFT_QPS_RTS && !rc->has_timer && in_flight(rc) > 0)
        start_timer(rc);
    return stall;
}

/* ---- completing ------------------------------------------------------------------------------ */

bool soft_rc_retire(struct soft_rc *rc)
{
    struct soft_qp *qp = rc->qp;

    while (qp->sq.head != qp->sq.tail) {
        const struct soft_send_wqe *wqe = request_at(rc, qp->sq.head);
        uint32_t acked = soft_psn_distance(rc->unacked, wqe->psn);
        enum soft_wc_status status = SOFT_WC_SUCCESS;
        bool completes = wqe->wr.flags & SOFT_SEND_SIGNALED;

        if (rc->flushing || acked < soft_rc_packets(rc, wqe->bytes)) {
            if (rc->state != SOFT_QPS_ERR)
                break;
            rc->flushing = true; /* the PSNs of later requests may be at any distance */
            status = wqe->status != SOFT_WC_SUCCESS ? wqe->status : SOFT_WC_WR_FLUSH_ERR;
            completes = true;
        }
        if (completes && soft_cq_room(qp->send_cq) == 0)
            return false;
        soft_cq_end_send(qp, status, completes);
    }
    return true;
}

/* Fails the first request without an acknowledgement, and flushes the requests behind it. */
static void fail(struct soft_rc *rc, enum soft_wc_status status)
{
    struct soft_rc_position at = find(rc, rc->unacked);

    if (at.request != rc->qp->sq.tail)
        request_at(rc, at.request)->status = (uint8_t)status;
    soft_rc_fail(rc);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

static void grow_window(struct soft_rc *rc, uint32_t acked)
{
    if (rc->window < rc->slow_until) {
        rc->window += acked;
    } else {
        rc->grown += acked;
        if (rc->grown >= rc->window) {
            rc->grown = 0;
            rc->window++;
        }
    }
    if (rc->window > SOFT_RC_WINDOW_MAX)
        rc->window = SOFT_RC_WINDOW_MAX;
}

static void shrink_window(struct soft_rc *rc, unsigned int to)
{
    rc->slow_until = rc->window / 2 > SOFT_RC_WINDOW_MIN ? rc->window / 2 : SOFT_RC_WINDOW_MIN;
    rc->window = to > SOFT_RC_WINDOW_MIN ? to : SOFT_RC_WINDOW_MIN;
    rc->grown = 0;
}

static void advance(struct soft_rc *rc, uint32_t acked)
{
    if (acked == 0)
        return;
    rc->unacked = soft_psn_add(rc->unacked, acked);
    if (in_flight(rc) >= SOFT_PSN_HALF) /* we had gone back, and an earlier copy has arrived */
        rc->next = find(rc, rc->unacked);
    rc->retries_left = rc->attr.retry_count;
    rc->rnr_left = rc->attr.rnr_retry;
    grow_window(rc, acked);
    if (!rc->paused)
        start_timer(rc);
    (void)soft_rc_retire(rc); /* now, so that the poll that received the acknowledgement sees it */
    soft_rc_want_service(rc);
}

/* Volume 1, table 45: code 0 is the longest time; the other times grow by a half and a third in
 * turn. */
static int64_t rnr_ns(unsigned int code)
{
    static const uint32_t us[32] = {
        655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,    320,
        480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
        20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
    };

    return (int64_t)us[code] * 1000;
}

/* Handles a NAK for a gap, which costs no retry: where the fabric loses one packet of five, and
 * some overtake others, gaps would use up seven retries although most are no loss. The timer runs
 * on, and only progress starts it again; so a gap that never closes ends the connection after as
 * long a time as silence does.
 */
static void take_gap(struct soft_rc *rc, uint32_t psn)
{
    if (rc->paused || rc->next.psn == psn)
        return; /* we went back already */
    rc->next = find(rc, psn);
    shrink_window(rc, rc->window / 2);
    soft_rc_want_service(rc);
}

/* Returns the time to wait for a peer without buffers: four times as long after each refusal in a
 * row, so that six retries of 0.64 ms outlast a consumer that gets no CPU for 0.8 s. Volume 1,
 * §9.7.5.2.8 demands a time of at least what the peer says. */
static int64_t pause_ns(const struct soft_rc *rc, unsigned int code)
{
    unsigned int refused = rc->attr.rnr_retry - rc->rnr_left;
    int64_t base_ns = rnr_ns(code), longer_ns = base_ns << 2 * refused;

    if (longer_ns < SOFT_RC_PAUSE_MAX_NS)
        return longer_ns;
    return base_ns > SOFT_RC_PAUSE_MAX_NS ? base_ns : SOFT_RC_PAUSE_MAX_NS;
}

static void take_not_ready(struct soft_rc *rc, uint32_t psn, unsigned int code)
{
    if (rc->paused)
        return;
    if (rc->rnr_left == 0) {
        fail(rc, SOFT_WC_RNR_RETRY_EXC_ERR);
        return;
    }
    rc->next = find(rc, psn);
    rc->paused = true;
    soft_rc_set_timer(rc, soft_clock_ns() + pause_ns(rc, code));
    if (rc->attr.rnr_retry != SOFT_RC_RNR_FOR_EVER)
        rc->rnr_left--;
}

static enum soft_wc_status status_of_nak(unsigned int code)
{
    switch (code) {
    case SOFT_NAK_INVALID:
        return SOFT_WC_REM_INV_REQ_ERR;
    case SOFT_NAK_ACCESS:
        return SOFT_WC_REM_ACCESS_ERR;
    default:
        return SOFT_WC_REM_OP_ERR;
    }
}

/* Returns whether the MSN counts a message between the oldest that we keep and the newest that the
 * consumer posted. A host that does not see the connection's packets has to guess the MSN, too.
 * The bounds leave room for a responder that acknowledges a message before it counts the
 * message. */
static bool msn_fits(const struct soft_rc *rc, uint32_t msn)
{
    const struct soft_send_queue *sq = &rc->qp->sq;

    return soft_psn_distance(msn, sq->head - rc->first_request) <= sq->tail - sq->head;
}

void soft_rc_take_ack(struct soft_rc *rc, const struct soft_roce *ack)
{
    unsigned int kind = ack->syndrome & ~SOFT_SYNDROME_VALUE;
    unsigned int value = ack->syndrome & SOFT_SYNDROME_VALUE;
    uint32_t end = kind == SOFT_SYNDROME_ACK ? soft_psn_add(ack->psn, 1) : ack->psn;
    uint32_t acked = soft_psn_distance(end, rc->unacked);
    uint32_t outstanding = soft_psn_distance(rc->sent_end, rc->unacked);

    if (rc->state == SOFT_QPS_RTS && acked >= SOFT_PSN_HALF)
        return; /* a later acknowledgement overtook it */
    if (rc->state != SOFT_QPS_RTS || acked > outstanding || !msn_fits(rc, ack->msn) ||
        (kind == SOFT_SYNDROME_NAK && value > SOFT_NAK_OPERATION) ||
        (kind != SOFT_SYNDROME_ACK && kind != SOFT_SYNDROME_RNR && kind != SOFT_SYNDROME_NAK)) {
        soft_count_drop(&rc->qp->hca->count, SOFT_C_DROP_WINDOW, &rc->attr.path.dgid);
        return;
    }
    advance(rc, acked); /* a refusal acknowledges all earlier packets */
    if (kind == SOFT_SYNDROME_ACK || acked == outstanding)
        return;
    if (kind == SOFT_SYNDROME_RNR)
        take_not_ready(rc, end, value);
    else if (value == SOFT_NAK_SEQUENCE)
        take_gap(rc, end);
    else
        fail(rc, status_of_nak(value));
}

void soft_rc_expire(struct soft_rc *rc)
{
    if (rc->state != SOFT_QPS_RTS)
        return;
    soft_rc_want_service(rc);
    if (rc->paused) {
        rc->paused = false;
        return;
    }
    soft_count_add(&rc->qp->hca->count, SOFT_C_RC_TIMEOUTS, 1);
    if (rc->retries_left == 0) {
        fail(rc, SOFT_WC_RETRY_EXC_ERR);
        return;
    }
    rc->retries_left--;
    rc->next = find(rc, rc->unacked);
    shrink_window(rc, SOFT_RC_WINDOW_MIN);
}
