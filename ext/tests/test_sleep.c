/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests when a pump's thread learns of ended sends, on a fabric that reports them only when armed,
 * as RDMA devices do; how the pump sleeps beside a failed device; and what it does first when it
 * wakes up. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "check.h"
#include "fake_fabric.h"
#include "core/frame.h"
#include "device/vnet.h"
#include "pump/loop/pump.h"
#include "pump/records/pump_abi.h"

enum { MTU = 2044, FRAMES = 16, MS = 1000, PACKET = 28 };

static int device_reads; /* calls of the device's read() */

static struct {
    pthread_mutex_t mutex;
    uint64_t cookies[FRAMES];
    uint32_t taken, reported, ended; /* sends; the first `ended` of them have */
    int sleeps;                      /* that the pump was about to begin */
    int unreported_sleeps;           /* sleeps without arm_sends() although a send was under way */
    int asked;                       /* calls of arm_sends(), */
    bool armed;                      /* the last of them not answered yet */
    bool instant;                    /* sends end at once, */
    bool silent;                     /* or end as soon as the pump is about to sleep */
    int receives;                    /* calls of received(), */
    uint32_t before;                 /* sends before the current wake-up, */
    int first_receives, first_reads; /* and both calls before its first send() */
    int fd;
    int set; /* an epoll set with `fd`, for a fabric that shares it; else -1 */
} fabric_state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .set = -1};

static void lock(void)
{
    CHECK_EQ(pthread_mutex_lock(&fabric_state.mutex), 0);
}

static void unlock(void)
{
    CHECK_EQ(pthread_mutex_unlock(&fabric_state.mutex), 0);
}

static int fake_send(void *self, const struct ipu_send *sends, int n)
{
    (void)self;
    lock();
    for (int i = 0; i < n; i++)
        fabric_state.cookies[fabric_state.taken++] = sends[i].cookie;
    if (fabric_state.taken == fabric_state.before + (uint32_t)n) {
        fabric_state.first_reads = device_reads;
        fabric_state.first_receives = fabric_state.receives;
    }
    if (fabric_state.instant)
        fabric_state.ended = fabric_state.taken;
    unlock();
    return n;
}

static int counted_received(void *self, struct ipu_received *done, int max)
{
    (void)self, (void)done, (void)max;
    lock();
    fabric_state.receives++;
    unlock();
    return 0;
}

static int fake_sent(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = 0;
    lock();
    while (n < max && fabric_state.reported < fabric_state.ended)
        cookies[n++] = fabric_state.cookies[fabric_state.reported++];
    unlock();
    return n;
}

static int fake_arm(void *self)
{
    (void)self;
    eventfd_t ignored;
    lock();
    (void)eventfd_read(fabric_state.fd, &ignored);
    fabric_state.sleeps++;
    fabric_state.unreported_sleeps += fabric_state.reported < fabric_state.taken;
    if (fabric_state.silent)
        fabric_state.ended = fabric_state.taken;
    unlock();
    return 0;
}

static int fake_arm_sends(void *self)
{
    (void)self;
    lock();
    fabric_state.unreported_sleeps--;
    fabric_state.asked++;
    fabric_state.armed = true;
    int waits = fabric_state.reported < fabric_state.ended;
    unlock();
    return waits;
}

static int fake_fd(void *self)
{
    (void)self;
    return fabric_state.set >= 0 ? fabric_state.set : fabric_state.fd;
}

static const struct ipu_fabric_ops fabric_ops = {
    .memory = fake_memory,
    .ah_create = fake_ah_create,
    .ah_destroy = fake_ah_destroy,
    .send = fake_send,
    .post = fake_post,
    .sent = fake_sent,
    .received = counted_received,
    .arm = fake_arm,
    .arm_sends = fake_arm_sends,
    .fd = fake_fd,
};

static bool device_gone; /* as a TUN that was deleted: its descriptor is ready without end */

static int packets; /* that the device has */

static ssize_t device_read(void *self, void *buf, size_t cap)
{
    eventfd_t ignored;
    CHECK(cap >= IPU_VNET_LEN + PACKET);
    if (device_gone)
        return -EBADFD;
    lock();
    bool has = packets > 0;
    device_reads++;
    packets -= has;
    if (packets == 0)
        (void)eventfd_read(*(int *)self, &ignored);
    unlock();
    if (!has)
        return -EAGAIN;
    uint8_t *ip = (uint8_t *)buf + IPU_VNET_LEN;
    memset(buf, 0, IPU_VNET_LEN + PACKET);
    memcpy(ip, (uint8_t[]){0x45, 0, 0, PACKET}, 4);
    memcpy(ip + 8, (uint8_t[]){64, IPPROTO_UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 12);
    ip[25] = PACKET - 20;
    return IPU_VNET_LEN + PACKET;
}

static int device_fd(void *self)
{
    return *(int *)self;
}

static const struct ipu_device_ops device_ops = {.read = device_read, .fd = device_fd};

static struct ipu_fabric fabric = {.ops = &fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};
static int quiet_fd;
static struct ipu_device device = {.ops = &device_ops, .self = &quiet_fd};
static struct ipu_pump *pump;

static int hung_up(void)
{
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    close(ends[1]);
    return ends[0];
}

/* Makes a pump with `sends` frames to send, and does not start it. */
static void begin(uint32_t sends)
{
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = &device,
        .mtu = MTU,
        .tx_frames = FRAMES,
        .rx_frames = 8,
        .neigh_max = 16,
        .route_max = 16,
        .ah_max = 16,
        .command_bytes = 1 << 16,
        .event_bytes = 1 << 15,
        .capture_bytes = 1 << 16,
    };
    fabric_state.taken = fabric_state.reported = fabric_state.ended = fabric_state.before = 0;
    fabric_state.sleeps = fabric_state.unreported_sleeps = fabric_state.asked = 0;
    fabric_state.armed = fabric_state.silent = fabric_state.instant = false;
    fabric_state.fd = eventfd(0, EFD_NONBLOCK);
    quiet_fd = device_gone ? hung_up() : eventfd(0, EFD_NONBLOCK);
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    for (uint32_t i = 0; i < sends; i++) {
        uint32_t len = sizeof(struct ipu_command) + IPU_ENCAP_LEN;
        struct ipu_command *record = ipu_ring_reserve(ipu_pump_commands(pump), len);
        CHECK(record != NULL);
        memset(record, 0, len);
        record->type = IPU_COMMAND_SEND_FRAME;
        record->len = IPU_ENCAP_LEN;
        record->send_frame.dest = (struct ipu_dest){.qpn = 0x55, .gid = {{{0xfe, 0x80, [15] = 2}}}};
        ipu_ring_commit(ipu_pump_commands(pump), len);
    }
}

static void finish(void)
{
    ipu_pump_stop(pump);
    ipu_pump_destroy(pump);
    close(fabric_state.fd);
    close(quiet_fd);
}

/* Ends all taken sends, and makes the descriptor readable if the pump armed it. */
static void end_sends(void)
{
    lock();
    fabric_state.ended = fabric_state.taken;
    if (fabric_state.armed)
        CHECK_EQ(eventfd_write(fabric_state.fd, 1), 0);
    fabric_state.armed = false;
    unlock();
}

/* Waits, at most until the alarm, for so many taken sends, reported sends, and calls of
 * arm_sends(). */
static void await(uint32_t taken, uint32_t reported, int asked)
{
    for (bool done = false; !done; usleep(MS)) {
        lock();
        done = fabric_state.taken >= taken && fabric_state.reported >= reported &&
               fabric_state.asked >= asked;
        unlock();
    }
}

static uint64_t wakeups(void)
{
    return atomic_load(&ipu_pump_counters(pump)->wakeups);
}

static void an_end_that_nobody_awaits_is_reaped_without_a_wake_up(void)
{
    begin(1);
    fabric_state.silent = true;
    CHECK_EQ(ipu_pump_start(pump), 0);
    await(1, 1, 0);
    finish();
    CHECK_EQ(fabric_state.asked, 0);
}

static void a_send_that_takes_long_is_asked_for_and_slept_on(void)
{
    begin(1);
    CHECK_EQ(ipu_pump_start(pump), 0);
    await(1, 0, 1);
    usleep(10 * MS); /* it sleeps by now, */
    uint64_t before = wakeups();
    usleep(50 * MS);
    CHECK_EQ(wakeups(), before); /* and only that report wakes it */
    end_sends();
    await(1, 1, 1);
    finish();
}

static void the_end_of_a_send_is_asked_for_at_once_when_frames_are_short(void)
{
    begin(FRAMES - 1);
    CHECK_EQ(ipu_pump_start(pump), 0);
    await(FRAMES - 1, 0, 1);
    lock();
    CHECK_EQ(fabric_state.unreported_sleeps, 0);
    unlock();
    end_sends();
    await(FRAMES - 1, FRAMES - 1, 1);
    finish();
}

static void a_device_that_failed_is_slept_beside(void)
{
    device_gone = true;
    begin(0);
    CHECK_EQ(ipu_pump_start(pump), 0);
    while (atomic_load(&ipu_pump_counters(pump)->tx_device_error) == 0)
        usleep(MS);
    usleep(10 * MS);
    uint64_t before = wakeups();
    usleep(50 * MS);
    CHECK_EQ(wakeups(), before);
    finish();
    device_gone = false;
}

static void wait_for_sleep(int sleeps)
{
    for (bool sleeping = false; !sleeping; usleep(MS)) {
        lock();
        sleeping = fabric_state.sleeps > sleeps;
        unlock();
    }
}

/* Gives the sleeping pump packets of the device, and returns when it has sent them and sleeps. */
static void wake_with(int count)
{
    lock();
    packets = count;
    device_reads = fabric_state.receives = 0;
    fabric_state.before = fabric_state.taken;
    int sleeps = fabric_state.sleeps;
    CHECK_EQ(eventfd_write(quiet_fd, 1), 0);
    unlock();
    wait_for_sleep(sleeps);
    CHECK_EQ(fabric_state.taken, fabric_state.before + (uint32_t)count);
}

static void begin_with_a_neighbour(void)
{
    begin(0);
    fabric_state.instant = true;
    uint32_t len = sizeof(struct ipu_command);
    struct ipu_command *record = ipu_ring_reserve(ipu_pump_commands(pump), len);
    *record = (struct ipu_command){
        .type = IPU_COMMAND_NEIGH_SET,
        .neigh_set = {.next_hop = {{{[10] = 0xff, [11] = 0xff, 10, 0, 0, 2}}},
                      .dest = {.qpn = 0x55, .gid = {{{0xfe, 0x80, [15] = 2}}}},
                      .mtu = MTU},
    };
    ipu_ring_commit(ipu_pump_commands(pump), len);
    CHECK_EQ(ipu_pump_start(pump), 0);
    wait_for_sleep(0);
}

static void the_first_packet_after_a_sleep_leaves_before_the_pump_polls_again(void)
{
    begin_with_a_neighbour();
    wake_with(3);
    CHECK_EQ(fabric_state.first_reads, 1);
    CHECK_EQ(fabric_state.first_receives, 0);
    finish();
}

static void a_pump_under_a_stream_sends_whole_batches(void)
{
    begin_with_a_neighbour();
    wake_with(9);
    wake_with(3);
    CHECK(fabric_state.first_reads > 3);
    CHECK_EQ(fabric_state.first_receives, 1);
    wake_with(1);
    wake_with(2); /* calm again */
    CHECK_EQ(fabric_state.first_reads, 1);
    finish();
}

static int add_to_set(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(fabric_state.set, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void a_pump_sleeps_in_the_epoll_set_that_its_fabric_shares(void)
{
    fabric.shares_epoll = true;
    fabric_state.set = epoll_create1(0);
    begin_with_a_neighbour();
    CHECK_EQ(add_to_set(fabric_state.fd), 0);
    CHECK_EQ(add_to_set(quiet_fd), -EEXIST); /* the pump has added its device */
    wake_with(3);
    CHECK_EQ(fabric_state.first_reads, 1);
    lock();
    int sleeps = fabric_state.sleeps;
    CHECK_EQ(eventfd_write(fabric_state.fd, 1), 0);
    unlock();
    wait_for_sleep(sleeps);
    ipu_pump_stop(pump);
    ipu_pump_destroy(pump);
    CHECK_EQ(add_to_set(quiet_fd), 0); /* it has gone with the pump; the set is the fabric's */
    close(fabric_state.fd);
    close(quiet_fd);
    close(fabric_state.set);
    fabric_state.set = -1;
    fabric.shares_epoll = false;
}

static uint32_t read_events(uint32_t *last)
{
    uint32_t len, count = 0;
    const struct ipu_event *event;
    for (; (event = ipu_ring_peek(ipu_pump_events(pump), &len)) != NULL; count++) {
        *last = event->type;
        ipu_ring_release(ipu_pump_events(pump));
    }
    return count;
}

static void a_device_failure_is_reported_once_there_is_room(void)
{
    uint32_t last = 0, len = sizeof(struct ipu_command);
    begin(0);
    struct ipu_command *record;
    while ((record = ipu_ring_reserve(ipu_pump_commands(pump), len)) != NULL) {
        *record = (struct ipu_command){.type = IPU_COMMAND_SYNC};
        ipu_ring_commit(ipu_pump_commands(pump), len);
    }
    while (ipu_pump_step(pump, 64) > 0)
        ;
    CHECK(atomic_load(&ipu_pump_counters(pump)->commands_bad) > 0); /* the ring is full */
    device_gone = true;
    ipu_pump_step(pump, 64);
    read_events(&last);
    CHECK_EQ(last, IPU_EVENT_SYNC);
    ipu_pump_step(pump, 64);
    ipu_pump_step(pump, 64);
    CHECK_EQ(read_events(&last), 1);
    CHECK_EQ(last, IPU_EVENT_DEVICE);
    finish();
    device_gone = false;
}

int main(void)
{
    RUN(an_end_that_nobody_awaits_is_reaped_without_a_wake_up);
    RUN(a_send_that_takes_long_is_asked_for_and_slept_on);
    RUN(the_end_of_a_send_is_asked_for_at_once_when_frames_are_short);
    RUN(the_first_packet_after_a_sleep_leaves_before_the_pump_polls_again);
    RUN(a_pump_under_a_stream_sends_whole_batches);
    RUN(a_device_that_failed_is_slept_beside);
    RUN(a_pump_sleeps_in_the_epoll_set_that_its_fabric_shares);
    RUN(a_device_failure_is_reported_once_there_is_room);
    return 0;
}
