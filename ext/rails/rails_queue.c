/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queues of the rails. A message waits in its rail's queue until the inner fabric takes it, so
 * the flows of one rail keep their order.
 */
#include <errno.h>
#include <string.h>

#include "rails/rails_state.h"

/* ---- ends */

void rails_greeted(struct ipu_rails *r, uint32_t number)
{
    struct rails_stranger *stranger = &r->greeted[number];
    const struct ipu_fabric *inner = r->rails[stranger->rail].inner;
    inner->ops->ah_destroy(inner->self, stranger->ah);
    stranger->ah = NULL;
    r->free_greeted[r->free_greeted_count++] = (uint16_t)number;
}

void rails_end(struct ipu_rails *r, uint64_t cookie)
{
    uint16_t frame = (uint16_t)cookie;
    if (!(cookie & RAILS_HELLO))
        r->ended[r->ended_count++] = cookie;
    else if (frame < RAILS_HELLOS)
        r->free_hellos[r->free_hello_count++] = frame;
    else
        rails_greeted(r, frame - RAILS_HELLOS);
}

bool rails_queue(struct ipu_rails *r, uint32_t rail, const struct ipu_send *send)
{
    struct rails_rail *at = &r->rails[rail];
    if (at->waiting_count == RAILS_WAITING)
        return false;
    at->waiting[at->waiting_count++] = *send;
    return true;
}

void rails_break(struct ipu_rails *r, uint32_t rail)
{
    struct rails_rail *at = &r->rails[rail];
    at->broken = true; /* sends under way may end yet, and recovery waits for them */
    r->asleep &= ~(1u << rail);
    for (uint32_t i = 0; i < at->waiting_count; i++)
        rails_end(r, at->waiting[i].cookie);
    RAILS_ADD(r, tx_abandoned, at->waiting_count);
    at->waiting_count = 0;
}

void rails_drop_handle(struct ipu_rails *r, uint32_t rail, void **handle)
{
    struct rails_rail *at = &r->rails[rail];
    uint32_t kept = 0;
    if (*handle == NULL)
        return;
    for (uint32_t i = 0; i < at->waiting_count; i++) {
        if (at->waiting[i].ah != *handle) {
            at->waiting[kept++] = at->waiting[i];
            continue;
        }
        RAILS_COUNT(r, tx_abandoned);
        rails_end(r, at->waiting[i].cookie);
    }
    at->waiting_count = kept;
    at->inner->ops->ah_destroy(at->inner->self, *handle);
    *handle = NULL;
}

/* ---- the inner fabrics */

static void flush(struct ipu_rails *r, uint32_t rail)
{
    struct rails_rail *at = &r->rails[rail];
    const struct ipu_fabric *inner = at->inner;
    if (at->waiting_count == 0 || at->broken)
        return;
    int taken = inner->ops->send(inner->self, at->waiting, (int)at->waiting_count);
    if (taken < 0) { /* sent() reports it */
        rails_break(r, rail);
        return;
    }
    at->under_way += (uint32_t)taken;
    if (taken > 0)
        r->asleep &= ~(1u << rail);
    for (int i = 0; i < taken; i++) {
        if (at->waiting[i].cookie & RAILS_HELLO)
            continue;
        ipu_counter_add(&at->traffic.tx_packets, 1);
        ipu_counter_add(&at->traffic.tx_bytes, at->waiting[i].head_len + at->waiting[i].len);
    }
    at->waiting_count -= (uint32_t)taken;
    memmove(at->waiting, at->waiting + taken, at->waiting_count * sizeof *at->waiting);
}

void rails_flush(struct ipu_rails *r)
{
    RAILS_FOR_EACH(r, k)
        flush(r, k);
}

/* Keeps the pump's cookies, and takes those of hellos back; returns the number kept. */
static int sort(struct ipu_rails *r, uint64_t *cookies, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (cookies[i] & RAILS_HELLO)
            rails_end(r, cookies[i]);
        else
            cookies[kept++] = cookies[i];
    }
    return kept;
}

int rails_sent(struct ipu_rails *r, uint64_t *cookies, int max)
{
    int n = 0, error = 0;
    RAILS_FOR_EACH(r, k) {
        struct rails_rail *at = &r->rails[k];
        if (n == max)
            break;
        /* The inner fabric is asked without sends under way, too: verbs hear of changes here. */
        int got = at->inner->ops->sent(at->inner->self, cookies + n, max - n);
        if (got < 0 && !at->broken)
            rails_break(r, k);
        if (at->broken)
            error = got < 0 ? got : -EIO;
        if (got <= 0)
            continue;
        at->under_way -= (uint32_t)got;
        n += sort(r, cookies + n, got);
    }
    rails_flush(r);
    while (n < max && r->ended_count > 0)
        cookies[n++] = r->ended[--r->ended_count];
    return n == 0 && error < 0 ? error : n;
}
