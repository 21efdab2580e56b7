/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "crc32.h"
#include "icrc.h"
#include "rc.h"

/*
 * The responder. It accepts only the packet with the expected PSN, answers a gap with a sequence
 * NAK, and acknowledges a duplicate packet again. It defers acknowledgements to the end of the
 * batch, because the last acknowledgement of a batch covers all packets before it.
 */

/* ---- answers --------------------------------------------------------------------------------- */

static void schedule_ack(struct soft_rc *rc)
{
    if (rc->pending_ack == SOFT_RC_ACK_NONE)
        rc->pending_ack = SOFT_RC_ACK_PENDING;
    soft_rc_want_service(rc);
}

static size_t pack_ack(const struct soft_rc *rc, uint8_t *head)
{
    bool nak = rc->pending_ack == SOFT_RC_NAK_PENDING;
    struct soft_roce roce = {
        .opcode = SOFT_ROCE_RC_ACK,
        .pkey = soft_rc_pkey(rc),
        .dest_qpn = rc->attr.dest_qpn,
        .psn = nak ? rc->expected : soft_psn_add(rc->expected, SOFT_PSN_MASK),
        .syndrome = nak ? rc->nak_syndrome : SOFT_SYNDROME_ACK | SOFT_ACK_NO_CREDITS,
        .msn = rc->msn,
    };

    return soft_roce_pack(head, &roce);
}

bool soft_rc_fill_ack(struct soft_rc *rc)
{
    struct soft_udp *udp = rc->qp->hca->udp;
    struct soft_udp_slot *slot = soft_udp_reserve(udp);
    size_t head_bytes;
    uint32_t crc;

    if (slot == NULL)
        return false;
    head_bytes = pack_ack(rc, slot->head);
    slot->dest = &rc->dest;
    slot->outlet = rc->outlet;
    slot->bytes = (unsigned int)(head_bytes + SOFT_ICRC_BYTES);
    slot->head[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc = soft_crc32_update(soft_rc_seed(rc, slot->bytes), slot->head, head_bytes);
    slot->head[SOFT_ROCE_MASKED_BYTE] = 0;
    soft_roce_put32le(slot->tail, crc);
    slot->iov[0] = (struct iovec){.iov_base = slot->head, .iov_len = head_bytes};
    slot->iov[1] = (struct iovec){.iov_base = slot->tail, .iov_len = SOFT_ICRC_BYTES};
    slot->iov_count = 2;
    soft_udp_commit(udp);
    return true;
}

void soft_rc_ack_sent(struct soft_rc *rc)
{
    rc->pending_ack = SOFT_RC_ACK_NONE;
    soft_count_add(&rc->qp->hca->count, SOFT_C_RC_ACKS, 1);
    soft_count_add(&rc->qp->hca->count, SOFT_C_TX_PACKETS, 1);
}

enum soft_stall soft_rc_send_ack(struct soft_rc *rc)
{
    struct soft_hca *hca = rc->qp->hca;
    int reason;

    if (rc->local) {
        size_t at = pack_ack(rc, hca->loop);

        memset(hca->loop + at, 0, SOFT_ICRC_BYTES);
        soft_rc_ack_sent(rc);
        soft_rc_loop(rc, at + SOFT_ICRC_BYTES);
        return SOFT_STALL_NONE;
    }
    if (hca->udp == NULL) {
        soft_count_add(&hca->count, SOFT_C_TX_UNREACHABLE, 1);
        soft_rc_ack_sent(rc);
        return SOFT_STALL_NONE;
    }
    (void)soft_rc_fill_ack(rc); /* never full: the batch is empty between calls */
    if (soft_udp_send(hca->udp, &reason) == 0)
        return reason == EAGAIN ? SOFT_STALL_SOCKET : SOFT_STALL_MEMORY;
    soft_rc_ack_sent(rc);
    return SOFT_STALL_NONE;
}

/* No responder can serve the request: sends NAK "invalid request" and ends the connection. */
static void refuse(struct soft_rc *rc)
{
    soft_count_add(&rc->qp->hca->count, SOFT_C_RC_REFUSALS, 1);
    soft_rc_schedule_nak(rc, SOFT_SYNDROME_NAK | SOFT_NAK_INVALID);
    soft_rc_fail(rc);
}

static void not_ready(struct soft_rc *rc)
{
    soft_count_add(&rc->qp->hca->count, SOFT_C_RC_NOT_READY, 1);
    soft_rc_schedule_nak(rc, SOFT_SYNDROME_RNR | rc->attr.min_rnr_timer);
    rc->last_nak = SOFT_RC_LAST_NAK_RNR;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool begin_message(struct soft_rc *rc, bool single)
{
    struct soft_qp *qp = rc->qp;
    struct soft_recv_queue *rq = &qp->rq;
    const struct soft_recv_wr *wr;

    if (qp->srq != NULL && !single && !soft_rc_take_share(rc))
        return false;
    if (qp->srq != NULL)
        wr = soft_srq_take(qp->srq);
    else
        wr = rq->head == rq->tail ? NULL : &rq->ring[rq->head++ & rq->mask];
    if (wr == NULL) {
        soft_rc_return_share(rc);
        return false;
    }
    rc->in = *wr;
    rc->in_room = 0;
    for (int i = 0; i < wr->num_sge; i++)
        rc->in_room += wr->sg[i].length;
    rc->in_bytes = 0;
    rc->in_sge = 0;
    rc->in_offset = 0;
    rc->in_status = SOFT_WC_WR_FLUSH_ERR;
    rc->receiving = true;
    return true;
}

/* The caller has checked that the buffers have room for `bytes`. The data may be in its place. */
static void scatter(struct soft_rc *rc, const uint8_t *data, size_t bytes)
{
    rc->in_bytes += (uint32_t)bytes;
    while (bytes > 0) {
        const struct soft_sge *sge = &rc->in.sg[rc->in_sge];
        size_t room = sge->length - rc->in_offset;
        size_t n = bytes < room ? bytes : room;
        uint8_t *to = (uint8_t *)sge->addr + rc->in_offset;

        if (n > 0 && data != to)
            memcpy(to, data, n);
        data += n;
        bytes -= n;
        rc->in_offset += (uint32_t)n;
        if (rc->in_offset == sge->length) {
            rc->in_sge++;
            rc->in_offset = 0;
        }
    }
}

static void complete_message(struct soft_rc *rc, enum soft_wc_status status,
                             const struct soft_roce *roce)
{
    struct soft_wc wc = {
        .wr_id = rc->in.wr_id,
        .byte_len = rc->in_bytes,
        .qp_num = rc->qp->qpn,
        .src_qp = rc->attr.dest_qpn,
        .imm_data = roce != NULL ? roce->imm_data : 0,
        .pkey_index = rc->qp->pkey_index,
        .status = (uint8_t)status,
        .opcode = SOFT_WC_RECV,
        .flags = roce != NULL && roce->has_imm ? SOFT_WC_WITH_IMM : 0,
    };

    soft_cq_push(rc->qp->recv_cq, &wc);
    rc->receiving = false;
    soft_rc_return_share(rc);
}

bool soft_rc_flush_receives(struct soft_rc *rc)
{
    struct soft_qp *qp = rc->qp;
    struct soft_recv_queue *rq = &qp->rq;

    while (rc->receiving || rq->head != rq->tail) {
        if (soft_cq_room(qp->recv_cq) == 0)
            return false;
        if (!rc->receiving)
            (void)begin_message(rc, true);
        complete_message(rc, rc->in_status, NULL);
    }
    return true;
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool is_first(uint8_t opcode)
{
    return opcode == SOFT_ROCE_RC_SEND_FIRST || opcode == SOFT_ROCE_RC_SEND_ONLY ||
           opcode == SOFT_ROCE_RC_SEND_ONLY_IMM;
}

static bool is_last(uint8_t opcode)
{
    return opcode >= SOFT_ROCE_RC_SEND_LAST && opcode <= SOFT_ROCE_RC_SEND_ONLY_IMM;
}

/* Checks that we support the opcode, that it fits its place in the message, and that the length is
 * right. */
static bool request_valid(const struct soft_rc *rc, const struct soft_packet *p)
{
    size_t mtu = rc->attr.path_mtu_bytes;
    bool first = is_first(p->roce.opcode), last = is_last(p->roce.opcode);

    if (p->roce.opcode > SOFT_ROCE_RC_SEND_ONLY_IMM || first == rc->receiving)
        return false;
    if (!last)
        return p->payload_bytes == mtu;
    return p->payload_bytes <= mtu && (first || p->payload_bytes > 0);
}

static bool has_room(const struct soft_rc *rc, const struct soft_packet *p)
{
    return rc->in_bytes + p->payload_bytes <= rc->in_room;
}

uint8_t *soft_rc_place(const struct soft_rc *rc, const struct soft_packet *p)
{
    const struct soft_sge *sge;

    if (!rc->receiving || p->roce.psn != rc->expected || p->payload_bytes == 0 ||
        !request_valid(rc, p) || !has_room(rc, p))
        return NULL;
    sge = &rc->in.sg[rc->in_sge];
    return sge->length - rc->in_offset >= p->payload_bytes ? (uint8_t *)sge->addr + rc->in_offset
                                                           : NULL;
}

/* Advances past the expected packet. A pending NAK stays a NAK while we know that a packet is
 * missing before one that came too early. */
static void move_on(struct soft_rc *rc)
{
    rc->expected = soft_psn_add(rc->expected, 1);
    if (rc->pending_ack == SOFT_RC_NAK_PENDING && rc->last_nak == SOFT_RC_LAST_NAK_SEQUENCE &&
        rc->ahead > 0) {
        rc->ahead--;
        return;
    }
    if (rc->pending_ack == SOFT_RC_NAK_PENDING)
        rc->pending_ack = SOFT_RC_ACK_PENDING;
    rc->last_nak = SOFT_RC_LAST_NAK_NONE;
}

static void take_expected(struct soft_rc *rc, const struct soft_packet *p)
{
    struct soft_qp *qp = rc->qp;
    bool last = is_last(p->roce.opcode);

    if (!request_valid(rc, p)) {
        refuse(rc);
        return;
    }
    if ((last && soft_cq_room(qp->recv_cq) == 0) || (!rc->receiving && !begin_message(rc, last))) {
        not_ready(rc);
        return;
    }
    if (!has_room(rc, p)) {
        rc->in_status = SOFT_WC_LOC_LEN_ERR;
        refuse(rc);
        return;
    }
    scatter(rc, p->payload, p->payload_bytes);
    move_on(rc);
    if (last) {
        rc->msn = soft_psn_add(rc->msn, 1);
        soft_count_add(&qp->hca->count, SOFT_C_RX_DELIVERED, 1);
        soft_count_add(&qp->hca->count, SOFT_C_RX_BYTES, rc->in_bytes);
        complete_message(rc, SOFT_WC_SUCCESS, &p->roce);
    }
    if (p->roce.ack_request)
        schedule_ack(rc);
}

void soft_rc_take_request(struct soft_rc *rc, const struct soft_packet *p)
{
    struct soft_count *count = &rc->qp->hca->count;
    uint32_t ahead = soft_psn_distance(p->roce.psn, rc->expected);

    if (ahead == 0) {
        take_expected(rc, p);
    } else if (ahead >= SOFT_PSN_HALF) {
        soft_count_add(count, SOFT_C_RC_DUPLICATES, 1);
        schedule_ack(rc);
    } else if (ahead > SOFT_RC_AHEAD_MAX) {
        soft_count_drop(count, SOFT_C_DROP_WINDOW, &p->ip->src);
    } else {
        soft_count_add(count, SOFT_C_RC_GAPS, 1);
        /* Send one NAK for a gap, and another when the requester has gone back and the fabric has
         * lost the same packet again: then the distance is no larger than before. Without the
         * second NAK only the requester's timer would end the wait. */
        if (rc->last_nak == SOFT_RC_LAST_NAK_NONE ||
            (rc->last_nak == SOFT_RC_LAST_NAK_SEQUENCE && ahead <= rc->ahead)) {
            soft_rc_schedule_nak(rc, SOFT_SYNDROME_NAK | SOFT_NAK_SEQUENCE);
            rc->last_nak = SOFT_RC_LAST_NAK_SEQUENCE;
        }
        rc->ahead = ahead;
    }
}
