/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/receive/receive.h"

#include <errno.h>
#include <string.h>

#include "core/frame.h"
#include "pump/ends/event.h"
#include "pump/ends/recovery.h"
#include "pump/receive/connection.h"

/*
 * Inbound, in the order of the functions below (connection.c has the steps 1 and 2 of messages):
 *
 * 1. Completions: ipu_receive_poll() takes received datagrams from the fabric.
 * 2. receive() drops our own multicast echo, and captures.
 * 3. Classify: ipu_receive_frame_untrusted() gives ARP and ND to the engine, and DHCP replies while
 *    the engine watches them.
 * 4. Merge: a device with offloads gets consecutive segments of a flow as one frame (coalesce.c).
 * 5. Device: ipu_receive_write() writes the frame, or queues it.
 * 6. ipu_receive_flush() ends a batch: it writes merged frames, and counts those that the device
 *    took.
 * 7. ipu_receive_post() gives the frames back to the fabric.
 */
struct ipu_frame_received ipu_receive_origin(const uint8_t *grh, uint32_t src_qpn)
{
    struct ipu_frame_received frame = {.src_qpn = src_qpn, .has_grh = grh != NULL};
    if (grh != NULL) { /* E4: only then is the area valid */
        memcpy(&frame.sgid, grh + 8, 16);
        memcpy(&frame.dgid, grh + 24, 16);
    }
    return frame;
}

void ipu_receive_drop(struct ipu_pump *pump, enum ipu_counter counter, const uint8_t *grh,
                      uint32_t src_qpn)
{
    ipu_counter_add(ipu_counters_at(&pump->counters, counter), 1);
    if (!ipu_event_spend(&pump->budgets.dropped))
        return;
    struct ipu_event event = {.type = IPU_EVENT_DROPPED};
    if (pump->receiving.id != 0) {
        event.type = IPU_EVENT_CONNECTION_DROPPED;
        event.connection_dropped = (struct ipu_connection_dropped){
            .connection.id = pump->receiving.id, .counter = counter};
    } else {
        event.frame_dropped = (struct ipu_frame_dropped){.frame = ipu_receive_origin(grh, src_qpn),
                                                         .counter = counter};
    }
    (void)ipu_event_emit(pump, &event, NULL); /* for the log alone: a full ring loses it */
}

static bool take(struct ipu_pump *pump, const struct ipu_received *done, int n);
static void receive(struct ipu_pump *pump, const uint8_t *grh, uint8_t *frame,
                    const struct ipu_received *done);
static void count_delivered(struct ipu_pump *pump, int error, const struct ipu_delivery *delivery);
static void flush_device(struct ipu_pump *pump);

int ipu_receive_poll(struct ipu_pump *pump, int max)
{
    struct ipu_received done[IPU_BATCH];
    int total = 0, wanted, n;
    bool lent = false;
    do {
        if (lent)
            ipu_receive_flush(pump);
        wanted = max - total < IPU_BATCH ? max - total : IPU_BATCH;
        n = pump->fabric->ops->received(pump->fabric->self, done, wanted);
        if (n < 0) {
            ipu_recovery_broke(pump);
            break;
        }
        lent = take(pump, done, n);
        total += n;
    } while (n == wanted && total < max && !ipu_round_is_over(pump));
    if (total > 0)
        ipu_receive_flush(pump);
    ipu_receive_post(pump);
    return total;
}

/* What an adapter wrote may have left the cache. It comes back while we sum the datagram before. */
static void prefetch(const struct ipu_pump *pump, const struct ipu_received *done)
{
    enum { LINE_BYTES = 64 };
    if (done->flags & (IPU_RECEIVED_LENT | IPU_RECEIVED_FAILED))
        return;
    const uint8_t *buf = ipu_slab_at(&pump->rx, (uint32_t)done->cookie);
    for (uint32_t at = 0; at < done->byte_len; at += LINE_BYTES)
        __builtin_prefetch(buf + at);
}

/* Takes the completions; returns whether the fabric has lent some of the datagrams. */
static bool take(struct ipu_pump *pump, const struct ipu_received *done, int n)
{
    bool lent = false;
    for (int i = 0; i < n; i++) {
        if (pump->fabric->pins_memory && i + 1 < n)
            prefetch(pump, &done[i + 1]);
        if (done[i].flags & IPU_RECEIVED_LENT) {
            receive(pump, done[i].lent_grh, done[i].lent, &done[i]);
            lent = true;
            continue;
        }
        uint32_t index = pump->rx_index = (uint32_t)done[i].cookie;
        uint8_t *buf = ipu_slab_at(&pump->rx, index);
        if (done[i].flags & IPU_RECEIVED_FAILED)
            IPU_COUNT(pump, rx_failed);
        else
            receive(pump, buf, buf + IPU_RX_ENCAP, &done[i]);
        /* We post it only after the next flush, because merged frames refer to it. */
        if (pump->rx_index != IPU_SLAB_NONE)
            pump->idle_rx.frames[pump->idle_rx.count++] = index;
        pump->rx_index = IPU_SLAB_NONE;
    }
    return lent;
}

/* Returns the sender's place among the shares. Without a GRH the place follows from the number of
 * the queue pair, which the hardware guarantees. */
static uint32_t place_of(const struct ipu_pump *pump, const uint8_t *grh, uint32_t src_qpn)
{
    struct in6_addr gid = IN6ADDR_ANY_INIT;
    if (grh != NULL)
        memcpy(&gid, grh + 8, sizeof gid);
    uint32_t hash = ipu_ah_cache_hash(&pump->ahs, &gid, src_qpn);
    if (grh != NULL && !ipu_ah_cache_knows(&pump->ahs, &gid, src_qpn, hash))
        return IPU_WRITE_SHARE_STRANGERS;
    return ipu_write_share_place(hash);
}

/* Returns whether a datagram of our GID from this queue pair is our own, or a guest's. */
static bool sends_as(const struct ipu_pump *pump, uint32_t qpn)
{
    return ipu_fabric_sends_as(pump->fabric, qpn) || ipu_guests_sends_as(&pump->guests, qpn);
}

/* Receives a datagram: `grh` are 40 bytes, which hold a GRH if the flags say so. */
static void receive(struct ipu_pump *pump, const uint8_t *grh, uint8_t *frame,
                    const struct ipu_received *done)
{
    if (!(done->flags & IPU_RECEIVED_GRH) || done->byte_len < IPU_GRH_LEN)
        grh = NULL;
    if (done->byte_len < IPU_RX_IP) {
        ipu_receive_drop(pump, IPU_COUNTER_rx_short, grh, done->src_qpn);
        return;
    }
    size_t len = done->byte_len - IPU_GRH_LEN;
    if (grh != NULL && sends_as(pump, done->src_qpn) &&
        memcmp(grh + 8, &pump->fabric->gid, 16) == 0) { /* E8 */
        IPU_COUNT(pump, rx_echo);
        return;
    }
    if (pump->tap.snap_len > 0)
        ipu_event_capture(pump, ipu_capture_received(&pump->tap, grh, frame, len));
    if (pump->share.saturated)
        pump->share.current = place_of(pump, grh, done->src_qpn);
    pump->receiving.qpn = done->qpn;
    ipu_receive_frame_untrusted(pump, frame, len, grh, done->src_qpn);
    pump->receiving.qpn = 0;
}

/* Reports to the engine, once a second, that the pump refuses messages. */
static void report_limit(struct ipu_pump *pump, const uint8_t *grh, uint32_t src_qpn)
{
    if (pump->admission.reported)
        return;
    struct ipu_event event = {.type = IPU_EVENT_CONTROL_LIMITED,
                              .frame = ipu_receive_origin(grh, src_qpn)};
    pump->admission.reported = ipu_event_emit(pump, &event, NULL);
}

/* Passes an ARP or ND message on, if it concerns us and the engine can read it. */
static void pass_to_engine_untrusted(struct ipu_pump *pump, const uint8_t *frame, size_t len,
                                     const uint8_t *grh, uint32_t src_qpn)
{
    const struct ipu_admission_sender sender = {.sgid = grh != NULL ? grh + 8 : NULL,
                                                .qpn = src_qpn};
    uint32_t room = ipu_ring_free_bytes(&pump->events) /
                    (pump->events.capacity_bytes / IPU_ADMISSION_ROOM_PARTS);
    switch (ipu_admission_judge_untrusted(&pump->admission, &pump->neigh, &pump->resolution,
                                          &sender, frame, len, room)) {
    case IPU_ADMIT_UNCONCERNED:
        IPU_COUNT(pump, rx_unconcerned);
        return;
    case IPU_ADMIT_NOT:
        IPU_COUNT(pump, rx_control_limited);
        report_limit(pump, grh, src_qpn);
        return;
    case IPU_ADMIT:
        break;
    }
    struct ipu_event event = {
        .type = IPU_EVENT_FRAME, .len = (uint32_t)len, .frame = ipu_receive_origin(grh, src_qpn)};
    if (ipu_event_emit(pump, &event, frame))
        IPU_COUNT(pump, rx_control);
    else
        IPU_COUNT(pump, rx_event_ring_full);
}

static bool is_dhcp_reply(const uint8_t *ip, size_t len)
{
    return ipu_classify_is_dhcp(ip, len, IPU_DHCP_OF_SERVER) ||
           ipu_classify_is_dhcp6_reply(ip, len);
}

/* Gives a DHCP reply to the engine, which delivers it; false: the caller delivers it as it is. */
static bool pass_dhcp(struct ipu_pump *pump, const uint8_t *ip, size_t len)
{
    struct ipu_event event = {.type = IPU_EVENT_DHCP_REPLY, .len = (uint32_t)len};
    if (!ipu_event_spend(&pump->budgets.dhcp) || !ipu_event_emit(pump, &event, ip))
        return false;
    IPU_COUNT(pump, rx_control);
    return true;
}

static bool admit(void *self, uint32_t sender, uint32_t packets)
{
    struct ipu_pump *pump = self;
    if (ipu_write_share_spend(&pump->share, sender) || packets > 1)
        return true;
    IPU_COUNT(pump, rx_over_share);
    return false;
}

void ipu_receive_frame_untrusted(struct ipu_pump *pump, uint8_t *frame, size_t len,
                                 const uint8_t *grh, uint32_t src_qpn)
{
    uint8_t *ip = frame + IPU_ENCAP_LEN;
    switch (ipu_classify_rx_untrusted(frame, len)) {
    case IPU_RX_DELIVER:
        if (pump->dhcp_watched && is_dhcp_reply(ip, len - IPU_ENCAP_LEN) &&
            pass_dhcp(pump, ip, len - IPU_ENCAP_LEN))
            break;
        if (!ipu_host_receive(pump, ip, len - IPU_ENCAP_LEN, grh, src_qpn))
            break;
        if (pump->share.saturated)
            ipu_write_share_count(&pump->share, (uint32_t)len);
        if (pump->coalesce.kinds != 0)
            ipu_coalesce_add_untrusted(&pump->coalesce, pump->share.current, ip,
                                       len - IPU_ENCAP_LEN);
        else if (admit(pump, pump->share.current, 1))
            ipu_receive_deliver(pump, ip - IPU_VNET_LEN, len - IPU_ENCAP_LEN);
        break;
    case IPU_RX_ENGINE:
        pass_to_engine_untrusted(pump, frame, len, grh, src_qpn);
        break;
    case IPU_RX_UNCONCERNED:
        IPU_COUNT(pump, rx_unconcerned);
        break;
    case IPU_RX_UNKNOWN_TYPE:
        ipu_receive_drop(pump, IPU_COUNTER_rx_type, grh, src_qpn);
        break;
    case IPU_RX_MALFORMED:
        ipu_receive_drop(pump, IPU_COUNTER_rx_malformed, grh, src_qpn);
        break;
    }
}

/* ---- merge and deliver */

static void deliver_merged(void *self, const struct iovec *iov, uint32_t packets, size_t bytes)
{
    enum ipu_delivery_kind kind = packets > 1 ? IPU_DELIVERY_MERGED : IPU_DELIVERY_PLAIN;
    (void)ipu_receive_write(
        self, iov, (int)packets,
        (struct ipu_delivery){.kind = kind, .packets = packets, .bytes = bytes});
}

void ipu_receive_init(struct ipu_pump *pump)
{
    uint32_t offload = pump->device->offload;
    uint32_t kinds = (offload & IPU_DEVICE_TCP ? IPU_COALESCE_TCP : 0) |
                     (offload & IPU_DEVICE_UDP ? IPU_COALESCE_UDP : 0);
    ipu_coalesce_init(&pump->coalesce, kinds, deliver_merged, admit, pump);
    bool takes = pump->device->ops->take != NULL; /* an application's queue keeps frames */
    pump->share.disabled = takes;
    if (!takes && pump->host->receive == NULL && pump->rx.frames > 0 &&
        pump->fabric->ops->lend != NULL)
        pump->fabric->ops->lend(pump->fabric->self);
}

void ipu_receive_deliver(struct ipu_pump *pump, uint8_t *vnet, size_t ip_len)
{
    const struct ipu_device *device = pump->device;
    struct ipu_delivery delivery = {.packets = 1, .bytes = ip_len};
    bool lends = pump->rx_index != IPU_SLAB_NONE && device->ops->take != NULL;
    if (lends &&
        device->ops->take(device->self, pump->rx_index, vnet + IPU_VNET_LEN, ip_len) == 0) {
        pump->rx_index = IPU_SLAB_NONE;
        count_delivered(pump, 0, &delivery);
        return;
    }
    memset(vnet, 0, IPU_VNET_LEN);
    struct iovec frame = {.iov_base = vnet, .iov_len = IPU_VNET_LEN + ip_len};
    int error = ipu_receive_write(pump, &frame, 1, delivery);
    if (lends && error == 0)
        IPU_COUNT(pump, rx_copied);
}

int ipu_receive_write(struct ipu_pump *pump, const struct iovec *iov, int n,
                      struct ipu_delivery delivery)
{
    const struct ipu_device *device = pump->device;
    if (pump->writing.count == IPU_DEVICE_WRITES)
        flush_device(pump);
    int result = n == 1 ? device->ops->write(device->self, iov->iov_base, iov->iov_len)
                        : device->ops->writev(device->self, iov, n);
    if (result == IPU_DEVICE_QUEUED)
        pump->writing.frames[pump->writing.count++] = delivery;
    else
        count_delivered(pump, result, &delivery);
    return result;
}

/* ---- the end of a batch */

void ipu_receive_flush(struct ipu_pump *pump)
{
    ipu_coalesce_flush(&pump->coalesce);
    flush_device(pump);
}

static void flush_device(struct ipu_pump *pump)
{
    const struct ipu_device *device = pump->device;
    if (device->ops->flush != NULL)
        device->ops->flush(device->self);
    if (pump->writing.count == 0)
        return;
    int errors[IPU_DEVICE_WRITES];
    device->ops->written(device->self, errors, pump->writing.count);
    for (int i = 0; i < pump->writing.count; i++)
        count_delivered(pump, errors[i], &pump->writing.frames[i]);
    pump->writing.count = 0;
}

static void count_delivered(struct ipu_pump *pump, int error, const struct ipu_delivery *delivery)
{
    uint32_t packets = delivery->packets;
    if (error < 0) {
        bool full = error == -EAGAIN || error == -ENOBUFS;
        IPU_ADD(pump, rx_device_full, full ? packets : 0);
        IPU_ADD(pump, rx_device_error, full ? 0 : packets);
        return;
    }
    IPU_ADD(pump, rx_packets, packets);
    IPU_ADD(pump, rx_bytes, delivery->bytes);
    if (delivery->kind == IPU_DELIVERY_WHOLE)
        IPU_COUNT(pump, rx_superframes);
    if (delivery->kind != IPU_DELIVERY_MERGED)
        return;
    IPU_COUNT(pump, rx_merged_frames);
    IPU_ADD(pump, rx_merged, packets);
}

void ipu_receive_written(struct ipu_pump *pump, int error, size_t bytes)
{
    count_delivered(pump, error, &(struct ipu_delivery){.packets = 1, .bytes = bytes});
}

/* ---- post */

/* Takes back frames that the device has kept until now. */
static void take_back(struct ipu_pump *pump)
{
    const struct ipu_device *device = pump->device;
    uint32_t index;
    while (device->ops->back != NULL &&
           (index = device->ops->back(device->self)) != IPU_SLAB_NONE) {
        if (index < pump->rx.frames)
            pump->idle_rx.frames[pump->idle_rx.count++] = index;
        else
            ipu_connection_back(pump, index - pump->rx.frames);
    }
}

void ipu_receive_post(struct ipu_pump *pump)
{
    take_back(pump);
    while (pump->idle_rx.count > 0 && !pump->broken) {
        struct ipu_recv recvs[IPU_BATCH];
        int n = 0;
        while (n < IPU_BATCH && (uint32_t)n < pump->idle_rx.count) {
            uint32_t index = pump->idle_rx.frames[pump->idle_rx.count - 1 - (uint32_t)n];
            recvs[n++] = (struct ipu_recv){
                .addr = ipu_slab_at(&pump->rx, index), .len = pump->recv_len, .cookie = index};
        }
        int taken = pump->fabric->ops->post(pump->fabric->self, recvs, n);
        if (taken < 0)
            ipu_recovery_broke(pump);
        if (taken <= 0)
            return;
        pump->idle_rx.count -= (uint32_t)taken;
    }
}
