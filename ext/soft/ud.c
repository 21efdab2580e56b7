/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "crc32.h"
#include "icrc.h"
#include "objects.h"

/*
 * The unreliable datagram transport, and QP1, which is the same with a fixed Q_Key and a P_Key per
 * packet. A message is one packet; there are no acknowledgements, and a receiver drops and counts
 * the packets that it cannot take.
 */

/* ---- sending --------------------------------------------------------------------------------- */

static uint16_t pkey_at(const struct soft_hca *hca, unsigned int index)
{
    return index < hca->pkey_count ? hca->pkey[index] : 0; /* 0 matches nothing */
}

/* Writes BTH and DETH for the packet with `bytes` of payload that comes `ahead` packets after the
 * next; returns their length. */
static size_t pack_head(const struct soft_qp *qp, const struct soft_send_wqe *wqe, uint32_t ahead,
                        uint32_t bytes, uint8_t *head)
{
    const struct soft_send_wr *wr = &wqe->wr;
    struct soft_roce roce = {
        .opcode = wr->flags & SOFT_SEND_WITH_IMM ? SOFT_ROCE_UD_SEND_IMM : SOFT_ROCE_UD_SEND,
        .solicited = wr->flags & SOFT_SEND_SOLICITED,
        .pad_bytes = -bytes & 3,
        .pkey = pkey_at(qp->hca, qp->type == SOFT_QPT_GSI ? wr->pkey_index : qp->pkey_index),
        .dest_qpn = wr->remote_qpn,
        .psn = qp->psn + ahead,
        .qkey = wr->remote_qkey & SOFT_QKEY_OWN ? qp->qkey : wr->remote_qkey,
        .src_qpn = wr->source_qpn != 0 ? wr->source_qpn : qp->source_qpn,
        .imm_data = wr->imm_data,
    };

    return soft_roce_pack(head, &roce);
}

static uint32_t icrc_seed(struct soft_ah *ah, unsigned int outlet, size_t packet_bytes)
{
    if (ah->seed_bytes != packet_bytes) {
        ah->seed_bytes = (uint16_t)packet_bytes;
        ah->icrc_seed = soft_icrc_seed(&ah->hca->attr.gid, &ah->dest.gid, SOFT_UDP_PORT,
                                       SOFT_UDP_PORT, ah->seed_bytes);
    }
    return ah->icrc_seed ^ ah->hca->outlet_seed[outlet];
}

/* Makes the packet of one request in a slot of the batch: head, the caller's data, padding and
 * ICRC. It copies short data in front behind the head, because a further piece costs the kernel
 * more time.
 */
static void fill_slot(const struct soft_qp *qp, const struct soft_send_wqe *wqe, uint32_t ahead,
                      struct soft_udp_slot *slot)
{
    const struct soft_sge *sge = wqe->wr.sg;
    const struct soft_sge *end = sge + wqe->wr.num_sge;
    size_t head_bytes = pack_head(qp, wqe, ahead, wqe->bytes, slot->head);
    size_t pad_bytes = -wqe->bytes & 3;
    unsigned int n = 0;
    uint8_t *tail;
    uint32_t crc;

    slot->dest = &wqe->wr.ah->dest;
    slot->outlet = soft_outlet_of(wqe->wr.flow);
    slot->bytes = (unsigned int)(head_bytes + wqe->bytes + pad_bytes + SOFT_ICRC_BYTES);
    for (; sge < end && head_bytes + sge->length <= SOFT_UDP_HEAD_MAX; sge++) {
        if (sge->length > 0)
            memcpy(slot->head + head_bytes, sge->addr, sge->length);
        head_bytes += sge->length;
    }
    tail = sge == end ? slot->head + head_bytes : slot->tail;
    slot->head[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc =
        soft_crc32_update(icrc_seed(wqe->wr.ah, slot->outlet, slot->bytes), slot->head, head_bytes);
    slot->head[SOFT_ROCE_MASKED_BYTE] = 0;
    slot->iov[n++] = (struct iovec){.iov_base = slot->head, .iov_len = head_bytes};
    for (; sge < end; sge++) {
        crc = soft_crc32_update(crc, sge->addr, sge->length);
        slot->iov[n++] = (struct iovec){.iov_base = sge->addr, .iov_len = sge->length};
    }
    memset(tail, 0, pad_bytes);
    crc = soft_crc32_update(crc, tail, pad_bytes);
    soft_roce_put32le(tail + pad_bytes, crc);
    if (tail != slot->tail)
        slot->iov[0].iov_len += pad_bytes + SOFT_ICRC_BYTES;
    else
        slot->iov[n++] = (struct iovec){.iov_base = tail, .iov_len = pad_bytes + SOFT_ICRC_BYTES};
    slot->iov_count = n;
}

static uint32_t payload_bytes(const struct soft_send_wqe *wqe, uint32_t k)
{
    if (!(wqe->wr.flags & SOFT_SEND_CUT))
        return wqe->bytes;
    return k + 1 < wqe->packets ? wqe->wr.cut.bytes : wqe->wr.cut.last_bytes;
}

/* Makes packet k of a request with a cut on the stage: one piece, which continues that of the
 * packet before. */
static void stage_packet(const struct soft_qp *qp, const struct soft_send_wqe *wqe, uint32_t k,
                         uint32_t ahead, struct soft_udp_slot *slot)
{
    const struct soft_cut *cut = &wqe->wr.cut;
    struct soft_hca *hca = qp->hca;
    uint8_t *at = hca->stage + hca->staged_bytes;
    uint32_t bytes = payload_bytes(wqe, k);
    size_t n = pack_head(qp, wqe, ahead, bytes, at);
    size_t pad_bytes = -bytes & 3;

    n += cut->make(cut->context, k, at + n);
    memset(at + n, 0, pad_bytes);
    n += pad_bytes;
    slot->dest = &wqe->wr.ah->dest;
    slot->outlet = soft_outlet_of(wqe->wr.flow);
    slot->bytes = (unsigned int)(n + SOFT_ICRC_BYTES);
    slot->staged = true;
    at[SOFT_ROCE_MASKED_BYTE] = 0xff;
    soft_roce_put32le(at + n,
                      soft_crc32_update(icrc_seed(wqe->wr.ah, slot->outlet, slot->bytes), at, n));
    at[SOFT_ROCE_MASKED_BYTE] = 0;
    slot->iov[0] = (struct iovec){.iov_base = at, .iov_len = slot->bytes};
    slot->iov_count = 1;
    hca->staged_bytes += slot->bytes;
}

/* Fills the batch with the packets of a request, which are the first `ahead` packets away; returns
 * their number. A request with a cut goes in whole or not at all: fewer trains. */
static unsigned int fill_request(const struct soft_qp *qp, const struct soft_send_wqe *wqe,
                                 uint32_t ahead)
{
    struct soft_hca *hca = qp->hca;
    unsigned int packets = wqe->packets - wqe->left;

    if (soft_udp_room(hca->udp) < packets)
        return 0;
    if (!(wqe->wr.flags & SOFT_SEND_CUT)) {
        fill_slot(qp, wqe, ahead, soft_udp_reserve(hca->udp));
        soft_udp_commit(hca->udp);
        return 1;
    }
    if (sizeof(hca->stage) - hca->staged_bytes <
        packets * ((size_t)SOFT_ROCE_HEAD_MAX + wqe->wr.cut.bytes + SOFT_ROCE_TAIL_MAX))
        return 0;
    for (uint32_t k = wqe->left; k < wqe->packets; k++) {
        stage_packet(qp, wqe, k, ahead + k, soft_udp_reserve(hca->udp));
        soft_udp_commit(hca->udp);
    }
    return packets;
}

static bool completes(const struct soft_send_wqe *wqe)
{
    return wqe->status != SOFT_WC_SUCCESS || (wqe->wr.flags & SOFT_SEND_SIGNALED);
}

static struct soft_send_wqe *send_at(const struct soft_qp *qp, unsigned int ahead)
{
    return qp->sq.head + ahead == qp->sq.tail ? NULL
                                              : &qp->sq.ring[(qp->sq.head + ahead) & qp->sq.mask];
}

struct batch {
    unsigned int requests, packets;
};

/* Fills a batch with requests for the wire, from the head of the queue on, as far as the completion
 * queue has room for them. It skips those that left before others whose outlet was full. */
static struct batch fill_batch(const struct soft_qp *qp)
{
    unsigned int room = soft_cq_room(qp->send_cq);
    struct soft_send_wqe *wqe;
    struct batch batch = {0, 0};
    uint32_t packets_ahead = 0;

    qp->hca->staged_bytes = 0;
    for (unsigned int ahead = 0;
         (wqe = send_at(qp, ahead)) != NULL && wqe->status == SOFT_WC_SUCCESS && !wqe->wr.ah->local;
         ahead++, packets_ahead += wqe->packets) {
        unsigned int packets;

        if (completes(wqe) && room == 0)
            break;
        room -= completes(wqe);
        if (wqe->sent)
            continue;
        packets = fill_request(qp, wqe, packets_ahead);
        if (packets == 0)
            break;
        batch.requests++;
        batch.packets += packets;
    }
    return batch;
}

/* Marks the requests of a batch that has left in part. The packets of one leave by one outlet, in
 * order. */
static void mark_sent(struct soft_qp *qp, unsigned int packets)
{
    unsigned int i = 0;

    for (unsigned int ahead = 0; i < packets; ahead++) {
        struct soft_send_wqe *wqe = send_at(qp, ahead);

        if (wqe->sent)
            continue;
        for (unsigned int n = wqe->packets - wqe->left; n > 0; n--)
            wqe->left += soft_udp_sent(qp->hca->udp, i++);
        wqe->sent = wqe->left == wqe->packets;
        qp->sent_early += wqe->sent;
    }
}

/* Returns how many requests at the head of the queue have left, as far as the completion queue has
 * room for them. */
static unsigned int sent_at_head(const struct soft_qp *qp)
{
    unsigned int room = soft_cq_room(qp->send_cq);
    const struct soft_send_wqe *wqe;
    unsigned int n = 0;

    while ((wqe = send_at(qp, n)) != NULL && wqe->sent && !(completes(wqe) && room == 0)) {
        room -= completes(wqe);
        n++;
    }
    return n;
}

static void complete_sent(struct soft_qp *qp, unsigned int n)
{
    uint64_t bytes = 0;
    uint32_t packets = 0;

    for (unsigned int i = 0; i < n; i++) {
        const struct soft_send_wqe *wqe = send_at(qp, 0);

        bytes += wqe->bytes;
        packets += wqe->packets;
        qp->sent_early -= wqe->sent;
        soft_cq_end_send(qp, SOFT_WC_SUCCESS, completes(wqe));
    }
    qp->psn += packets;
    soft_count_add(&qp->hca->count, SOFT_C_TX_PACKETS, packets);
    soft_count_add(&qp->hca->count, SOFT_C_TX_BYTES, bytes);
}

/* Sends the batch, and completes the requests that have left and have no others before them. */
static enum soft_stall send_batch(struct soft_qp *qp, struct batch batch)
{
    int reason;
    unsigned int done = soft_udp_send(qp->hca->udp, &reason);

    if (done == batch.packets && qp->sent_early == 0) {
        complete_sent(qp, batch.requests);
        return SOFT_STALL_NONE;
    }
    mark_sent(qp, batch.packets);
    complete_sent(qp, sent_at_head(qp));
    if (done == batch.packets)
        return SOFT_STALL_NONE;
    return reason == EAGAIN ? SOFT_STALL_SOCKET : SOFT_STALL_MEMORY;
}

/* Writes packet k of a request, and room for its ICRC; returns its length. */
static size_t write_packet(const struct soft_qp *qp, const struct soft_send_wqe *wqe, uint32_t k,
                           uint8_t *to)
{
    const struct soft_send_wr *wr = &wqe->wr;
    uint32_t bytes = payload_bytes(wqe, k);
    size_t at = pack_head(qp, wqe, k - wqe->packets, bytes, to);

    if (wr->flags & SOFT_SEND_CUT)
        at += wr->cut.make(wr->cut.context, k, to + at);
    for (int i = 0; !(wr->flags & SOFT_SEND_CUT) && i < wr->num_sge; i++) {
        if (wr->sg[i].length > 0)
            memcpy(to + at, wr->sg[i].addr, wr->sg[i].length);
        at += wr->sg[i].length;
    }
    memset(to + at, 0, (-bytes & 3) + SOFT_ICRC_BYTES);
    return at + (-bytes & 3) + SOFT_ICRC_BYTES;
}

/* Delivers the packets of a request to our own GID, at the head of the queue. The kernel cannot do
 * it everywhere: its path from an address to itself goes through the `lo` device, which may be down
 * in a namespace. We complete before the delivery, which may take the last room in a shared
 * completion queue; the caller learns of it, and may reuse its buffers, when we release the mutex.
 * A TX queue hands the packets to the HCA that it sends for.
 */
static void loop_head(struct soft_qp *qp)
{
    struct soft_hca *hca = qp->hca->main != NULL ? qp->hca->main : qp->hca;
    const struct soft_send_wqe wqe = *send_at(qp, 0);
    const struct soft_udp_dest dest = wqe.wr.ah->dest;
    struct soft_udp_packet packet = {
        .data = hca->loop,
        .src = hca->attr.gid,
        .dst = hca->attr.gid,
        .flow_info = (uint32_t)dest.traffic_class << 20 | dest.flow_label,
        .src_port = SOFT_UDP_PORT,
        .hop_limit = dest.hop_limit,
    };

    if (hca != qp->hca)
        soft_lock_acquire(hca);
    complete_sent(qp, 1);
    for (uint32_t k = 0; k < wqe.packets; k++) {
        packet.bytes = write_packet(qp, &wqe, k, hca->loop);
        soft_progress_take(hca, &packet, true);
    }
    if (hca != qp->hca)
        soft_lock_release(hca);
}

static enum soft_stall send_queued(struct soft_qp *qp)
{
    enum soft_stall stall = SOFT_STALL_NONE;
    struct soft_send_wqe *wqe;

    while (stall == SOFT_STALL_NONE && (wqe = send_at(qp, 0)) != NULL) {
        if (completes(wqe) && soft_cq_room(qp->send_cq) == 0)
            return SOFT_STALL_CQ;
        if (wqe->sent) {
            complete_sent(qp, sent_at_head(qp));
            continue;
        }
        if (wqe->status != SOFT_WC_SUCCESS) {
            soft_count_add(&qp->hca->count, SOFT_C_TX_LENGTH, 1);
            soft_cq_end_send(qp, wqe->status, true);
            continue;
        }
        if (wqe->wr.ah->local) {
            loop_head(qp);
            continue;
        }
        if (qp->hca->udp == NULL) { /* without a device: lost, as without a cable */
            soft_count_add(&qp->hca->count, SOFT_C_TX_UNREACHABLE, 1);
            complete_sent(qp, 1);
            continue;
        }
        stall = send_batch(qp, fill_batch(qp));
    }
    return stall;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Returns the index of the table entry that admits this packet, or -1. */
static int admitting_pkey(const struct soft_qp *qp, uint16_t pkey)
{
    const struct soft_hca *hca = qp->hca;

    if (qp->type != SOFT_QPT_GSI)
        return soft_roce_pkey_match(pkey_at(hca, qp->pkey_index), pkey) ? qp->pkey_index : -1;
    for (unsigned int i = 0; i < hca->pkey_count; i++)
        if (soft_roce_pkey_match(hca->pkey[i], pkey))
            return (int)i;
    return -1;
}

static uint64_t capacity(const struct soft_recv_wr *wr)
{
    uint64_t bytes = 0;

    for (int i = 0; i < wr->num_sge; i++)
        bytes += wr->sg[i].length;
    return bytes;
}

struct scatter {
    const struct soft_sge *sge;
    size_t offset; /* in it */
};

/* The caller has made sure that the entries have room for the data. */
static void scatter(struct scatter *to, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        size_t room = to->sge->length - to->offset;
        size_t n = bytes < room ? bytes : room;

        if (n > 0)
            memcpy((uint8_t *)to->sge->addr + to->offset, data, n);
        data += n;
        bytes -= n;
        to->offset += n;
        if (to->offset == to->sge->length) {
            to->sge++;
            to->offset = 0;
        }
    }
}

/* Whether the consumer gets the packet where it lies. */
static bool may_lend(const struct soft_qp *qp, const struct soft_packet *p)
{
    const struct soft_hca *hca = qp->hca;

    return qp->lends && p->stays && hca->poller == qp->recv_cq->channel &&
           !soft_udp_has_left(hca->udp) && p->roce.dest_qpn != SOFT_QPN_MCAST &&
           (hca->grh_fits || hca->grh_count < SOFT_LENT_GRHS);
}

static void pack_grh(uint8_t *to, const struct soft_udp_packet *ip)
{
    soft_roce_pack_grh(to, ip->flow_info, ip->bytes, ip->hop_limit, &ip->src, &ip->dst);
}

static void lend(struct soft_qp *qp, const struct soft_packet *p, struct soft_wc *wc)
{
    struct soft_hca *hca = qp->hca;

    if (!hca->grh_fits)
        pack_grh(hca->grh[hca->grh_count++], p->ip);
    hca->grh_fits = true;
    wc->flags |= SOFT_WC_LENT;
    wc->lent = (uint8_t *)(uintptr_t)p->payload;
    wc->lent_grh = hca->grh[hca->grh_count - 1];
    soft_cq_push_lent(qp->recv_cq, wc);
}

static void fill_buffer(struct soft_qp *qp, const struct soft_packet *p, struct soft_wc *wc)
{
    const struct soft_recv_wr *wr = &qp->rq.ring[qp->rq.head++ & qp->rq.mask];
    struct scatter to = {.sge = wr->sg};
    uint8_t grh[SOFT_ROCE_GRH_BYTES];

    wc->wr_id = wr->wr_id;
    pack_grh(grh, p->ip);
    scatter(&to, grh, sizeof(grh));
    scatter(&to, p->payload, p->payload_bytes);
    soft_cq_push(qp->recv_cq, wc);
    if (qp->rq.head == qp->rq.tail)
        soft_progress_run_short(qp);
}

static void deliver(struct soft_qp *qp, const struct soft_packet *p, uint16_t pkey_index)
{
    struct soft_wc wc = {
        .byte_len = (uint32_t)(SOFT_GRH_BYTES + p->payload_bytes),
        .qp_num = p->roce.dest_qpn == SOFT_QPN_MCAST ? qp->qpn : p->roce.dest_qpn,
        .src_qp = p->roce.src_qpn,
        .imm_data = p->roce.imm_data,
        .pkey_index = pkey_index,
        .status = SOFT_WC_SUCCESS,
        .opcode = SOFT_WC_RECV,
        .flags = (uint8_t)(SOFT_WC_GRH | (p->roce.has_imm ? SOFT_WC_WITH_IMM : 0)),
    };

    if (may_lend(qp, p))
        lend(qp, p, &wc);
    else
        fill_buffer(qp, p, &wc);
    soft_count_add(&qp->hca->count, SOFT_C_RX_DELIVERED, 1);
    soft_count_add(&qp->hca->count, SOFT_C_RX_BYTES, p->payload_bytes);
}

/* Whether a packet is a multicast of ours that came back. The keys of a limited member do not match
 * each other, so it has no use for its own. */
static bool is_own(const struct soft_qp *qp, const struct soft_packet *p)
{
    return p->roce.dest_qpn == SOFT_QPN_MCAST &&
           memcmp(&p->ip->src, &qp->hca->attr.gid, sizeof(p->ip->src)) == 0;
}

static void receive_packet(struct soft_qp *qp, const struct soft_packet *p)
{
    struct soft_count *count = &qp->hca->count;
    const struct in6_addr *source = &p->ip->src;
    int pkey_index = admitting_pkey(qp, p->roce.pkey);

    if (p->roce.opcode != SOFT_ROCE_UD_SEND && p->roce.opcode != SOFT_ROCE_UD_SEND_IMM)
        soft_count_drop(count, SOFT_C_DROP_OPCODE, source);
    else if (pkey_index < 0 && is_own(qp, p))
        soft_count_add(count, SOFT_C_RX_OWN, 1);
    else if (pkey_index < 0)
        soft_count_drop(count, SOFT_C_DROP_PKEY, source);
    else if (p->roce.qkey != qp->qkey)
        soft_count_drop(count, SOFT_C_DROP_QKEY, source);
    else if (qp->rq.head == qp->rq.tail)
        soft_count_drop(count, qp->type == SOFT_QPT_GSI ? SOFT_C_DROP_GSI : SOFT_C_DROP_NO_BUFFER,
                        source);
    else if (capacity(&qp->rq.ring[qp->rq.head & qp->rq.mask]) < SOFT_GRH_BYTES + p->payload_bytes)
        soft_count_drop(count, SOFT_C_DROP_TOO_LONG, source);
    else if (soft_cq_room(qp->recv_cq) == 0)
        soft_count_drop(count, SOFT_C_DROP_CQ_FULL, source);
    else
        deliver(qp, p, (uint16_t)pkey_index);
}

static uint8_t *place(const struct soft_qp *qp, const struct soft_packet *p)
{
    (void)qp, (void)p;
    return NULL;
}

const struct soft_transport soft_ud = {
    .send = send_queued,
    .receive = receive_packet,
    .place = place,
};
