/* SPDX-License-Identifier: BSD-2-Clause */
/* The fates of datagrams, and their shares. */
#include <math.h>

#include "faults_world.h"

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

/* It would spoil, count and lose super-frames as if they were datagrams. */
static void nothing_comes_uncut(void)
{
    open_link((struct ipu_faults_config){0}, 0, 1, SENDS);
    struct ipu_fabric inner = *ipu_memory_port_fabric(wire.from_port);
    inner.cuts = true;
    struct ipu_faults *faults = ipu_faults_create(&inner, &(struct ipu_faults_config){0}, 4, 1);
    CHECK(faults != NULL);
    CHECK(!ipu_faults_fabric(faults)->cuts);
    CHECK(ipu_faults_fabric(faults)->ops->lend == NULL);
    ipu_faults_destroy(faults);
    close_link();
}

int main(void)
{
    RUN(nothing_comes_uncut);
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
    RUN(under_all_faults_together_the_books_balance);
    return 0;
}
