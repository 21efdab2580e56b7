/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include <string.h>

#include "icrc.h"
#include "objects.h"

/*
 * Receives packets, delivers them to their QPs, and retries sends that had to wait. The consumers'
 * calls do this work; the HCA has no thread of its own.
 */

#define MEMORY_RETRY_NS 1000000 /* after ENOBUFS: the kernel frees memory only when it sends */

/* A consumer without a buffer delays the others by at most this time at once, by as much as the
 * bucket holds in a row, and by one part of so many in the long run. */
#define SUPPLY_NS        10000000
#define SUPPLY_BUCKET_NS 80000000
#define LENT_NS          100000000 /* a consumer that polls polls again within this time */
#define SUPPLY_PART      8

/* ---- send queues that wait ------------------------------------------------------------------- */

static void set_stall(struct soft_qp *qp, enum soft_stall stall)
{
    struct soft_hca *hca = qp->hca;

    if (qp->stall == SOFT_STALL_NONE && stall != SOFT_STALL_NONE)
        TAILQ_INSERT_TAIL(&hca->stalled, qp, stall_entry);
    if (qp->stall != SOFT_STALL_NONE && stall == SOFT_STALL_NONE)
        TAILQ_REMOVE(&hca->stalled, qp, stall_entry);
    qp->stall = stall;
    if (stall == SOFT_STALL_SOCKET)
        qp->stalled_outlets = soft_udp_stalled_outlets(hca->udp);
}

/* Sets descriptors and deadline to the events that the stalled queues wait for. */
static void announce_stalls(struct soft_hca *hca)
{
    unsigned int outlets = 0;
    bool memory = false;

    for (struct soft_qp *qp = TAILQ_FIRST(&hca->stalled); qp != NULL;
         qp = TAILQ_NEXT(qp, stall_entry)) {
        if (qp->stall == SOFT_STALL_SOCKET)
            outlets |= qp->stalled_outlets;
        memory |= qp->stall == SOFT_STALL_MEMORY;
    }
    hca->full_outlets = outlets;
    memory |= !soft_channel_watch_outlets(hca);
    hca->deadline_ns = memory ? soft_clock_ns() + MEMORY_RETRY_NS : SOFT_NO_DEADLINE_NS;
}

void soft_progress_send(struct soft_qp *qp)
{
    if (qp->stall != SOFT_STALL_NONE)
        return; /* behind the requests that wait already */
    set_stall(qp, qp->transport->send(qp));
    if (qp->stall != SOFT_STALL_NONE)
        announce_stalls(qp->hca);
}

void soft_progress_unstall(struct soft_qp *qp)
{
    if (qp->stall == SOFT_STALL_NONE)
        return;
    set_stall(qp, SOFT_STALL_NONE);
    announce_stalls(qp->hca);
}

void soft_progress_retry(struct soft_hca *hca)
{
    struct soft_qp *qp = TAILQ_FIRST(&hca->stalled);
    struct soft_qp *next;

    if (qp == NULL ||
        (hca->deadline_ns != SOFT_NO_DEADLINE_NS && soft_clock_ns() < hca->deadline_ns))
        return;
    for (; qp != NULL; qp = next) {
        enum soft_stall stall = qp->transport->send(qp);

        next = TAILQ_NEXT(qp, stall_entry);
        set_stall(qp, stall);
        if (stall == SOFT_STALL_SOCKET || stall == SOFT_STALL_MEMORY) {
            /* No other queue can send now either; next time another queue goes first. */
            TAILQ_REMOVE(&hca->stalled, qp, stall_entry);
            TAILQ_INSERT_TAIL(&hca->stalled, qp, stall_entry);
            break;
        }
    }
    announce_stalls(hca);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static enum soft_counter counter_of(enum soft_roce_verdict verdict)
{
    switch (verdict) {
    case SOFT_ROCE_VERSION:
        return SOFT_C_DROP_VERSION;
    case SOFT_ROCE_OPCODE:
        return SOFT_C_DROP_OPCODE;
    default:
        return SOFT_C_DROP_MALFORMED;
    }
}

/* Returns the queue pair of a packet to one host, or NULL. */
static struct soft_qp *addressee(struct soft_hca *hca, uint32_t qpn)
{
    struct soft_qp *qp = soft_qp_find(hca, qpn);

    return qp != NULL ? qp : soft_qp_find_number(hca, qpn);
}

static void hand_over(struct soft_hca *hca, const struct soft_group *group, struct soft_qp *qp,
                      const struct soft_packet *packet)
{
    /* Volume 1, 9.6.1.2 and 10.5: the multicast QPN goes with a multicast GID and with no other. */
    if ((packet->roce.dest_qpn == SOFT_QPN_MCAST) != (group != NULL)) {
        soft_count_drop(&hca->count, SOFT_C_DROP_QPN, &packet->ip->src);
    } else if (group != NULL) {
        for (unsigned int i = 0; i < group->qp_count; i++)
            group->qp[i]->transport->receive(group->qp[i], packet);
    } else if (qp != NULL) {
        qp->transport->receive(qp, packet);
    } else {
        soft_count_drop(&hca->count, SOFT_C_DROP_QPN, &packet->ip->src);
    }
}

/* Checks the ICRC, and copies the payload to its place on the way, if the queue pair has one for
 * it. The place is the consumer's, who does not look at it before the completion: so a packet with
 * another ICRC may leave anything there. */
static bool check_icrc(struct soft_hca *hca, struct soft_qp *qp, struct soft_packet *packet)
{
    const struct soft_udp_packet *ip = packet->ip;
    uint8_t *place = qp != NULL ? qp->transport->place(qp, packet) : NULL;
    bool right;

    if (place == NULL)
        return soft_icrc_check(hca->rx_seed, ip->data, ip->bytes);
    right = soft_icrc_check_copy(hca->rx_seed, ip->data, ip->bytes, packet->payload,
                                 packet->payload_bytes, place);
    packet->payload = place;
    return right;
}

/* For packets of other adapters over IPv4 (struct soft_hca_options). */
static bool fits_other_id(struct soft_hca *hca, const struct soft_udp_packet *ip)
{
    if (!hca->other_adapters || !soft_icrc_check_any_id(hca->rx_seed, ip->data, ip->bytes))
        return false;
    soft_count_add(&hca->count, SOFT_C_RX_ANY_ID, 1);
    return true;
}

void soft_progress_take(struct soft_hca *hca, const struct soft_udp_packet *ip, bool trusted)
{
    const struct soft_group *group = NULL;
    struct soft_packet packet = {.ip = ip, .stays = !trusted};
    enum soft_roce_verdict verdict, rest = SOFT_ROCE_MALFORMED;
    struct soft_qp *qp = NULL;
    bool ours;

    soft_count_add(&hca->count, SOFT_C_RX_PACKETS, 1);
    hca->grh_fits &= ip->same_flow;
    if (!trusted && !ip->same_flow) /* even if we drop this packet, those behind it need the seed */
        hca->rx_seed =
            soft_icrc_seed(&ip->src, &ip->dst, ip->src_port, SOFT_UDP_PORT, (uint16_t)ip->bytes);
    if (IN6_IS_ADDR_MULTICAST(&ip->dst)) {
        group = soft_mcast_find(hca, &ip->dst);
        ours = group != NULL;
    } else {
        ours = memcmp(&ip->dst, &hca->attr.gid, sizeof(ip->dst)) == 0;
    }
    if (!ours) {
        soft_count_drop(&hca->count, SOFT_C_DROP_ADDRESS, &ip->src);
        return;
    }
    verdict = soft_roce_parse_bth_untrusted(ip->data, ip->bytes, &packet.roce);
    if (verdict == SOFT_ROCE_OK)
        rest = soft_roce_parse_rest_untrusted(ip->data, ip->bytes, &packet.roce, &packet.payload,
                                              &packet.payload_bytes);
    if (rest == SOFT_ROCE_OK && group == NULL)
        qp = addressee(hca, packet.roce.dest_qpn);
    if (verdict == SOFT_ROCE_OK && !trusted && !check_icrc(hca, qp, &packet) &&
        !fits_other_id(hca, ip)) {
        soft_count_drop(&hca->count, SOFT_C_DROP_ICRC, &ip->src);
        return;
    }
    if (verdict == SOFT_ROCE_OK)
        verdict = rest;
    if (verdict != SOFT_ROCE_OK)
        soft_count_drop(&hca->count, counter_of(verdict), &ip->src);
    else
        hand_over(hca, group, qp, &packet);
}

/* Returns how long the HCA may wait for this consumer now. Time refills the budget of waits. */
static int64_t supply_left_ns(struct soft_qp *qp, int64_t now_ns)
{
    int64_t refilled_ns = (now_ns - qp->supply_at_ns) / SUPPLY_PART;
    int64_t left_ns = qp->supply_left_ns + refilled_ns;

    qp->supply_at_ns = now_ns;
    qp->supply_left_ns = left_ns < SUPPLY_BUCKET_NS ? left_ns : SUPPLY_BUCKET_NS;
    return qp->supply_left_ns < SUPPLY_NS ? qp->supply_left_ns : SUPPLY_NS;
}

/*
 * A poll receives for all consumers, and faster than the other consumers can read their packets.
 * When one of several consumers has no buffer left, the HCA receives nothing until that consumer
 * has posted buffers: otherwise the other consumers would go on polling until the HCA drops the
 * packets that it has fetched and those that the socket holds. A consumer that reads slowly uses up
 * its waits, and a consumer in the background has none: the HCA drops what comes for them.
 */
void soft_progress_run_short(struct soft_qp *qp)
{
    struct soft_hca *hca = qp->hca;
    int64_t now_ns, left_ns;

    if (LIST_NEXT(LIST_FIRST(&hca->channels), entry) == NULL || qp->recv_cq->channel->background)
        return;
    now_ns = soft_clock_ns();
    left_ns = supply_left_ns(qp, now_ns);
    if (left_ns <= 0)
        return;
    hca->short_of = qp;
    hca->short_until_ns = now_ns + left_ns;
    soft_channel_review(hca);
}

static void go_on(struct soft_hca *hca)
{
    struct soft_qp *qp = hca->short_of;
    int64_t now_ns = soft_clock_ns();

    qp->supply_left_ns -= now_ns - qp->supply_at_ns;
    qp->supply_at_ns = now_ns;
    hca->short_of = NULL;
    soft_channel_review(hca);
}

void soft_progress_supply(const struct soft_qp *qp)
{
    if (qp->hca->short_of == qp)
        go_on(qp->hca);
}

static bool must_wait(struct soft_hca *hca)
{
    if (hca->short_of != NULL && soft_clock_ns() >= hca->short_until_ns)
        go_on(hca);
    return hca->short_of != NULL;
}

/* Returns whether cq wants more completions and has room for them. A poll also ends when a shared
 * receive queue is empty: its consumer then posts buffers before the next poll, and the HCA need
 * not send peers an RNR NAK ("receiver not ready"). */
static bool wants_more(struct soft_hca *hca, const struct soft_cq *cq, unsigned int wanted)
{
    return (cq == NULL || soft_cq_count(cq) < wanted) && !hca->drained && !must_wait(hca);
}

/* Delivers the fetched packets; returns how many it delivered. */
static int take_pending(struct soft_hca *hca, const struct soft_cq *cq, unsigned int wanted)
{
    struct soft_udp_packet ip;
    int packets = 0;

    while (wants_more(hca, cq, wanted) && soft_udp_next(hca->udp, &ip)) {
        soft_progress_take(hca, &ip, false);
        packets++;
    }
    return packets;
}

/*
 * Packets that consumers have borrowed keep the HCA from fetching. A consumer that does not poll
 * for LENT_NS may keep them, but not the others from their packets: the HCA goes on in other
 * memory, and lends nothing until all of these packets are back. So there are two memories at most.
 */
static bool goes_on(struct soft_hca *hca)
{
    int64_t now_ns;

    if (hca->lent == 0 || soft_udp_has_left(hca->udp))
        return true;
    now_ns = soft_clock_ns();
    if (now_ns >= hca->lent_until_ns && soft_udp_leave_memory(hca->udp)) {
        soft_count_add(&hca->count, SOFT_C_RX_LEFT, 1);
        return true;
    }
    if (hca->lent_until_ns == SOFT_NO_DEADLINE_NS || now_ns >= hca->lent_until_ns)
        hca->lent_until_ns = now_ns + LENT_NS;
    return false;
}

void soft_progress_unlend(struct soft_hca *hca, unsigned int packets)
{
    hca->lent -= packets;
    if (hca->lent > 0 || hca->lent_until_ns == SOFT_NO_DEADLINE_NS)
        return;
    hca->lent_until_ns = SOFT_NO_DEADLINE_NS;
    soft_udp_drop_left(hca->udp);
}

/* Fetches packets, unless consumers have borrowed some of the last ones. */
static bool fetch(struct soft_hca *hca)
{
    if (soft_udp_pending(hca->udp) || !goes_on(hca))
        return false;
    hca->grh_count = 0;
    hca->grh_fits = false;
    return soft_udp_receive(hca->udp);
}

int soft_progress_receive(struct soft_hca *hca, const struct soft_cq *cq, unsigned int wanted)
{
    int packets;

    if (hca->udp == NULL || hca->main != NULL) {
        hca->service->expire_timers(hca);
        return 0;
    }
    if (cq != NULL && wanted > cq->depth)
        wanted = cq->depth;
    /* Packets that cq does not want yet stay fetched: so the consumer can post buffers before we
     * would drop them. */
    hca->drained = false;
    hca->poller = cq != NULL ? cq->channel : NULL;
    packets = take_pending(hca, cq, wanted);
    if (wants_more(hca, cq, wanted) && fetch(hca))
        packets += take_pending(hca, cq, wanted);
    hca->poller = NULL;
    /* Timers expire only now, because an acknowledgement may have waited here all the time. */
    if (!soft_udp_pending(hca->udp) && hca->short_of == NULL)
        hca->service->expire_timers(hca);
    return packets;
}
