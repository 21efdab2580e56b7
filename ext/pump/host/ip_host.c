/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/state/host_side.h"

#include <errno.h>
#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "pump/receive/receive.h"
#include "pump/state/pump_state.h"
#include "pump/transmit/transmit.h"

/*
 * A device of IP packets, which has one host behind it: the kernel or an application. Its packets
 * take the shortest path through transmit.c and receive.c; here is what few packets need.
 */
static int deliver(struct ipu_pump *pump, const void *data, uint32_t len)
{
    if (len > pump->device_mtu)
        return -EMSGSIZE;
    uint32_t index = ipu_slab_get(&pump->tx);
    if (index == IPU_SLAB_NONE)
        return -ENOBUFS;
    uint8_t *frame = ipu_tx_frame(pump, index);
    memcpy(frame + IPU_VNET_LEN, data, len);
    IPU_COUNT(pump, rx_from_engine);
    ipu_receive_deliver(pump, frame, len);
    ipu_receive_flush(pump);
    ipu_slab_put(&pump->tx, index);
    return 0;
}

/* The host may forward packets of others, and only the engine's list of its addresses tells which
 * are its own. */
static bool is_sender(const struct ipu_pump *pump, const uint8_t *ip)
{
    struct in6_addr source;
    memcpy(&source, ip + IPU_IPV6_SOURCE, sizeof source);
    return ipu_neigh_find(&pump->admission.own, &source) != NULL;
}

static bool is_gateway(const struct ipu_outbound *packet, const struct in6_addr *next_hop)
{
    return memcmp(next_hop, &packet->flow.dst, sizeof *next_hop) != 0;
}

const struct ipu_host_side ipu_ip_host = {
    .forward = ipu_transmit_forward,
    .deliver = deliver,
    .is_sender = is_sender,
    .is_gateway = is_gateway,
};
