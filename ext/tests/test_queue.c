/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames lent to an application: two pumps over the in-process fabric, by hand and on threads. */
#include <errno.h>
#include <pthread.h>

#include "check.h"
#include "refuse.h"
#include "core/frame.h"
#include "device/queue.h"
#include "fabric/memory.h"
#include "pump/loop/pump.h"
#include "pump/records/pump_abi.h"

enum {
    MTU = 2044,
    PACKET = 64,
    RX_FRAMES = 64,
    MESSAGES = 5000,
};

struct host {
    struct ipu_memory_port *port;
    struct ipu_queue queue;
    struct ipu_pump *pump;
};

static struct ipu_memory_switch *sw;
static struct host hosts[2];

static int make_pump(struct host *host)
{
    struct ipu_pump_config config = {
        .fabric = ipu_memory_port_fabric(host->port),
        .device = &host->queue.device,
        .mtu = MTU,
        .rx_frames = RX_FRAMES,
        .neigh_max = 64,
        .route_max = 64,
        .ah_max = 64,
        .command_bytes = 1 << 14,
        .event_bytes = 1 << 14,
        .capture_bytes = 1 << 14,
    };
    return ipu_pump_create(&config, &host->pump);
}

static void make_host(struct host *host, uint8_t number)
{
    struct ipu_memory_config config = {.gid.s6_addr = {0xfe, 0x80, [15] = number}, .mtu = 2048};
    host->port = ipu_memory_port_create(sw, &config);
    CHECK(host->port != NULL);
    CHECK_EQ(ipu_queue_init(&host->queue, 1 << 16, 1 << 16), 0);
    CHECK_EQ(make_pump(host), 0);
}

/* Publishes the neighbour: 10.0.0.2 belongs to the second host. */
static void introduce(void)
{
    struct ipu_command command = {
        .type = IPU_COMMAND_NEIGH_SET,
        .neigh_set = {.next_hop.s6_addr = {[10] = 0xff, 0xff, 10, 0, 0, 2},
                      .mtu = MTU,
                      .dest = {.gid.s6_addr = {0xfe, 0x80, [15] = 2},
                               .qpn = ipu_memory_port_fabric(hosts[1].port)->qpn}},
    };
    struct ipu_ring *commands = ipu_pump_commands(hosts[0].pump);
    memcpy(ipu_ring_reserve(commands, sizeof command), &command, sizeof command);
    ipu_ring_commit(commands, sizeof command);
    CHECK(ipu_pump_step(hosts[0].pump, 64) > 0);
}

static void set_up(void)
{
    sw = ipu_memory_switch_create(1);
    for (uint8_t i = 0; i < 2; i++)
        make_host(&hosts[i], (uint8_t)(i + 1));
    introduce();
}

static void end_pumps(void)
{
    for (int i = 0; i < 2; i++) {
        ipu_pump_destroy(hosts[i].pump);
        ipu_memory_port_destroy(hosts[i].port);
    }
    ipu_memory_switch_destroy(sw);
}

static void tear_down(void)
{
    end_pumps();
    for (int i = 0; i < 2; i++)
        ipu_queue_free(&hosts[i].queue);
}

static void write_packet(uint8_t *at, uint32_t number)
{
    memset(at, 0, PACKET);
    memcpy(at, (uint8_t[]){0x45, 0, 0, PACKET}, 4);
    memcpy(at + 8, (uint8_t[]){64, 17}, 2);
    memcpy(at + 12, (uint8_t[]){10, 0, 0, 1, 10, 0, 0, 2}, 8);
    memcpy(at + 20, &number, sizeof number);
    memcpy(at + PACKET - 4, &number, sizeof number);
}

static bool send_frame(uint32_t number)
{
    struct ipu_queue *queue = &hosts[0].queue;
    uint32_t index = ipu_loan_reserve(queue->loan);
    if (index == IPU_INDEX_NONE)
        return false;
    write_packet(ipu_loan_tx_packet(queue->loan, index), number);
    if (ipu_queue_send_frame(queue, index, PACKET))
        return true;
    ipu_loan_cancel(queue->loan, index);
    return false;
}

static void step(void)
{
    for (int i = 0; i < 4; i++)
        ipu_pump_step(hosts[i % 2].pump, 256);
}

/* Returns the number in the packet, or -1, and in *index its frame, which the caller keeps. */
static int64_t receive(uint32_t *index)
{
    struct ipu_queue *queue = &hosts[1].queue;
    uint32_t len, first, last;
    const uint8_t *packet = ipu_queue_peek(queue, index, &len);
    if (packet == NULL)
        return -1;
    CHECK_EQ(len, PACKET);
    memcpy(&first, packet + 20, sizeof first);
    memcpy(&last, packet + PACKET - 4, sizeof last);
    CHECK_EQ(first, last);
    ipu_ring_release(&queue->from_pump);
    return first;
}

static void frames_cross_and_come_back(void)
{
    uint32_t index;
    set_up();
    struct ipu_loan *to = hosts[1].queue.loan;
    for (uint32_t n = 0; n < 3 * hosts[0].queue.loan->tx_frames; n++) {
        CHECK(send_frame(n));
        step();
        CHECK_EQ(receive(&index), n);
        CHECK(index != IPU_INDEX_NONE);
        ipu_index_ring_push(&to->returned, index);
    }
    CHECK_EQ(receive(&index), -1);
    tear_down();
}

static void copies_and_frames_keep_their_order(void)
{
    uint8_t packet[PACKET];
    uint32_t index;
    set_up();
    write_packet(packet, 1);
    CHECK(send_frame(0));
    CHECK(ipu_queue_send(&hosts[0].queue, packet, PACKET));
    CHECK(send_frame(2));
    step();
    for (int n = 0; n < 3; n++) {
        CHECK_EQ(receive(&index), n);
        ipu_index_ring_push(&hosts[1].queue.loan->returned, index);
    }
    tear_down();
}

/* The fabric never runs out of receives, and it uses the held frames again. */
static void beyond_the_frames_that_may_be_held_packets_are_copied(void)
{
    uint32_t index[RX_FRAMES];
    set_up();
    struct ipu_loan *loan = hosts[1].queue.loan;
    const struct ipu_loan_rx *lent = &loan->datagrams;
    for (int round = 0; round < 3; round++) {
        for (uint32_t n = 0; n < RX_FRAMES; n++) {
            CHECK(send_frame(n));
            step();
            CHECK_EQ(receive(&index[n]), n);
            CHECK_EQ(index[n] == IPU_INDEX_NONE, n >= lent->held_max);
        }
        CHECK_EQ(lent->held, RX_FRAMES / 2);
        for (uint32_t n = 0; n < lent->held_max; n++)
            ipu_index_ring_push(&loan->returned, index[n]);
        step();
        CHECK_EQ(lent->held, 0);
    }
    tear_down();
}

static void all_frames_may_be_under_way_and_a_cancelled_one_is_free_again(void)
{
    set_up();
    struct ipu_loan *loan = hosts[0].queue.loan;
    uint32_t taken = 0;
    while (send_frame(taken))
        taken++;
    CHECK_EQ(taken, loan->tx_frames);
    step();
    uint32_t index = ipu_loan_reserve(loan);
    CHECK(index < loan->tx_frames);
    ipu_loan_cancel(loan, index);
    CHECK_EQ(ipu_loan_reserve(loan), index);
    tear_down();
}

static void a_frame_outlives_its_pump_fabric_and_queue(void)
{
    uint32_t index, len;
    set_up();
    CHECK(send_frame(7));
    step();
    struct ipu_queue *queue = &hosts[1].queue;
    struct ipu_loan *loan = queue->loan;
    ipu_loan_hold(loan);
    const uint8_t *packet = ipu_queue_peek(queue, &index, &len);
    CHECK(packet != NULL && index != IPU_INDEX_NONE);
    ipu_ring_release(&queue->from_pump);
    tear_down();
    CHECK_EQ(packet[20], 7);
    ipu_index_ring_push(&loan->returned, index);
    ipu_loan_drop(loan);
}

static void a_second_pump_gets_nothing_that_names_frames_of_the_first(void)
{
    uint32_t index, len;
    set_up();
    CHECK(send_frame(1));
    step();
    CHECK(send_frame(2));
    for (int i = 0; i < 2; i++) {
        ipu_pump_destroy(hosts[i].pump);
        ipu_memory_port_destroy(hosts[i].port);
        struct ipu_memory_config config = {.gid.s6_addr = {0xfe, 0x80, [15] = (uint8_t)(i + 1)},
                                           .mtu = 2048};
        hosts[i].port = ipu_memory_port_create(sw, &config);
        CHECK_EQ(make_pump(&hosts[i]), 0);
    }
    introduce();
    CHECK(ipu_queue_peek(&hosts[1].queue, &index, &len) == NULL);
    step();
    CHECK_EQ(receive(&index), -1);
    CHECK(send_frame(3));
    step();
    CHECK_EQ(receive(&index), 3);
    tear_down();
}

static void every_refused_allocation_leaves_nothing_behind(void)
{
    sw = ipu_memory_switch_create(1);
    struct ipu_memory_config config = {.gid.s6_addr = {0xfe, 0x80, [15] = 1}, .mtu = 2048};
    bool refused = true;
    int n = 0;
    for (; refused; n++) {
        struct host host;
        host.port = ipu_memory_port_create(sw, &config);
        CHECK_EQ(ipu_queue_init(&host.queue, 1 << 16, 1 << 16), 0);
        refuse_after(n);
        int result = make_pump(&host);
        refused = refuse_stop();
        CHECK_EQ(result < 0, refused);
        if (result == 0)
            ipu_pump_destroy(host.pump);
        ipu_memory_port_destroy(host.port);
        ipu_queue_free(&host.queue);
    }
    CHECK(n > 10);
    ipu_memory_switch_destroy(sw);
}

static atomic_bool enough;

static void *send_all(void *unused)
{
    uint32_t n = 0;
    (void)unused;
    while (!atomic_load(&enough)) {
        n += send_frame(n);
        ipu_ring_wake(&hosts[0].queue.to_pump);
    }
    return NULL;
}

static void threads_hand_frames_round_in_order_and_unspoilt(void)
{
    pthread_t sender;
    uint32_t index;
    int64_t before = -1;
    set_up();
    struct ipu_loan *loan = hosts[1].queue.loan;
    ipu_loan_hold(loan);
    atomic_store(&enough, false);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(ipu_pump_start(hosts[i].pump), 0);
    CHECK_EQ(pthread_create(&sender, NULL, send_all, NULL), 0);
    for (int got = 0; got < MESSAGES;) {
        int64_t number = receive(&index);
        if (number < 0)
            continue;
        CHECK(number > before);
        before = number;
        if (index != IPU_INDEX_NONE)
            ipu_index_ring_push(&loan->returned, index);
        got++;
    }
    atomic_store(&enough, true);
    CHECK_EQ(pthread_join(sender, NULL), 0);
    for (int i = 0; i < 2; i++)
        ipu_pump_stop(hosts[i].pump);
    tear_down();
    ipu_loan_drop(loan);
}

int main(void)
{
    RUN(frames_cross_and_come_back);
    RUN(copies_and_frames_keep_their_order);
    RUN(beyond_the_frames_that_may_be_held_packets_are_copied);
    RUN(all_frames_may_be_under_way_and_a_cancelled_one_is_free_again);
    RUN(a_frame_outlives_its_pump_fabric_and_queue);
    RUN(a_second_pump_gets_nothing_that_names_frames_of_the_first);
    RUN(every_refused_allocation_leaves_nothing_behind);
    RUN(threads_hand_frames_round_in_order_and_unspoilt);
    return 0;
}
