/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "device/trunk.h"
#include "pump/ends/event.h"
#include "pump/ends/miss.h"
#include "pump/receive/receive.h"
#include "pump/state/pump_state.h"
#include "pump/transmit/transmit.h"

/*
 * The hand-off between guests behind a TAP and the link. The next hop of a guest's packet is the
 * host for which the receiver's MAC stands, and not what a route says: the neighbour table has it
 * under the key 100::MAC, a prefix that no host has (RFC 6666). All that the pump does not know
 * goes to the engine (ipoibu/proto/ethernet/host.py).
 */
enum {
    RARP = 0x8035,        /* a hypervisor's notice of a guest that migrated */
    VLAN = 0x8100,        /* IEEE 802.1Q, */
    SERVICE_VLAN = 0x88a8 /* and the outer of two tags */
};

static const uint8_t *ethernet_of(const struct ipu_outbound *packet)
{
    return packet->frame - IPU_ETHERNET_LEN;
}

static bool is_group_mac(const uint8_t *mac)
{
    return mac[0] & 1;
}

static bool is_broadcast(const uint8_t *mac)
{
    static const uint8_t broadcast[IPU_MAC_LEN] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    return memcmp(mac, broadcast, IPU_MAC_LEN) == 0;
}

static struct in6_addr key_of(const uint8_t *mac)
{
    struct in6_addr key = {.s6_addr = {[0] = 1}};
    memcpy(key.s6_addr + sizeof key - IPU_MAC_LEN, mac, IPU_MAC_LEN);
    return key;
}

/* Leaves the padding of a short frame out (IEEE 802.3 §3.2.7). */
static void trim(struct ipu_outbound *packet, bool is_v4)
{
    const uint8_t *ip = packet->frame + IPU_TX_IP;
    size_t len = packet->ip_len;
    if (is_v4 && packet->ip_len >= IPU_IPV4_HEADER)
        len = ipu_ip_get16(ip + 2);
    else if (!is_v4 && packet->ip_len >= IPU_IPV6_HEADER)
        len = IPU_IPV6_HEADER + (size_t)ipu_ip_get16(ip + 4);
    if (len < packet->ip_len)
        packet->ip_len = len;
}

/* Returns whether the engine translates the packet: ND, and all that hosts tell of themselves. */
static bool is_engines(const struct ipu_outbound *packet, enum ipu_tx_class class)
{
    const uint8_t *ip = packet->frame + IPU_TX_IP;
    return class == IPU_TX_ND || class == IPU_TX_HOST || ipu_classify_is_nd(ip, packet->ip_len) ||
           ipu_classify_is_dhcp(ip, packet->ip_len, IPU_DHCP_OF_CLIENT);
}

/* Returns the guest that has the packet's source address, or NULL. */
static const struct ipu_mac_entry *sender_of(const struct ipu_pump *pump, const uint8_t *ip)
{
    struct in6_addr source;
    if (ipu_ip_is_v4(ip))
        source = ipu_classify_map4(ip + 12);
    else
        memcpy(&source, ip + 8, sizeof source);
    return ipu_mac_table_find(&pump->guests.guests, &source, 0);
}

/* Returns whether a packet to one address goes to the MAC of a group. */
static bool goes_nowhere(const struct ipu_outbound *packet)
{
    const uint8_t *receiver = ethernet_of(packet);
    return is_group_mac(receiver) && !is_broadcast(receiver) && !packet->flow.group;
}

/* Counts a packet from the address of a guest by another one, and reports it to the engine. */
static void drop_spoofed(struct ipu_pump *pump, const struct ipu_mac_entry *guest,
                         const uint8_t *sender)
{
    struct ipu_event event = {
        .type = IPU_EVENT_SPOOFED, .len = IPU_MAC_LEN, .next_hop = guest->key.address};
    IPU_COUNT(pump, tx_spoofed);
    if (ipu_event_spend(&pump->budgets.spoofed))
        (void)ipu_event_emit(pump, &event, sender); /* for people: a full ring loses it */
}

static bool may_leave(struct ipu_pump *pump, struct ipu_outbound *packet)
{
    const uint8_t *ethernet = ethernet_of(packet);
    const uint8_t *ip = packet->frame + IPU_TX_IP;
    uint16_t type = ipu_ip_get16(ethernet + 2 * IPU_MAC_LEN);
    bool is_v4 = type == IPU_TYPE_IPV4;
    if (type == IPU_TYPE_ARP || type == RARP)
        return ipu_miss_pass(pump, packet);
    if (!is_v4 && type != IPU_TYPE_IPV6) {
        bool tagged = type == VLAN || type == SERVICE_VLAN;
        IPU_ADD(pump, tx_vlan, tagged);
        IPU_ADD(pump, tx_not_ip, !tagged);
        return false;
    }
    if (packet->segment == NULL)
        trim(packet, is_v4);
    enum ipu_tx_class class = ipu_classify_tx(ip, packet->ip_len, &packet->flow);
    if (class == IPU_TX_MALFORMED || packet->flow.type != type) {
        IPU_COUNT(pump, tx_malformed);
        return false;
    }
    if (is_engines(packet, class) || goes_nowhere(packet))
        return ipu_miss_pass(pump, packet);
    const struct ipu_mac_entry *guest = sender_of(pump, ip);
    if (guest == NULL) {
        ipu_miss_resolve(pump, IPU_EVENT_HOST, packet, &packet->flow.dst);
        return false;
    }
    if (guest->firm && memcmp(guest->mac, ethernet + IPU_MAC_LEN, IPU_MAC_LEN) != 0) {
        drop_spoofed(pump, guest, ethernet + IPU_MAC_LEN);
        return false;
    }
    return true;
}

/* Returns the key of the host to whose MAC the packet goes; a group, or 255.255.255.255 for a
 * broadcast. */
static struct in6_addr next_hop_of(const struct ipu_outbound *packet)
{
    const uint8_t *receiver = ethernet_of(packet);
    if (!is_group_mac(receiver))
        return key_of(receiver);
    if (is_broadcast(receiver))
        return (struct in6_addr){.s6_addr = {[10] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
    return packet->flow.dst;
}

static bool forward(struct ipu_pump *pump, struct ipu_outbound *packet)
{
    const struct in6_addr next_hop = next_hop_of(packet);
    packet->source_qpn = ipu_guests_qpn(&pump->guests, ethernet_of(packet) + IPU_MAC_LEN);
    return ipu_transmit_to(pump, packet, &next_hop);
}

static bool transmit(struct ipu_pump *pump, struct ipu_outbound *packet)
{
    return may_leave(pump, packet) && forward(pump, packet);
}

/* Gives the engine a packet to an address that no guest has. */
static void ask_engine(struct ipu_pump *pump, const uint8_t *ip, size_t ip_len,
                       const struct ipu_frame_received *source)
{
    struct ipu_event event = {
        .type = IPU_EVENT_LINK_PACKET, .len = (uint32_t)ip_len, .frame = *source};
    if (ip_len > pump->mtu || !ipu_event_spend(&pump->budgets.unknown))
        IPU_COUNT(pump, rx_unknown_guest);
    else if (ipu_event_emit(pump, &event, ip))
        IPU_COUNT(pump, rx_control);
    else
        IPU_COUNT(pump, rx_event_ring_full);
}

static bool receive(struct ipu_pump *pump, uint8_t *ip, size_t ip_len, const uint8_t *grh,
                    uint32_t src_qpn)
{
    const struct ipu_frame_received source = ipu_receive_origin(grh, src_qpn);
    uint8_t *ethernet = ip - IPU_VNET_LEN - IPU_ETHERNET_LEN;
    uint8_t receiver[IPU_MAC_LEN];
    if (!ipu_guests_destination(&pump->guests, pump->receiving.qpn, ip, receiver)) {
        ask_engine(pump, ip, ip_len, &source);
        return false;
    }
    const uint8_t *sender = pump->guests.own;
    if (source.has_grh)
        sender = ipu_guests_source(&pump->guests, &source.sgid, source.src_qpn);
    memcpy(ethernet, receiver, IPU_MAC_LEN);
    memcpy(ethernet + IPU_MAC_LEN, sender, IPU_MAC_LEN);
    ipu_ip_put16(ethernet + 2 * IPU_MAC_LEN, ipu_ip_is_v4(ip) ? IPU_TYPE_IPV4 : IPU_TYPE_IPV6);
    return true;
}

static int deliver(struct ipu_pump *pump, const void *data, uint32_t len)
{
    const struct ipu_device *device = pump->device;
    if (len > IPU_ETHERNET_LEN + pump->device_mtu)
        return -EMSGSIZE;
    IPU_COUNT(pump, rx_from_engine);
    ipu_receive_flush(pump); /* earlier packets go first */
    ipu_receive_written(pump, device->ops->write_frame(device->self, data, len), len);
    return 0;
}

static bool is_sender(const struct ipu_pump *pump, const uint8_t *ip)
{
    (void)pump, (void)ip;
    return true;
}

static bool is_gateway(const struct ipu_outbound *packet, const struct in6_addr *next_hop)
{
    (void)packet, (void)next_hop;
    return false;
}

const struct ipu_host_side ipu_ethernet_host = {
    .room = IPU_TAP_ROOM,
    .header_len = IPU_ETHERNET_LEN,
    .tag_len = IPU_VLAN_TAG_LEN,
    .has_guests = true,
    .transmit = transmit,
    .forward = forward,
    .receive = receive,
    .deliver = deliver,
    .is_sender = is_sender,
    .is_gateway = is_gateway,
};
