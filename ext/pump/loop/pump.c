/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/loop/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/frame.h"
#include "core/syscall_cost.h"
#include "device/vnet.h"
#include "pump/ends/batch.h"
#include "pump/ends/recovery.h"
#include "pump/loop/adaptive_poll.h"
#include "pump/loop/command.h"
#include "pump/receive/connection.h"
#include "pump/receive/receive.h"
#include "pump/state/pump_state.h"
#include "pump/transmit/transmit.h"

#define NS_PER_S 1000000000
#define LATER_NS 2000000 /* the end of a send may stay unknown for this time */

enum {
    ROUND_PACKETS = 256,   /* in each direction; we merge runs of packets within a round */
    BURST_BYTES = 65536,   /* between two sleeps, and more packets come soon */
    TX_FRAMES = 256,       /* of packets that fit the MTU */
    TX_SUPER_FRAMES = 80,  /* of 64 KiB: 5 MiB, which with the rest fits an 8 MiB limit of locked
                              memory */
    TX_ENGINE_FRAMES = 16, /* frames for the engine alone, */
    TX_ENGINE_PART = 16,   /* but one frame of so many where it shares all frames with the device */
    TX_HEADS = 512,        /* segments under way */
    TX_LEAST = 8,          /* of both kinds */
    LONG_FRAME = 16384,    /* a frame this long counts as a super-frame */
    LENT_MIN = 16,
    /* With connections: as many as one connection has under way at most, and leaves to others. */
    CONNECTED_FRAMES = 2 * IPU_CONNECTION_SENDS,
    SOURCES = 4,       /* of events: commands, fabric, and the device's two descriptors */
    CALM_WORK = 8,     /* packets, ended sends and commands between two sleeps, */
    CALM_BYTES = 4096, /* and bytes: no stream, but single requests and replies */
    STREAM_PART = 8,   /* a direction with fewer of all bytes than one in so many is no stream */
};

/* Reads up to `max` packets of the device. The first packet after a sleep of a calm pump leaves
 * before the pump looks for a second one: it may be a request or a reply, which an application
 * waits for. Under a stream the pump sleeps often, too, and then a longer batch costs less. */
static int read_device(struct ipu_pump *pump, int max)
{
    bool first = pump->woken_by != IPU_WOKEN_NOT;
    pump->woken_by = IPU_WOKEN_NOT;
    if (pump->engines.wait)
        return 0;
    int work = first ? ipu_transmit_read(pump, 1) : 0;
    return first && work == 0 ? 0 : work + ipu_transmit_read(pump, max - work);
}

static int step(struct ipu_pump *pump, int max)
{
    int work = ipu_recovery_try(pump);
    if (work > 0)
        ipu_receive_post(pump);
    /* A command may take a frame of the slab, so run no more commands than we reap sends. */
    work += ipu_command_run(pump, max < IPU_BATCH ? max : IPU_BATCH);
    work += ipu_transmit_reap(pump);
    /* A packet of the device need not wait for a look at the fabric, which had nothing. */
    bool device_only = pump->woken_by == IPU_WOKEN_BY_DEVICE;
    if (device_only)
        work += read_device(pump, max);
    int received = ipu_receive_poll(pump, max);
    received += ipu_connection_poll(pump, max);
    work += received;
    if (pump->pending > 0)
        ipu_transmit_flush(pump);
    if (!device_only)
        work += read_device(pump, max);
    (void)ipu_transmit_reap(pump); /* most fabrics have sent by now, so no wake-up is needed */
    ipu_ring_wake(&pump->events);
    if (pump->tap.snap_len > 0)
        ipu_ring_wake(&pump->captured);
    ipu_write_share_end_round(&pump->share, (uint32_t)received, work == 0);
    return work;
}

/* Watches the device, or not: while no frame is free or the fabric takes none, its descriptor would
 * only make the pump spin. */
static void watch_device(struct ipu_pump *pump, bool watch)
{
    if (watch == pump->sources.device_watched)
        return;
    for (int i = 0; i < 2; i++) {
        int fd = pump->sources.device_fds[i];
        struct epoll_event event = {.events = watch ? EPOLLIN : 0, .data.fd = fd};
        if (fd >= 0 && epoll_ctl(pump->sources.epoll_fd, EPOLL_CTL_MOD, fd, &event) < 0)
            return;
    }
    pump->sources.device_watched = watch;
}

/* Stops watching a failed device, which is readable for ever. */
static void leave_device(struct ipu_pump *pump)
{
    for (int i = 0; i < 2; i++)
        if (pump->sources.device_fds[i] >= 0)
            (void)epoll_ctl(pump->sources.epoll_fd, EPOLL_CTL_DEL, pump->sources.device_fds[i],
                            NULL);
    pump->sources.device_fds[0] = pump->sources.device_fds[1] = -1;
}

/* Returns whether the end of a send would give us work: an application waits for its frames.
 * Otherwise we learn of the end while we do other work, so that an RDMA device's fabric need not
 * arm, wake and read an event.
 */
static bool awaits_sends(const struct ipu_pump *pump)
{
    return pump->overdue || pump->broken || pump->pending > 0 || pump->cut.segment.left > 0 ||
           pump->engines.wait || pump->held.index != IPU_SLAB_NONE || pump->connected.leaving > 0 ||
           pump->device->ops->take != NULL || pump->lent.sending > pump->lent.frames / 2 ||
           pump->tx.free_frames < (pump->tx.frames - pump->lent.frames) / 4 ||
           pump->heads.free_frames < pump->heads.frames / 4 || pump->uncut_packets > 0;
}

/* Arms every source, asks each once more for work that came in between, then sleeps. A `calm` pump
 * did little since its last sleep. */
static void sleep_until_work(struct ipu_pump *pump, bool calm)
{
    const struct ipu_device *device = pump->device;
    /* A device that reads into its own frames has none left while we are sending all of them. */
    bool can_read = pump->tx.free_frames > pump->engine_frames && pump->pending == 0 &&
                    pump->uncut_packets < pump->heads.frames && pump->cut.segment.left == 0 &&
                    pump->held.index == IPU_SLAB_NONE && !pump->device_failed &&
                    (device->ops->read != NULL || pump->lent.sending < pump->lent.frames);
    if (pump->device_failed)
        leave_device(pump);
    else
        watch_device(pump, can_read);
    bool ready = !pump->engines.wait && ipu_ring_arm(&pump->commands);
    ready |= pump->fabric->ops->arm(pump->fabric->self) > 0;
    bool later = false;
    if (pump->sending > 0 && pump->fabric->ops->arm_sends != NULL) {
        later = !awaits_sends(pump);
        ready |= !later && pump->fabric->ops->arm_sends(pump->fabric->self) > 0;
    }
    ready |= can_read && device->ops->arm != NULL && device->ops->arm(device->self) > 0;
    if (ready || atomic_load(&pump->thread.stops))
        return;
    int64_t deadline_ns = INT64_MAX;
    if (pump->fabric->ops->deadline_ns != NULL)
        deadline_ns = pump->fabric->ops->deadline_ns(pump->fabric->self);
    if (pump->broken && (int64_t)pump->recovery.at_ns < deadline_ns)
        deadline_ns = (int64_t)pump->recovery.at_ns;
    if (can_read && device->ops->deadline_ns != NULL) {
        int64_t device_ns = device->ops->deadline_ns(device->self);
        deadline_ns = device_ns < deadline_ns ? device_ns : deadline_ns;
    }
    int64_t left_ns = later                    ? LATER_NS
                      : pump->held.left_ns > 0 ? (int64_t)pump->held.left_ns
                                               : INT64_MAX;
    if (pump->engines.wait && (int64_t)pump->engines.room_left_ns < left_ns)
        left_ns = (int64_t)pump->engines.room_left_ns;
    if (deadline_ns != INT64_MAX) {
        int64_t until_ns = deadline_ns - (int64_t)ipu_clock_ns();
        if (until_ns <= 0)
            return;
        left_ns = until_ns < left_ns ? until_ns : left_ns;
    }
    ipu_connection_note_sleep(pump);
    struct timespec wait = {left_ns / NS_PER_S, left_ns % NS_PER_S};
    struct epoll_event events[SOURCES];
    int n = epoll_pwait2(pump->sources.epoll_fd, events, SOURCES,
                         left_ns != INT64_MAX ? &wait : NULL, NULL);
    pump->overdue = n == 0;
    bool device_only = n == 1 && (events[0].data.fd == pump->sources.device_fds[0] ||
                                  events[0].data.fd == pump->sources.device_fds[1]);
    pump->woken_by = !calm         ? IPU_WOKEN_NOT
                     : device_only ? IPU_WOKEN_BY_DEVICE
                                   : IPU_WOKEN_BY_OTHERS;
    ipu_ring_disarm(&pump->commands);
    IPU_COUNT(pump, wakeups);
}

struct moved {
    uint64_t tx_bytes, rx_bytes;
};

/* Returns what the pump has moved since it had moved `before`. */
static struct moved moved_since(const struct ipu_pump *pump, struct moved before)
{
    const struct ipu_counters *now = &pump->counters;
    return (struct moved){
        .tx_bytes = atomic_load_explicit(&now->tx_bytes, memory_order_relaxed) - before.tx_bytes,
        .rx_bytes = atomic_load_explicit(&now->rx_bytes, memory_order_relaxed) - before.rx_bytes,
    };
}

/* Returns how long to poll for more work, now that there is none. */
static uint64_t look_ns(struct ipu_pump *pump, struct ipu_adaptive_poll *poll, uint64_t now_ns)
{
    if (!pump->adaptive)
        return pump->busy_poll_ns;
    struct moved all = moved_since(pump, (struct moved){0});
    struct ipu_adaptive_poll_total moved = {
        .tx_packets = atomic_load_explicit(&pump->counters.tx_packets, memory_order_relaxed),
        .rx_packets = atomic_load_explicit(&pump->counters.rx_packets, memory_order_relaxed),
        .bytes = all.tx_bytes + all.rx_bytes,
    };
    return ipu_adaptive_poll_ns(poll, moved, now_ns);
}

/* Polling for a reply costs more than it saves on a machine with slow system calls. */
static bool looks(const struct ipu_pump *pump, uint64_t call_ns)
{
    return pump->busy_poll_ns > 0 || (pump->adaptive && call_ns < IPU_SYSCALL_DEAR_NS);
}

/* Has huge pages under the frames of a direction from its first stream on. A pump that has not seen
 * one, as on an idle interface, needs a few frames, and leaves the memory of the others to the
 * machine. The caller has nothing to do just now, so the copy of a few pages delays nobody. */
static void widen_tx(struct ipu_pump *pump)
{
    if (pump->is_tx_wide)
        return;
    pump->is_tx_wide = true;
    ipu_slab_widen(&pump->tx);
    ipu_slab_widen(&pump->heads);
}

static void widen_rx(struct ipu_pump *pump)
{
    if (pump->is_rx_wide)
        return;
    pump->is_rx_wide = true;
    ipu_slab_widen(&pump->rx);
}

/* Widens the frames of each direction that is a stream. The acknowledgements of the other
 * direction's stream are none. */
static void widen_streams(struct ipu_pump *pump, struct moved since)
{
    uint64_t least = (since.tx_bytes + since.rx_bytes) / STREAM_PART;
    if (least < BURST_BYTES)
        least = BURST_BYTES;
    if (since.tx_bytes >= least)
        widen_tx(pump);
    if (since.rx_bytes >= least)
        widen_rx(pump);
}

static void *run(void *arg)
{
    struct ipu_pump *pump = arg;
    struct ipu_adaptive_poll poll = {.direction = IPU_ADAPTIVE_POLL_NONE};
    uint64_t look_until_ns = 0;
    struct moved rested = {0};
    uint64_t call_ns = ipu_syscall_cost_ns();
    int done = 0; /* since the last sleep, up to more than a calm pump does */
    bool dry = false, yielded = false;
    while (!atomic_load_explicit(&pump->thread.stops, memory_order_acquire)) {
        int work = step(pump, ROUND_PACKETS);
        if (work > 0) {
            dry = false;
            done = done <= CALM_WORK ? done + work : done;
            yielded = false;
            continue;
        }
        if (looks(pump, call_ns) && (!dry || look_until_ns > 0)) {
            uint64_t now_ns = ipu_clock_ns();
            if (!dry)
                look_until_ns = now_ns + look_ns(pump, &poll, now_ns);
            dry = true;
            if (now_ns < look_until_ns) {
                sched_yield(); /* the sender may need this CPU */
                continue;
            }
            look_until_ns = 0;
        }
        struct moved since = moved_since(pump, rested);
        uint64_t bytes = since.tx_bytes + since.rx_bytes;
        widen_streams(pump, since);
        /* After a burst the program that the pump waits for may run, and then the pump looks once
         * more: bench/notes/yields.md. */
        if (bytes >= BURST_BYTES && !yielded) {
            sched_yield();
            yielded = true;
            continue;
        }
        bool calm = done <= CALM_WORK && bytes <= CALM_BYTES;
        done = 0;
        yielded = false;
        rested = moved_since(pump, (struct moved){0});
        sleep_until_work(pump, calm);
    }
    return NULL;
}

int ipu_pump_step(struct ipu_pump *pump, int max)
{
    return pump->thread.runs ? -EBUSY : step(pump, max);
}

int ipu_pump_start(struct ipu_pump *pump)
{
    sigset_t all, before;
    if (pump->thread.runs)
        return -EALREADY;
    atomic_store(&pump->thread.stops, false);
    /* Signals are for the application's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pump->thread.id, NULL, run, pump);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return -error;
    pthread_setname_np(pump->thread.id, "ipoibu-pump");
    pump->thread.runs = true;
    return 0;
}

void ipu_pump_stop(struct ipu_pump *pump)
{
    if (!pump->thread.runs)
        return;
    atomic_store_explicit(&pump->thread.stops, true, memory_order_release);
    eventfd_write(ipu_ring_fd(&pump->commands), 1);
    pthread_join(pump->thread.id, NULL);
    ipu_ring_drain(&pump->commands); /* reads the wake-up above */
    pump->thread.runs = false;
}

static int watch(struct ipu_pump *pump, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(pump->sources.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int attach(struct ipu_pump *pump)
{
    const struct ipu_device_frames frames = {
        .tx = &pump->tx,
        .rx = &pump->rx,
        .connected_rx = &pump->connected.rx,
        .lent = pump->lent.frames,
        .packet_bytes = pump->device_mtu,
    };
    return pump->device->ops->attach(pump->device->self, &frames);
}

/* The numbers of frames, and a length. */
struct frame_sizes {
    uint32_t tx_frames, rx_frames;
    uint32_t heads, head_len; /* of a segment's headers */
};

static struct frame_sizes size_frames(struct ipu_pump *pump, const struct ipu_pump_config *config)
{
    const struct ipu_fabric *fabric = config->fabric;
    struct frame_sizes sizes = {
        .tx_frames = config->tx_frames,
        .rx_frames = config->rx_frames >> config->frames_halved,
        .heads = TX_HEADS >> config->frames_halved,
    };
    pump->tap_room = pump->host->room;
    bool has_window = config->connected_frames > 0 && config->frames_halved == 0;
    pump->recv_len = IPU_RX_IP + config->mtu;
    if (fabric->min_recv > pump->recv_len)
        pump->recv_len = fabric->min_recv;
    if (fabric->max_recv > 0 && fabric->max_recv < sizes.rx_frames)
        sizes.rx_frames = fabric->max_recv;
    pump->read_len = IPU_VNET_LEN +
                     (config->device->offload != 0 ? IPU_VNET_PACKET_MAX : pump->device_mtu) +
                     pump->host->tag_len;
    if (sizes.tx_frames == 0) {
        sizes.tx_frames = config->device->ops->read == NULL ? TX_ENGINE_FRAMES
                          : pump->read_len >= LONG_FRAME    ? TX_SUPER_FRAMES
                                                            : TX_FRAMES;
        if (has_window && config->device->ops->read != NULL && sizes.tx_frames < CONNECTED_FRAMES)
            sizes.tx_frames = CONNECTED_FRAMES + TX_ENGINE_FRAMES;
        sizes.tx_frames >>= config->frames_halved;
        if (sizes.tx_frames < TX_LEAST)
            sizes.tx_frames = TX_LEAST;
    }
    pump->engine_frames = sizes.tx_frames / TX_ENGINE_PART < TX_ENGINE_FRAMES
                              ? sizes.tx_frames / TX_ENGINE_PART
                              : TX_ENGINE_FRAMES;
    if (config->frames_halved > 0 && pump->engine_frames == 0)
        pump->engine_frames = 1;
    sizes.head_len = IPU_TX_ENCAP + IPU_ENCAP_LEN + IPU_SEGMENT_HEAD_MAX;
    if (fabric->one_piece && sizes.head_len < IPU_ENCAP_LEN + config->mtu)
        sizes.head_len = IPU_ENCAP_LEN + config->mtu; /* the payload follows */
    if (config->device->lent_bytes > 0) {
        pump->lent.frames = config->device->lent_bytes / pump->read_len;
        if (pump->lent.frames < LENT_MIN)
            pump->lent.frames = LENT_MIN;
        if (has_window && pump->lent.frames < CONNECTED_FRAMES)
            pump->lent.frames = CONNECTED_FRAMES;
        sizes.tx_frames += pump->lent.frames;
    }
    return sizes;
}

static int init_slabs(struct ipu_pump *pump, const struct frame_sizes *sizes)
{
    int error = ipu_slab_init(&pump->tx, sizes->tx_frames, pump->tap_room + pump->read_len);
    if (error == 0)
        error = ipu_slab_init(&pump->heads, sizes->heads, sizes->head_len);
    if (error == 0 && sizes->rx_frames > 0)
        error = ipu_slab_init(&pump->rx, sizes->rx_frames, pump->recv_len);
    if (error == 0 && pump->fabric->pins_memory) {
        widen_tx(pump);
        widen_rx(pump);
    }
    return error;
}

static int init_tables(struct ipu_pump *pump, const struct ipu_pump_config *config)
{
    const struct ipu_fabric *fabric = config->fabric;
    uint32_t ah_max = config->ah_max;
    if (fabric->max_ah > 0 && fabric->max_ah < ah_max)
        ah_max = fabric->max_ah;
    int error = ipu_neigh_init(&pump->neigh, config->neigh_max, NULL);
    if (error == 0)
        error = ipu_route_init(&pump->route, config->route_max, NULL);
    if (error == 0)
        pump->fragment_id =
            (uint32_t)ipu_hash_16(&pump->route.seed, &in6addr_any); /* hard to guess */
    if (error == 0)
        error = ipu_route_answers_init(&pump->answers, config->route_answer_max, NULL);
    if (error == 0)
        error = ipu_ah_cache_init(&pump->ahs, fabric, ah_max, ah_max / 4, NULL);
    if (error == 0)
        error = ipu_admission_init(&pump->admission);
    if (error == 0)
        error = ipu_resolution_init(&pump->resolution, config->resolution_parts, NULL);
    if (error == 0 && pump->host->has_guests)
        error = ipu_guests_init(&pump->guests);
    pump->ahs.is_named = ipu_batch_names;
    pump->ahs.owner = pump;
    return error;
}

static int init_rings(struct ipu_pump *pump, const struct ipu_pump_config *config)
{
    int error = ipu_ring_init(&pump->commands, config->command_bytes);
    if (error == 0)
        error = ipu_ring_init(&pump->events, config->event_bytes);
    if (error == 0)
        error = ipu_ring_init(&pump->captured, config->capture_bytes);
    pump->tap.ring = &pump->captured;
    return error;
}

static int watch_sources(struct ipu_pump *pump)
{
    const struct ipu_fabric *fabric = pump->fabric;
    const struct ipu_device *device = pump->device;
    int fabric_fd = fabric->ops->fd(fabric->self);
    pump->sources.epoll_fd =
        fabric->shares_epoll ? fcntl(fabric_fd, F_DUPFD_CLOEXEC, 0) : epoll_create1(EPOLL_CLOEXEC);
    if (pump->sources.epoll_fd < 0)
        return -errno;
    int error = watch(pump, ipu_ring_fd(&pump->commands));
    if (error == 0 && !fabric->shares_epoll)
        error = watch(pump, fabric_fd);
    pump->sources.device_fds[0] = device->ops->fd(device->self);
    pump->sources.device_fds[1] =
        device->ops->ahead_fd != NULL ? device->ops->ahead_fd(device->self) : -1;
    for (int i = 0; error == 0 && i < 2; i++)
        if (pump->sources.device_fds[i] >= 0)
            error = watch(pump, pump->sources.device_fds[i]);
    pump->sources.device_watched = error == 0;
    return error;
}

static int register_memory(struct ipu_pump *pump)
{
    const struct ipu_fabric *fabric = pump->fabric;
    int error = fabric->ops->memory(fabric->self, pump->tx.base, pump->tx.len);
    if (error == 0)
        error = fabric->ops->memory(fabric->self, pump->heads.base, pump->heads.len);
    if (error == 0 && pump->rx.frames > 0)
        error = fabric->ops->memory(fabric->self, pump->rx.base, pump->rx.len);
    return error;
}

static int post_receives(struct ipu_pump *pump)
{
    uint32_t frames = pump->rx.frames;
    pump->idle_rx.frames = calloc(frames > 0 ? frames : 1, sizeof *pump->idle_rx.frames);
    pump->tx_users = calloc(pump->tx.frames, sizeof *pump->tx_users);
    bool uncut = pump->fabric->cuts && pump->device->offload != 0;
    if (uncut)
        pump->supers = calloc(pump->tx.frames, sizeof *pump->supers);
    if (pump->idle_rx.frames == NULL || pump->tx_users == NULL || (uncut && pump->supers == NULL))
        return -ENOMEM;
    ipu_receive_init(pump);
    for (uint32_t i = 0; i < frames; i++)
        pump->idle_rx.frames[pump->idle_rx.count++] = ipu_slab_get(&pump->rx);
    ipu_receive_post(pump);
    return 0;
}

static int set_up(struct ipu_pump *pump, const struct ipu_pump_config *config)
{
    const struct frame_sizes sizes = size_frames(pump, config);
    int error = init_slabs(pump, &sizes);
    if (error == 0)
        error = init_tables(pump, config);
    if (error == 0)
        error = init_rings(pump, config);
    if (error == 0)
        error = ipu_connection_init(pump, config->connected_frames);
    if (error == 0 && pump->device->ops->attach != NULL) {
        error = attach(pump);
        pump->attached = error == 0;
    }
    if (error == 0)
        error = watch_sources(pump);
    if (error == 0)
        error = register_memory(pump);
    if (error == 0)
        error = post_receives(pump);
    pump->coalesce.tcp_packet_bytes = config->tcp_packet_bytes;
    return error;
}

void ipu_pump_destroy(struct ipu_pump *pump)
{
    if (pump == NULL)
        return;
    ipu_pump_stop(pump);
    if (pump->attached && pump->device->ops->detach != NULL)
        pump->device->ops->detach(pump->device->self, &pump->tx);
    if (pump->sources.epoll_fd >= 0) {
        leave_device(pump); /* the fabric may live on, and have another pump */
        close(pump->sources.epoll_fd);
    }
    ipu_neigh_free(&pump->neigh);
    ipu_route_free(&pump->route);
    ipu_route_answers_free(&pump->answers);
    ipu_ah_cache_free(&pump->ahs);
    ipu_admission_free(&pump->admission);
    ipu_resolution_free(&pump->resolution);
    ipu_guests_free(&pump->guests);
    ipu_ring_free(&pump->commands);
    ipu_ring_free(&pump->events);
    ipu_ring_free(&pump->captured);
    ipu_slab_free(&pump->tx);
    ipu_slab_free(&pump->heads);
    ipu_slab_free(&pump->rx);
    ipu_connection_free(pump);
    free(pump->idle_rx.frames);
    free(pump->tx_users);
    free(pump->supers);
    free(pump);
}

int ipu_pump_create(const struct ipu_pump_config *config, struct ipu_pump **out)
{
    if (config->mtu + IPU_ENCAP_LEN > config->fabric->mtu ||
        config->device_mtu > IPU_VNET_PACKET_MAX)
        return -EMSGSIZE;
    struct ipu_pump *pump = aligned_alloc(_Alignof(struct ipu_pump), sizeof *pump);
    if (pump == NULL)
        return -ENOMEM;
    memset(pump, 0, sizeof *pump);
    pump->fabric = config->fabric;
    pump->device = config->device;
    pump->host = config->device->ethernet ? &ipu_ethernet_host : &ipu_ip_host;
    pump->mtu = config->mtu;
    pump->device_mtu = config->device_mtu > config->mtu ? config->device_mtu : config->mtu;
    pump->busy_poll_ns = config->busy_poll_us * (uint64_t)IPU_NS_PER_US;
    pump->adaptive = config->adaptive;
    pump->sources.epoll_fd = -1;
    pump->rx_index = IPU_SLAB_NONE;
    pump->held.index = IPU_SLAB_NONE;
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
