/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that a host forges to harm a reliable connection of others. */
#include "rc_bench.h"

static uint8_t out[4096], in[4096];

static void packets_of_strangers_are_dropped(void)
{
    struct pair p;
    struct soft_roce roce;
    struct in6_addr stranger = gid_number(9);

    open_pair(&p);
    receive_one(p.end[1].qp, 9, in, sizeof(in));
    roce = request(&p, SOFT_ROCE_RC_SEND_ONLY, 0xfffff0);
    put_in(&p, 1, &roce, 4, &stranger);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_DROP_CONNECTION), 1);
    roce.pkey = 0x7001;
    put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_DROP_PKEY), 1);
    roce = request(&p, SOFT_ROCE_UD_SEND, 0xfffff0);
    put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_DROP_OPCODE), 1);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_ACKS), 0);
    CHECK_EQUAL(soft_qp_modify(p.end[1].qp, SOFT_QPS_ERR, NULL), 0);
    roce = request(&p, SOFT_ROCE_RC_SEND_ONLY, 0xfffff0);
    put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_DROP_CONNECTION), 2);
    close_pair(&p);
}

static void acknowledgements_of_what_was_not_sent_change_nothing(void)
{
    static const struct {
        uint32_t psn;
        uint8_t syndrome;
        bool counted;
    } bad[] = {
        {0xfffff0 + 3, 0x1f, true},  {0xfffff0 + 4, 0x60, true},  {0x0ffff0, 0x1f, true},
        {0xfffff0 - 1, 0x1f, false}, {0xffff00, 0x60, false},     {0xfffff1, 0x80, true},
        {0xfffff1, 0x40, true},      {0xfffff1, 0x64, true},      {0xfffff1, 0xe0, true},
        {0xfffff0 + 9, 0x21, true},  {0xfffff0 - 2, 0x61, false},
    };
    struct pair p;
    uint64_t expected = 0;

    open_pair(&p);
    cable_part(p.end[0].hca->udp);
    post_one(p.end[0].qp, 1, out, 2500); /* three packets */
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct soft_roce ack = {.opcode = SOFT_ROCE_RC_ACK,
                                .pkey = 0xffff,
                                .dest_qpn = soft_qp_qpn(p.end[0].qp),
                                .psn = bad[i].psn,
                                .syndrome = bad[i].syndrome};

        put_in(&p, 0, &ack, 0, &p.end[1].hca->attr.gid);
        expected += bad[i].counted;
        CHECK_EQUAL(counted(&p.end[0], SOFT_C_DROP_WINDOW), expected);
        CHECK_EQUAL(p.end[0].qp->rc->unacked, 0xfffff0);
        CHECK_EQUAL(soft_qp_state(p.end[0].qp), SOFT_QPS_RTS);
    }
    close_pair(&p);
}

/* A spoofing host that sees no packet of the connection has to guess the PSN and the MSN. Here
 * it knows the PSN already. */
static void a_refusal_that_counts_other_messages_changes_nothing(void)
{
    static const uint8_t syndromes[] = {0x1f, 0x20, 0x60, 0x61, 0x63};
    struct soft_roce ack = {.opcode = SOFT_ROCE_RC_ACK, .pkey = 0xffff};
    struct pair p;
    uint64_t random = 28, sent = 0;

    open_pair(&p);
    cable_part(p.end[0].hca->udp);
    for (uint64_t i = 0; i < 3; i++)
        post_one(p.end[0].qp, i, out, 4);
    ack.dest_qpn = soft_qp_qpn(p.end[0].qp);
    for (int i = 0; i < 20000; i++) {
        ack.psn = soft_psn_add(0xfffff0, (uint32_t)i % 3);
        ack.syndrome = syndromes[(uint64_t)i % sizeof(syndromes)];
        ack.msn = (uint32_t)next_random(&random) & SOFT_PSN_MASK;
        if (ack.msn <= 3)
            continue;
        put_in(&p, 0, &ack, 0, &p.end[1].hca->attr.gid);
        sent++;
    }
    CHECK_EQUAL(counted(&p.end[0], SOFT_C_DROP_WINDOW), sent);
    CHECK_EQUAL(p.end[0].qp->rc->unacked, 0xfffff0);
    CHECK(!p.end[0].qp->rc->paused);
    CHECK_EQUAL(soft_qp_state(p.end[0].qp), SOFT_QPS_RTS);
    close_pair(&p);
}

static void the_message_number_wraps(void)
{
    struct pair p;

    open_pair(&p);
    p.end[0].qp->rc->first_request -= 0xfffffe; /* as if so many messages had gone before */
    p.end[1].qp->rc->msn = 0xfffffe;
    for (uint64_t i = 0; i < 5; i++) {
        receive_one(p.end[1].qp, i, in, 100);
        post_one(p.end[0].qp, i, out, 4);
        expect_status(&p, 1, i, SOFT_WC_SUCCESS);
        expect_status(&p, 0, i, SOFT_WC_SUCCESS);
    }
    CHECK_EQUAL(p.end[1].qp->rc->msn, 3);
    CHECK_EQUAL(counted(&p.end[0], SOFT_C_DROP_WINDOW), 0);
    close_pair(&p);
}

static void a_request_far_ahead_is_no_gap(void)
{
    struct soft_roce roce;
    struct pair p;

    open_pair(&p);
    for (uint32_t ahead = SOFT_RC_AHEAD_MAX + 1; ahead < SOFT_PSN_HALF; ahead += 0x10000) {
        roce = request(&p, SOFT_ROCE_RC_SEND_ONLY, soft_psn_add(0xfffff0, ahead));
        put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    }
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_DROP_WINDOW), 127);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_GAPS), 0);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_ACKS), 0);
    roce = request(&p, SOFT_ROCE_RC_SEND_ONLY, soft_psn_add(0xfffff0, SOFT_RC_AHEAD_MAX));
    put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_GAPS), 1);
    close_pair(&p);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(packets_of_strangers_are_dropped),
        TEST(acknowledgements_of_what_was_not_sent_change_nothing),
        TEST(a_refusal_that_counts_other_messages_changes_nothing),
        TEST(the_message_number_wraps),
        TEST(a_request_far_ahead_is_no_gap),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
