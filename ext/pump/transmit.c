/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "core/csum.h"
#include "core/frame.h"
#include "device/vnet.h"
#include "pump/pump_state.h"

/* Misses may fill the event ring only so far: ARP and ND must still fit behind them. */
enum { MISS_RING_RESERVE = 4 };

/* A cookie is the index of the frame; above it, for a segment, 1 + the index of its headers. */
enum { COOKIE_HEAD_SHIFT = 32 };

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
        IPU_COUNT(pump, tx_packets);
        IPU_ADD(pump, tx_bytes, pump->batch[i].head_len + pump->batch[i].len - IPU_ENCAP_LEN);
        if (pump->batch[i].qpn == IPU_MULTICAST_QPN)
            IPU_COUNT(pump, tx_multicast_packets);
    }
    pump->sending += (uint32_t)taken;
    pump->pending -= taken;
    if (pump->pending > 0)
        memmove(pump->batch, pump->batch + taken, (size_t)pump->pending * sizeof *pump->batch);
}

static void put_frame(struct ipu_pump *pump, uint32_t index)
{
    if (index >= pump->lent_frames) {
        ipu_slab_put(&pump->tx, index);
        return;
    }
    pump->lent_sending--;
    pump->device->ops->ended(pump->device->self, index);
}

void ipu_transmit_release(struct ipu_pump *pump, uint64_t cookie)
{
    uint32_t index = (uint32_t)cookie;
    uint32_t head = (uint32_t)(cookie >> COOKIE_HEAD_SHIFT);
    if (head > 0) {
        ipu_slab_put(&pump->heads, head - 1);
        if (--pump->tx_users[index] > 0 || (pump->cut.left > 0 && pump->cut_index == index))
            return;
    }
    put_frame(pump, index);
}

static void enqueue(struct ipu_pump *pump, const struct ipu_ah *ah, struct ipu_send send)
{
    send.qpn = ah->dest.qpn;
    send.ah = ah->handle;
    if (pump->tap.snap_len > 0)
        ipu_event_capture(pump, ipu_capture_sent(&pump->tap, &pump->fabric->gid, &ah->dest, &send));
    pump->batch[pump->pending++] = send;
}

void ipu_transmit_enqueue(struct ipu_pump *pump, uint32_t index, const struct ipu_ah *ah,
                          const uint8_t *frame, size_t len)
{
    enqueue(pump, ah, (struct ipu_send){.addr = frame, .len = (uint32_t)len, .cookie = index});
}

static void write_encap(uint8_t *at, uint16_t type)
{
    at[0] = (uint8_t)(type >> 8);
    at[1] = (uint8_t)type;
    at[2] = at[3] = 0; /* E2: reserved, zero on send */
}

/* The segments of the super-frame at hand that are left are lost. */
static void drop_rest(struct ipu_pump *pump, _Atomic uint64_t *counter)
{
    uint32_t left = pump->cut.left;
    if (left == 0)
        return;
    ipu_counter_add(counter, left);
    pump->cut.left = 0;
    if (pump->tx_users[pump->cut_index] == 0)
        put_frame(pump, pump->cut_index);
}

/* Segments of the super-frame at hand into the batch, while there is room; how many. */
static int cut(struct ipu_pump *pump)
{
    struct ipu_segment *segment = &pump->cut;
    struct ipu_connection *connection = pump->cut_connection;
    uint16_t type = segment->ip[0] >> 4 == 4 ? IPU_TYPE_IPV4 : IPU_TYPE_IPV6;
    uint32_t vnet_len = connection != NULL && connection->superframes ? IPU_TX_ENCAP : 0;
    int done = 0;
    while (segment->left > 0 && pump->pending < IPU_BATCH) {
        if (connection != NULL && !ipu_connection_has_room(pump, connection)) {
            pump->hold_ns = ipu_connection_hold_ns(connection);
            if (pump->hold_ns == 0)
                drop_rest(pump, &pump->counters.tx_connection_full);
            break;
        }
        uint32_t index = ipu_slab_get(&pump->heads);
        if (index == IPU_SLAB_NONE)
            break;
        uint8_t *head = ipu_slab_at(&pump->heads, index);
        const uint8_t *payload;
        memset(head, 0, vnet_len);
        write_encap(head + vnet_len, type);
        uint32_t len = ipu_segment_next(segment, head + vnet_len + IPU_ENCAP_LEN, &payload);
        struct ipu_send send = {
            .head = head,
            .head_len = vnet_len + IPU_ENCAP_LEN + segment->head_len,
            .addr = payload,
            .len = len,
            .cookie = (index + UINT64_C(1)) << COOKIE_HEAD_SHIFT | pump->cut_index,
        };
        if (pump->fabric->one_piece && connection == NULL) {
            memcpy(head + send.head_len, payload, len);
            send =
                (struct ipu_send){.addr = head, .len = send.head_len + len, .cookie = send.cookie};
        }
        pump->tx_users[pump->cut_index]++;
        if (connection != NULL)
            ipu_connection_enqueue(pump, connection, pump->cut_ah, send);
        else
            enqueue(pump, pump->cut_ah, send);
        done++;
    }
    return done;
}

void ipu_transmit_abandon(struct ipu_pump *pump)
{
    drop_rest(pump, &pump->counters.tx_fabric_error);
}

/* A checksum that the device left to us; none is, where a connection carries vnet headers. */
static bool complete(struct ipu_pump *pump, uint8_t *ip, size_t ip_len)
{
    if (ipu_csum_complete(ip - IPU_VNET_LEN, IPU_VNET_LEN + ip_len) == 0)
        return true;
    IPU_COUNT(pump, tx_bad_csum);
    return false;
}

/* A word about a packet that ends here; of a super-frame the engine gets the first segment. False:
 * it could not be told, and was counted. */
static bool tell(struct ipu_pump *pump, uint32_t type, const struct in6_addr *next_hop,
                 uint32_t mtu, uint8_t *ip, size_t ip_len, struct ipu_segment *segment)
{
    if (segment != NULL)
        ip_len = ipu_segment_trim(segment);
    else if (!complete(pump, ip, ip_len))
        return false;
    return ipu_event_emit_tx(pump, type, next_hop, mtu, ip, ip_len);
}

/* One message: with the device's own vnet header where a super-frame may cross whole. What else its
 * flags say is for us: of a forwarded packet, that its checksum was seen to be right. */
static void send_connected(struct ipu_pump *pump, struct ipu_connection *connection,
                           const struct ipu_ah *ah, uint32_t index, uint8_t *frame, size_t ip_len,
                           const struct ipu_segment *segment)
{
    struct ipu_send send = {
        .addr = frame + IPU_TX_ENCAP, .len = (uint32_t)(IPU_ENCAP_LEN + ip_len), .cookie = index};
    if (connection->superframes) {
        struct virtio_net_hdr vnet = ipu_vnet_read(frame);
        vnet.flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
        if (segment != NULL)
            IPU_COUNT(pump, tx_super_frames);
        memset(frame, 0, IPU_TX_ENCAP);
        memcpy(frame, &vnet, sizeof vnet);
        send.addr = frame;
        send.len += IPU_TX_ENCAP;
    }
    ipu_connection_enqueue(pump, connection, ah, send);
}

bool ipu_transmit_forward(struct ipu_pump *pump, uint32_t index, const struct ipu_flow *flow,
                          uint8_t *frame, size_t ip_len, struct ipu_segment *segment, bool engines)
{
    uint8_t *ip = frame + IPU_TX_IP;
    struct in6_addr next_hop = flow->dst;
    if (!flow->group &&
        ipu_route_lookup(&pump->route, &flow->dst, &next_hop) == IPU_ROUTE_UNREACHABLE) {
        IPU_COUNT(pump, tx_no_route);
        return false;
    }
    struct ipu_neigh *entry = ipu_neigh_find(&pump->neigh, &next_hop);
    if (entry == NULL) {
        uint32_t reserve = pump->events.capacity_bytes / MISS_RING_RESERVE;
        if (engines || ipu_ring_free_bytes(&pump->events) < reserve)
            IPU_COUNT(pump, tx_unresolved_hold);
        else if (tell(pump, IPU_EVENT_MISS, &next_hop, 0, ip, ip_len, segment))
            IPU_COUNT(pump, tx_missed);
        return false;
    }
    switch (entry->action) {
    case IPU_NEIGH_HOLD:
        IPU_COUNT(pump, tx_unresolved_hold);
        return false;
    case IPU_NEIGH_UNREACHABLE:
        if (!ipu_event_spend(&pump->unreachable_budget) ||
            tell(pump, IPU_EVENT_UNREACHABLE, &next_hop, 0, ip, ip_len, segment))
            IPU_COUNT(pump, tx_unreachable);
        return false;
    default:
        break;
    }
    uint32_t mtu = entry->mtu;
    struct ipu_connection *connection = NULL;
    if (entry->ah->connection != NULL)
        connection = ipu_connection_of(pump, entry->ah, &mtu);
    if (segment != NULL ? ipu_segment_fit(segment, mtu) < 0 : ip_len > mtu) {
        if (!ipu_event_spend(&pump->too_big_budget) ||
            tell(pump, IPU_EVENT_TOO_BIG, &next_hop, mtu, ip, ip_len, segment))
            IPU_COUNT(pump, tx_too_big);
        return false;
    }
    /* The engine asked for one word of the entry's next use; ask again when the ring was full. */
    if (entry->action == IPU_NEIGH_NOTIFY &&
        ipu_event_emit(pump, &(struct ipu_event){.type = IPU_EVENT_USED, .next_hop = next_hop}, NULL))
        entry->action = IPU_NEIGH_SEND;
    if (connection != NULL && !ipu_connection_has_room(pump, connection)) {
        uint64_t hold_ns = engines ? 0 : ipu_connection_hold_ns(connection);
        if (hold_ns == 0) {
            IPU_COUNT(pump, tx_connection_full);
            return false;
        }
        pump->hold_ns = hold_ns;
        pump->held_index = index;
        pump->held_len = IPU_VNET_LEN + ip_len;
        return true;
    }
    bool whole = segment == NULL ||
                 (connection != NULL && connection->superframe_bytes >= IPU_VNET_LEN + ip_len);
    if (!whole) {
        pump->cut = *segment;
        pump->cut_index = index;
        pump->cut_ah = entry->ah;
        pump->cut_connection = connection;
        IPU_COUNT(pump, tx_super_frames);
        return true;
    }
    if ((connection == NULL || !connection->superframes) && !complete(pump, ip, ip_len))
        return false;
    write_encap(frame + IPU_TX_ENCAP, flow->type);
    if (connection != NULL) {
        send_connected(pump, connection, entry->ah, index, frame, ip_len, segment);
        return true;
    }
    ipu_transmit_enqueue(pump, index, entry->ah, frame + IPU_TX_ENCAP, IPU_ENCAP_LEN + ip_len);
    return true;
}

/* Takes the frame when it returns true. `frame` is [vnet][IP], `len` bytes of it. */
static bool transmit(struct ipu_pump *pump, uint32_t index, uint8_t *frame, size_t len)
{
    struct ipu_flow flow;
    if (len < IPU_VNET_LEN) {
        IPU_COUNT(pump, tx_malformed);
        return false;
    }
    uint8_t *ip = frame + IPU_TX_IP;
    size_t ip_len = len - IPU_VNET_LEN;
    struct ipu_segment super, *segment = NULL;
    if (ipu_vnet_read(frame).gso_type != VIRTIO_NET_HDR_GSO_NONE) {
        segment = &super;
        if (ipu_segment_init(segment, frame, len, pump->device_mtu) < 0) {
            IPU_COUNT(pump, tx_bad_gso);
            return false;
        }
    } else if (ip_len > pump->device_mtu) {
        IPU_COUNT(pump, tx_too_big);
        return false;
    }
    switch (ipu_classify_tx(ip, ip_len, &flow)) {
    case IPU_TX_MALFORMED:
        IPU_COUNT(pump, tx_malformed);
        return false;
    case IPU_TX_ND:
        IPU_COUNT(pump, tx_host_nd);
        return false;
    case IPU_TX_HOST:
        if (complete(pump, ip, ip_len) &&
            ipu_event_emit_tx(pump, IPU_EVENT_HOST, &flow.dst, 0, ip, ip_len))
            IPU_COUNT(pump, tx_missed);
        return false;
    case IPU_TX_FORWARD:
        break;
    }
    return ipu_transmit_forward(pump, index, &flow, frame, ip_len, segment, false);
}

/* Whether another frame or segment may go into the batch. */
static bool has_room(struct ipu_pump *pump)
{
    if (pump->pending == IPU_BATCH)
        ipu_transmit_flush(pump);
    return pump->pending < IPU_BATCH && (pump->cut.left == 0 || pump->heads.free_frames > 0);
}

/* The next frame of the device, or the one that was held, and its length; or negative errno. */
static ssize_t read_frame(struct ipu_pump *pump, uint32_t *index)
{
    const struct ipu_device *device = pump->device;
    if (pump->held_index != IPU_SLAB_NONE) {
        *index = pump->held_index;
        pump->held_index = IPU_SLAB_NONE;
        return (ssize_t)pump->held_len;
    }
    ssize_t n = pump->lent_frames > 0 ? device->ops->give(device->self, index) : 0;
    pump->lent_sending += n > 0;
    if (n != 0 || device->ops->read == NULL)
        return n;
    *index = ipu_slab_get(&pump->tx);
    if (*index == IPU_SLAB_NONE)
        return -ENOBUFS; /* all frames are being sent: back-pressure, see ipu_transmit_flush() */
    n = device->ops->read(device->self, ipu_slab_at(&pump->tx, *index), pump->read_len);
    if (n < 0)
        ipu_slab_put(&pump->tx, *index);
    return n;
}

int ipu_transmit_read(struct ipu_pump *pump, int max)
{
    int done = 0;
    pump->hold_ns = 0;
    if (pump->device_failed)
        return 0;
    while (done < max && pump->hold_ns == 0 && has_room(pump)) {
        if (pump->cut.left > 0) {
            done += cut(pump);
            continue;
        }
        uint32_t index;
        ssize_t n = read_frame(pump, &index);
        if (n < 0) {
            if (n == -EINTR)
                continue;
            if (n != -EAGAIN && n != -ENOBUFS) {
                IPU_COUNT(pump, tx_device_error);
                if (n == -EBADFD || n == -EBADF || n == -ENODEV) {
                    struct ipu_event event = {.type = IPU_EVENT_DEVICE, .device.error = (uint32_t)-n};
                    /* Where the ring is full it fails again, until the engine has heard. */
                    pump->device_failed = ipu_event_emit(pump, &event, NULL);
                }
            }
            break;
        }
        if (pump->broken) {
            IPU_COUNT(pump, tx_fabric_error);
            put_frame(pump, index);
        } else if (!transmit(pump, index, ipu_slab_at(&pump->tx, index), (size_t)n)) {
            put_frame(pump, index);
        }
        done += pump->cut.left == 0 && pump->hold_ns == 0; /* else its segments count */
    }
    ipu_transmit_flush(pump);
    return done;
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
        ipu_transmit_release(pump, cookies[i]);
    pump->sending -= (uint32_t)n;
    return n;
}
