/* SPDX-License-Identifier: BSD-2-Clause */
/* Sleep on a completion queue, and which thread wakes which. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>

#include "live.h"

/* ---- waiting --------------------------------------------------------------------------------- */

static bool readable(const struct soft_cq *cq, int timeout_ms)
{
    struct pollfd p = {.fd = soft_cq_fd(cq), .events = POLLIN};

    return poll(&p, 1, timeout_ms) == 1;
}

static void a_packet_makes_the_descriptor_readable(void)
{
    struct soft_wc wc;
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 0);
    soft_cq_arm(b.cq);
    CHECK(!readable(b.cq, 0));
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "x", 1);
    CHECK(readable(b.cq, TIMEOUT_MS));
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, &wc), 1);
    soft_cq_arm(b.cq);
    CHECK(!readable(b.cq, 0));
    close_both(&a, &b);
}

/* Two packets for two CQs arrive in one batch; the thread that takes the first leaves the other one
 * fetched. */
static void packets_left_fetched_wake_the_other_cq(void)
{
    struct soft_cq *other;
    struct soft_qp *qp;
    uint8_t buffer[64];
    struct soft_wc wc, many[8];
    struct end a, b;

    open_both(&a, &b);
    CHECK_EQUAL(soft_cq_create(b.hca, 4, &other), 0);
    qp = qp_on(b.hca, other, 4);
    post(qp, 5, buffer, sizeof(buffer));
    soft_cq_arm(other);
    CHECK(!readable(other, 0));
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "1", 1);
    send_to(&a, a.peer, soft_qp_qpn(qp), "2", 1);
    await(b.cq, 1, &wc);
    CHECK(readable(other, TIMEOUT_MS));
    await(other, 1, &wc);
    CHECK_EQUAL(wc.wr_id, 5);

    /* The same when the other thread's progress makes the completion: then only the event
     * descriptor wakes. */
    post(qp, 6, buffer, sizeof(buffer));
    soft_cq_arm(other);
    CHECK(!readable(other, 0));
    send_to(&a, a.peer, soft_qp_qpn(qp), "3", 1);
    await_counter(b.hca, SOFT_C_RX_DELIVERED, 3);
    CHECK(readable(other, 0));
    CHECK_EQUAL(soft_cq_poll(other, 8, many), 1); /* more than it is deep */
    CHECK_EQUAL(many[0].wr_id, 6);
    close_both(&a, &b);
}

/* Only its completions wake a consumer in the background, and it fetches packets only while no
 * other consumer would. */
static void packets_wake_the_background_only_when_nobody_else_comes_for_them(void)
{
    struct soft_cq *back;
    struct soft_qp *qp;
    uint8_t buffer[64];
    struct soft_wc wc;
    struct end a, b;

    open_both(&a, &b);
    CHECK_EQUAL(soft_cq_create(b.hca, 8, &back), 0);
    soft_cq_set_background(back);
    qp = qp_on(b.hca, back, 4);
    post(qp, 1, buffer, sizeof(buffer));
    soft_cq_arm(back);
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "1", 1); /* its consumer has never asked for a wake-up */
    CHECK(readable(back, TIMEOUT_MS));
    await(b.cq, 1, &wc);
    post(b.qp, wc.wr_id, b.frame[wc.wr_id], FRAME);
    CHECK_EQUAL(soft_cq_poll(back, 1, &wc), 0);
    soft_cq_arm(back);
    CHECK(!readable(back, 0));

    soft_cq_arm(b.cq);
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "2", 1);
    CHECK(readable(b.cq, TIMEOUT_MS));
    CHECK(!readable(back, 0));
    await(b.cq, 1, &wc);
    post(b.qp, wc.wr_id, b.frame[wc.wr_id], FRAME);
    soft_cq_arm(b.cq);
    send_to(&a, a.peer, soft_qp_qpn(qp), "3", 1);
    CHECK(readable(b.cq, TIMEOUT_MS));
    CHECK(!readable(back, 0));
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 0); /* the other one fetches it */
    CHECK(readable(back, 0));
    CHECK_EQUAL(soft_cq_take(back, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 1);

    post(qp, 4, buffer, sizeof(buffer));
    soft_cq_arm(back);
    CHECK(!readable(back, 0));
    soft_qp_destroy(b.qp);
    CHECK_EQUAL(soft_cq_destroy(b.cq), 0); /* from now on it is alone */
    send_to(&a, a.peer, soft_qp_qpn(qp), "4", 1);
    CHECK(readable(back, TIMEOUT_MS));
    await(back, 1, &wc);
    CHECK_EQUAL(wc.wr_id, 4);
    CHECK_EQUAL(soft_cq_create(b.hca, 64, &b.cq), 0);
    b.qp = qp_on(b.hca, b.cq, 16);
    close_both(&a, &b);
}

/* The poll of one consumer leaves packets for which another consumer has no buffers yet; but not
 * for ever. */
static void a_poll_leaves_to_another_consumer_what_that_has_no_buffer_for(void)
{
    enum { COUNT = 64, FEW = 4 };
    struct soft_cq *other;
    struct soft_qp *qp;
    uint8_t buffer[64];
    struct soft_wc wc[FEW];
    struct end a, b;

    open_both(&a, &b);
    CHECK_EQUAL(soft_cq_create(b.hca, FEW, &other), 0);
    qp = qp_on(b.hca, other, FEW);
    for (int i = 0; i < COUNT; i++)
        send_to(&a, a.peer, soft_qp_qpn(qp), "for the other one", 17);
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "behind them", 11);
    for (int i = 0; i < COUNT; i += FEW) {
        for (int j = 0; j < FEW; j++)
            post(qp, (uint64_t)j, buffer, sizeof(buffer));
        await_counter(b.hca, SOFT_C_RX_DELIVERED, (uint64_t)i + FEW);
        CHECK_EQUAL(soft_cq_poll(b.cq, 1, wc), 0);
        CHECK(soft_hca_deadline_ns(b.hca) != SOFT_NO_DEADLINE_NS);
        CHECK_EQUAL(soft_cq_take(other, FEW, wc), FEW);
    }
    CHECK_EQUAL(counter(b.hca, SOFT_C_DROP_NO_BUFFER), 0);

    /* It never posts again: the packets behind come when its time is over, and its further packets
     * are dropped. */
    await_counter(b.hca, SOFT_C_RX_DELIVERED, COUNT + 1);
    CHECK_EQUAL(soft_cq_take(b.cq, 1, wc), 1);
    CHECK_EQUAL(wc[0].byte_len, 51);
    CHECK(soft_hca_deadline_ns(b.hca) == SOFT_NO_DEADLINE_NS);
    send_to(&a, a.peer, soft_qp_qpn(qp), "too much", 8);
    await_counter(b.hca, SOFT_C_DROP_NO_BUFFER, 1);
    close_both(&a, &b);
}

struct player {
    struct end *end;
    uint32_t remote_qpn;
    int rounds;
    bool starts;
};

static void *play(void *argument)
{
    struct player *p = argument;
    struct soft_wc wc;

    if (p->starts)
        send_to(p->end, p->end->peer, p->remote_qpn, "ball", 4);
    for (int i = 0; i < p->rounds; i++) {
        await(p->end->cq, 1, &wc);
        CHECK_EQUAL(wc.byte_len, 44);
        post(p->end->qp, wc.wr_id, p->end->frame[wc.wr_id], FRAME);
        if (!p->starts || i < p->rounds - 1)
            send_to(p->end, p->end->peer, p->remote_qpn, "ball", 4);
    }
    return NULL;
}

/* Two games on the same two HCAs at once, each player asleep between strokes: any lost wake-up
 * hangs. */
static void threads_share_an_hca_and_none_sleeps_for_ever(void)
{
    struct end a[2], b[2];
    struct player player[4];
    pthread_t thread[4];

    open_both(&a[0], &b[0]);
    a[1] = a[0];
    b[1] = b[0];
    CHECK_EQUAL(soft_cq_create(a[0].hca, 64, &a[1].cq), 0);
    CHECK_EQUAL(soft_cq_create(b[0].hca, 64, &b[1].cq), 0);
    a[1].qp = qp_on(a[0].hca, a[1].cq, 16);
    b[1].qp = qp_on(b[0].hca, b[1].cq, 16);
    a[1].frame = malloc(sizeof(*a[1].frame));
    b[1].frame = malloc(sizeof(*b[1].frame));
    post(a[1].qp, 0, a[1].frame[0], FRAME);
    post(b[1].qp, 0, b[1].frame[0], FRAME);
    for (int i = 0; i < 2; i++) {
        player[2 * i] = (struct player){&a[i], soft_qp_qpn(b[i].qp), 3000, true};
        player[2 * i + 1] = (struct player){&b[i], soft_qp_qpn(a[i].qp), 3000, false};
    }
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(pthread_create(&thread[i], NULL, play, &player[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    free(a[1].frame);
    free(b[1].frame);
    close_both(&a[0], &b[0]);
}

/* Other consumers get their packets, and what is borrowed stays as it is. */
static void a_borrower_that_does_not_poll_keeps_its_packet_and_nobody_waiting(void)
{
    struct soft_cq *other;
    struct soft_qp *qp;
    uint8_t buffer[64];
    struct soft_wc lent, wc;
    struct end a, b;

    open_both(&a, &b);
    CHECK_EQUAL(soft_cq_create(b.hca, 4, &other), 0);
    qp = qp_on(b.hca, other, 4);
    post(qp, 5, buffer, sizeof(buffer));
    soft_qp_lend(qp);
    send_to(&a, a.peer, soft_qp_qpn(qp), "borrowed", 8);
    await(other, 1, &lent);
    CHECK(lent.flags & SOFT_WC_LENT);
    for (int i = 0; i < 100; i++) { /* more than one memory has messages */
        send_to(&a, a.peer, soft_qp_qpn(b.qp), "received", 8);
        await(b.cq, 1, &wc);
        CHECK(memcmp(b.frame[wc.wr_id] + 40, "received", 8) == 0);
    }
    send_to(&a, a.peer, soft_qp_qpn(qp), "copied..", 8);
    await_counter(b.hca, SOFT_C_RX_DELIVERED, 102);
    CHECK_EQUAL(counter(b.hca, SOFT_C_RX_LEFT), 1);
    CHECK(memcmp(lent.lent, "borrowed", 8) == 0);
    await(other, 1, &wc);
    CHECK(!(wc.flags & SOFT_WC_LENT));
    CHECK_EQUAL(wc.wr_id, 5);
    CHECK(memcmp(buffer + 40, "copied..", 8) == 0);
    close_both(&a, &b);
}

const struct test live_waiting[] = {
    TEST(a_packet_makes_the_descriptor_readable),
    TEST(packets_left_fetched_wake_the_other_cq),
    TEST(packets_wake_the_background_only_when_nobody_else_comes_for_them),
    TEST(a_poll_leaves_to_another_consumer_what_that_has_no_buffer_for),
    TEST(threads_share_an_hca_and_none_sleeps_for_ever),
    TEST(a_borrower_that_does_not_poll_keeps_its_packet_and_nobody_waiting),
    {NULL, NULL},
};
