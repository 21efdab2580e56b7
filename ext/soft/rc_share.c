/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "rc.h"

/*
 * Shares of a shared receive queue. A message of several packets occupies a buffer from its first
 * packet to its last, and a peer may fall silent in between, on as many connections as it has. So
 * once half of the buffers are occupied in this way, a peer may occupy an eighth at most, the
 * oldest message loses its buffer and its connection if it is overdue, and a quarter of the buffers
 * stays free for messages of one packet, which occupy nothing.
 */

/* Longer than a message takes whose packets get lost again and again. */
#define OVERDUE_NS 1000000000

static unsigned int count_of_peer(const struct soft_srq *srq, const struct in6_addr *gid)
{
    unsigned int count = 0;
    const struct soft_rc *rc;

    TAILQ_FOREACH(rc, &srq->receiving, share_entry)
        count += memcmp(&rc->attr.path.dgid, gid, sizeof(*gid)) == 0;
    return count;
}

static void end_overdue(struct soft_srq *srq, int64_t now_ns)
{
    struct soft_rc *oldest = TAILQ_FIRST(&srq->receiving);

    if (now_ns - oldest->in_since_ns < OVERDUE_NS)
        return;
    soft_count_add(&srq->hca->count, SOFT_C_RC_OVERDUE, 1);
    soft_rc_return_share(oldest);
    soft_rc_schedule_nak(oldest, SOFT_SYNDROME_NAK | SOFT_NAK_OPERATION);
    soft_rc_fail(oldest);
}

static bool has_share_left(struct soft_srq *srq, const struct soft_rc *rc, int64_t now_ns)
{
    unsigned int half = (srq->rq.max + 1) / 2;

    if (srq->receiving_count < half)
        return true;
    end_overdue(srq, now_ns);
    return srq->receiving_count < half ||
           (srq->receiving_count < srq->rq.max - srq->rq.max / 4 &&
            count_of_peer(srq, &rc->attr.path.dgid) < srq->rq.max / 8);
}

bool soft_rc_take_share(struct soft_rc *rc)
{
    struct soft_srq *srq = rc->qp->srq;
    int64_t now_ns = soft_clock_ns();

    if (!has_share_left(srq, rc, now_ns)) {
        soft_count_add(&srq->hca->count, SOFT_C_RC_SHARE, 1);
        return false;
    }
    rc->in_since_ns = now_ns;
    rc->has_share = true;
    TAILQ_INSERT_TAIL(&srq->receiving, rc, share_entry);
    srq->receiving_count++;
    return true;
}

void soft_rc_return_share(struct soft_rc *rc)
{
    struct soft_srq *srq = rc->qp->srq;

    if (!rc->has_share)
        return;
    rc->has_share = false;
    TAILQ_REMOVE(&srq->receiving, rc, share_entry);
    srq->receiving_count--;
}
