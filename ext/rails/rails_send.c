/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends: chooses the rail of each message, and its handle there. A message waits in its rail's
 * queue until the inner fabric takes it, so the flows of one rail keep their order. While the queue
 * of one rail is full, the pump reads no further packets.
 */
#include <errno.h>
#include <string.h>

#include "rails/rails_state.h"

static void end(struct ipu_rails *r, uint64_t cookie)
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
        end(r, at->waiting[i].cookie);
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
        end(r, at->waiting[i].cookie);
    }
    at->waiting_count = kept;
    at->inner->ops->ah_destroy(at->inner->self, *handle);
    *handle = NULL;
}

/* ---- the choice */

/* Returns the rail of a flow among those of `usable`, which is not 0. A flow keeps to its rail
 * whatever becomes of the others. The inner fabric may use the low bits of the hash. */
static uint32_t rail_of_flow(const struct ipu_rails *r, uint32_t usable, uint32_t flow)
{
    uint32_t k = (uint32_t)((uint64_t)flow * r->count >> 32);
    if (usable >> k & 1)
        return k;
    uint32_t again = flow * 0x9E3779B1u; /* the golden ratio: the flows of k spread over the rest */
    uint32_t left = (uint32_t)((uint64_t)again * (uint32_t)__builtin_popcount(usable) >> 32);
    while (left-- > 0)
        usable &= usable - 1;
    return (uint32_t)__builtin_ctz(usable);
}

static void *make(struct ipu_rails *r, uint32_t rail, void **handle, const struct ipu_dest *dest)
{
    const struct ipu_fabric *inner = r->rails[rail].inner;
    if (*handle == NULL)
        *handle = inner->ops->ah_create(inner->self, dest);
    return *handle;
}

void *rails_handle_of_peer(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail)
{
    struct ipu_dest dest = r->broadcast;
    dest.gid = peer->at[rail].gid;
    dest.qpn = peer->at[rail].qpn;
    return make(r, rail, &peer->ah[rail], &dest);
}

/* Sets handle and queue pair number of a message; returns its rail. Without a route the handle is
 * NULL. */
static uint32_t place(struct ipu_rails *r, struct ipu_send *send)
{
    struct rails_ah *ah = send->ah;
    if (ah->generation != r->generation) {
        const struct rails_address address = {.gid = ah->dest.gid, .qpn = ah->dest.qpn};
        ah->peer = rails_peer_find(r, &address);
        ah->generation = r->generation;
    }
    uint32_t usable = 0;
    if (ah->peer != NULL) {
        usable = ah->peer->usable;
        ah->peer->was_used = true;
    }
    if (usable == 0) {
        send->ah = make(r, r->active, &ah->own[r->active], &ah->dest);
        return r->active;
    }
    /* The engine's messages have no flow. */
    uint32_t k = send->flow == 0 && usable >> r->active & 1 ? r->active
                                                            : rail_of_flow(r, usable, send->flow);
    send->qpn = ah->peer->at[k].qpn;
    send->ah = rails_handle_of_peer(r, ah->peer, k);
    return k;
}

/* ---- called by the pump */

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

/* Returns whether another send may end here at once, with all that wait. */
static bool has_room(const struct ipu_rails *r)
{
    return r->ended_count + IPU_RAILS_MAX * RAILS_WAITING < RAILS_ENDED;
}

int rails_send(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_rails *r = self;
    int taken = 0;
    rails_follow(r); /* a command that the control face queued later finds the rails as they are */
    while (taken < n && has_room(r)) {
        struct ipu_send send = sends[taken];
        uint32_t rail = place(r, &send);
        if (send.ah == NULL) {
            RAILS_COUNT(r, tx_no_route);
            end(r, send.cookie);
        } else if (r->rails[rail].broken) {
            RAILS_COUNT(r, tx_abandoned);
            end(r, send.cookie);
        } else if (!rails_queue(r, rail, &send)) {
            break;
        }
        taken++;
    }
    rails_flush(r);
    return taken;
}

/* Keeps the pump's cookies, and takes those of hellos back; returns the number kept. */
static int sort(struct ipu_rails *r, uint64_t *cookies, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (cookies[i] & RAILS_HELLO)
            end(r, cookies[i]);
        else
            cookies[kept++] = cookies[i];
    }
    return kept;
}

int rails_sent(void *self, uint64_t *cookies, int max)
{
    struct ipu_rails *r = self;
    int n = 0, error = 0;
    RAILS_FOR_EACH(r, k) {
        struct rails_rail *at = &r->rails[k];
        if (n == max)
            break;
        /* Also without sends under way: verbs hear of changes here. */
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
    rails_take_address(r);
    rails_flush(r);
    while (n < max && r->ended_count > 0)
        cookies[n++] = r->ended[--r->ended_count];
    return n == 0 && error < 0 ? error : n;
}
