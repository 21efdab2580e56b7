/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/transmit/next_hop.h"

#include <errno.h>

#include "core/frame.h"
#include "pump/ends/miss.h"
#include "pump/packets/flow_key.h"

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
                    ipu_miss_want(pump, &absent);
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

/* Finds the kernel's answer about the flow. Without an answer the packet goes to the engine, which
 * asks the kernel and sends the packet. */
static const struct ipu_route_answer *answer_of(struct ipu_pump *pump,
                                                const struct ipu_outbound *packet,
                                                struct ipu_flow_key key, uint32_t fields)
{
    ipu_flow_key_mask(&key, fields);
    const struct ipu_route_answer *answer = ipu_route_answers_find(&pump->answers, &key);
    if (answer == NULL)
        ipu_miss_resolve(pump, IPU_EVENT_ROUTE_ASK, packet, &packet->flow.dst);
    return answer;
}

bool ipu_next_hop_choose(struct ipu_pump *pump, const struct ipu_outbound *packet,
                         enum ipu_route_kind kind, struct in6_addr *next_hop)
{
    const struct in6_addr destination = packet->flow.dst;
    const struct ipu_route *route = ipu_route_match(&pump->route, &destination);
    const struct ipu_hops *hops = route->hops;
    struct ipu_flow_key key = ipu_flow_key_of(packet->frame + IPU_TX_IP, packet->ip_len);
    if (kind == IPU_ROUTE_ASK) {
        const struct ipu_route_answer *answer = answer_of(pump, packet, key, route->fields);
        if (answer == NULL)
            return false;
        kind = (enum ipu_route_kind)answer->kind;
        if (kind == IPU_ROUTE_GATEWAY || kind == IPU_ROUTE_BROADCAST)
            *next_hop = answer->gateway;
        hops = answer->hops;
    }
    if (kind == IPU_ROUTE_UNREACHABLE) {
        IPU_COUNT(pump, tx_no_route);
        return false;
    }
    if (kind == IPU_ROUTE_MULTIPATH)
        *next_hop = choose(pump, hops, ipu_flow_key_hash(&key, &pump->route.seed), &destination);
    return true;
}

int ipu_next_hop_answer(struct ipu_pump *pump, const struct ipu_route_answer_set *set,
                        const struct ipu_hop *hops, const struct ipu_outbound *packet)
{
    const struct ipu_route *route = ipu_route_match(&pump->route, &packet->flow.dst);
    if (route == NULL || route->kind != IPU_ROUTE_ASK)
        return 0; /* the routes have changed meanwhile */
    struct ipu_route_answer answer = {
        .key = ipu_flow_key_of(packet->frame + IPU_TX_IP, packet->ip_len),
        .gateway = set->kind == IPU_ROUTE_BROADCAST ? ipu_route_broadcast : set->gateway,
        .kind = (uint8_t)set->kind};
    if (set->kind == IPU_ROUTE_MULTIPATH) {
        int error;
        answer.hops = ipu_hops_copy(hops, set->hops, &error);
        if (answer.hops == NULL)
            return error;
    } else if (set->kind > IPU_ROUTE_UNREACHABLE) {
        return -EINVAL;
    }
    ipu_flow_key_mask(&answer.key, route->fields);
    int forgotten = ipu_route_answers_put(&pump->answers, answer);
    if (forgotten > 0)
        IPU_ADD(pump, route_answers_evicted, (uint64_t)forgotten);
    return forgotten < 0 ? forgotten : 0;
}
