/* SPDX-License-Identifier: BSD-2-Clause */
/* 180 connections begin a message each and fall silent: what is left of a shared receive queue of
 * an interface's size, for a host whose messages come whole. */
#include "rc_bench.h"

enum {
    SHARED = 128, /* CONNECTED_FRAMES of ipoibu/base/limits.py */
    SILENT = 180,
    MESSAGES = 100,
    BYTES = 3 * MTU,
};

static uint8_t out[BYTES], in[SHARED][BYTES];

struct silence {
    struct pair p; /* the sound host and the receiver */
    struct soft_srq *srq;
    struct soft_qp *silent[SILENT];
};

static void post_shared(struct silence *s, uint64_t which)
{
    struct soft_recv_wr wr = {.wr_id = which, .num_sge = 1, .sg = {{in[which], BYTES}}};

    CHECK_EQUAL(soft_srq_post_recv(s->srq, &wr, 1), 1);
}

/* One connection of a silent host, and the first packet of its message. */
static struct soft_qp *begin_message_of(struct silence *s, const struct in6_addr *host)
{
    struct soft_qp *qp = create_rc(&s->p.end[1], s->srq);
    struct soft_rc_attr attr = attr_to(&s->p.end[0], s->p.end[0].qp);
    struct soft_roce roce = request(&s->p, SOFT_ROCE_RC_SEND_FIRST, 0xfffff0);

    attr.path.dgid = *host;
    connect_qp(qp, &attr);
    roce.dest_qpn = soft_qp_qpn(qp);
    put_in(&s->p, 1, &roce, MTU, host);
    return qp;
}

static void open_silence(struct silence *s, int hosts)
{
    open_ends(&s->p);
    CHECK_EQUAL(soft_srq_create(s->p.end[1].hca, SHARED, &s->srq), 0);
    for (uint64_t i = 0; i < SHARED; i++)
        post_shared(s, i);
    s->p.end[0].qp = create_rc(&s->p.end[0], NULL);
    s->p.end[1].qp = create_rc(&s->p.end[1], s->srq);
    connect_pair(&s->p);
    for (int i = 0; i < SILENT; i++) {
        struct in6_addr host = gid_number((uint8_t)(10 + i * hosts / SILENT));

        s->silent[i] = begin_message_of(s, &host);
    }
}

/* The sound host sends a message; returns how long the message takes, by the clock of the cable. */
static int64_t send_sound_ns(struct silence *s, uint32_t bytes)
{
    int64_t began_ns = cable_clock_ns;
    struct soft_wc wc;

    post_one(s->p.end[0].qp, 1, out, bytes);
    do {
        wc = expect_wc(&s->p, 1);
        post_shared(s, wc.wr_id);
    } while (wc.status != SOFT_WC_SUCCESS); /* of a connection that ended */
    CHECK_EQUAL(wc.byte_len, bytes);
    int64_t took_ns = cable_clock_ns - began_ns;
    CHECK_EQUAL(expect_wc(&s->p, 0).status, SOFT_WC_SUCCESS);
    return took_ns;
}

static int ended(const struct silence *s)
{
    int count = 0;

    for (int i = 0; i < SILENT; i++)
        count += soft_qp_state(s->silent[i]) == SOFT_QPS_ERR;
    return count;
}

static void three_silent_hosts_with_180_connections_cost_the_others_nothing(void)
{
    struct silence s;

    open_silence(&s, 3);
    /* Half of the buffers for the 60 of the first host and 4 of the second one; then an eighth
     * each. */
    CHECK_EQUAL(s.srq->receiving_count, 60 + 16 + 16);
    CHECK_EQUAL(counted(&s.p.end[1], SOFT_C_RC_SHARE), SILENT - 60 - 16 - 16);
    for (int i = 0; i < MESSAGES; i++)
        CHECK_EQUAL(send_sound_ns(&s, BYTES), 0);
    CHECK_EQUAL(counted(&s.p.end[1], SOFT_C_RC_SHARE), SILENT - 60 - 16 - 16);
    CHECK_EQUAL(counted(&s.p.end[1], SOFT_C_RC_OVERDUE), 0);
    close_pair(&s.p);
}

static void six_silent_hosts_delay_long_messages_of_others_for_a_second_once(void)
{
    struct silence s;

    open_silence(&s, 6);
    CHECK_EQUAL(s.srq->receiving_count, SHARED - SHARED / 4);
    for (int i = 0; i < MESSAGES; i++)
        CHECK_EQUAL(send_sound_ns(&s, MTU), 0); /* messages of one packet pass */
    CHECK(send_sound_ns(&s, BYTES) < 1100000000);
    for (int i = 0; i < MESSAGES; i++)
        CHECK_EQUAL(send_sound_ns(&s, BYTES), 0);
    CHECK(counted(&s.p.end[1], SOFT_C_RC_OVERDUE) > 0);
    CHECK_EQUAL(ended(&s), counted(&s.p.end[1], SOFT_C_RC_OVERDUE));
    close_pair(&s.p);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(three_silent_hosts_with_180_connections_cost_the_others_nothing),
        TEST(six_silent_hosts_delay_long_messages_of_others_for_a_second_once),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
