/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/receive/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/csum.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "device/vnet.h"
#include "pump/ends/batch.h"
#include "pump/ends/event.h"
#include "pump/receive/receive.h"

/*
 * Connected mode's side of the pump (RFC 4755). Packets whose address handle has a connection go by
 * that connection; all others go by datagram, and groups, ARP and neighbour discovery always do
 * (C2). The engine's decision is one pointer in the address handle, which several neighbours may
 * share. The pump accepts messages from every connection (C8). While there is a connection its MTU
 * holds (C12).
 */
enum {
    /* The most bytes under way on one connection, plus one message. Further packets wait in the
     * kernel, where they cost no copy yet; if the pump read them too early, they would have left
     * the cache before it sends them. */
    SENDING_BYTES = 1 << 20,
    /* How long the pump waits for a full connection: as long as a peer's program may have to wait
     * for a CPU (4 ms was too short beside other work). Meanwhile the pump does not read the
     * device, for any destination. A stalled peer delays the others by this much, once. Each wait
     * takes from the connection's time, and each message that ends gives some of it back, a full
     * window all of it. So a peer that acknowledges little delays the others as little.
     */
    HOLD_NS = 20000000,
    HOLD_NS_PER_BYTE = HOLD_NS / SENDING_BYTES,
    HOLD_BYTES_MIN = 4096, /* a shorter message counts as so long */
    /* Most waits end within a few looks. To ask the clock for these would cost more than they last
     * where that is a system call, so they are free; after so many, or a sleep, the clock runs. */
    FREE_LOOKS = 16,
};

static const struct ipu_connected_ops *ops_of(const struct ipu_pump *pump)
{
    return pump->fabric->connected;
}

/* Returns where the fabric writes a message. */
static uint8_t *message_at(const struct ipu_pump *pump, uint32_t index)
{
    return ipu_slab_at(&pump->connected.rx, index) + pump->tap_room + IPU_TX_ENCAP;
}

int ipu_connection_init(struct ipu_pump *pump, uint32_t frames)
{
    struct ipu_connection_state *state = &pump->connected;
    if (frames == 0)
        return 0;
    if (ops_of(pump) == NULL)
        return -EOPNOTSUPP;
    int error = ipu_slab_init(&state->rx, frames,
                              pump->tap_room + IPU_TX_ENCAP + IPU_VNET_LEN + IPU_VNET_PACKET_MAX);
    if (error < 0)
        return error;
    if (pump->is_rx_wide)
        ipu_slab_widen(&state->rx);
    error = pump->fabric->ops->memory(pump->fabric->self, state->rx.base, state->rx.len);
    if (error < 0)
        return error;
    state->idle = calloc(frames, sizeof *state->idle);
    if (state->idle == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < frames; i++)
        state->idle[state->idle_count++] = ipu_slab_get(&state->rx);
    return 0;
}

void ipu_connection_free(struct ipu_pump *pump)
{
    ipu_slab_free(&pump->connected.rx);
    free(pump->connected.idle);
}

static struct ipu_connection **find(struct ipu_pump *pump, uint64_t id)
{
    struct ipu_connection **at = &pump->connected.all;
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static bool report(struct ipu_pump *pump, uint32_t type, uint64_t id)
{
    return ipu_event_emit(pump, &(struct ipu_event){.type = type, .connection.id = id}, NULL);
}

/* Makes packets to the handle's destination go by datagram again. */
static void unroute(struct ipu_pump *pump, struct ipu_ah *ah)
{
    struct ipu_connection *connection = ah->connection;
    if (connection == NULL)
        return;
    connection->ah = NULL;
    ah->connection = NULL;
    ipu_ah_cache_put(&pump->ahs, ah);
}

/* Makes packets of the connection go by datagram until the engine says how they go. */
static void detour(struct ipu_pump *pump, struct ipu_connection *connection)
{
    if (connection->ah != NULL)
        connection->ah->connection = &pump->connected.connecting; /* with its reference */
    connection->ah = NULL;
}

static bool is_mark(const struct ipu_pump *pump, const struct ipu_connection *connection)
{
    return connection == &pump->connected.notify || connection == &pump->connected.connecting;
}

static void post(struct ipu_pump *pump)
{
    struct ipu_connection_state *state = &pump->connected;
    while (state->idle_count > 0) {
        struct ipu_recv recvs[IPU_BATCH];
        int n = 0;
        while (n < IPU_BATCH && (uint32_t)n < state->idle_count) {
            uint32_t index = state->idle[state->idle_count - 1 - (uint32_t)n];
            recvs[n++] = (struct ipu_recv){
                .addr = message_at(pump, index),
                .len = IPU_VNET_LEN + IPU_VNET_PACKET_MAX,
                .cookie = index,
            };
        }
        int taken = ops_of(pump)->post(pump->fabric->connected_self, recvs, n);
        if (taken <= 0)
            return;
        state->idle_count -= (uint32_t)taken;
    }
}

int ipu_connection_add(struct ipu_pump *pump, const struct ipu_connection_add *add)
{
    struct ipu_connection *connection = add->native;
    if (pump->connected.idle == NULL || connection == NULL || *find(pump, add->id) != NULL)
        return -EINVAL;
    connection->id = add->id;
    connection->superframes = add->superframes != 0;
    connection->hold_left_ns = HOLD_NS;
    int error = ops_of(pump)->add(pump->fabric->connected_self, connection);
    if (error < 0)
        return error;
    connection->next = pump->connected.all;
    pump->connected.all = connection;
    post(pump);
    return 0;
}

int ipu_connection_delete(struct ipu_pump *pump, uint64_t id)
{
    struct ipu_connection *connection = *find(pump, id);
    if (connection == NULL)
        return report(pump, IPU_EVENT_CONNECTION_GONE, id) ? 0 : -ENOSPC;
    detour(pump, connection);
    if (!connection->leaving)
        pump->connected.leaving++;
    connection->leaving = true;
    if (pump->cut.connection == connection)
        ipu_batch_abandon_cut(pump, &pump->counters.tx_fabric_error);
    return 0;
}

int ipu_connection_set_tx_mode(struct ipu_pump *pump, const struct ipu_tx_mode_set *set)
{
    struct ipu_connection *connection = NULL;
    struct ipu_ah *ah;
    if (set->mode == IPU_TX_UD_NOTIFY)
        connection = &pump->connected.notify;
    else if (set->mode == IPU_TX_UD_CONNECTING)
        connection = &pump->connected.connecting;
    else if (set->mode == IPU_TX_RC)
        connection = *find(pump, set->id);
    int error = ipu_ah_cache_get(&pump->ahs, &set->dest, &ah);
    if (error < 0)
        return error;
    unroute(pump, ah);
    if (connection == NULL || connection->leaving || connection->broken) {
        ipu_ah_cache_put(&pump->ahs, ah);
        return set->mode == IPU_TX_RC ? -ENOENT : 0;
    }
    if (!is_mark(pump, connection)) {
        if (connection->ah != NULL)
            unroute(pump, connection->ah);
        connection->ah = ah;
        connection->mtu = set->mtu;
        connection->superframe_bytes = connection->superframes ? set->superframe_bytes : 0;
    }
    ah->connection = connection; /* together with our reference */
    return 0;
}

struct ipu_connection *ipu_connection_of(struct ipu_pump *pump, struct ipu_ah *ah, uint32_t *mtu)
{
    if (!is_mark(pump, ah->connection)) {
        *mtu = ah->connection->mtu;
        return ah->connection;
    }
    if (ah->connection == &pump->connected.connecting)
        return NULL;
    struct ipu_event event = {.type = IPU_EVENT_RC_WANTED,
                              .rc_wanted = {.gid = ah->dest.gid, .qpn = ah->dest.qpn}};
    if (ipu_event_emit(pump, &event, NULL)) /* else the next packet tries again */
        ah->connection = &pump->connected.connecting;
    return NULL;
}

/* Returns the number of frames that are left to read the device into. */
static uint32_t frames_left(const struct ipu_pump *pump)
{
    uint32_t left = pump->lent.frames - pump->lent.sending;
    if (pump->device->ops->read != NULL && pump->tx.free_frames > pump->engine_frames)
        left += pump->tx.free_frames - pump->engine_frames;
    return left;
}

bool ipu_connection_has_room(const struct ipu_pump *pump, const struct ipu_connection *connection)
{
    const struct ipu_connection_state *state = &pump->connected;
    uint32_t messages = connection->sending, bytes = connection->sending_bytes;
    if (state->to == connection) {
        messages += (uint32_t)state->pending;
        bytes += state->pending_bytes;
    }
    /* A connection gets as many frames as it leaves to the others: peers that do not acknowledge
     * never take the last one. */
    return messages < IPU_CONNECTION_SENDS && bytes < SENDING_BYTES &&
           messages <= frames_left(pump);
}

uint64_t ipu_connection_hold(struct ipu_pump *pump, struct ipu_connection *connection)
{
    struct ipu_connection_state *state = &pump->connected;
    if (connection->broken || connection->hold_left_ns == 0)
        return 0;
    state->held_by = connection;
    state->held_since_ns = state->held_looks < FREE_LOOKS ? 0 : ipu_clock_ns();
    return connection->hold_left_ns;
}

void ipu_connection_note_sleep(struct ipu_pump *pump)
{
    struct ipu_connection_state *state = &pump->connected;
    if (state->held_by != NULL && state->held_since_ns == 0)
        state->held_since_ns = ipu_clock_ns();
}

/* Ends the hold, and charges it to the connection. */
static void end_hold(struct ipu_pump *pump)
{
    struct ipu_connection_state *state = &pump->connected;
    struct ipu_connection *connection = state->held_by;
    uint64_t held_ns = state->held_since_ns > 0 ? ipu_clock_ns() - state->held_since_ns : 0;
    connection->hold_left_ns -=
        held_ns < connection->hold_left_ns ? held_ns : connection->hold_left_ns;
    state->held_by = NULL;
    state->held_looks++;
}

/* Gives the connection time back, because a message of so many bytes has ended. */
static void restore_hold(struct ipu_connection *connection, uint32_t bytes)
{
    uint64_t counted = bytes > HOLD_BYTES_MIN ? bytes : HOLD_BYTES_MIN;
    uint64_t hold_left_ns = connection->hold_left_ns + counted * HOLD_NS_PER_BYTE;
    connection->hold_left_ns = hold_left_ns < HOLD_NS ? hold_left_ns : HOLD_NS;
}

void ipu_connection_enqueue(struct ipu_pump *pump, struct ipu_connection *connection,
                            const struct ipu_ah *ah, struct ipu_send send)
{
    struct ipu_connection_state *state = &pump->connected;
    if (state->to != connection || state->pending == IPU_BATCH)
        ipu_connection_flush(pump);
    if (pump->tap.snap_len > 0) {
        struct ipu_send bare = send; /* a capture begins at the encapsulation header */
        if (connection->superframes && bare.head_len > 0)
            bare.head = (const uint8_t *)bare.head + IPU_TX_ENCAP, bare.head_len -= IPU_TX_ENCAP;
        else if (connection->superframes)
            bare.addr = (const uint8_t *)bare.addr + IPU_TX_ENCAP, bare.len -= IPU_TX_ENCAP;
        ipu_event_capture(pump, ipu_capture_sent(&pump->tap, &pump->fabric->gid, &ah->dest, &bare));
    }
    state->to = connection;
    state->batch[state->pending++] = send;
    state->pending_bytes += send.head_len + send.len;
}

static void broke(struct ipu_pump *pump, struct ipu_connection *connection)
{
    if (connection->broken || connection->leaving)
        return;
    if (!report(pump, IPU_EVENT_CONNECTION_BROKEN, connection->id))
        return; /* the next failure tries again */
    connection->broken = true;
    detour(pump, connection);
    if (pump->cut.connection == connection)
        ipu_batch_abandon_cut(pump, &pump->counters.tx_fabric_error);
}

void ipu_connection_flush(struct ipu_pump *pump)
{
    struct ipu_connection_state *state = &pump->connected;
    struct ipu_connection *to = state->to;
    if (state->pending == 0)
        return;
    int n = state->pending;
    int taken = ops_of(pump)->send(pump->fabric->connected_self, to, state->batch, n);
    state->pending = 0;
    state->pending_bytes = 0;
    IPU_COUNT(pump, send_batches);
    for (int i = 0; i < n; i++) {
        const struct ipu_send *send = &state->batch[i];
        if (i >= taken) {
            IPU_COUNT(pump, tx_connection_full);
            ipu_batch_release(pump, send->cookie);
            continue;
        }
        uint32_t bytes = send->head_len + send->len;
        to->lengths[(to->oldest + to->sending++) % IPU_CONNECTION_SENDS] = bytes;
        to->sending_bytes += bytes;
        pump->sending++;
        bytes -= IPU_ENCAP_LEN;
        if (to->superframes)
            bytes -= IPU_TX_ENCAP;
        IPU_COUNT(pump, tx_packets);
        IPU_COUNT(pump, tx_connected_packets);
        IPU_ADD(pump, tx_bytes, bytes);
        ipu_counter_add(&to->tx_messages, 1);
        ipu_counter_add(&to->tx_bytes, bytes);
    }
    if (taken < 0)
        broke(pump, to);
}

static int reap(struct ipu_pump *pump)
{
    struct ipu_connection_sent sent[IPU_BATCH];
    int n = ops_of(pump)->sent(pump->fabric->connected_self, sent, IPU_BATCH);
    pump->sending -= (uint32_t)n;
    for (int i = 0; i < n; i++) {
        ipu_batch_release(pump, sent[i].cookie);
        if (sent[i].failed)
            IPU_COUNT(pump, tx_connection_failed);
        if (sent[i].connection == NULL)
            continue;
        struct ipu_connection *connection = sent[i].connection;
        pump->connected.held_looks = 0;
        connection->sending--;
        uint32_t bytes = connection->lengths[connection->oldest++ % IPU_CONNECTION_SENDS];
        connection->sending_bytes -= bytes;
        restore_hold(connection, bytes);
        if (sent[i].failed)
            broke(pump, connection);
    }
    return n;
}

static void deliver_whole(struct ipu_pump *pump, uint8_t *vnet, struct virtio_net_hdr header,
                          size_t len, uint32_t packets)
{
    if (pump->share.saturated) {
        ipu_write_share_count(&pump->share, (uint32_t)len);
        (void)ipu_write_share_spend(&pump->share, pump->share.current);
    }
    if (!ipu_host_receive(pump, vnet + IPU_VNET_LEN, len - IPU_VNET_LEN, NULL, 0))
        return;
    ipu_coalesce_flush(&pump->coalesce); /* earlier packets go first */
    ipu_vnet_write(vnet, header);
    struct iovec frame = {.iov_base = vnet, .iov_len = len};
    (void)ipu_receive_write(pump, &frame, 1,
                            (struct ipu_delivery){.kind = IPU_DELIVERY_WHOLE,
                                                  .packets = packets,
                                                  .bytes = len - IPU_VNET_LEN});
}

/* Delivers a packet whose checksum the peer's kernel left incomplete. The pump completes the
 * checksum of short packets, because merging runs of them saves more than that costs. */
static void deliver_unsummed(struct ipu_pump *pump, uint8_t *vnet, size_t len)
{
    struct virtio_net_hdr header = ipu_vnet_read(vnet);
    size_t ip_len = len - IPU_VNET_LEN;
    uint32_t start = header.csum_start;
    if (pump->device->offload == 0 || header.flags != VIRTIO_NET_HDR_F_NEEDS_CSUM ||
        ipu_classify_rx_untrusted(vnet + IPU_TX_ENCAP, len - IPU_TX_ENCAP) != IPU_RX_DELIVER ||
        start < IPU_IPV4_HEADER || start + header.csum_offset + 2u > ip_len) {
        ipu_receive_drop(pump, IPU_COUNTER_rx_bad_superframe, NULL, 0);
        return;
    }
    if (pump->coalesce.kinds != 0 && ip_len <= pump->mtu && ipu_csum_complete(vnet, len) == 0) {
        ipu_receive_frame_untrusted(pump, vnet + IPU_TX_ENCAP, len - IPU_TX_ENCAP, NULL, 0);
        return;
    }
    header = (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                     .gso_type = VIRTIO_NET_HDR_GSO_NONE,
                                     .csum_start = header.csum_start,
                                     .csum_offset = header.csum_offset};
    deliver_whole(pump, vnet, header, len, 1);
}

/* Delivers a message from its vnet header on; the peer claims that its kernel wrote that header. */
static void deliver_superframe(struct ipu_pump *pump, uint8_t *vnet, size_t len)
{
    struct virtio_net_hdr header = ipu_vnet_read(vnet);
    struct ipu_segment segment;
    if (header.gso_type == VIRTIO_NET_HDR_GSO_NONE && header.flags == 0) {
        ipu_receive_frame_untrusted(pump, vnet + IPU_TX_ENCAP, len - IPU_TX_ENCAP, NULL, 0);
        return;
    }
    if (header.gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        deliver_unsummed(pump, vnet, len);
        return;
    }
    uint32_t kind = header.gso_type == VIRTIO_NET_HDR_GSO_UDP_L4 ? IPU_DEVICE_UDP : IPU_DEVICE_TCP;
    if (!(pump->device->offload & kind) ||
        ipu_classify_rx_untrusted(vnet + IPU_TX_ENCAP, len - IPU_TX_ENCAP) != IPU_RX_DELIVER ||
        ipu_segment_init(&segment, vnet, len, IPU_VNET_PACKET_MAX) < 0) {
        ipu_receive_drop(pump, IPU_COUNTER_rx_bad_superframe, NULL, 0);
        return;
    }
    if (!ipu_segment_may_cross(&segment)) {
        ipu_receive_drop(pump, IPU_COUNTER_rx_too_many_segments, NULL, 0);
        return;
    }
    header.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    header.hdr_len = (uint16_t)segment.head_len;
    deliver_whole(pump, vnet, header, len, segment.left);
}

static void receive(struct ipu_pump *pump, uint8_t *message,
                    const struct ipu_connection_received *done)
{
    struct ipu_connection *connection = done->connection;
    uint32_t head = connection->superframes ? IPU_VNET_LEN : IPU_ENCAP_LEN;
    if (done->byte_len < head) {
        ipu_receive_drop(pump, IPU_COUNTER_rx_short, NULL, 0);
        return;
    }
    const uint8_t *encap = message + head - IPU_ENCAP_LEN;
    if (ipu_ip_get16(encap) ==
        IPU_TYPE_ARP) { /* C9: connections carry IP alone; ARP goes by datagram */
        ipu_receive_drop(pump, IPU_COUNTER_rx_type, NULL, 0);
        return;
    }
    IPU_COUNT(pump, rx_connected_messages);
    ipu_counter_add(&connection->rx_messages, 1);
    ipu_counter_add(&connection->rx_bytes, done->byte_len - head);
    if (pump->tap.snap_len > 0)
        ipu_event_capture(pump,
                          ipu_capture_received(&pump->tap, NULL, message + head - IPU_ENCAP_LEN,
                                               done->byte_len - head + IPU_ENCAP_LEN));
    pump->share.current = ipu_write_share_place(connection->id);
    if (connection->superframes)
        deliver_superframe(pump, message, done->byte_len);
    else
        ipu_receive_frame_untrusted(pump, message, done->byte_len, NULL, 0);
}

/* Releases the leaving connections that have no sends under way, and whose messages we have all
 * received. */
static void settle(struct ipu_pump *pump)
{
    struct ipu_connection **at = &pump->connected.all;
    ipu_connection_flush(pump); /* queued messages count as under way only then */
    while (*at != NULL) {
        struct ipu_connection *connection = *at;
        if (!connection->leaving || connection->sending > 0) {
            at = &connection->next;
            continue;
        }
        uint64_t id = connection->id;
        struct ipu_connection *next = connection->next;
        if (ipu_ring_free_bytes(&pump->events) < 2 * sizeof(struct ipu_event))
            return; /* the engine wants it again */
        if (pump->connected.held_by == connection)
            pump->connected.held_by = NULL;
        ops_of(pump)->remove(pump->fabric->connected_self, connection);
        *at = next;
        pump->connected.leaving--;
        report(pump, IPU_EVENT_CONNECTION_GONE, id); /* from here on the engine may destroy it */
    }
}

int ipu_connection_poll(struct ipu_pump *pump, int max)
{
    struct ipu_connection_state *state = &pump->connected;
    struct ipu_connection_received done[IPU_BATCH];
    if (state->all == NULL)
        return 0;
    if (state->held_by != NULL)
        end_hold(pump); /* before messages restore time: we may have been away meanwhile */
    else
        state->held_looks = 0;
    int work = reap(pump);
    int wanted = max < IPU_BATCH ? max : IPU_BATCH;
    int n = ops_of(pump)->received(pump->fabric->connected_self, done, wanted);
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)done[i].cookie;
        pump->rx_index = pump->rx.frames + index;
        if (done[i].failed || done[i].connection == NULL) {
            IPU_COUNT(pump, rx_failed);
        } else {
            pump->receiving.id = done[i].connection->id;
            receive(pump, message_at(pump, index), &done[i]);
            pump->receiving.id = 0;
        }
        if (pump->rx_index != IPU_SLAB_NONE)
            ipu_connection_back(pump, index);
    }
    pump->rx_index = IPU_SLAB_NONE;
    if (n > 0)
        ipu_receive_flush(pump);
    /* At once: the built-in HCA takes the receive that was posted last, whose memory is still in
     * the cache, and so few frames ever hold a message. */
    post(pump);
    if (state->leaving > 0 && n < wanted)
        settle(pump);
    return work + n;
}
