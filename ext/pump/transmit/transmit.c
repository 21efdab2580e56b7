/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/transmit/transmit.h"

#include <errno.h>
#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "device/trunk.h"
#include "device/vnet.h"
#include "pump/ends/batch.h"
#include "pump/ends/event.h"
#include "pump/ends/miss.h"
#include "pump/ends/recovery.h"
#include "pump/packets/fragment.h"
#include "pump/receive/connection.h"
#include "pump/transmit/next_hop.h"

/*
 * Outbound, in the order of the functions below:
 *
 * 1. Device: ipu_transmit_read() reads frames while the batch has room.
 * 2. Classify: transmit() checks a frame, may_leave() its packet. IGMP, MLD and DHCP requests go to
 *    the engine (miss.c). A guest's frame takes the rest of this step, and the next, in handoff.c.
 * 3. Route: ipu_transmit_forward() looks up the next hop; next_hop.c chooses among several.
 * 4. Neighbour: ipu_transmit_to() looks up the next hop's entry, may_send() asks it. Without one
 *    hold_or_miss() gives the packet to the engine, which resolves the next hop and sends it later.
 * 5. MTU: fits() gives a packet that is too long to the engine, which answers the host.
 * 6. Batch: send_whole() puts the packet into the batch of datagrams or of its connection. cut()
 *    cuts a super-frame that cannot leave whole, and fills the batch with segments.
 * 7. Doorbell: ipu_transmit_flush() hands the batch to the fabric.
 * 8. ipu_transmit_reap() takes ended sends from the fabric; their frames are free again (batch.c).
 */
static ssize_t read_frame(struct ipu_pump *pump, uint32_t *index);
static bool transmit(struct ipu_pump *pump, uint32_t index, size_t len);
static bool forward(struct ipu_pump *pump, struct ipu_outbound *packet);
static bool may_send(struct ipu_pump *pump, const struct ipu_outbound *packet,
                     const struct ipu_neigh *entry, const struct in6_addr *next_hop);
static bool fits(struct ipu_pump *pump, const struct ipu_outbound *packet,
                 const struct in6_addr *next_hop, uint32_t mtu, bool connecting);
static bool send_whole(struct ipu_pump *pump, const struct ipu_outbound *packet,
                       const struct ipu_ah *ah, struct ipu_connection *connection);
static bool may_leave_uncut(const struct ipu_pump *pump, const struct ipu_segment *segment,
                            const struct ipu_ah *ah);
static void send_uncut(struct ipu_pump *pump, const struct ipu_outbound *packet,
                       const struct ipu_ah *ah);
static int cut(struct ipu_pump *pump);

/* ---- device */

/* Returns whether another frame or segment may go into the batch. */
static bool has_room(struct ipu_pump *pump)
{
    if (pump->pending_packets >= IPU_BATCH)
        ipu_transmit_flush(pump);
    return pump->pending < IPU_BATCH && pump->uncut_packets < pump->heads.frames &&
           (pump->cut.segment.left == 0 || pump->heads.free_frames > 0);
}

static void device_error(struct ipu_pump *pump, ssize_t error)
{
    IPU_COUNT(pump, tx_device_error);
    if (error == -EBADFD || error == -EBADF || error == -ENODEV) {
        struct ipu_event event = {.type = IPU_EVENT_DEVICE, .device.error = (uint32_t)-error};
        /* If the ring is full, the device fails again until the engine has the event. */
        pump->device_failed = ipu_event_emit(pump, &event, NULL);
    }
}

int ipu_transmit_read(struct ipu_pump *pump, int max)
{
    int done = 0;
    pump->held.left_ns = 0;
    if (pump->device_failed)
        return 0;
    while (done < max && pump->held.left_ns == 0 && has_room(pump)) {
        if (done > 0 && ipu_round_is_over(pump))
            break;
        if (pump->cut.segment.left > 0) {
            done += cut(pump);
            continue;
        }
        uint32_t index;
        ssize_t n = read_frame(pump, &index);
        if (n == -EINTR)
            continue;
        if (n == IPU_VLAN_FULL) {
            IPU_COUNT(pump, tx_vlan_full);
            done++;
            continue;
        }
        if (n < 0) {
            if (n != -EAGAIN && n != -ENOBUFS)
                device_error(pump, n);
            break;
        }
        uint32_t uncut = pump->uncut_packets;
        if (pump->broken)
            IPU_COUNT(pump, tx_fabric_error);
        if (pump->broken || !transmit(pump, index, (size_t)n))
            ipu_batch_put_frame(pump, index);
        if (pump->cut.segment.left == 0 && pump->held.left_ns == 0) /* else its segments count */
            done += pump->uncut_packets > uncut ? (int)(pump->uncut_packets - uncut) : 1;
    }
    ipu_transmit_flush(pump);
    return done;
}

/* Reads the next frame of the device, or takes the held one; returns its length, or a negative
 * errno. */
static ssize_t read_frame(struct ipu_pump *pump, uint32_t *index)
{
    const struct ipu_device *device = pump->device;
    pump->held.before = pump->held.index != IPU_SLAB_NONE;
    if (pump->held.before) {
        *index = pump->held.index;
        pump->held.index = IPU_SLAB_NONE;
        return (ssize_t)pump->held.len;
    }
    ssize_t n = pump->lent.frames > 0 ? device->ops->give(device->self, index) : 0;
    pump->lent.sending += n > 0;
    if (n != 0 || device->ops->read == NULL)
        return n;
    if (pump->tx.free_frames <= pump->engine_frames)
        return -ENOBUFS; /* all frames are being sent: back-pressure, see ipu_transmit_flush() */
    *index = ipu_slab_get(&pump->tx);
    n = device->ops->read(device->self, ipu_tx_frame(pump, *index), pump->read_len);
    if (n < 0)
        ipu_slab_put(&pump->tx, *index);
    return n;
}

/* ---- classify */

/* Returns whether the host's IP packet goes to the link; otherwise it ends here, counted, or the
 * engine has it. */
static bool may_leave(struct ipu_pump *pump, struct ipu_outbound *packet)
{
    const uint8_t *ip = packet->frame + IPU_TX_IP;
    switch (ipu_classify_tx(ip, packet->ip_len, &packet->flow)) {
    case IPU_TX_MALFORMED:
        IPU_COUNT(pump, tx_malformed);
        return false;
    case IPU_TX_ND:
        IPU_COUNT(pump, tx_host_nd);
        return false;
    case IPU_TX_HOST:
        return ipu_miss_pass(pump, packet);
    case IPU_TX_FORWARD:
        break;
    }
    if (pump->dhcp_watched && ipu_classify_is_dhcp(ip, packet->ip_len, IPU_DHCP_OF_CLIENT))
        return ipu_miss_pass(pump, packet);
    return true;
}

/* Takes the frame, [vnet][IP] of `len` bytes, when it returns true. */
static bool transmit(struct ipu_pump *pump, uint32_t index, size_t len)
{
    struct ipu_outbound packet = {.frame = ipu_tx_frame(pump, index), .index = index};
    struct ipu_segment super;
    if (len < IPU_VNET_LEN) {
        IPU_COUNT(pump, tx_malformed);
        return false;
    }
    packet.ip_len = len - IPU_VNET_LEN;
    if (ipu_vnet_read(packet.frame).gso_type != VIRTIO_NET_HDR_GSO_NONE) {
        packet.segment = &super;
        if (ipu_segment_init(&super, packet.frame, len, pump->device_mtu) < 0) {
            IPU_COUNT(pump, tx_bad_gso);
            return false;
        }
    } else if (packet.ip_len > pump->device_mtu) {
        IPU_COUNT(pump, tx_too_big);
        return false;
    }
    if (pump->host->transmit != NULL)
        return pump->host->transmit(pump, &packet);
    return may_leave(pump, &packet) && forward(pump, &packet);
}

/* ---- route */

/* Holds the frame for at most `hold_ns`; the pump reads no other one meanwhile. */
static bool hold(struct ipu_pump *pump, const struct ipu_outbound *packet, uint64_t hold_ns)
{
    pump->held.left_ns = hold_ns;
    pump->held.index = packet->index;
    pump->held.len = IPU_VNET_LEN + packet->ip_len;
    return true;
}

/* Handles a full connection. True: the pump holds the frame. The engine's packet waits in the
 * command ring. */
static bool hold_for_room(struct ipu_pump *pump, struct ipu_outbound *packet,
                          struct ipu_connection *connection)
{
    uint64_t hold_ns = ipu_connection_hold(pump, connection);
    if (hold_ns > 0 && packet->engines) {
        pump->engines.room_left_ns = hold_ns;
        packet->again = true;
        return false;
    }
    if (hold_ns > 0)
        return hold(pump, packet, hold_ns);
    IPU_COUNT(pump, tx_connection_full);
    return false;
}

/* Handles a next hop without an entry. A route or a neighbour that was set before the packet came
 * may still be in the command ring: the packet waits for the next commands, once. True: the pump
 * holds the frame. */
static bool hold_or_miss(struct ipu_pump *pump, const struct ipu_outbound *packet,
                         const struct in6_addr *next_hop)
{
    uint32_t len;
    if (!packet->engines && !pump->held.before && ipu_ring_peek(&pump->commands, &len) != NULL)
        return hold(pump, packet, 1);
    ipu_miss_resolve(pump, IPU_EVENT_MISS, packet, next_hop);
    return false;
}

static uint32_t flow_hash(const struct ipu_pump *pump, const struct ipu_outbound *packet)
{
    struct ipu_flow_key key = ipu_flow_key_of(packet->frame + IPU_TX_IP, packet->ip_len);
    return ipu_flow_key_hash(&key, &pump->route.seed);
}

/* The engine wants one event at the entry's next use; after a full ring the next use tries again.
 */
static void note_use(struct ipu_pump *pump, struct ipu_neigh *entry,
                     const struct in6_addr *next_hop)
{
    if (entry->action == IPU_NEIGH_NOTIFY &&
        ipu_event_emit(pump, &(struct ipu_event){.type = IPU_EVENT_USED, .next_hop = *next_hop},
                       NULL))
        entry->action = IPU_NEIGH_SEND;
}

static void begin_cut(struct ipu_pump *pump, const struct ipu_outbound *packet,
                      const struct ipu_segment *segment, const struct ipu_ah *ah,
                      struct ipu_connection *connection)
{
    pump->cut.segment = *segment;
    pump->cut.index = packet->index;
    pump->cut.ah = ah;
    pump->cut.flow = packet->flow_hash;
    pump->cut.source_qpn = packet->source_qpn;
    pump->cut.connection = connection;
}

/* Returns whether the packet goes to a group, is too long for it, and may be cut into fragments:
 * nobody can tell an IPv4 sender, and a router must not cut IPv6. */
static bool may_fragment(const struct ipu_pump *pump, const struct ipu_outbound *packet,
                         const struct ipu_neigh *entry, uint32_t mtu)
{
    if (entry->ah->dest.qpn != IPU_MULTICAST_QPN ||
        (packet->segment != NULL ? ipu_segment_fit(packet->segment, mtu) == 0
                                 : packet->ip_len <= mtu))
        return false;
    const uint8_t *ip = packet->frame + IPU_TX_IP;
    return ipu_ip_is_v4(ip) || pump->host->is_sender(pump, ip);
}

/* Plans the fragments of the packet, or of the segments of a super-frame. Returns how many packets
 * get fragments, or a negative errno. */
static int plan_fragments(const struct ipu_pump *pump, const struct ipu_outbound *packet,
                          uint32_t mtu, struct ipu_segment *fragments)
{
    if (packet->segment != NULL) {
        *fragments = *packet->segment;
        return ipu_fragment_segments(fragments, mtu, pump->fragment_id);
    }
    int error = ipu_fragment_init(fragments, packet->frame + IPU_TX_IP, (uint32_t)packet->ip_len,
                                  mtu, pump->fragment_id);
    return error < 0 ? error : 1;
}

static bool send_fragments(struct ipu_pump *pump, struct ipu_outbound *packet,
                           struct ipu_neigh *entry, const struct in6_addr *next_hop, uint32_t mtu)
{
    struct ipu_segment fragments;
    int cut_up =
        pump->cut.segment.left > 0 /* the engine's packet, while the device's super-frame leaves */
            ? -EBUSY
            : plan_fragments(pump, packet, mtu, &fragments);
    if (cut_up < 0) {
        IPU_COUNT(pump, tx_too_big);
        return false;
    }
    if (packet->segment == NULL && !ipu_tx_complete(pump, packet))
        return false;
    note_use(pump, entry, next_hop);
    pump->fragment_id += (uint32_t)cut_up;
    begin_cut(pump, packet, &fragments, entry->ah, NULL);
    IPU_ADD(pump, tx_fragmented, (uint64_t)cut_up);
    if (packet->segment != NULL)
        IPU_COUNT(pump, tx_super_frames);
    return true;
}

static bool forward(struct ipu_pump *pump, struct ipu_outbound *packet)
{
    const struct ipu_flow *flow = &packet->flow;
    struct in6_addr next_hop = flow->dst;
    if (!flow->group) {
        enum ipu_route_kind kind = ipu_route_lookup(&pump->route, &flow->dst, &next_hop);
        if (kind >= IPU_ROUTE_UNREACHABLE && !ipu_next_hop_choose(pump, packet, kind, &next_hop))
            return false;
    }
    return ipu_transmit_to(pump, packet, &next_hop);
}

bool ipu_transmit_forward(struct ipu_pump *pump, struct ipu_outbound *packet)
{
    return forward(pump, packet);
}

/* ---- neighbour */

bool ipu_transmit_to(struct ipu_pump *pump, struct ipu_outbound *packet,
                     const struct in6_addr *next_hop)
{
    struct ipu_neigh *entry = ipu_neigh_find(&pump->neigh, next_hop);
    if (entry == NULL)
        return hold_or_miss(pump, packet, next_hop);
    if (!may_send(pump, packet, entry, next_hop))
        return false;
    uint32_t mtu = entry->mtu;
    struct ipu_connection *connection = NULL;
    if (entry->ah->connection != NULL)
        connection = ipu_connection_of(pump, entry->ah, &mtu);
    bool connecting = connection == NULL && entry->ah->connection != NULL;
    if (may_fragment(pump, packet, entry, mtu))
        return send_fragments(pump, packet, entry, next_hop, mtu);
    if (!fits(pump, packet, next_hop, mtu, connecting))
        return false;
    note_use(pump, entry, next_hop);
    if (connection != NULL && !ipu_connection_has_room(pump, connection))
        return hold_for_room(pump, packet, connection);
    if (connection == NULL && pump->fabric->spreads_flows)
        packet->flow_hash = flow_hash(pump, packet);
    bool whole =
        packet->segment == NULL ||
        (connection != NULL && connection->superframe_bytes >= IPU_VNET_LEN + packet->ip_len &&
         ipu_segment_may_cross(packet->segment));
    if (whole)
        return send_whole(pump, packet, entry->ah, connection);
    IPU_COUNT(pump, tx_super_frames);
    if (connection == NULL && may_leave_uncut(pump, packet->segment, entry->ah))
        send_uncut(pump, packet, entry->ah);
    else
        begin_cut(pump, packet, packet->segment, entry->ah, connection);
    return true;
}

/* Returns whether the entry's action lets the packet pass; otherwise it ends here, and is counted.
 */
static bool may_send(struct ipu_pump *pump, const struct ipu_outbound *packet,
                     const struct ipu_neigh *entry, const struct in6_addr *next_hop)
{
    switch (entry->action) {
    case IPU_NEIGH_HOLD:
        IPU_COUNT(pump, tx_unresolved_hold);
        return false;
    case IPU_NEIGH_UNREACHABLE:
        if (!ipu_event_spend(&pump->budgets.unreachable) ||
            ipu_miss_emit(pump, IPU_EVENT_UNREACHABLE, packet, next_hop, 0))
            IPU_COUNT(pump, tx_unreachable);
        return false;
    default:
        return true;
    }
}

/* Returns whether the packet may be so long; while a connection is `connecting`, a longer one will
 * do soon. */
static bool fits(struct ipu_pump *pump, const struct ipu_outbound *packet,
                 const struct in6_addr *next_hop, uint32_t mtu, bool connecting)
{
    if (packet->segment != NULL ? ipu_segment_fit(packet->segment, mtu) == 0
                                : packet->ip_len <= mtu)
        return true;
    if (connecting)
        ipu_miss_wait(pump, packet, next_hop);
    else if (!ipu_event_spend(&pump->budgets.too_big) ||
             ipu_miss_emit(pump, IPU_EVENT_TOO_BIG, packet, next_hop, mtu))
        IPU_COUNT(pump, tx_too_big);
    return false;
}

/* ---- batch */

static void enqueue(struct ipu_pump *pump, const struct ipu_ah *ah, struct ipu_send send)
{
    send.qpn = ah->dest.qpn;
    send.ah = ah->handle;
    if (pump->tap.snap_len > 0)
        ipu_event_capture(pump, ipu_capture_sent(&pump->tap, &pump->fabric->gid, &ah->dest, &send));
    pump->batch[pump->pending++] = send;
    pump->pending_packets += ipu_batch_packets_of(&send);
}

void ipu_transmit_enqueue(struct ipu_pump *pump, uint32_t index, const struct ipu_ah *ah,
                          const uint8_t *frame, size_t len, uint32_t source_qpn)
{
    enqueue(pump, ah,
            (struct ipu_send){
                .addr = frame, .len = (uint32_t)len, .source_qpn = source_qpn, .cookie = index});
}

static void write_encap(uint8_t *at, uint16_t type)
{
    at[0] = (uint8_t)(type >> 8);
    at[1] = (uint8_t)type;
    at[2] = at[3] = 0; /* E2: reserved, zero on send */
}

/* Writes the message's vnet header: the device's own, as a super-frame may cross whole, without the
 * flags that concern this host alone (on a forwarded packet: that its checksum is verified). */
static void write_vnet(struct ipu_pump *pump, const struct ipu_outbound *packet)
{
    struct virtio_net_hdr vnet = ipu_vnet_read(packet->frame);
    vnet.flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
    if (packet->segment != NULL)
        IPU_COUNT(pump, tx_super_frames);
    memset(packet->frame, 0, IPU_TX_ENCAP);
    memcpy(packet->frame, &vnet, sizeof vnet);
}

/* Sends the packet as one datagram, or one message of the connection. False: it cannot complete the
 * checksum. */
static bool send_whole(struct ipu_pump *pump, const struct ipu_outbound *packet,
                       const struct ipu_ah *ah, struct ipu_connection *connection)
{
    struct ipu_send send = {.addr = packet->frame + IPU_TX_ENCAP,
                            .len = (uint32_t)(IPU_ENCAP_LEN + packet->ip_len),
                            .flow = packet->flow_hash,
                            .source_qpn = packet->source_qpn,
                            .cookie = packet->index};
    bool superframes = connection != NULL && connection->superframes;
    if (!superframes && !ipu_tx_complete(pump, packet))
        return false;
    write_encap(packet->frame + IPU_TX_ENCAP, packet->flow.type);
    if (superframes) {
        write_vnet(pump, packet);
        send.addr = packet->frame;
        send.len += IPU_TX_ENCAP;
    }
    if (connection != NULL)
        ipu_connection_enqueue(pump, connection, ah, send);
    else
        enqueue(pump, ah, send);
    return true;
}

/* Returns whether the fabric cuts the super-frame. A capture shows the packets of the link, so
 * while it runs the pump makes them. */
static bool may_leave_uncut(const struct ipu_pump *pump, const struct ipu_segment *segment,
                            const struct ipu_ah *ah)
{
    return pump->supers != NULL && segment->left <= IPU_CUT_PACKETS &&
           ah->dest.qpn != IPU_MULTICAST_QPN && pump->tap.snap_len == 0;
}

/* Sends the super-frame to the fabric, which cuts it. */
static void send_uncut(struct ipu_pump *pump, const struct ipu_outbound *packet,
                       const struct ipu_ah *ah)
{
    struct ipu_super *super = &pump->supers[packet->index];
    super->segment = *packet->segment;
    super->cut = ipu_segment_cut(&super->segment);
    uint8_t *message = packet->frame + IPU_TX_ENCAP;
    uint32_t head_len = IPU_ENCAP_LEN + super->segment.head_len;
    write_encap(message, packet->flow.type);
    pump->uncut_packets += super->cut.packets;
    enqueue(pump, ah,
            (struct ipu_send){.head = message,
                              .head_len = head_len,
                              .addr = message + head_len,
                              .len = super->segment.packet_len - super->segment.head_len,
                              .flow = packet->flow_hash,
                              .source_qpn = packet->source_qpn,
                              .cookie = UINT64_C(1) << IPU_COOKIE_UNCUT_SHIFT | packet->index,
                              .cut = &super->cut});
}

/* Puts segments of the current super-frame into the batch while there is room; returns how many. */
static int cut(struct ipu_pump *pump)
{
    struct ipu_segment *segment = &pump->cut.segment;
    struct ipu_connection *connection = pump->cut.connection;
    uint16_t type = ipu_ip_is_v4(segment->ip) ? IPU_TYPE_IPV4 : IPU_TYPE_IPV6;
    uint32_t vnet_len = connection != NULL && connection->superframes ? IPU_TX_ENCAP : 0;
    int done = 0;
    while (segment->left > 0 && pump->pending < IPU_BATCH) {
        if (connection != NULL && !ipu_connection_has_room(pump, connection)) {
            pump->held.left_ns = ipu_connection_hold(pump, connection);
            if (pump->held.left_ns == 0)
                ipu_batch_abandon_cut(pump, &pump->counters.tx_connection_full);
            break;
        }
        uint32_t index = ipu_slab_get(&pump->heads);
        if (index == IPU_SLAB_NONE)
            break;
        uint8_t *head = ipu_slab_at(&pump->heads, index);
        const uint8_t *payload;
        memset(head, 0, vnet_len);
        write_encap(head + vnet_len, type);
        uint32_t len = ipu_fragment_next(segment, head + vnet_len + IPU_ENCAP_LEN, &payload);
        struct ipu_send send = {
            .head = head,
            .head_len = vnet_len + IPU_ENCAP_LEN + segment->written,
            .addr = payload,
            .len = len,
            .flow = pump->cut.flow,
            .source_qpn = pump->cut.source_qpn,
            .cookie = (index + UINT64_C(1)) << IPU_COOKIE_HEAD_SHIFT | pump->cut.index,
        };
        if (pump->fabric->one_piece && connection == NULL) {
            memcpy(head + send.head_len, payload, len);
            send.addr = head;
            send.len += send.head_len;
            send.head = NULL;
            send.head_len = 0;
        }
        pump->tx_users[pump->cut.index]++;
        if (connection != NULL)
            ipu_connection_enqueue(pump, connection, pump->cut.ah, send);
        else
            enqueue(pump, pump->cut.ah, send);
        done++;
    }
    return done;
}

/* ---- doorbell */

void ipu_transmit_flush(struct ipu_pump *pump)
{
    ipu_connection_flush(pump);
    if (pump->pending == 0)
        return;
    int taken = pump->fabric->ops->send(pump->fabric->self, pump->batch, pump->pending);
    if (taken < 0) {
        ipu_recovery_broke(pump);
        return;
    }
    if (taken == 0)
        return;
    IPU_COUNT(pump, send_batches);
    for (int i = 0; i < taken; i++) {
        const struct ipu_send *send = &pump->batch[i];
        uint32_t packets = ipu_batch_packets_of(send);
        IPU_ADD(pump, tx_packets, packets);
        IPU_ADD(pump, tx_bytes,
                (uint64_t)packets * send->head_len + send->len - packets * IPU_ENCAP_LEN);
        if (send->qpn == IPU_MULTICAST_QPN)
            IPU_COUNT(pump, tx_multicast_packets);
        pump->pending_packets -= packets;
    }
    pump->sending += (uint32_t)taken;
    pump->pending -= taken;
    if (pump->pending > 0)
        memmove(pump->batch, pump->batch + taken, (size_t)pump->pending * sizeof *pump->batch);
}

int ipu_transmit_reap(struct ipu_pump *pump)
{
    uint64_t cookies[IPU_BATCH];
    int n = pump->fabric->ops->sent(pump->fabric->self, cookies, IPU_BATCH);
    if (n < 0) {
        ipu_recovery_broke(pump);
        return 0;
    }
    for (int i = 0; i < n; i++)
        ipu_batch_release(pump, cookies[i]);
    pump->sending -= (uint32_t)n;
    pump->engines.room_refused = pump->engines.room_refused && n == 0;
    return n;
}
