/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/ends/miss.h"

#include <string.h>

#include "core/clock.h"
#include "core/frame.h"
#include "pump/ends/event.h"

/*
 * Outbound packets that end at the pump and go on at the engine, which resolves a next hop, asks
 * for a route, translates or answers. transmit.c, next_hop.c and handoff.c find such packets; this
 * file is below all three.
 */

/* The engine's questions may fill the event ring only so far: ARP and ND, which answer them, must
 * still fit behind them. */
enum { RING_RESERVE = 4 };

static bool has_ring_left(struct ipu_pump *pump)
{
    return ipu_ring_free_bytes(&pump->events) >= pump->events.capacity_bytes / RING_RESERVE;
}

/* Emits an event with the packet, and with the link-layer header of its host side. */
static bool emit(struct ipu_pump *pump, uint32_t type, const struct ipu_outbound *packet,
                 const struct in6_addr *next_hop, uint32_t mtu, size_t len)
{
    uint32_t header_len = pump->host->header_len;
    uint8_t *data = packet->frame + IPU_TX_IP - header_len;
    memmove(data, packet->frame - header_len, header_len); /* over the vnet header */
    /* `too_big` begins with the next hop, and the other events have only the next hop. */
    struct ipu_event event = {.type = type,
                              .len = header_len + (uint32_t)len,
                              .too_big = {.next_hop = *next_hop, .mtu = mtu}};
    bool emitted = ipu_event_emit(pump, &event, data);
    if (!emitted)
        IPU_COUNT(pump, tx_event_ring_full);
    return emitted;
}

bool ipu_miss_emit(struct ipu_pump *pump, uint32_t type, const struct ipu_outbound *packet,
                   const struct in6_addr *next_hop, uint32_t mtu)
{
    size_t ip_len = packet->ip_len;
    if (packet->segment != NULL)
        ip_len = ipu_segment_trim(packet->segment);
    else if (!ipu_tx_complete(pump, packet))
        return false;
    return emit(pump, type, packet, next_hop, mtu, ip_len);
}

bool ipu_miss_pass(struct ipu_pump *pump, const struct ipu_outbound *packet)
{
    if (ipu_tx_complete(pump, packet) &&
        emit(pump, IPU_EVENT_HOST, packet, &packet->flow.dst, 0, packet->ip_len))
        IPU_COUNT(pump, tx_missed);
    return false;
}

/* Returns whether the engine may resolve the next hop, or ask for the route; otherwise the packet
 * ends here, and is counted. */
static bool may_resolve(struct ipu_pump *pump, uint32_t type, const struct ipu_outbound *packet,
                        const struct in6_addr *next_hop)
{
    if (type != IPU_EVENT_MISS && type != IPU_EVENT_ROUTE_ASK)
        return true; /* the engine looks at the packet, and asks nobody */
    struct ipu_resolution *resolution = &pump->resolution;
    uint64_t now_ms = ipu_clock_coarse_ms();
    struct ipu_resolution_flow source =
        ipu_resolution_flow_of(resolution, packet->frame + IPU_TX_IP, packet->ip_len);
    bool is_gateway = pump->host->is_gateway(packet, next_hop);
    enum ipu_resolution_verdict verdict = IPU_RESOLVE;
    if (type == IPU_EVENT_MISS)
        verdict = ipu_resolution_judge(resolution, next_hop, source, is_gateway, now_ms);
    else if (!ipu_resolution_may_ask(resolution, source, now_ms))
        verdict = IPU_RESOLVE_NOT;
    if (verdict == IPU_RESOLVE)
        return true;
    if (verdict == IPU_RESOLVE_ERROR) {
        IPU_COUNT(pump, tx_error_unresolved);
        return false;
    }
    IPU_COUNT(pump, tx_resolution_limited);
    if (ipu_resolution_report(resolution, now_ms))
        (void)ipu_event_emit(
            pump, &(struct ipu_event){.type = IPU_EVENT_RESOLUTION_LIMITED, .next_hop = *next_hop},
            NULL);
    return false;
}

void ipu_miss_resolve(struct ipu_pump *pump, uint32_t type, const struct ipu_outbound *packet,
                      const struct in6_addr *next_hop)
{
    bool may = !packet->engines || (type == IPU_EVENT_MISS ? packet->may_miss : packet->may_ask);
    if (!may || !has_ring_left(pump))
        IPU_COUNT(pump, tx_unresolved_hold);
    else if (may_resolve(pump, type, packet, next_hop) &&
             ipu_miss_emit(pump, type, packet, next_hop, 0))
        IPU_COUNT(pump, tx_missed);
}

void ipu_miss_wait(struct ipu_pump *pump, const struct ipu_outbound *packet,
                   const struct in6_addr *next_hop)
{
    if (!has_ring_left(pump) || !ipu_event_spend(&pump->budgets.connecting))
        IPU_COUNT(pump, tx_connecting);
    else if (ipu_miss_emit(pump, IPU_EVENT_CONNECTING, packet, next_hop, 0))
        IPU_COUNT(pump, tx_missed);
}

void ipu_miss_want(struct ipu_pump *pump, const struct in6_addr *hop)
{
    if (has_ring_left(pump))
        (void)ipu_event_emit(pump, &(struct ipu_event){.type = IPU_EVENT_WANTED, .next_hop = *hop},
                             NULL);
}
