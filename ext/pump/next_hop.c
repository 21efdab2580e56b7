/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/frame.h"
#include "pump/flow_key.h"
#include "pump/pump_state.h"

/* Events of hops without an entry may fill the event ring only as far as misses may. */
enum { WANTED_RING_RESERVE = 4 };

/* Picks the flow's hop by weight among those that are not in `out`, which must not hold every
 * hop. */
static uint32_t pick(const struct ipu_hops *hops, uint64_t out, uint32_t hash)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < hops->count; i++)
        total += out >> i & 1 ? 0 : hops->hop[i].weight;
    uint64_t point = (hash * total) >> 32;
    for (uint32_t i = 0;; i++) {
        if (out >> i & 1)
            continue;
        if (point < hops->hop[i].weight)
            return i;
        point -= hops->hop[i].weight;
    }
}

/* Asks the engine to resolve a hop whose flows go by another hop meanwhile. */
static void want(struct ipu_pump *pump, const struct in6_addr *hop)
{
    uint32_t reserve = pump->events.capacity_bytes / WANTED_RING_RESERVE;
    if (ipu_ring_free_bytes(&pump->events) >= reserve)
        (void)ipu_event_emit(pump, &(struct ipu_event){.type = IPU_EVENT_WANTED, .next_hop = *hop},
                             NULL);
}

static struct in6_addr address_of(const struct ipu_hop *hop, const struct in6_addr *destination)
{
    return hop->on_link ? *destination : hop->gateway;
}

/*
 * A flow keeps to its hop while the hop is alive, which means that its entry sends. The flows of a
 * dead hop go by living ones. Without a living hop the packet takes the first of its hops that has
 * no entry, as a packet with one hop would.
 */
static struct in6_addr choose(struct ipu_pump *pump, const struct ipu_hops *hops, uint32_t hash,
                              const struct in6_addr *destination)
{
    uint64_t out = 0, missing = 0;
    uint32_t fallback = IPU_HOPS_MAX;
    for (uint32_t tried = 0; tried < hops->count; tried++) {
        uint32_t i = pick(hops, out, hash);
        struct in6_addr next_hop = address_of(&hops->hop[i], destination);
        const struct ipu_neigh *entry = ipu_neigh_find(&pump->neigh, &next_hop);
        if (entry != NULL && entry->action <= IPU_NEIGH_NOTIFY) {
            for (uint32_t other = 0; other < hops->count; other++) {
                struct in6_addr absent = address_of(&hops->hop[other], destination);
                if (missing >> other & 1)
                    want(pump, &absent);
            }
            return next_hop;
        }
        if (fallback == IPU_HOPS_MAX || (entry == NULL && missing == 0))
            fallback = i;
        missing |= (uint64_t)(entry == NULL) << i;
        out |= UINT64_C(1) << i;
    }
    return address_of(&hops->hop[fallback], destination);
}

bool ipu_next_hop_choose(struct ipu_pump *pump, const struct ipu_outbound *packet,
                         enum ipu_route_kind kind, struct in6_addr *next_hop)
{
    if (kind == IPU_ROUTE_UNREACHABLE) {
        IPU_COUNT(pump, tx_no_route);
        return false;
    }
    const struct in6_addr destination = packet->flow.dst;
    struct ipu_flow_key key = ipu_flow_key_of(packet->frame + IPU_TX_IP, packet->ip_len);
    uint32_t hash = ipu_flow_key_hash(&key, &pump->route.seed);
    *next_hop = choose(pump, ipu_route_hops(&pump->route, &destination), hash, &destination);
    return true;
}
