/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <time.h>

#include "check.h"
#include "refuse.h"
#include "core/clock.h"
#include "core/random.h"
#include "fabric/faults.h"
#include "fabric/memory.h"

/*
 * A sender behind faults and a plain receiver on one switch. Datagrams carry their number, then a
 * pattern that follows from it.
 */
#define NS_PER_S INT64_C(1000000000)

enum { MTU = 256, LEN = 64, SENDS = 64, RECVS = 1024, RECV_LEN = 40 + MTU };

struct connection {
    struct ipu_memory_switch *sw;
    struct ipu_memory_port *from_port, *to_port;
    struct ipu_faults *faults;
    struct ipu_fabric *from, *to;
    void *ah;
    uint32_t sent;       /* taken by the fabric under test */
    uint32_t cookies;    /* given back */
    uint32_t arrived[2]; /* whole, and damaged */
    uint8_t send_buffer[SENDS][LEN];
    uint8_t recv_buffer[RECVS][RECV_LEN];
};

static struct connection wire;

static void fill(uint8_t *data, uint32_t number)
{
    uint64_t state = number;
    memcpy(data, &number, 4);
    for (int i = 4; i < LEN; i++)
        data[i] = (uint8_t)ipu_random_next(&state);
}

static struct ipu_memory_config port_config(uint8_t number, uint32_t depth)
{
    return (struct ipu_memory_config){.gid = {.s6_addr = {0xFE, 0x80, [15] = number}},
                                      .qpn = 100u + number,
                                      .mtu = MTU,
                                      .queue_depth = depth};
}

static void post(uint32_t slot)
{
    struct ipu_recv recv = {wire.recv_buffer[slot], RECV_LEN, slot};
    CHECK_EQ(wire.to->ops->post(wire.to->self, &recv, 1), 1);
}

static void open_link(struct ipu_faults_config config, uint32_t pool_frames, uint64_t seed,
                      uint32_t depth)
{
    memset(&wire, 0, sizeof wire);
    wire.sw = ipu_memory_switch_create(1);
    CHECK(wire.sw);
    struct ipu_memory_config a = port_config(1, depth), b = port_config(2, RECVS);
    wire.from_port = ipu_memory_port_create(wire.sw, &a);
    wire.to_port = ipu_memory_port_create(wire.sw, &b);
    CHECK(wire.from_port && wire.to_port);
    wire.faults =
        ipu_faults_create(ipu_memory_port_fabric(wire.from_port), &config, pool_frames, seed);
    CHECK(wire.faults);
    wire.from = ipu_faults_fabric(wire.faults);
    wire.to = ipu_memory_port_fabric(wire.to_port);
    CHECK_EQ(wire.from->ops->memory(wire.from->self, wire.send_buffer, sizeof wire.send_buffer), 0);
    CHECK_EQ(wire.to->ops->memory(wire.to->self, wire.recv_buffer, sizeof wire.recv_buffer), 0);
    for (uint32_t slot = 0; slot < RECVS; slot++)
        post(slot);
    struct ipu_dest dest = {.gid = wire.to->gid, .qpn = wire.to->qpn};
    wire.ah = wire.from->ops->ah_create(wire.from->self, &dest);
    CHECK(wire.ah);
}

static void close_link(void)
{
    wire.from->ops->ah_destroy(wire.from->self, wire.ah);
    ipu_faults_destroy(wire.faults);
    ipu_memory_port_destroy(wire.from_port);
    ipu_memory_port_destroy(wire.to_port);
    ipu_memory_switch_destroy(wire.sw);
}

/* Sends n datagrams, up to SENDS; returns how many the fabric took. It spoils the buffers at once,
 * because the fabric has copied them. */
static int send_batch(int n)
{
    struct ipu_send sends[SENDS];
    for (int i = 0; i < n; i++) {
        fill(wire.send_buffer[i], wire.sent + (uint32_t)i);
        uint32_t head_len = i % 2 ? 8 : 0; /* every other one in two pieces */
        sends[i] = (struct ipu_send){.head = wire.send_buffer[i],
                                     .head_len = head_len,
                                     .addr = wire.send_buffer[i] + head_len,
                                     .len = LEN - head_len,
                                     .qpn = wire.to->qpn,
                                     .ah = wire.ah,
                                     .cookie = wire.sent + (uint32_t)i};
    }
    int taken = wire.from->ops->send(wire.from->self, sends, n);
    memset(wire.send_buffer, 0xDD, sizeof wire.send_buffer);
    if (taken > 0)
        wire.sent += (uint32_t)taken;
    return taken;
}

/* Cookies come back in order, each once. */
static void reap(void)
{
    uint64_t cookies[32];
    int n;
    while ((n = wire.from->ops->sent(wire.from->self, cookies, 32)) > 0) {
        for (int i = 0; i < n; i++)
            CHECK_EQ(cookies[i], wire.cookies++);
    }
    CHECK_EQ(n, 0);
}

/* Receives up to max datagrams and returns their numbers; it only counts damaged ones. */
static uint32_t receive(uint32_t *numbers, uint32_t max)
{
    uint32_t n = 0;
    struct ipu_received received;
    while (n < max && wire.to->ops->received(wire.to->self, &received, 1) == 1) {
        uint8_t expected[LEN];
        const uint8_t *data = wire.recv_buffer[received.cookie] + 40;
        CHECK_EQ(received.byte_len, 40 + LEN);
        memcpy(&numbers[n], data, 4);
        fill(expected, numbers[n]);
        bool damaged = memcmp(data, expected, LEN) != 0;
        wire.arrived[damaged]++;
        n += !damaged;
        post((uint32_t)received.cookie);
    }
    return n;
}

static int arm(void)
{
    return wire.from->ops->arm(wire.from->self);
}

/* Sleeps as a pump does: until the descriptor is readable or the deadline has come. */
static void sleep_until_work(void)
{
    struct pollfd fd = {.fd = wire.from->ops->fd(wire.from->self), .events = POLLIN};
    int64_t deadline_ns = wire.from->ops->deadline_ns(wire.from->self);
    int64_t left_ns = deadline_ns - (int64_t)ipu_clock_ns();
    left_ns = left_ns > 0 ? left_ns : 0;
    struct timespec left = {left_ns / NS_PER_S, left_ns % NS_PER_S};
    CHECK(ppoll(&fd, 1, deadline_ns == INT64_MAX ? NULL : &left, NULL) >= 0);
}

static int64_t deadline_ns(void)
{
    return wire.from->ops->deadline_ns(wire.from->self);
}

/* Serves the sender until the inner fabric took n copies. */
static void run_until_sent(uint64_t n)
{
    while (ipu_faults_counters(wire.faults)->sent < n) {
        if (arm() == 0)
            sleep_until_work();
        reap();
    }
}

static void without_faults_everything_arrives_in_order(void)
{
    uint32_t numbers[SENDS];
    open_link((struct ipu_faults_config){0}, 0, 1, 0);
    for (int round = 0; round < 50; round++) {
        CHECK_EQ(send_batch(SENDS), SENDS);
        reap();
        CHECK_EQ(wire.cookies, wire.sent);
        CHECK_EQ(receive(numbers, SENDS), SENDS);
        for (uint32_t i = 0; i < SENDS; i++)
            CHECK_EQ(numbers[i], wire.sent - SENDS + i);
    }
    CHECK_EQ(wire.arrived[1], 0);
    CHECK_EQ(ipu_faults_counters(wire.faults)->sent, wire.sent);
    CHECK(memcmp(&wire.from->gid, &ipu_memory_port_fabric(wire.from_port)->gid, 16) == 0);
    CHECK_EQ(wire.from->qpn, 101);
    CHECK_EQ(wire.from->mtu, MTU);
    close_link();
}

/* Sends n, one batch after the other, and checks that the rest of the books balance. */
static void send_and_receive(uint32_t n)
{
    uint32_t numbers[RECVS];
    while (wire.sent < n) {
        int batch = n - wire.sent < SENDS ? (int)(n - wire.sent) : SENDS;
        CHECK(send_batch(batch) >= 0);
        reap();
        (void)receive(numbers, RECVS);
    }
    CHECK_EQ(wire.cookies, n);
}

static bool about(uint64_t got, double wanted, uint32_t n)
{
    /* Five standard deviations of a binomial distribution; the seeds are fixed, too. */
    double p = wanted / n;
    return fabs((double)got - wanted) <= 5 * sqrt(n * p * (1 - p)) + 1;
}

static void a_share_of_the_datagrams_is_lost_and_no_cookie_is(void)
{
    enum { N = 20000 };
    open_link((struct ipu_faults_config){.loss = 0.1}, 0, 2, 0);
    send_and_receive(N);
    uint64_t lost = ipu_faults_counters(wire.faults)->lost;
    CHECK(about(lost, 0.1 * N, N));
    CHECK_EQ(wire.arrived[0], N - lost);
    CHECK_EQ(wire.arrived[1], 0);
    close_link();
}

static void certain_loss_loses_all_and_no_loss_none(void)
{
    open_link((struct ipu_faults_config){.loss = 1}, 0, 3, 0);
    send_and_receive(1000);
    CHECK_EQ(ipu_faults_counters(wire.faults)->lost, 1000);
    CHECK_EQ(wire.arrived[0], 0);
    CHECK_EQ(ipu_faults_set(wire.faults, &(struct ipu_faults_config){0}), 0); /* no more faults */
    send_and_receive(2000);
    CHECK_EQ(wire.arrived[0], 1000);
    close_link();
}

static void a_share_arrives_twice(void)
{
    enum { N = 20000 };
    open_link((struct ipu_faults_config){.duplicate = 0.2}, 0, 4, 0);
    send_and_receive(N);
    uint64_t duplicated = ipu_faults_counters(wire.faults)->duplicated;
    CHECK(about(duplicated, 0.2 * N, N));
    CHECK_EQ(wire.arrived[0], N + duplicated);
    close_link();
}

static void a_share_arrives_damaged_and_the_callers_buffer_is_not_touched(void)
{
    enum { N = 20000 };
    open_link((struct ipu_faults_config){.corrupt = 0.25}, 0, 5, 0);
    fill(wire.send_buffer[0], 0);
    struct ipu_send send = {
        .addr = wire.send_buffer[0], .len = LEN, .qpn = wire.to->qpn, .ah = wire.ah};
    uint8_t before[LEN];
    memcpy(before, wire.send_buffer[0], LEN);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(wire.from->ops->send(wire.from->self, &send, 1), 1);
        CHECK(memcmp(wire.send_buffer[0], before, LEN) == 0);
    }
    uint64_t cookies[100];
    CHECK_EQ(wire.from->ops->sent(wire.from->self, cookies, 100), 100);
    uint32_t numbers[RECVS];
    (void)receive(numbers, RECVS);

    send_and_receive(N);
    uint64_t corrupted = ipu_faults_counters(wire.faults)->corrupted;
    CHECK(about(corrupted, 0.25 * (N + 100), N + 100));
    /* Flips may hit one bit twice; that is rare. */
    CHECK(wire.arrived[1] <= corrupted && wire.arrived[1] > corrupted - corrupted / 50);
    CHECK_EQ(wire.arrived[0] + wire.arrived[1], N + 100);
    close_link();
}

static void an_empty_message_cannot_be_corrupted_but_is_sent(void)
{
    open_link((struct ipu_faults_config){.corrupt = 1}, 0, 6, 0);
    struct ipu_send send = {
        .addr = wire.send_buffer[0], .len = 0, .qpn = wire.to->qpn, .ah = wire.ah};
    CHECK_EQ(wire.from->ops->send(wire.from->self, &send, 1), 1);
    struct ipu_received received;
    CHECK_EQ(wire.to->ops->received(wire.to->self, &received, 1), 1);
    CHECK_EQ(received.byte_len, 40);
    close_link();
}

static void reordered_datagrams_are_overtaken_by_at_most_four(void)
{
    enum { N = 5000 };
    static uint32_t order[N];
    uint32_t n = 0, late = 0, highest = 0;
    /* The time limit is an hour: only overtaking releases. */
    open_link((struct ipu_faults_config){.reorder = 0.1, .reorder_max_us = 3600000000u}, 0, 7, 0);
    while (wire.sent < N) {
        CHECK_EQ(send_batch(50), 50);
        reap();
        n += receive(order + n, N - n);
    }
    CHECK(n >= N - 4); /* the last few are still held */
    for (uint32_t i = 0; i < n; i++) {
        /* When i arrives, at most 4 that were sent after it are there: never early. */
        uint32_t overtaken_by = 0;
        for (uint32_t j = i > 16 ? i - 16 : 0; j < i; j++)
            overtaken_by += order[j] > order[i];
        CHECK(overtaken_by <= 4);
        late += order[i] < highest;
        highest = order[i] > highest ? order[i] : highest;
    }
    uint64_t reordered = ipu_faults_counters(wire.faults)->reordered;
    CHECK(about(reordered, 0.1 * N, N));
    CHECK(late > reordered * 8 / 10); /* one may be held together with all that overtake it */
    close_link();
}

static void the_last_datagram_is_not_held_for_ever(void)
{
    uint32_t numbers[4];
    open_link((struct ipu_faults_config){.reorder = 1, .reorder_max_us = 200000}, 0, 8, 0);
    CHECK_EQ(send_batch(1), 1);
    CHECK_EQ(receive(numbers, 4), 0);
    reap();
    CHECK_EQ(arm(), 0);
    CHECK(deadline_ns() != INT64_MAX);
    run_until_sent(1);
    CHECK_EQ(receive(numbers, 4), 1);
    CHECK_EQ(numbers[0], 0);
    close_link();
}

static void delayed_datagrams_arrive_by_the_deadline_and_not_early(void)
{
    enum { N = 200 };
    uint32_t numbers[N];
    open_link((struct ipu_faults_config){.delay = 1, .delay_min_us = 20000, .delay_max_us = 30000},
              0, 9, 0);
    uint64_t start_ns = ipu_clock_ns();
    while (wire.sent < N)
        CHECK_EQ(send_batch(50), 50);
    reap();
    CHECK_EQ(wire.cookies, N); /* back at once, while the copies are held */
    run_until_sent(1);
    CHECK(ipu_clock_ns() - start_ns >= 20000 * UINT64_C(1000));
    run_until_sent(N);
    CHECK_EQ(receive(numbers, N), N);
    CHECK_EQ(ipu_faults_counters(wire.faults)->delayed, N);
    CHECK_EQ(deadline_ns(), INT64_MAX);
    close_link();
}

static void the_same_seed_gives_the_same_fates(void)
{
    enum { N = 2000 };
    static uint32_t order[2][2 * N];
    uint32_t n[2] = {0, 0};
    uint32_t damaged[2];
    for (int run = 0; run < 2; run++) {
        open_link((struct ipu_faults_config){.loss = 0.1,
                                             .duplicate = 0.1,
                                             .corrupt = 0.1,
                                             .reorder = 0.1,
                                             .reorder_max_us = 3600000000u},
                  0, 10, 0);
        while (wire.sent < N) {
            CHECK_EQ(send_batch(run ? 40 : 10), run ? 40 : 10); /* however it is batched */
            reap();
            n[run] += receive(order[run] + n[run], 2 * N - n[run]);
        }
        damaged[run] = wire.arrived[1];
        close_link();
    }
    CHECK_EQ(n[0], n[1]);
    CHECK_EQ(damaged[0], damaged[1]);
    CHECK(memcmp(order[0], order[1], n[0] * sizeof(uint32_t)) == 0);
}

static void an_exhausted_pool_takes_fewer_and_wakes_when_it_has_room(void)
{
    uint32_t numbers[RECVS];
    open_link((struct ipu_faults_config){.delay = 1, .delay_min_us = 1000, .delay_max_us = 1000},
              10, 11, 0);
    CHECK_EQ(send_batch(16), 10);
    CHECK_EQ(send_batch(16), 0);
    CHECK_EQ(ipu_faults_counters(wire.faults)->pool_full, 2);
    CHECK_EQ(arm(), 1); /* cookies wait */
    reap();
    CHECK_EQ(wire.cookies, 10);
    run_until_sent(10);
    reap(); /* the inner completions: the pool is whole again */
    CHECK_EQ(receive(numbers, RECVS), 10);
    CHECK_EQ(send_batch(16), 10);
    close_link();
}

static void cookies_that_nobody_fetches_stop_the_sender_at_the_pool_size(void)
{
    open_link((struct ipu_faults_config){.loss = 1}, 10, 12, 0);
    CHECK_EQ(send_batch(16), 10);
    CHECK_EQ(send_batch(16), 0);
    reap();
    CHECK_EQ(send_batch(16), 10);
    close_link();
}

static void a_duplicate_that_finds_no_room_is_not_made(void)
{
    uint32_t numbers[8];
    open_link((struct ipu_faults_config){.duplicate = 1}, 3, 13, 0);
    CHECK_EQ(send_batch(2), 2); /* 0 twice, 1 once */
    CHECK_EQ(receive(numbers, 8), 3);
    CHECK_EQ(numbers[0], 0);
    CHECK_EQ(numbers[1], 0);
    CHECK_EQ(numbers[2], 1);
    CHECK_EQ(ipu_faults_counters(wire.faults)->duplicated, 1);
    CHECK_EQ(ipu_faults_counters(wire.faults)->pool_full, 1);
    close_link();
}

static void an_inner_queue_that_is_full_delays_and_loses_nothing(void)
{
    enum { N = 3000 };
    static uint32_t numbers[N];
    uint32_t n = 0;
    open_link((struct ipu_faults_config){0}, 48, 14, 4); /* the inner one takes 4 at a time */
    while (wire.sent < N) {
        CHECK(send_batch(N - wire.sent < SENDS ? (int)(N - wire.sent) : SENDS) >= 0);
        if (arm() == 0)
            sleep_until_work();
        reap();
        n += receive(numbers + n, N - n);
    }
    run_until_sent(N);
    n += receive(numbers + n, N - n);
    CHECK_EQ(n, N);
    for (uint32_t i = 0; i < N; i++)
        CHECK_EQ(numbers[i], i);
    close_link();
}

static void a_message_above_the_mtu_is_lost_like_on_the_wire(void)
{
    static uint8_t large[MTU + 1];
    uint64_t cookie;
    open_link((struct ipu_faults_config){0}, 0, 15, 0);
    struct ipu_send send = {
        .addr = large, .len = MTU + 1, .qpn = wire.to->qpn, .ah = wire.ah, .cookie = 77};
    CHECK_EQ(wire.from->ops->send(wire.from->self, &send, 1), 1);
    CHECK_EQ(wire.from->ops->sent(wire.from->self, &cookie, 1), 1);
    CHECK_EQ(cookie, 77);
    CHECK_EQ(ipu_faults_counters(wire.faults)->too_big, 1);
    CHECK_EQ(ipu_faults_counters(wire.faults)->sent, 0);
    close_link();
}

static void a_handle_destroyed_while_datagrams_are_held_lives_until_they_are_sent(void)
{
    uint32_t numbers[4];
    open_link((struct ipu_faults_config){.delay = 1, .delay_min_us = 1000, .delay_max_us = 1000}, 0,
              16, 0);
    CHECK_EQ(send_batch(2), 2);
    wire.from->ops->ah_destroy(wire.from->self, wire.ah);
    run_until_sent(2);
    CHECK_EQ(receive(numbers, 4), 2);

    struct ipu_dest dest = {.gid = wire.to->gid, .qpn = wire.to->qpn};
    wire.ah = wire.from->ops->ah_create(wire.from->self, &dest);
    CHECK(wire.ah);
    CHECK_EQ(send_batch(2), 2); /* still held when the link closes */
    close_link();
}

static void closing_with_datagrams_stuck_leaks_nothing(void)
{
    open_link((struct ipu_faults_config){0}, 0, 23, 4);
    CHECK_EQ(send_batch(8), 8); /* four are in the inner queue, four are ready */
    CHECK_EQ(ipu_faults_counters(wire.faults)->sent, 4);
    close_link(); /* the handle goes first */
}

static void the_receiving_side_passes_through(void)
{
    struct ipu_received received;
    open_link((struct ipu_faults_config){.loss = 1}, 0, 17, 0);
    struct ipu_recv recv = {wire.send_buffer, RECV_LEN, 5};
    CHECK_EQ(wire.from->ops->post(wire.from->self, &recv, 1), 1);
    struct ipu_dest dest = {.gid = wire.from->gid, .qpn = wire.from->qpn};
    void *ah = wire.to->ops->ah_create(wire.to->self, &dest);
    struct ipu_send send = {.addr = wire.recv_buffer, .len = 10, .qpn = wire.from->qpn, .ah = ah};
    CHECK_EQ(arm(), 0);
    CHECK_EQ(wire.to->ops->send(wire.to->self, &send, 1), 1);
    struct pollfd fd = {.fd = wire.from->ops->fd(wire.from->self), .events = POLLIN};
    CHECK_EQ(poll(&fd, 1, 0), 1);
    CHECK_EQ(wire.from->ops->received(wire.from->self, &received, 1), 1);
    CHECK_EQ(received.cookie, 5);
    wire.to->ops->ah_destroy(wire.to->self, ah);
    close_link();
}

static void a_datagram_keeps_the_queue_pair_that_it_comes_from(void)
{
    struct ipu_received received;
    open_link((struct ipu_faults_config){.reorder = 1}, 0, 17, 0);
    struct ipu_send send = {.addr = wire.send_buffer,
                            .len = LEN,
                            .qpn = wire.to->qpn,
                            .source_qpn = 0x77,
                            .ah = wire.ah};
    CHECK_EQ(wire.from->ops->send(wire.from->self, &send, 1), 1);
    wire.sent++;
    while (wire.to->ops->received(wire.to->self, &received, 1) == 0) {
        sleep_until_work();
        reap();
    }
    CHECK_EQ(received.src_qpn, 0x77);
    close_link();
}

static void a_broken_inner_queue_pair_breaks_and_recovers_with_its_wrapper(void)
{
    uint32_t numbers[8];
    uint64_t cookies[8];
    struct ipu_received received;
    open_link((struct ipu_faults_config){0}, 0, 18, 0);
    void *self = wire.from->self;
    const struct ipu_fabric_ops *ops = wire.from->ops;
    CHECK_EQ(send_batch(3), 3);
    ipu_memory_break(wire.from_port, 1);
    CHECK_EQ(send_batch(2), 2);    /* taken into the pool, and stuck there */
    CHECK_EQ(send_batch(1), -EIO); /* now the wrapper knows */
    CHECK_EQ(ops->sent(self, cookies, 8), 5);
    CHECK_EQ(ops->sent(self, cookies, 8), -EIO);
    CHECK_EQ(ops->received(self, &received, 1), 0);
    CHECK_EQ(ops->recover(self), -EAGAIN);
    CHECK_EQ(ops->recover(self), 0);
    CHECK_EQ(ops->sent(self, cookies, 8), 0); /* and sends the stuck copies */
    CHECK_EQ(receive(numbers, 8), 5);
    CHECK_EQ(numbers[4], 4);
    close_link();
}

static int64_t inner_deadline_ns;

static int64_t inner_deadline(void *self)
{
    (void)self;
    return inner_deadline_ns;
}

static void the_inner_fabric_keeps_its_deadlines_and_its_lack_of_recovery(void)
{
    open_link((struct ipu_faults_config){0}, 0, 24, 0);
    struct ipu_fabric inner = *ipu_memory_port_fabric(wire.to_port);
    struct ipu_fabric_ops ops = *inner.ops;
    ops.deadline_ns = inner_deadline;
    ops.recover = NULL;
    inner.ops = &ops;
    inner.max_ah = 7;
    struct ipu_faults_config delay = {.delay = 1, .delay_min_us = 1000000, .delay_max_us = 1000000};
    struct ipu_faults *faults = ipu_faults_create(&inner, &delay, 8, 1);
    CHECK(faults);
    struct ipu_fabric *outer = ipu_faults_fabric(faults);
    CHECK(!outer->ops->recover);
    CHECK_EQ(outer->max_ah, 7);
    CHECK_EQ(outer->ops->fd(outer->self), inner.ops->fd(inner.self));

    inner_deadline_ns = 5;
    CHECK_EQ(outer->ops->deadline_ns(outer->self), 5);
    inner_deadline_ns = INT64_MAX;
    CHECK_EQ(outer->ops->deadline_ns(outer->self), INT64_MAX);
    struct ipu_dest dest = {.qpn = 9};
    void *ah = outer->ops->ah_create(outer->self, &dest);
    struct ipu_send send = {.addr = wire.recv_buffer, .len = 8, .qpn = 9, .ah = ah};
    CHECK_EQ(outer->ops->send(outer->self, &send, 1), 1);
    CHECK(outer->ops->deadline_ns(outer->self) < INT64_MAX);
    inner_deadline_ns = 5;
    CHECK_EQ(outer->ops->deadline_ns(outer->self), 5);
    outer->ops->ah_destroy(outer->self, ah);
    ipu_faults_destroy(faults);
    close_link();
}

static void a_refused_registration_of_the_pool_is_reported(void)
{
    open_link((struct ipu_faults_config){0}, 0, 25, 0);
    const struct ipu_fabric *inner = ipu_memory_port_fabric(wire.to_port);
    while (inner->ops->memory(inner->self, wire.recv_buffer, 1) == 0)
        ; /* up to the port's limit */
    CHECK(!ipu_faults_create(inner, &(struct ipu_faults_config){0}, 8, 1));
    CHECK_EQ(errno, ENOSPC);
    close_link();
}

static void settings_that_are_no_probabilities_are_refused(void)
{
    struct ipu_faults_config bad[] = {{.loss = -0.01},  {.duplicate = 1.01},
                                      {.corrupt = NAN}, {.reorder = INFINITY},
                                      {.delay = -1},    {.delay_min_us = 2, .delay_max_us = 1}};
    open_link((struct ipu_faults_config){0}, 0, 19, 0);
    const struct ipu_fabric *inner = ipu_memory_port_fabric(wire.to_port);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_EQ(ipu_faults_set(wire.faults, &bad[i]), -EINVAL);
        CHECK(!ipu_faults_create(inner, &bad[i], 0, 1));
        CHECK_EQ(errno, EINVAL);
    }
    CHECK(!ipu_faults_create(inner, &(struct ipu_faults_config){0}, 65537, 1));
    CHECK_EQ(errno, EINVAL);
    send_and_receive(100); /* and change nothing */
    CHECK_EQ(wire.arrived[0], 100);
    close_link();
    ipu_faults_destroy(NULL);
}

static void every_refused_resource_is_an_error_that_leaves_nothing(void)
{
    open_link((struct ipu_faults_config){0}, 0, 20, 0);
    const struct ipu_fabric *inner = ipu_memory_port_fabric(wire.to_port);
    struct ipu_faults_config none = {0};
    int n = 0;
    for (;; n++) {
        errno = 0;
        refuse_after(n);
        struct ipu_faults *faults = ipu_faults_create(inner, &none, 8, 1);
        if (!refuse_stop()) {
            CHECK(faults);
            struct ipu_fabric *fabric = ipu_faults_fabric(faults);
            struct ipu_dest dest = {.qpn = 1};
            for (int m = 0; m < 2; m++) { /* ours, the inner one's */
                refuse_after(m);
                CHECK(!fabric->ops->ah_create(fabric->self, &dest));
                CHECK(refuse_stop());
                CHECK_EQ(errno, ENOMEM);
            }
            ipu_faults_destroy(faults);
            break;
        }
        CHECK(!faults);
        CHECK_EQ(errno, ENOMEM);
    }
    CHECK_EQ(n, 9); /* the wrapper, the slab's four, copies and the three lists */
    close_link();
}

/* Everything at once, the pool and the inner queue small: each number arrives at most twice, each
 * cookie comes back once, and the counters add up. */
static void under_all_faults_together_the_books_balance(void)
{
    enum { N = 20000 };
    static uint8_t arrivals[N];
    memset(arrivals, 0, sizeof arrivals);
    open_link((struct ipu_faults_config){.loss = 0.1,
                                         .duplicate = 0.1,
                                         .corrupt = 0.1,
                                         .reorder = 0.1,
                                         .delay = 0.1,
                                         .delay_max_us = 200,
                                         .reorder_max_us = 100},
              64, 21, 16);
    const struct ipu_faults_counters *counters = ipu_faults_counters(wire.faults);
    uint32_t numbers[RECVS];
    uint64_t random = 22;
    for (bool done = false; !done;) {
        uint32_t left = N - wire.sent;
        uint32_t batch = 1 + ipu_random_below(&random, SENDS);
        if (left > 0)
            CHECK(send_batch((int)(batch < left ? batch : left)) >= 0);
        if (arm() == 0 && left == 0)
            sleep_until_work();
        reap();
        uint32_t n = receive(numbers, RECVS);
        for (uint32_t i = 0; i < n; i++) {
            CHECK(numbers[i] < N);
            CHECK(++arrivals[numbers[i]] <= 2);
        }
        done = left == 0 && counters->sent == N - counters->lost + counters->duplicated;
    }
    (void)receive(numbers, RECVS);
    CHECK_EQ(wire.cookies, N);
    CHECK_EQ(wire.arrived[0] + wire.arrived[1], counters->sent);
    CHECK(counters->lost > 0 && counters->duplicated > 0 && counters->corrupted > 0);
    CHECK(counters->reordered > 0 && counters->delayed > 0 && counters->pool_full > 0);
    close_link();
}

int main(void)
{
    RUN(without_faults_everything_arrives_in_order);
    RUN(a_share_of_the_datagrams_is_lost_and_no_cookie_is);
    RUN(certain_loss_loses_all_and_no_loss_none);
    RUN(a_share_arrives_twice);
    RUN(a_share_arrives_damaged_and_the_callers_buffer_is_not_touched);
    RUN(an_empty_message_cannot_be_corrupted_but_is_sent);
    RUN(reordered_datagrams_are_overtaken_by_at_most_four);
    RUN(the_last_datagram_is_not_held_for_ever);
    RUN(delayed_datagrams_arrive_by_the_deadline_and_not_early);
    RUN(the_same_seed_gives_the_same_fates);
    RUN(an_exhausted_pool_takes_fewer_and_wakes_when_it_has_room);
    RUN(cookies_that_nobody_fetches_stop_the_sender_at_the_pool_size);
    RUN(a_duplicate_that_finds_no_room_is_not_made);
    RUN(an_inner_queue_that_is_full_delays_and_loses_nothing);
    RUN(a_message_above_the_mtu_is_lost_like_on_the_wire);
    RUN(a_handle_destroyed_while_datagrams_are_held_lives_until_they_are_sent);
    RUN(closing_with_datagrams_stuck_leaks_nothing);
    RUN(the_receiving_side_passes_through);
    RUN(a_datagram_keeps_the_queue_pair_that_it_comes_from);
    RUN(a_broken_inner_queue_pair_breaks_and_recovers_with_its_wrapper);
    RUN(the_inner_fabric_keeps_its_deadlines_and_its_lack_of_recovery);
    RUN(a_refused_registration_of_the_pool_is_reported);
    RUN(settings_that_are_no_probabilities_are_refused);
    RUN(every_refused_resource_is_an_error_that_leaves_nothing);
    RUN(under_all_faults_together_the_books_balance);
}
