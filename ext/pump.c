/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"
#include "classify.h"
#include "csum.h"
#include "frame.h"
#include "neigh.h"
#include "path.h"
#include "record.h"
#include "route.h"
#include "slab.h"

enum {
    BATCH = 64,
    /* Events a peer or application can cause at will get this many a second each. */
    EVENTS_PER_S = 100,
    /* Misses may fill the event ring only so far: ARP and ND must still fit behind them. */
    MISS_RING_SHARE = 4,
    RECOVER_MIN_MS = 10,
    RECOVER_MAX_MS = 2000,
};

#define NS_PER_S  1000000000
#define NS_PER_MS 1000000
#define NS_PER_US 1000

struct budget {
    uint64_t second;
    uint32_t left;
};

struct ipu_pump {
    struct ipu_fabric *fabric;
    struct ipu_device *device;
    uint32_t mtu;
    uint64_t busy_poll_ns;

    struct ipu_slab tx; /* frames between the device and a completed send */
    struct ipu_slab rx; /* frames posted to the fabric or being delivered */
    struct ipu_neigh_table neigh;
    struct ipu_route_table route;
    struct ipu_path_cache paths;
    struct ipu_ring commands, events, captured;
    struct ipu_capture tap;
    struct ipu_counters counters;

    /* Frames waiting for one doorbell; [0, pending) is filled, all of tx slab. */
    struct ipu_send batch[BATCH];
    int pending;

    /* Receive frames that are ours and should be the fabric's. */
    uint32_t *idle_rx;
    uint32_t idle_rx_count;

    bool broken; /* the fabric failed: nothing is sent until it has recovered */
    uint64_t recover_at_ns;
    uint32_t recover_wait_ms;
    bool device_failed;

    struct budget unreachable_budget, too_big_budget;

    int epoll_fd;
    bool device_watched;

    pthread_t thread;
    bool threaded;
    atomic_bool stopping;
};

#define ADD(pump, name, n) ipu_counters_add(&(pump)->counters.name, (n))
#define COUNT(pump, name)  ADD(pump, name, 1)

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static bool spend(struct budget *budget)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (budget->second != (uint64_t)now.tv_sec)
        *budget = (struct budget){.second = (uint64_t)now.tv_sec, .left = EVENTS_PER_S};
    return budget->left > 0 && budget->left-- > 0;
}

/* ---- events up ------------------------------------------------------------------------------ */

static bool emit(struct ipu_pump *pump, const struct ipu_event *event, const void *data)
{
    struct ipu_event *record =
        ipu_ring_reserve(&pump->events, (uint32_t)sizeof *event + event->len);
    if (record == NULL)
        return false;
    *record = *event;
    if (event->len > 0)
        memcpy(record + 1, data, event->len);
    ipu_ring_commit(&pump->events, (uint32_t)sizeof *event + event->len);
    COUNT(pump, events);
    return true;
}

/* An event about a packet on its way out; the packet ends here. */
static bool emit_tx(struct ipu_pump *pump, uint32_t type, const struct in6_addr *next_hop,
                    uint32_t mtu, const uint8_t *ip, size_t len)
{
    struct ipu_event event = {.type = type, .len = (uint32_t)len, .mtu = mtu, .key = *next_hop};
    bool emitted = emit(pump, &event, ip);
    if (!emitted)
        COUNT(pump, tx_event_ring_full);
    return emitted;
}

/* ---- transmit ------------------------------------------------------------------------------- */

static void fabric_broke(struct ipu_pump *pump)
{
    if (pump->broken)
        return;
    pump->broken = true;
    pump->recover_wait_ms = RECOVER_MIN_MS;
    pump->recover_at_ns = monotonic_ns() + RECOVER_MIN_MS * (uint64_t)NS_PER_MS;
    COUNT(pump, fabric_errors);
    for (int i = 0; i < pump->pending; i++) {
        COUNT(pump, tx_fabric_error);
        ipu_slab_put(&pump->tx, (uint32_t)pump->batch[i].cookie);
    }
    pump->pending = 0;
    emit(pump, &(struct ipu_event){.type = IPU_EVENT_FABRIC, .mtu = 0}, NULL);
}

/* One doorbell for what is pending. What the fabric does not take stays pending, and the device is
 * not read until it has gone: the kernel's queue is where packets wait and overflow. */
static void flush(struct ipu_pump *pump)
{
    if (pump->pending == 0)
        return;
    int taken = pump->fabric->ops->send(pump->fabric->self, pump->batch, pump->pending);
    if (taken < 0) {
        fabric_broke(pump);
        return;
    }
    if (taken == 0)
        return;
    COUNT(pump, send_batches);
    for (int i = 0; i < taken; i++) {
        COUNT(pump, tx_packets);
        ADD(pump, tx_bytes, pump->batch[i].len - IPU_ENCAP_LEN);
        if (pump->batch[i].qpn == IPU_MULTICAST_QPN)
            COUNT(pump, tx_multicast_packets);
    }
    pump->pending -= taken;
    if (pump->pending > 0)
        memmove(pump->batch, pump->batch + taken, (size_t)pump->pending * sizeof *pump->batch);
}

static void count_capture(struct ipu_pump *pump, int error)
{
    if (error < 0)
        COUNT(pump, capture_dropped);
    else
        COUNT(pump, capture_packets);
}

/* Queue the frame for sending. `frame` starts at the encapsulation header; the caller has made sure
 * that the batch has room. */
static void enqueue(struct ipu_pump *pump, uint32_t index, const struct ipu_path *path,
                    const uint8_t *frame, size_t len)
{
    if (pump->tap.snap_len > 0)
        count_capture(pump,
                      ipu_capture_sent(&pump->tap, &pump->fabric->gid, &path->dest, frame, len));
    pump->batch[pump->pending++] = (struct ipu_send){
        .addr = frame,
        .len = (uint32_t)len,
        .qpn = path->dest.qpn,
        .ah = path->ah,
        .cookie = index,
    };
}

static void write_encap(uint8_t *at, uint16_t type)
{
    at[0] = (uint8_t)(type >> 8);
    at[1] = (uint8_t)type;
    at[2] = at[3] = 0; /* E2: reserved, zero on send */
}

/* Takes the frame when it returns true; otherwise the packet was counted or handed up. */
static bool forward(struct ipu_pump *pump, uint32_t index, const struct ipu_flow *flow,
                    uint8_t *frame, size_t ip_len, bool may_miss)
{
    uint8_t *ip = frame + IPU_TX_IP;
    struct in6_addr next_hop = flow->dst;
    if (!flow->group &&
        ipu_route_lookup(&pump->route, &flow->dst, &next_hop) == IPU_ROUTE_UNREACHABLE) {
        COUNT(pump, tx_no_route);
        return false;
    }
    struct ipu_neigh *entry = ipu_neigh_find(&pump->neigh, &next_hop);
    if (entry == NULL) {
        uint32_t reserve = pump->events.capacity_bytes / MISS_RING_SHARE;
        if (!may_miss || ipu_ring_free_bytes(&pump->events) < reserve)
            COUNT(pump, tx_unresolved_hold);
        else if (emit_tx(pump, IPU_EVENT_MISS, &next_hop, 0, ip, ip_len))
            COUNT(pump, tx_missed);
        return false;
    }
    switch (entry->forward) {
    case IPU_NEIGH_HOLD:
        COUNT(pump, tx_unresolved_hold);
        return false;
    case IPU_NEIGH_UNREACHABLE:
        COUNT(pump, tx_unreachable);
        if (spend(&pump->unreachable_budget))
            emit_tx(pump, IPU_EVENT_UNREACHABLE, &next_hop, 0, ip, ip_len);
        return false;
    default:
        break;
    }
    if (ip_len > entry->mtu) {
        COUNT(pump, tx_too_big);
        if (spend(&pump->too_big_budget))
            emit_tx(pump, IPU_EVENT_TOO_BIG, &next_hop, entry->mtu, ip, ip_len);
        return false;
    }
    /* The engine asked for one word of the entry's next use; ask again when the ring was full. */
    if (entry->forward == IPU_NEIGH_NOTIFY &&
        emit(pump, &(struct ipu_event){.type = IPU_EVENT_USED, .key = next_hop}, NULL))
        entry->forward = IPU_NEIGH_SEND;
    write_encap(frame + IPU_TX_ENCAP, flow->type);
    enqueue(pump, index, entry->path, frame + IPU_TX_ENCAP, IPU_ENCAP_LEN + ip_len);
    return true;
}

/* Takes the frame when it returns true. `frame` is [vnet][IP], `len` bytes of it. */
static bool transmit(struct ipu_pump *pump, uint32_t index, uint8_t *frame, size_t len)
{
    struct ipu_flow flow;
    if (len < IPU_VNET_LEN) {
        COUNT(pump, tx_malformed);
        return false;
    }
    uint8_t *ip = frame + IPU_TX_IP;
    size_t ip_len = len - IPU_VNET_LEN;
    if (ipu_csum_complete(frame, len) < 0) {
        COUNT(pump, tx_bad_csum);
        return false;
    }
    switch (ipu_classify_tx(ip, ip_len, &flow)) {
    case IPU_TX_MALFORMED:
        COUNT(pump, tx_malformed);
        return false;
    case IPU_TX_ND:
        COUNT(pump, tx_host_nd);
        return false;
    case IPU_TX_HOST:
        if (emit_tx(pump, IPU_EVENT_HOST, &flow.dst, 0, ip, ip_len))
            COUNT(pump, tx_missed);
        return false;
    case IPU_TX_FORWARD:
        break;
    }
    return forward(pump, index, &flow, frame, ip_len, true);
}

static int read_device(struct ipu_pump *pump, int max)
{
    const struct ipu_device *device = pump->device;
    int done = 0;
    if (pump->device_failed)
        return 0;
    while (done < max && pump->pending < BATCH) {
        uint32_t index = ipu_slab_get(&pump->tx);
        if (index == IPU_SLAB_NONE)
            break; /* all frames are being sent: back-pressure, see flush() */
        uint8_t *frame = ipu_slab_at(&pump->tx, index);
        ssize_t n = device->ops->read(device->self, frame, IPU_VNET_LEN + pump->mtu);
        if (n < 0) {
            ipu_slab_put(&pump->tx, index);
            if (n == -EINTR)
                continue;
            if (n != -EAGAIN) {
                COUNT(pump, tx_device_error);
                if (n == -EBADFD || n == -EBADF || n == -ENODEV) {
                    pump->device_failed = true;
                    emit(pump, &(struct ipu_event){.type = IPU_EVENT_DEVICE, .mtu = (uint32_t)-n},
                         NULL);
                }
            }
            break;
        }
        done++;
        if (pump->broken) {
            COUNT(pump, tx_fabric_error);
            ipu_slab_put(&pump->tx, index);
        } else if (!transmit(pump, index, frame, (size_t)n)) {
            ipu_slab_put(&pump->tx, index);
        }
    }
    flush(pump);
    return done;
}

static int reap_sent(struct ipu_pump *pump)
{
    uint64_t cookies[BATCH];
    int n = pump->fabric->ops->sent(pump->fabric->self, cookies, BATCH);
    if (n < 0) {
        fabric_broke(pump);
        return 0;
    }
    for (int i = 0; i < n; i++)
        ipu_slab_put(&pump->tx, (uint32_t)cookies[i]);
    return n;
}

/* ---- receive -------------------------------------------------------------------------------- */

static void deliver(struct ipu_pump *pump, uint8_t *vnet, size_t ip_len)
{
    memset(vnet, 0, IPU_VNET_LEN);
    int error = pump->device->ops->write(pump->device->self, vnet, IPU_VNET_LEN + ip_len);
    if (error == -EAGAIN || error == -ENOBUFS) {
        COUNT(pump, rx_device_full);
    } else if (error < 0) {
        COUNT(pump, rx_device_error);
    } else {
        COUNT(pump, rx_packets);
        ADD(pump, rx_bytes, ip_len);
    }
}

static void receive(struct ipu_pump *pump, uint8_t *buf, const struct ipu_received *done)
{
    bool grh = done->flags & IPU_RECEIVED_GRH;
    if (done->byte_len < IPU_RX_IP) {
        COUNT(pump, rx_short);
        return;
    }
    size_t len = done->byte_len - IPU_GRH_LEN;
    uint8_t *frame = buf + IPU_RX_ENCAP;
    if (grh && done->src_qpn == pump->fabric->qpn &&
        memcmp(buf + 8, &pump->fabric->gid, 16) == 0) { /* E8 */
        COUNT(pump, rx_echo);
        return;
    }
    if (pump->tap.snap_len > 0)
        count_capture(pump, ipu_capture_received(&pump->tap, grh ? buf : NULL, frame, len));
    struct ipu_event event;
    switch (ipu_classify_rx_untrusted(frame, len)) {
    case IPU_RX_DELIVER:
        deliver(pump, buf + IPU_RX_VNET, len - IPU_ENCAP_LEN);
        break;
    case IPU_RX_ENGINE:
        event = (struct ipu_event){.type = IPU_EVENT_FRAME,
                                   .len = (uint32_t)len,
                                   .flags = grh ? IPU_EVENT_GRH : 0,
                                   .src_qpn = done->src_qpn};
        if (grh) { /* E4: the area means something only then */
            memcpy(&event.sgid, buf + 8, 16);
            memcpy(&event.dgid, buf + 24, 16);
        }
        if (emit(pump, &event, frame))
            COUNT(pump, rx_control);
        else
            COUNT(pump, rx_event_ring_full);
        break;
    case IPU_RX_UNKNOWN_TYPE:
        COUNT(pump, rx_type);
        break;
    case IPU_RX_MALFORMED:
        COUNT(pump, rx_malformed);
        break;
    }
}

/* Give idle receive frames back to the fabric, in one batch as far as it takes them. */
static void post_receives(struct ipu_pump *pump)
{
    while (pump->idle_rx_count > 0 && !pump->broken) {
        struct ipu_recv recvs[BATCH];
        int n = 0;
        while (n < BATCH && (uint32_t)n < pump->idle_rx_count) {
            uint32_t index = pump->idle_rx[pump->idle_rx_count - 1 - (uint32_t)n];
            recvs[n++] = (struct ipu_recv){.addr = ipu_slab_at(&pump->rx, index),
                                           .len = IPU_RX_IP + pump->mtu,
                                           .cookie = index};
        }
        int taken = pump->fabric->ops->post(pump->fabric->self, recvs, n);
        if (taken < 0)
            fabric_broke(pump);
        if (taken <= 0)
            return;
        pump->idle_rx_count -= (uint32_t)taken;
    }
}

static int poll_fabric(struct ipu_pump *pump, int max)
{
    struct ipu_received done[BATCH];
    int n = pump->fabric->ops->received(pump->fabric->self, done, max < BATCH ? max : BATCH);
    if (n < 0) {
        fabric_broke(pump);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)done[i].cookie;
        if (done[i].flags & IPU_RECEIVED_FAILED)
            COUNT(pump, rx_failed);
        else
            receive(pump, ipu_slab_at(&pump->rx, index), &done[i]);
        pump->idle_rx[pump->idle_rx_count++] = index;
    }
    if (n > 0 && pump->device->ops->flush != NULL)
        pump->device->ops->flush(pump->device->self);
    post_receives(pump);
    return n;
}

/* A broken fabric is asked to recover with a doubling wait; true when there was something to do. */
static bool recover(struct ipu_pump *pump)
{
    if (!pump->broken || monotonic_ns() < pump->recover_at_ns)
        return false;
    if (pump->fabric->ops->recover != NULL && pump->fabric->ops->recover(pump->fabric->self) == 0) {
        pump->broken = false;
        COUNT(pump, fabric_recoveries);
        emit(pump, &(struct ipu_event){.type = IPU_EVENT_FABRIC, .mtu = 1}, NULL);
        post_receives(pump);
        return true;
    }
    if (pump->recover_wait_ms < RECOVER_MAX_MS)
        pump->recover_wait_ms *= 2;
    pump->recover_at_ns = monotonic_ns() + pump->recover_wait_ms * (uint64_t)NS_PER_MS;
    return false;
}

/* ---- commands down -------------------------------------------------------------------------- */

static int set_neigh(struct ipu_pump *pump, const struct ipu_command *command)
{
    struct ipu_path *path = NULL;
    if (command->forward <= IPU_NEIGH_NOTIFY) {
        int error = ipu_path_get(&pump->paths, &command->dest, &path);
        if (error < 0)
            return error;
    }
    struct ipu_path *former = NULL;
    int error = ipu_neigh_set(&pump->neigh, &command->key, path,
                              (enum ipu_neigh_forward)command->forward, command->mtu, &former);
    ipu_path_put(&pump->paths, error < 0 ? path : former);
    return error;
}

static int del_neigh(struct ipu_pump *pump, const struct ipu_command *command)
{
    struct ipu_path *former = NULL;
    int error = ipu_neigh_delete(&pump->neigh, &command->key, &former);
    ipu_path_put(&pump->paths, former);
    return error;
}

/* A frame from the engine, to a destination that need not be in the table. */
static int send_frame(struct ipu_pump *pump, const struct ipu_command *command, const void *data)
{
    struct ipu_path *path;
    if (command->len > IPU_ENCAP_LEN + pump->mtu || command->len < IPU_ENCAP_LEN)
        return -EMSGSIZE;
    uint32_t index = ipu_slab_get(&pump->tx);
    if (index == IPU_SLAB_NONE)
        return -ENOBUFS;
    int error = ipu_path_get(&pump->paths, &command->dest, &path);
    if (error < 0) {
        ipu_slab_put(&pump->tx, index);
        return error;
    }
    uint8_t *frame = ipu_slab_at(&pump->tx, index) + IPU_TX_ENCAP;
    memcpy(frame, data, command->len);
    enqueue(pump, index, path, frame, command->len);
    flush(pump);
    ipu_path_put(&pump->paths, path);
    return 0;
}

static int send_packet(struct ipu_pump *pump, const struct ipu_command *command, const void *data)
{
    struct ipu_flow flow;
    if (command->len > pump->mtu)
        return -EMSGSIZE;
    if (ipu_classify_tx(data, command->len, &flow) == IPU_TX_MALFORMED)
        return -EINVAL;
    uint32_t index = ipu_slab_get(&pump->tx);
    if (index == IPU_SLAB_NONE)
        return -ENOBUFS;
    uint8_t *frame = ipu_slab_at(&pump->tx, index);
    memcpy(frame + IPU_TX_IP, data, command->len);
    if (!forward(pump, index, &flow, frame, command->len, false))
        ipu_slab_put(&pump->tx, index);
    flush(pump);
    return 0;
}

static int deliver_packet(struct ipu_pump *pump, const struct ipu_command *command,
                          const void *data)
{
    if (command->len > pump->mtu)
        return -EMSGSIZE;
    uint32_t index = ipu_slab_get(&pump->tx);
    if (index == IPU_SLAB_NONE)
        return -ENOBUFS;
    uint8_t *frame = ipu_slab_at(&pump->tx, index);
    memcpy(frame + IPU_VNET_LEN, data, command->len);
    deliver(pump, frame, command->len);
    ipu_slab_put(&pump->tx, index);
    return 0;
}

static int execute(struct ipu_pump *pump, const struct ipu_command *command, const void *data)
{
    switch ((enum ipu_command_type)command->type) {
    case IPU_COMMAND_NEIGH_SET:
        return set_neigh(pump, command);
    case IPU_COMMAND_NEIGH_DEL:
        return del_neigh(pump, command);
    case IPU_COMMAND_ROUTE_SET:
        return ipu_route_set(&pump->route, &command->key, command->prefix_len,
                             (enum ipu_route_kind)command->forward, &command->via);
    case IPU_COMMAND_ROUTE_DEL:
        return ipu_route_delete(&pump->route, &command->key, command->prefix_len);
    case IPU_COMMAND_SEND_FRAME:
        return pump->broken ? -ENETDOWN : send_frame(pump, command, data);
    case IPU_COMMAND_SEND_PACKET:
        return pump->broken ? -ENETDOWN : send_packet(pump, command, data);
    case IPU_COMMAND_DELIVER:
        return deliver_packet(pump, command, data);
    case IPU_COMMAND_CAPTURE:
        pump->tap.snap_len = command->mtu;
        return 0;
    case IPU_COMMAND_SYNC:
        return emit(pump, &(struct ipu_event){.type = IPU_EVENT_SYNC, .token = command->token},
                    NULL)
                   ? 0
                   : -ENOSPC;
    }
    return -EINVAL;
}

/* Commands may drop the last reference to a path, so none runs while a batch still names one. */
static int run_commands(struct ipu_pump *pump, int max)
{
    int done = 0;
    bool delivered = false;
    flush(pump);
    while (done < max && pump->pending == 0) {
        uint32_t len;
        const struct ipu_command *command = ipu_ring_peek(&pump->commands, &len);
        if (command == NULL)
            break;
        COUNT(pump, commands);
        if (len < sizeof *command || command->len > len - sizeof *command ||
            execute(pump, command, command + 1) < 0)
            COUNT(pump, commands_bad);
        delivered |= command->type == IPU_COMMAND_DELIVER;
        ipu_ring_release(&pump->commands);
        done++;
    }
    if (delivered && pump->device->ops->flush != NULL)
        pump->device->ops->flush(pump->device->self);
    return done;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static int step(struct ipu_pump *pump, int max)
{
    int work = recover(pump);
    work += run_commands(pump, max);
    work += reap_sent(pump);
    work += poll_fabric(pump, max);
    if (pump->pending > 0)
        flush(pump);
    work += read_device(pump, max);
    ipu_ring_wake(&pump->events);
    if (pump->tap.snap_len > 0)
        ipu_ring_wake(&pump->captured);
    return work;
}

/* While no frame is free or the fabric takes none, the device's descriptor would only spin us. */
static void watch_device(struct ipu_pump *pump, bool watch)
{
    if (watch == pump->device_watched)
        return;
    struct epoll_event event = {.events = watch ? EPOLLIN : 0};
    int fd = pump->device->ops->fd(pump->device->self);
    if (epoll_ctl(pump->epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0)
        pump->device_watched = watch;
}

/* Ask every source for a word, look once more for what came in between, then sleep. */
static void sleep_until_work(struct ipu_pump *pump)
{
    const struct ipu_device *device = pump->device;
    bool can_read = pump->tx.free_frames > 0 && pump->pending == 0 && !pump->device_failed;
    watch_device(pump, can_read);
    bool ready = ipu_ring_arm(&pump->commands);
    ready |= pump->fabric->ops->arm(pump->fabric->self) > 0;
    ready |= can_read && device->ops->arm != NULL && device->ops->arm(device->self) > 0;
    if (ready || atomic_load(&pump->stopping))
        return;
    int64_t deadline_ns = INT64_MAX;
    if (pump->fabric->ops->deadline_ns != NULL)
        deadline_ns = pump->fabric->ops->deadline_ns(pump->fabric->self);
    if (pump->broken && (int64_t)pump->recover_at_ns < deadline_ns)
        deadline_ns = (int64_t)pump->recover_at_ns;
    struct timespec wait;
    if (deadline_ns != INT64_MAX) {
        int64_t left_ns = deadline_ns - (int64_t)monotonic_ns();
        if (left_ns <= 0)
            return;
        wait = (struct timespec){left_ns / NS_PER_S, left_ns % NS_PER_S};
    }
    struct epoll_event event;
    epoll_pwait2(pump->epoll_fd, &event, 1, deadline_ns != INT64_MAX ? &wait : NULL, NULL);
    ipu_ring_disarm(&pump->commands);
    COUNT(pump, wakeups);
}

static void *run(void *arg)
{
    struct ipu_pump *pump = arg;
    uint64_t last_work_ns = 0;
    while (!atomic_load_explicit(&pump->stopping, memory_order_acquire)) {
        if (step(pump, BATCH) > 0) {
            last_work_ns = 0;
            continue;
        }
        if (pump->busy_poll_ns > 0) {
            uint64_t now_ns = monotonic_ns();
            if (last_work_ns == 0)
                last_work_ns = now_ns;
            if (now_ns - last_work_ns < pump->busy_poll_ns)
                continue;
        }
        sleep_until_work(pump);
    }
    return NULL;
}

int ipu_pump_step(struct ipu_pump *pump, int max)
{
    return pump->threaded ? -EBUSY : step(pump, max);
}

int ipu_pump_start(struct ipu_pump *pump)
{
    sigset_t all, before;
    if (pump->threaded)
        return -EALREADY;
    atomic_store(&pump->stopping, false);
    /* Signals are for the application's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pump->thread, NULL, run, pump);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return -error;
    pthread_setname_np(pump->thread, "ipoibu-pump");
    pump->threaded = true;
    return 0;
}

void ipu_pump_stop(struct ipu_pump *pump)
{
    if (!pump->threaded)
        return;
    atomic_store_explicit(&pump->stopping, true, memory_order_release);
    eventfd_write(ipu_ring_fd(&pump->commands), 1);
    pthread_join(pump->thread, NULL);
    pump->threaded = false;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int watch(struct ipu_pump *pump, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(pump->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int set_up(struct ipu_pump *pump, const struct ipu_pump_config *config)
{
    const struct ipu_fabric *fabric = config->fabric;
    int error = ipu_slab_init(&pump->tx, config->tx_frames, IPU_VNET_LEN + config->mtu);
    if (error == 0)
        error = ipu_slab_init(&pump->rx, config->rx_frames, IPU_RX_IP + config->mtu);
    if (error == 0)
        error = ipu_neigh_init(&pump->neigh, config->neigh_max, NULL);
    if (error == 0)
        error = ipu_route_init(&pump->route, config->route_max, NULL);
    if (error == 0)
        error = ipu_path_init(&pump->paths, fabric, config->path_max, config->path_max / 4, NULL);
    if (error == 0)
        error = ipu_ring_init(&pump->commands, config->command_bytes);
    if (error == 0)
        error = ipu_ring_init(&pump->events, config->event_bytes);
    if (error == 0)
        error = ipu_ring_init(&pump->captured, config->capture_bytes);
    if (error < 0)
        return error;
    pump->tap.ring = &pump->captured;

    pump->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (pump->epoll_fd < 0)
        return -errno;
    error = watch(pump, ipu_ring_fd(&pump->commands));
    if (error == 0)
        error = watch(pump, fabric->ops->fd(fabric->self));
    if (error == 0)
        error = watch(pump, config->device->ops->fd(config->device->self));
    if (error < 0)
        return error;
    pump->device_watched = true;

    error = fabric->ops->memory(fabric->self, pump->tx.base, pump->tx.len);
    if (error == 0)
        error = fabric->ops->memory(fabric->self, pump->rx.base, pump->rx.len);
    if (error < 0)
        return error;
    pump->idle_rx = calloc(config->rx_frames, sizeof *pump->idle_rx);
    if (pump->idle_rx == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < config->rx_frames; i++)
        pump->idle_rx[pump->idle_rx_count++] = ipu_slab_get(&pump->rx);
    post_receives(pump);
    return 0;
}

void ipu_pump_destroy(struct ipu_pump *pump)
{
    if (pump == NULL)
        return;
    ipu_pump_stop(pump);
    if (pump->epoll_fd >= 0)
        close(pump->epoll_fd);
    ipu_neigh_free(&pump->neigh);
    ipu_route_free(&pump->route);
    ipu_path_free(&pump->paths);
    ipu_ring_free(&pump->commands);
    ipu_ring_free(&pump->events);
    ipu_ring_free(&pump->captured);
    ipu_slab_free(&pump->tx);
    ipu_slab_free(&pump->rx);
    free(pump->idle_rx);
    free(pump);
}

int ipu_pump_create(const struct ipu_pump_config *config, struct ipu_pump **out)
{
    if (config->mtu + IPU_ENCAP_LEN > config->fabric->mtu)
        return -EMSGSIZE;
    struct ipu_pump *pump = aligned_alloc(_Alignof(struct ipu_pump), sizeof *pump);
    if (pump == NULL)
        return -ENOMEM;
    memset(pump, 0, sizeof *pump);
    pump->fabric = config->fabric;
    pump->device = config->device;
    pump->mtu = config->mtu;
    pump->busy_poll_ns = config->busy_poll_us * (uint64_t)NS_PER_US;
    pump->epoll_fd = -1;
    int error = set_up(pump, config);
    if (error < 0) {
        ipu_pump_destroy(pump);
        return error;
    }
    *out = pump;
    return 0;
}

struct ipu_ring *ipu_pump_commands(struct ipu_pump *pump)
{
    return &pump->commands;
}

struct ipu_ring *ipu_pump_events(struct ipu_pump *pump)
{
    return &pump->events;
}

struct ipu_ring *ipu_pump_captured(struct ipu_pump *pump)
{
    return &pump->captured;
}

const struct ipu_counters *ipu_pump_counters(const struct ipu_pump *pump)
{
    return &pump->counters;
}
