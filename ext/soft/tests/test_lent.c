/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that a consumer borrows where they lie. */
#include "rc_bench.h"

#define QKEY    0x0b1bu
#define BUFFERS 16
#define BYTES   64
#define LENT_NS 100000000 /* of progress.c */

/* A consumer at the far end, with a completion queue and a channel of its own. */
struct consumer {
    struct soft_cq *cq;
    struct soft_qp *qp;
    uint8_t buffer[BUFFERS][SOFT_GRH_BYTES + BYTES];
};

struct link {
    struct pair pair;
    struct soft_ah *ah;
    struct consumer borrower, other;
};

static void open_consumer(struct link *link, struct consumer *consumer)
{
    struct soft_qp_attr attr = {
        .type = SOFT_QPT_UD, .max_send_wr = 1, .max_recv_wr = BUFFERS, .qkey = QKEY};

    CHECK_EQUAL(soft_cq_create(link->pair.end[1].hca, BUFFERS, &consumer->cq), 0);
    attr.send_cq = attr.recv_cq = consumer->cq;
    CHECK_EQUAL(soft_qp_create(link->pair.end[1].hca, &attr, &consumer->qp), 0);
    for (int i = 0; i < BUFFERS; i++)
        receive_one(consumer->qp, (uint64_t)i, consumer->buffer[i], sizeof(consumer->buffer[i]));
}

static void open_link(struct link *link)
{
    struct end *end = link->pair.end;
    struct soft_qp_attr attr = {
        .type = SOFT_QPT_UD, .max_send_wr = END_WRS, .max_recv_wr = 1, .qkey = QKEY};
    struct soft_ah_attr to;

    open_ends(&link->pair);
    attr.send_cq = attr.recv_cq = end[0].cq;
    to = (struct soft_ah_attr){.dgid = end[1].hca->attr.gid};
    CHECK_EQUAL(soft_ah_create(end[0].hca, &to, &link->ah), 0);
    CHECK_EQUAL(soft_qp_create(end[0].hca, &attr, &end[0].qp), 0);
    open_consumer(link, &link->borrower);
    open_consumer(link, &link->other);
    soft_qp_lend(link->borrower.qp);
}

static void close_link(struct link *link)
{
    soft_ah_destroy(link->ah);
    close_pair(&link->pair);
}

static void send_datagram(struct link *link, const struct consumer *to, uint8_t byte,
                          uint32_t bytes)
{
    uint8_t data[2 * BYTES];
    struct soft_wc wc;
    struct soft_send_wr wr = {
        .ah = link->ah,
        .remote_qpn = soft_qp_qpn(to->qp),
        .remote_qkey = QKEY,
        .flags = SOFT_SEND_SIGNALED,
        .num_sge = 1,
        .sg = {{data, bytes}},
    };

    memset(data, byte, bytes);
    CHECK_EQUAL(soft_qp_post_send(link->pair.end[0].qp, &wr, 1), 1);
    CHECK_EQUAL(soft_cq_poll(link->pair.end[0].cq, 1, &wc), 1);
}

static struct soft_wc poll_one(struct consumer *consumer)
{
    struct soft_wc wc;

    CHECK_EQUAL(soft_cq_poll(consumer->cq, 1, &wc), 1);
    return wc;
}

static void expect_none(struct consumer *consumer)
{
    struct soft_wc wc;

    CHECK_EQUAL(soft_cq_poll(consumer->cq, 1, &wc), 0);
}

static void expect_lent(const struct soft_wc *wc, uint8_t byte)
{
    CHECK(wc->flags & SOFT_WC_LENT);
    CHECK_EQUAL(wc->byte_len, SOFT_GRH_BYTES + BYTES);
    for (int i = 0; i < BYTES; i++)
        CHECK_EQUAL(wc->lent[i], byte);
}

static void expect_buffer(struct consumer *consumer, const struct soft_wc *wc, uint8_t byte)
{
    CHECK(!(wc->flags & SOFT_WC_LENT));
    CHECK_EQUAL(consumer->buffer[wc->wr_id][SOFT_GRH_BYTES], byte);
}

static void a_borrowed_packet_has_the_grh_of_a_copied_one(void)
{
    struct soft_wc wc, copied;
    struct link link;

    open_link(&link);
    send_datagram(&link, &link.borrower, 'a', BYTES);
    send_datagram(&link, &link.other, 'b', BYTES);
    wc = poll_one(&link.borrower);
    expect_lent(&wc, 'a');
    CHECK_EQUAL(wc.src_qp, soft_qp_qpn(link.pair.end[0].qp));
    copied = poll_one(&link.other);
    expect_buffer(&link.other, &copied, 'b');
    CHECK(memcmp(wc.lent_grh, link.other.buffer[copied.wr_id], SOFT_GRH_BYTES) == 0);
    memset(wc.lent - SOFT_LENT_ROOM, 'x', SOFT_LENT_ROOM + BYTES); /* the consumer's to write */
    close_link(&link);
}

/* Otherwise it would read bytes of a later packet. */
static void nobody_fetches_while_a_packet_is_borrowed(void)
{
    struct link link;
    struct soft_wc wc;

    open_link(&link);
    send_datagram(&link, &link.borrower, 'a', BYTES);
    wc = poll_one(&link.borrower);
    send_datagram(&link, &link.other, 'b', BYTES);
    send_datagram(&link, &link.borrower, 'c', BYTES);
    expect_none(&link.other);
    CHECK_EQUAL(soft_hca_progress(link.pair.end[1].hca), 0);
    expect_lent(&wc, 'a');
    wc = poll_one(&link.borrower);
    expect_lent(&wc, 'c');
    wc = poll_one(&link.other);
    expect_buffer(&link.other, &wc, 'b');
    close_link(&link);
}

/* The consumer of the last borrowed packet may get one of the fetched packets, and no new one. */
static void a_poll_does_not_fetch_over_the_packets_that_it_returns(void)
{
    struct soft_wc wc[4];
    struct link link;

    open_link(&link);
    for (uint8_t byte = 'a'; byte <= 'c'; byte++)
        send_datagram(&link, &link.borrower, byte, BYTES);
    wc[0] = poll_one(&link.borrower);
    expect_lent(&wc[0], 'a');
    send_datagram(&link, &link.borrower, 'd', BYTES);
    CHECK_EQUAL(soft_cq_poll(link.borrower.cq, 4, wc), 2);
    expect_lent(&wc[0], 'b');
    expect_lent(&wc[1], 'c');
    CHECK_EQUAL(soft_cq_poll(link.borrower.cq, 4, wc), 1);
    expect_lent(&wc[0], 'd');
    close_link(&link);
}

static void what_another_poll_has_fetched_goes_to_posted_receives(void)
{
    struct link link;
    struct soft_wc wc;

    open_link(&link);
    send_datagram(&link, &link.borrower, 'a', BYTES);
    expect_none(&link.other);
    wc = poll_one(&link.borrower);
    expect_buffer(&link.borrower, &wc, 'a');
    send_datagram(&link, &link.other, 'b', BYTES); /* nothing is borrowed */
    wc = poll_one(&link.other);
    expect_buffer(&link.other, &wc, 'b');
    close_link(&link);
}

static void a_packet_needs_a_receive_as_long_as_itself(void)
{
    struct link link;
    struct soft_wc wc;

    open_link(&link);
    send_datagram(&link, &link.borrower, 'a', BYTES + 1);
    expect_none(&link.borrower);
    CHECK_EQUAL(counted(&link.pair.end[1], SOFT_C_DROP_TOO_LONG), 1);
    for (int i = 0; i < 2 * BUFFERS; i++) { /* and does not use it up */
        send_datagram(&link, &link.borrower, 'b', BYTES);
        wc = poll_one(&link.borrower);
        expect_lent(&wc, 'b');
    }
    expect_none(&link.borrower);
    for (int i = 0; i < BUFFERS; i++) { /* all are still there */
        send_datagram(&link, &link.borrower, 'c', BYTES);
        expect_none(&link.other);
    }
    for (int i = 0; i < BUFFERS; i++) {
        wc = poll_one(&link.borrower);
        expect_buffer(&link.borrower, &wc, 'c');
    }
    CHECK_EQUAL(counted(&link.pair.end[1], SOFT_C_DROP_NO_BUFFER), 0);
    close_link(&link);
}

static void a_consumer_that_ends_gives_its_packets_back(void)
{
    struct link link;
    struct soft_wc wc;

    open_link(&link);
    send_datagram(&link, &link.borrower, 'a', BYTES);
    send_datagram(&link, &link.borrower, 'b', BYTES);
    wc = poll_one(&link.borrower);
    expect_lent(&wc, 'a');
    soft_qp_destroy(link.borrower.qp);
    CHECK_EQUAL(soft_cq_destroy(link.borrower.cq), 0);
    send_datagram(&link, &link.other, 'c', BYTES);
    wc = poll_one(&link.other);
    expect_buffer(&link.other, &wc, 'c');
    close_link(&link);
}

/* Its packets stay as they are; the next ones go to posted receives until it has polled. */
static void a_borrower_that_does_not_poll_delays_the_others_for_a_while_only(void)
{
    struct link link;
    struct soft_wc borrowed, wc;

    open_link(&link);
    send_datagram(&link, &link.borrower, 'a', BYTES);
    borrowed = poll_one(&link.borrower);
    send_datagram(&link, &link.other, 'c', BYTES);
    expect_none(&link.other);
    CHECK_EQUAL(soft_hca_deadline_ns(link.pair.end[1].hca), cable_clock_ns + LENT_NS);
    cable_clock_ns += LENT_NS - 1;
    expect_none(&link.other);
    cable_clock_ns++;
    for (int i = 0; i < 3; i++) { /* and goes on, time after time */
        wc = poll_one(&link.other);
        expect_buffer(&link.other, &wc, (uint8_t)('c' + i));
        CHECK_EQUAL(counted(&link.pair.end[1], SOFT_C_RX_LEFT), 1);
        CHECK_EQUAL(soft_hca_deadline_ns(link.pair.end[1].hca), SOFT_NO_DEADLINE_NS);
        send_datagram(&link, &link.borrower, (uint8_t)('x' + i), BYTES);
        send_datagram(&link, &link.other, (uint8_t)('d' + i), BYTES);
    }
    wc = poll_one(&link.other);
    expect_buffer(&link.other, &wc, 'f');
    expect_lent(&borrowed, 'a');
    for (int i = 0; i < 3; i++) {
        wc = poll_one(&link.borrower); /* the first poll gives the packet back */
        expect_buffer(&link.borrower, &wc, (uint8_t)('x' + i));
    }
    send_datagram(&link, &link.borrower, 'g', BYTES);
    wc = poll_one(&link.borrower);
    expect_lent(&wc, 'g');
    CHECK_EQUAL(counted(&link.pair.end[1], SOFT_C_RX_LEFT), 1);
    close_link(&link);
}

static void a_borrower_that_ends_after_all_leaves_nothing_behind(void)
{
    struct link link;
    struct soft_wc wc;

    open_link(&link);
    send_datagram(&link, &link.borrower, 'a', BYTES);
    wc = poll_one(&link.borrower);
    expect_none(&link.other);
    cable_clock_ns += LENT_NS;
    expect_none(&link.other);
    CHECK_EQUAL(counted(&link.pair.end[1], SOFT_C_RX_LEFT), 1);
    expect_lent(&wc, 'a');
    soft_qp_destroy(link.borrower.qp);
    CHECK_EQUAL(soft_cq_destroy(link.borrower.cq), 0);
    CHECK(!soft_udp_has_left(link.pair.end[1].hca->udp));
    close_link(&link);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_borrowed_packet_has_the_grh_of_a_copied_one),
        TEST(nobody_fetches_while_a_packet_is_borrowed),
        TEST(a_poll_does_not_fetch_over_the_packets_that_it_returns),
        TEST(what_another_poll_has_fetched_goes_to_posted_receives),
        TEST(a_packet_needs_a_receive_as_long_as_itself),
        TEST(a_consumer_that_ends_gives_its_packets_back),
        TEST(a_borrower_that_does_not_poll_delays_the_others_for_a_while_only),
        TEST(a_borrower_that_ends_after_all_leaves_nothing_behind),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
