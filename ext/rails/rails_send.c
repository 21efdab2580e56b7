/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends: chooses the rail of each message, and its handle there. While the queue of one rail is
 * full, the pump reads no further packets.
 */
#include "rails/rails_state.h"

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

/* Returns whether another send may end here at once, with all that wait. */
static bool has_room(const struct ipu_rails *r)
{
    return r->ended_count + IPU_RAILS_MAX * RAILS_WAITING < RAILS_ENDED;
}

int rails_send(struct ipu_rails *r, const struct ipu_send *sends, int n)
{
    int taken = 0;
    while (taken < n && has_room(r)) {
        struct ipu_send send = sends[taken];
        uint32_t rail = place(r, &send);
        if (send.ah == NULL) {
            RAILS_COUNT(r, tx_no_route);
            rails_end(r, send.cookie);
        } else if (r->rails[rail].broken) {
            RAILS_COUNT(r, tx_abandoned);
            rails_end(r, send.cookie);
        } else if (!rails_queue(r, rail, &send)) {
            break;
        }
        taken++;
    }
    rails_flush(r);
    return taken;
}
