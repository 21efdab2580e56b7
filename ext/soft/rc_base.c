/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc.h"

#include "icrc.h"

/* The parts that requester and responder of a connection share: its failure, a NAK, its service,
 * its timer, and the constant parts of its packets. */

void soft_rc_want_service(struct soft_rc *rc)
{
    if (rc->has_work)
        return;
    rc->has_work = true;
    TAILQ_INSERT_TAIL(&rc->qp->hca->work, rc, work_entry);
}

/* Every acknowledgement moves a timer, and timers hardly ever run out. So the list has no order,
 * only a time before which no timer runs out; at that time we look at all timers.
 */
void soft_rc_set_timer(struct soft_rc *rc, int64_t at_ns)
{
    struct soft_hca *hca = rc->qp->hca;
    bool wanted = at_ns != SOFT_RC_NO_TIMER;

    if (wanted && !rc->has_timer)
        TAILQ_INSERT_TAIL(&hca->timers, rc, timer_entry);
    if (!wanted && rc->has_timer)
        TAILQ_REMOVE(&hca->timers, rc, timer_entry);
    rc->has_timer = wanted;
    rc->timer_ns = at_ns;
    if (at_ns < hca->timer_ns)
        hca->timer_ns = at_ns;
}

void soft_rc_fail(struct soft_rc *rc)
{
    if (rc->state == SOFT_QPS_ERR)
        return;
    rc->state = SOFT_QPS_ERR;
    rc->paused = false;
    soft_rc_set_timer(rc, SOFT_RC_NO_TIMER);
    soft_rc_want_service(rc);
}

void soft_rc_schedule_nak(struct soft_rc *rc, unsigned int syndrome)
{
    rc->pending_ack = SOFT_RC_NAK_PENDING; /* a NAK also acknowledges the packets before expected */
    rc->nak_syndrome = (uint8_t)syndrome;
    soft_rc_want_service(rc);
}

uint16_t soft_rc_pkey(const struct soft_rc *rc)
{
    const struct soft_hca *hca = rc->qp->hca;

    return rc->qp->pkey_index < hca->pkey_count ? hca->pkey[rc->qp->pkey_index] : 0;
}

uint32_t soft_rc_seed(struct soft_rc *rc, size_t packet_bytes)
{
    unsigned int i = packet_bytes / 4 % SOFT_RC_SEED_ENTRIES;

    if (rc->seed[i].bytes != packet_bytes) {
        rc->seed[i].bytes = (uint16_t)packet_bytes;
        rc->seed[i].value = soft_icrc_seed(&rc->qp->hca->attr.gid, &rc->attr.path.dgid,
                                           SOFT_UDP_PORT, SOFT_UDP_PORT, (uint16_t)packet_bytes);
    }
    return rc->seed[i].value ^ rc->qp->hca->outlet_seed[rc->outlet];
}

void soft_rc_loop(struct soft_rc *rc, size_t packet_bytes)
{
    struct soft_hca *hca = rc->qp->hca;
    struct soft_udp_packet packet = {
        .data = hca->loop,
        .bytes = packet_bytes,
        .src = hca->attr.gid,
        .dst = hca->attr.gid,
        .src_port = SOFT_UDP_PORT,
        .hop_limit = rc->dest.hop_limit,
    };

    soft_progress_take(hca, &packet, true);
}
