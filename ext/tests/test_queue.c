/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames lent to an application: two pumps over the in-process fabric, by hand and on threads. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "check.h"
#include "refuse.h"
#include "roomy_pump.h"
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
    RENEWALS = 50,
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
        ROOMY_PUMP,
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
    struct ipu_loan *loan = ipu_queue_producer_loan(queue);
    uint32_t index = loan != NULL ? ipu_loan_reserve(loan) : IPU_INDEX_NONE;
    if (index == IPU_INDEX_NONE)
        return false;
    write_packet(ipu_loan_tx_packet(loan, index), number);
    if (ipu_queue_send_frame(queue, index, PACKET))
        return true;
    ipu_loan_cancel(loan, index);
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

/* Another queue pair and pump, over the same queue. */
static void renew(struct host *host, uint8_t number)
{
    ipu_pump_destroy(host->pump);
    ipu_memory_port_destroy(host->port);
    struct ipu_memory_config config = {.gid.s6_addr = {0xfe, 0x80, [15] = number}, .mtu = 2048};
    host->port = ipu_memory_port_create(sw, &config);
    CHECK_EQ(make_pump(host), 0);
}

static void a_second_pump_gets_nothing_that_names_frames_of_the_first(void)
{
    uint32_t index, len;
    set_up();
    CHECK(send_frame(1));
    step();
    CHECK(send_frame(2));
    for (uint8_t i = 0; i < 2; i++)
        renew(&hosts[i], (uint8_t)(i + 1));
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

static _Atomic uint32_t arrived;

static void *receive_all(void *unused)
{
    uint32_t index;
    (void)unused;
    while (!atomic_load(&enough))
        if (receive(&index) >= 0) {
            if (index != IPU_INDEX_NONE)
                ipu_index_ring_push(&hosts[1].queue.consumer.loan->returned, index);
            atomic_fetch_add(&arrived, 1);
        }
    return NULL;
}

static void pumps_change_under_threads_that_send_and_receive(void)
{
    pthread_t sender, receiver;
    set_up();
    atomic_store(&enough, false);
    CHECK_EQ(pthread_create(&sender, NULL, send_all, NULL), 0);
    CHECK_EQ(pthread_create(&receiver, NULL, receive_all, NULL), 0);
    for (int i = 0; i < RENEWALS; i++) {
        renew(&hosts[0], 1);
        renew(&hosts[1], 2);
        introduce();
        for (uint32_t before = atomic_load(&arrived); atomic_load(&arrived) == before;)
            step();
        ipu_queue_detach(&hosts[i % 2].queue); /* as at the end of an endpoint */
    }
    atomic_store(&enough, true);
    CHECK_EQ(pthread_join(sender, NULL), 0);
    CHECK_EQ(pthread_join(receiver, NULL), 0);
    tear_down();
}

/* ---- a producer that waits for frames */

static bool is_readable(int fd)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1;
}

static void a_producer_sleeps_until_frames_are_free(void)
{
    set_up();
    struct ipu_queue *queue = &hosts[0].queue;
    CHECK_EQ(ipu_queue_open_room(queue), 0);
    CHECK_EQ(ipu_queue_arm_room(queue), 1);
    while (send_frame(0))
        ;
    CHECK_EQ(ipu_queue_arm_room(queue), 0);
    CHECK(!is_readable(queue->room_fd));
    step();
    CHECK(is_readable(queue->room_fd));
    ipu_queue_disarm_room(queue);
    CHECK(!is_readable(queue->room_fd));
    CHECK(send_frame(1));
    tear_down();
}

/* The pump gives few frames back at a time; a producer that holds the others gets the last ones. */
static void a_producer_that_holds_most_frames_gets_the_rest(void)
{
    set_up();
    struct ipu_queue *queue = &hosts[0].queue;
    struct ipu_loan *loan = ipu_queue_producer_loan(queue);
    CHECK_EQ(ipu_queue_open_room(queue), 0);
    CHECK(send_frame(0));
    while (ipu_loan_reserve(loan) != IPU_INDEX_NONE)
        ;
    CHECK_EQ(ipu_queue_arm_room(queue), 0);
    step();
    CHECK(is_readable(queue->room_fd));
    tear_down();
}

static void another_pump_wakes_a_producer_that_waits(void)
{
    set_up();
    struct ipu_queue *queue = &hosts[0].queue;
    CHECK_EQ(ipu_queue_open_room(queue), 0);
    while (send_frame(0))
        ;
    CHECK_EQ(ipu_queue_arm_room(queue), 0);
    renew(&hosts[0], 1);
    CHECK(is_readable(queue->room_fd));
    CHECK(send_frame(1));
    tear_down();
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
    RUN(pumps_change_under_threads_that_send_and_receive);
    RUN(a_producer_sleeps_until_frames_are_free);
    RUN(a_producer_that_holds_most_frames_gets_the_rest);
    RUN(another_pump_wakes_a_producer_that_waits);
    return 0;
}
