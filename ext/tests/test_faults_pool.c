/* SPDX-License-Identifier: BSD-2-Clause */
/* The pool of copies behind faults, the inner fabric under them, and their life. */
#include <errno.h>
#include <math.h>

#include "faults_world.h"
#include "refuse.h"

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

int main(void)
{
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
    return 0;
}
