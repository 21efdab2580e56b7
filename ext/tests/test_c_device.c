/* SPDX-License-Identifier: BSD-2-Clause */
/* What applications in C use: the packet device and the packet queue, by the examples of the
 * documentation, over the in-process fabric and over two rails. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "../../docs/examples/c-device/echo.c"
#include "../../docs/examples/c-device/generator.c"

#include "check.h"
#include "roomy_pump.h"
#include "core/clock.h"
#include "core/frame.h"
#include "device/c_device.h"
#include "device/c_queue.h"
#include "fabric/memory.h"
#include "pump/loop/pump.h"
#include "pump/records/pump_abi.h"
#include "rails/rails.h"

enum { MTU = 2044, RX_FRAMES = 64, RAILS = 2, RENEWALS = 20, BYTES = 100 };

static const struct in6_addr broadcast = {
    .s6_addr = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [15] = 1}};

/* Each has a port on both switches; rails are above them. */
struct host {
    uint8_t number;
    struct ipu_memory_port *ports[RAILS];
    struct ipu_rails *rails;
    struct ipu_device *device;
    struct ipu_pump *pump;
};

static struct ipu_memory_switch *switches[RAILS];
static struct host sender, echoer;
static _Alignas(64) struct ipu_queue queue;
static struct ipu_c_queue c_queue;
static struct ipu_c_device c_device;
static struct echo *echo;

static void open_path(struct host *host)
{
    struct ipu_rails_config rails = {
        .count = RAILS,
        .up = 3,
        .peers_max = 4,
        .broadcast = {.gid = broadcast, .qpn = IPU_MULTICAST_QPN},
    };
    for (int i = 0; i < RAILS; i++) {
        struct ipu_memory_config config = {
            .gid.s6_addr = {0xfe, 0x80, [14] = (uint8_t)i, [15] = host->number},
            .qpn = 100u + host->number,
            .mtu = MTU + 4};
        CHECK(host->ports[i] = ipu_memory_port_create(switches[i], &config));
        CHECK_EQ(ipu_memory_attach(host->ports[i], &broadcast), 0);
        rails.inner[i] = ipu_memory_port_fabric(host->ports[i]);
    }
    CHECK(host->rails = ipu_rails_create(&rails));
    const struct ipu_pump_config config = {
        .fabric = ipu_rails_fabric(host->rails),
        .device = host->device,
        .mtu = MTU,
        .rx_frames = RX_FRAMES,
        ROOMY_PUMP,
    };
    CHECK_EQ(ipu_pump_create(&config, &host->pump), 0);
}

/* Broken ports give back the receives that others would fill, before the pump frees them. */
static void close_path(struct host *host)
{
    ipu_pump_stop(host->pump);
    for (int i = 0; i < RAILS; i++)
        ipu_memory_break(host->ports[i], 0);
    ipu_pump_destroy(host->pump);
    ipu_rails_destroy(host->rails);
    for (int i = 0; i < RAILS; i++)
        ipu_memory_port_destroy(host->ports[i]);
}

/* Each knows the other by its port on the first switch. */
static void introduce(struct host *host, const struct host *other)
{
    struct ipu_command command = {
        .type = IPU_COMMAND_NEIGH_SET,
        .neigh_set = {.next_hop.s6_addr = {[10] = 0xff, 0xff, 10, 0, 0, other->number},
                      .mtu = MTU,
                      .dest = {.gid.s6_addr = {0xfe, 0x80, [15] = other->number},
                               .qpn = 100u + other->number}},
    };
    struct ipu_ring *commands = ipu_pump_commands(host->pump);
    memcpy(ipu_ring_reserve(commands, sizeof command), &command, sizeof command);
    ipu_ring_commit(commands, sizeof command);
    ipu_ring_wake(commands);
}

static void run(struct host *host, const struct host *other)
{
    introduce(host, other);
    CHECK_EQ(ipu_pump_start(host->pump), 0);
}

/* Gives the host another queue pair and pump while the application goes on: a heavy flush. */
static void flush(struct host *host, const struct host *other)
{
    close_path(host);
    open_path(host);
    run(host, other);
}

static void set_up(void)
{
    for (int i = 0; i < RAILS; i++)
        CHECK(switches[i] = ipu_memory_switch_create((uint64_t)i + 1));
    CHECK_EQ(ipu_queue_init(&queue, 1 << 16, 1 << 16), 0);
    CHECK_EQ(ipu_c_queue_init(&c_queue, &queue), 0);
    CHECK(echo = echo_create());
    CHECK_EQ(ipu_c_device_init(&c_device, &echo->device), 0);
    sender = (struct host){.number = 1, .device = &queue.device};
    echoer = (struct host){.number = 2, .device = &c_device.device};
    open_path(&sender);
    open_path(&echoer);
}

static void tear_down(void)
{
    ipu_queue_free(&queue);
    echo_destroy(echo);
    for (int i = 0; i < RAILS; i++)
        ipu_memory_switch_destroy(switches[i]);
}

static struct generator *generate(void)
{
    const uint8_t from[4] = {10, 0, 0, 1}, to[4] = {10, 0, 0, 2};
    struct generator *generator = generator_start(&c_queue.v1, from, to, PORT, BYTES);
    CHECK(generator != NULL);
    return generator;
}

/* Waits until more packets have come back; the test's alarm ends it otherwise. */
static void until_more_came_back(struct generator *generator)
{
    for (uint64_t before = generator_received(generator); generator_received(generator) == before;)
        sched_yield();
}

static void traffic_outlives_flushes_and_rail_changes(void)
{
    set_up();
    run(&sender, &echoer);
    run(&echoer, &sender);
    struct generator *generator = generate();
    for (uint32_t i = 0; i < RENEWALS; i++) {
        until_more_came_back(generator);
        ipu_rails_set(sender.rails, 3, i % 2);
        ipu_rails_set(echoer.rails, i % 3 == 0 ? 1 : 3, 0);
        until_more_came_back(generator);
        if (i % 2 == 0)
            flush(&sender, &echoer);
        else
            flush(&echoer, &sender);
    }
    until_more_came_back(generator);
    CHECK(generator_sent(generator) > 0);
    generator_stop(generator);
    CHECK(echo_count(echo) > 0);
    close_path(&sender);
    close_path(&echoer);
    tear_down();
}

static void an_endpoint_may_end_and_begin_under_a_thread(void)
{
    set_up();
    run(&echoer, &sender);
    ipu_queue_detach(&queue);
    struct generator *generator = generate();
    for (int i = 0; i < RENEWALS; i++) {
        close_path(&sender);
        ipu_queue_detach(&queue);
        open_path(&sender);
        run(&sender, &echoer);
        until_more_came_back(generator);
    }
    close_path(&sender);
    close_path(&echoer);
    ipu_queue_detach(&queue);
    generator_stop(generator);
    struct ipoibu_packet_v1 packet;
    CHECK_EQ(c_queue.v1.reserve(c_queue.v1.self, &packet, 1), -ENETDOWN);
    tear_down();
}

static void a_packet_of_a_former_pump_is_readable_and_may_be_sent(void)
{
    set_up();
    struct ipoibu_packet_v1 packets[2];
    introduce(&sender, &echoer);
    introduce(&echoer, &sender);
    const struct ipoibu_packet_queue_v1 *v1 = &c_queue.v1;
    CHECK_EQ(v1->reserve(v1->self, packets, 2), 2);
    struct generator headers = {.bytes = BYTES};
    write_headers(&headers, (uint8_t[]){10, 0, 0, 1}, (uint8_t[]){10, 0, 0, 2}, PORT);
    for (int i = 0; i < 2; i++) {
        memcpy(packets[i].data, headers.packet, HEAD_BYTES);
        packets[i].bytes = BYTES;
    }
    close_path(&sender);
    open_path(&sender);
    introduce(&sender, &echoer);
    CHECK_EQ(v1->send(v1->self, packets, 2), 2);
    CHECK(packets[0].data == NULL);
    int got = 0;
    while (got < 2) {
        ipu_pump_step(sender.pump, 64);
        ipu_pump_step(echoer.pump, 64);
        got += v1->receive(v1->self, packets + got, 2 - got);
    }
    CHECK_EQ(v1->await_packets(v1->self), 0);
    close_path(&sender);
    close_path(&echoer);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(packets[i].data[15], 2); /* the echo's source */
    v1->release(v1->self, packets, 2);
    tear_down();
}

static void packets_that_do_not_fit_are_dropped_and_counted(void)
{
    set_up();
    struct ipoibu_packet_v1 packets[3];
    const struct ipoibu_packet_queue_v1 *v1 = &c_queue.v1;
    CHECK_EQ(v1->reserve(v1->self, packets, 3), 3);
    CHECK_EQ(packets[0].bytes, MTU);
    packets[0].bytes = 0;
    packets[1].bytes = MTU + 1;
    CHECK_EQ(v1->send(v1->self, packets, 3), 1);
    CHECK_EQ(v1->await_frames(v1->self), 1);
    close_path(&sender);
    close_path(&echoer);
    tear_down();
}

/* ---- devices that are not the examples */

static int64_t due_ns;
static _Atomic uint32_t reads;
static int clock_fd;

static ssize_t clock_read(void *self, void *frame, size_t bytes)
{
    (void)self, (void)frame, (void)bytes;
    if ((int64_t)ipu_clock_ns() >= due_ns) {
        due_ns = (int64_t)ipu_clock_ns() + 1000000;
        atomic_fetch_add(&reads, 1);
    }
    return -EAGAIN;
}

static int clock_write(void *self, const struct iovec *pieces, int count)
{
    (void)self, (void)pieces, (void)count;
    return 0;
}

static int clock_get_fd(void *self)
{
    (void)self;
    return clock_fd;
}

static int64_t clock_deadline_ns(void *self)
{
    (void)self;
    return due_ns;
}

static void a_sleeping_pump_reads_a_device_at_its_deadline(void)
{
    set_up();
    const struct ipoibu_packet_device_v1 v1 = {.read = clock_read,
                                               .write = clock_write,
                                               .fd = clock_get_fd,
                                               .deadline_ns = clock_deadline_ns};
    struct ipu_c_device clock_device;
    clock_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    due_ns = 0;
    CHECK_EQ(ipu_c_device_init(&clock_device, &v1), 0);
    close_path(&echoer);
    echoer.device = &clock_device.device;
    open_path(&echoer);
    run(&echoer, &sender);
    while (atomic_load(&reads) < 20)
        sched_yield();
    close_path(&sender);
    close_path(&echoer);
    close(clock_fd);
    tear_down();
}

static uint32_t starts, stops;
static void *kept_memory;
static void (*drop_memory)(void *);
static uint32_t kept[RX_FRAMES], keeps;
static const uint8_t *kept_packet;

static int keep_start(void *self, const struct ipoibu_frames_v1 *frames)
{
    (void)self;
    CHECK_EQ(starts, stops);
    starts++;
    CHECK_EQ(frames->count, 0);
    CHECK_EQ(frames->mtu_bytes, MTU);
    kept_memory = frames->memory;
    drop_memory = frames->drop;
    return 0;
}

static void keep_stop(void *self)
{
    (void)self;
    stops++;
}

static int keep_packet(void *self, uint32_t frame, const uint8_t *packet, size_t bytes)
{
    (void)self, (void)bytes;
    if (keeps == 0)
        kept_packet = packet;
    kept[keeps++] = frame;
    return 0;
}

static uint32_t keep_back(void *self)
{
    (void)self;
    return keeps > RX_FRAMES / 4 ? kept[--keeps] : IPOIBU_NO_FRAME;
}

static void a_device_keeps_received_frames_beyond_its_data_path(void)
{
    set_up();
    const struct ipoibu_packet_device_v1 v1 = {.read = clock_read,
                                               .write = clock_write,
                                               .fd = clock_get_fd,
                                               .start = keep_start,
                                               .stop = keep_stop,
                                               .keep = keep_packet,
                                               .back = keep_back};
    struct ipu_c_device keeper;
    clock_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    due_ns = INT64_MAX;
    CHECK_EQ(ipu_c_device_init(&keeper, &v1), 0);
    close_path(&echoer);
    echoer.device = &keeper.device;
    open_path(&echoer);
    introduce(&sender, &echoer);
    struct generator headers = {.bytes = BYTES};
    write_headers(&headers, (uint8_t[]){10, 0, 0, 1}, (uint8_t[]){10, 0, 0, 2}, PORT);
    uint8_t packet[BYTES] = {0};
    memcpy(packet, headers.packet, HEAD_BYTES);
    for (int i = 0; i < 3 * RX_FRAMES; i++) {
        CHECK(ipu_queue_send(&queue, packet, BYTES));
        ipu_pump_step(sender.pump, 64);
        ipu_pump_step(echoer.pump, 64);
    }
    CHECK_EQ(keeps, RX_FRAMES / 4);
    ipu_loan_hold(kept_memory);
    void *memory = kept_memory;
    struct host before = echoer;
    echoer.number = 3;
    open_path(&echoer); /* the next data path begins before the former one is gone */
    CHECK_EQ(starts, 2);
    CHECK_EQ(stops, 1);
    close_path(&before);
    CHECK_EQ(stops, 1);
    close_path(&echoer);
    CHECK_EQ(stops, 2);
    CHECK_EQ(kept_packet[15], 1); /* its source */
    drop_memory(memory);
    close_path(&sender);
    close(clock_fd);
    tear_down();
}

static void a_device_that_lacks_a_function_is_refused(void)
{
    const struct ipoibu_packet_device_v1 good = {
        .read = clock_read, .write = clock_write, .fd = clock_get_fd};
    struct ipu_c_device device;
    struct ipoibu_packet_device_v1 bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].read = NULL;
    bad[1].write = NULL;
    bad[2].fd = NULL;
    bad[3].lent_bytes = 1;
    bad[4].ended = echo_ended;
    bad[5].give = echo_give;
    bad[6].keep = keep_packet;
    bad[7].offload = 4;
    CHECK_EQ(ipu_c_device_init(&device, &good), 0);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(ipu_c_device_init(&device, &bad[i]), -EINVAL);
}

int main(void)
{
    RUN(traffic_outlives_flushes_and_rail_changes);
    RUN(an_endpoint_may_end_and_begin_under_a_thread);
    RUN(a_packet_of_a_former_pump_is_readable_and_may_be_sent);
    RUN(packets_that_do_not_fit_are_dropped_and_counted);
    RUN(a_sleeping_pump_reads_a_device_at_its_deadline);
    RUN(a_device_keeps_received_frames_beyond_its_data_path);
    RUN(a_device_that_lacks_a_function_is_refused);
    return 0;
}
