/* SPDX-License-Identifier: BSD-2-Clause */
/* Reliable connections without losses: states, refusals, messages and queues. */

#include "rc_bench.h"

static uint8_t out[SOFT_MAX_RC_BYTES], in[2][SOFT_MAX_RC_BYTES];

/* ---- states ---------------------------------------------------------------------------------- */

static void states_are_walked_in_order_and_no_other_way(void)
{
    static const enum soft_qp_state path[] = {SOFT_QPS_RESET, SOFT_QPS_INIT, SOFT_QPS_RTR,
                                              SOFT_QPS_RTS, SOFT_QPS_ERR};
    struct pair p;
    struct soft_rc_attr attr;

    open_ends(&p);
    for (int from = 0; from < 5; from++) {
        for (int to = 0; to < 5; to++) {
            struct soft_qp *qp = create_rc(&p.end[0], NULL);
            bool allowed = to == 0 || to == 4 || to == from + 1;

            attr = attr_to(&p.end[1], qp);
            for (int i = 1; i <= from; i++)
                CHECK_EQUAL(soft_qp_modify(qp, path[i], &attr), 0);
            CHECK_EQUAL(soft_qp_state(qp), path[from]);
            CHECK_EQUAL(soft_qp_modify(qp, path[to], &attr), allowed ? 0 : -EINVAL);
            CHECK_EQUAL(soft_qp_state(qp), allowed ? path[to] : path[from]);
            CHECK_EQUAL(soft_qp_modify(qp, (enum soft_qp_state)4, &attr), -EINVAL);
            soft_qp_destroy(qp);
        }
    }
    close_pair(&p);
}

static void values_out_of_range_are_refused(void)
{
    struct pair p;
    struct soft_rc_attr good, bad[14];
    struct soft_qp *qp;

    open_ends(&p);
    qp = create_rc(&p.end[0], NULL);
    good = attr_to(&p.end[1], qp);
    for (int i = 0; i < 14; i++)
        bad[i] = good;
    bad[0].dest_qpn = 1;
    bad[1].dest_qpn = 0xffffff;
    bad[2].rq_psn = 0x1000000;
    bad[3].min_rnr_timer = 32;
    bad[4].path_mtu_bytes = 128;
    bad[5].path_mtu_bytes = 1002; /* a packet in the middle of a message has no padding */
    bad[6].path_mtu_bytes = 8192;
    bad[7].path.dgid = in6addr_any;
    bad[8].path.dgid.s6_addr[0] = 0xff;
    bad[9].path.flow_label = 0x100000;
    bad[10].sq_psn = 0x1000000;
    bad[11].timeout = 32;
    bad[12].retry_count = 8;
    bad[13].rnr_retry = 8;
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_INIT, NULL), 0);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTR, NULL), -EINVAL);
    for (int i = 0; i < 10; i++)
        CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTR, &bad[i]), -EINVAL);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTR, &good), 0);
    for (int i = 10; i < 14; i++)
        CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTS, &bad[i]), -EINVAL);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTS, &good), 0);
    close_pair(&p);
}

static void requests_are_taken_where_the_state_allows(void)
{
    struct pair p;
    struct soft_rc_attr attr;
    struct soft_send_wr wr = {.num_sge = 2, .sg = {{out, 1}, {out, 1}}};
    struct soft_recv_wr rwr = {.num_sge = 1, .sg = {{in[0], 1}}};
    struct soft_qp_attr ud_attr = {SOFT_QPT_UD, NULL, NULL, 1, 1, 0, 0, NULL, 0, 0};
    struct soft_qp *qp, *ud;

    open_ends(&p);
    qp = create_rc(&p.end[0], NULL);
    attr = attr_to(&p.end[1], qp);
    CHECK_EQUAL(soft_qp_post_recv(qp, &rwr, 1), -EINVAL);
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), -EINVAL);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_INIT, NULL), 0);
    CHECK_EQUAL(soft_qp_post_recv(qp, &rwr, 1), 1);
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), -EINVAL);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTR, &attr), 0);
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), -EINVAL);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTS, &attr), 0);
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    wr.sg[1].length = SOFT_MAX_RC_BYTES;
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), -EINVAL);
    wr.sg[0].length = wr.sg[1].length = UINT32_MAX;
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), -EINVAL);
    wr.num_sge = SOFT_MAX_SGE + 1;
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), -EINVAL);
    ud_attr.send_cq = ud_attr.recv_cq = p.end[0].cq;
    CHECK_EQUAL(soft_qp_create(p.end[0].hca, &ud_attr, &ud), 0);
    CHECK_EQUAL(soft_qp_modify(ud, SOFT_QPS_ERR, NULL), -EINVAL);
    CHECK_EQUAL(soft_qp_state(ud), SOFT_QPS_RTS);
    CHECK_EQUAL(soft_qp_attach_mcast(qp, &(struct in6_addr){{{0xff, 0x12, [15] = 1}}}), -EINVAL);
    close_pair(&p);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void fill(uint8_t *data, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(seed * 31 + i * 7 + i / 251);
}

static void messages_of_every_shape_arrive_whole(void)
{
    static const uint32_t sizes[] = {0,    1,    2,    3,     4,     MTU - 1, MTU,
                                     1025, 2047, 2048, 65524, 65560, 100001,  SOFT_MAX_RC_BYTES};
    struct pair p;

    open_pair(&p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t n = sizes[i];
        uint32_t cut = n / 3;
        struct soft_send_wr wr = {
            .wr_id = i,
            .flags = (uint8_t)(SOFT_SEND_SIGNALED | (i % 2 ? SOFT_SEND_WITH_IMM : 0)),
            .imm_data = 0xcafe0000u + (uint32_t)i,
            .num_sge = 4,
            .sg = {{out, cut}, {NULL, 0}, {out + cut, n - cut}, {NULL, 0}},
        };
        struct soft_recv_wr rwr = {
            .wr_id = 100 + i,
            .num_sge = 4,
            .sg = {{in[0], 7}, {NULL, 0}, {in[0] + 7, n / 2}, {in[0] + 7 + n / 2, n}},
        };
        struct soft_wc wc;

        fill(out, n, i);
        memset(in[0], 0xee, sizeof(in[0]));
        CHECK(7 + n / 2 + n <= sizeof(in[0]) || n == SOFT_MAX_RC_BYTES);
        if (n == SOFT_MAX_RC_BYTES)
            rwr = (struct soft_recv_wr){.wr_id = 100 + i, .num_sge = 1, .sg = {{in[0], n}}};
        CHECK_EQUAL(soft_qp_post_recv(p.end[1].qp, &rwr, 1), 1);
        CHECK_EQUAL(soft_qp_post_send(p.end[0].qp, &wr, 1), 1);
        wc = expect_wc(&p, 1);
        CHECK_EQUAL(wc.wr_id, 100 + i);
        CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
        CHECK_EQUAL(wc.opcode, SOFT_WC_RECV);
        CHECK_EQUAL(wc.byte_len, n);
        CHECK_EQUAL(wc.src_qp, soft_qp_qpn(p.end[0].qp));
        CHECK_EQUAL(wc.qp_num, soft_qp_qpn(p.end[1].qp));
        CHECK_EQUAL(wc.flags, i % 2 ? SOFT_WC_WITH_IMM : 0);
        CHECK_EQUAL(wc.imm_data, i % 2 ? 0xcafe0000u + i : 0);
        CHECK(memcmp(in[0], out, n) == 0);
        CHECK(n == SOFT_MAX_RC_BYTES || in[0][n] == 0xee);
        wc = expect_wc(&p, 0);
        CHECK_EQUAL(wc.wr_id, i);
        CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
        CHECK_EQUAL(wc.opcode, SOFT_WC_SEND);
        CHECK_EQUAL(wc.byte_len, n);
    }
    CHECK_EQUAL(counted(&p.end[0], SOFT_C_RC_RETRANSMITS), 0);
    close_pair(&p);
}

static void a_batch_is_acknowledged_once_and_unsignalled_sends_say_nothing(void)
{
    struct pair p;
    struct soft_wc wc[64];

    open_pair(&p);
    for (int i = 0; i < 20; i++) {
        struct soft_send_wr wr = {.wr_id = (uint64_t)i,
                                  .flags = i == 19 ? SOFT_SEND_SIGNALED : 0,
                                  .num_sge = 1,
                                  .sg = {{out, 100}}};

        receive_one(p.end[1].qp, (uint64_t)i, in[0], 100);
        CHECK_EQUAL(soft_qp_post_send(p.end[0].qp, &wr, 1), 1);
    }
    CHECK_EQUAL(soft_cq_poll(p.end[1].cq, 64, wc), 20);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_ACKS), 1);
    CHECK_EQUAL(soft_cq_poll(p.end[0].cq, 64, wc), 1);
    CHECK_EQUAL(wc[0].wr_id, 19);
    CHECK_EQUAL(p.end[0].qp->sq.head, p.end[0].qp->sq.tail);
    close_pair(&p);
}

static void a_connection_to_its_own_adapter_works(void)
{
    struct pair p;
    struct soft_qp *to_self;
    struct soft_rc_attr attr;
    struct soft_qp *a, *b;

    open_ends(&p);
    a = create_rc(&p.end[0], NULL);
    b = create_rc(&p.end[0], NULL);
    to_self = create_rc(&p.end[0], NULL);
    attr = attr_to(&p.end[0], b);
    connect_qp(a, &attr);
    attr.dest_qpn = soft_qp_qpn(a);
    connect_qp(b, &attr);
    attr.dest_qpn = soft_qp_qpn(to_self);
    connect_qp(to_self, &attr);
    fill(out, 300000, 5);
    receive_one(b, 1, in[0], 300000);
    receive_one(to_self, 3, in[1], 300000);
    post_one(a, 2, out, 300000);
    expect_status(&p, 0, 1, SOFT_WC_SUCCESS);
    expect_status(&p, 0, 2, SOFT_WC_SUCCESS);
    CHECK(memcmp(in[0], out, 300000) == 0);
    post_one(to_self, 4, out, 300000);
    expect_status(&p, 0, 3, SOFT_WC_SUCCESS);
    expect_status(&p, 0, 4, SOFT_WC_SUCCESS);
    CHECK(memcmp(in[1], out, 300000) == 0);
    CHECK_EQUAL(p.end[0].hca->udp->sent, 0);
    close_pair(&p);
}

static void a_full_cq_holds_both_sides_back_and_loses_nothing(void)
{
    struct pair p;
    struct soft_cq *narrow[2];

    open_ends(&p);
    for (int i = 0; i < 2; i++) {
        struct soft_qp_attr attr = {SOFT_QPT_RC, NULL, NULL, 64, 64, 0, 0, NULL, 0, 0};

        CHECK_EQUAL(soft_cq_create(p.end[i].hca, 2, &narrow[i]), 0);
        attr.send_cq = attr.recv_cq = narrow[i];
        CHECK_EQUAL(soft_qp_create(p.end[i].hca, &attr, &p.end[i].qp), 0);
    }
    connect_pair(&p);
    for (uint64_t i = 0; i < 40; i++) {
        receive_one(p.end[1].qp, i, in[0], 3000);
        post_one(p.end[0].qp, i, out, 3000);
    }
    for (int i = 0; i < 50; i++) /* neither end polls: all stands still, and nothing breaks */
        (void)turn(&p);
    CHECK_EQUAL(soft_cq_count(narrow[1]), 2);
    CHECK_EQUAL(soft_cq_count(narrow[0]), 2);
    for (uint64_t got[2] = {0, 0}; got[0] < 40 || got[1] < 40;) {
        for (int i = 0; i < 2; i++) {
            struct soft_wc wc;

            while (soft_cq_poll(narrow[i], 1, &wc) == 1) {
                CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
                CHECK_EQUAL(wc.wr_id, got[i]++);
            }
        }
        (void)turn(&p);
    }
    CHECK(counted(&p.end[1], SOFT_C_RC_NOT_READY) > 0);
    close_pair(&p);
}

static void an_error_is_flushed_as_fast_as_a_full_cq_allows(void)
{
    struct pair p;
    struct soft_cq *narrow;
    struct soft_qp_attr attr = {SOFT_QPT_RC, NULL, NULL, 64, 64, 0, 0, NULL, 0, 0};
    struct soft_wc wc;

    open_ends(&p);
    CHECK_EQUAL(soft_cq_create(p.end[0].hca, 3, &narrow), 0);
    attr.send_cq = attr.recv_cq = narrow;
    CHECK_EQUAL(soft_qp_create(p.end[0].hca, &attr, &p.end[0].qp), 0);
    p.end[1].qp = create_rc(&p.end[1], NULL);
    connect_pair(&p);
    cable_part(p.end[0].hca->udp);
    for (uint64_t i = 0; i < 10; i++) {
        post_one(p.end[0].qp, i, out, 5000);
        receive_one(p.end[0].qp, 100 + i, in[0], 5000);
    }
    CHECK_EQUAL(soft_qp_modify(p.end[0].qp, SOFT_QPS_ERR, NULL), 0);
    receive_one(p.end[0].qp, 110, in[0], 1); /* accepted, and flushed */
    post_one(p.end[0].qp, 10, out, 1);
    for (uint64_t i = 0; i < 11; i++) {
        CHECK_EQUAL(soft_cq_poll(narrow, 1, &wc), 1);
        CHECK_EQUAL(wc.wr_id, i);
        CHECK_EQUAL(wc.status, SOFT_WC_WR_FLUSH_ERR);
        CHECK_EQUAL(wc.opcode, SOFT_WC_SEND);
    }
    for (uint64_t i = 0; i < 11; i++) {
        CHECK_EQUAL(soft_cq_poll(narrow, 1, &wc), 1);
        CHECK_EQUAL(wc.wr_id, 100 + i);
        CHECK_EQUAL(wc.status, SOFT_WC_WR_FLUSH_ERR);
        CHECK_EQUAL(wc.opcode, SOFT_WC_RECV);
    }
    CHECK_EQUAL(soft_cq_poll(narrow, 1, &wc), 0);
    close_pair(&p);
}

static void a_queue_pair_that_was_reset_can_be_connected_again(void)
{
    struct pair p;

    open_pair(&p);
    post_one(p.end[0].qp, 1, out, 50000); /* the peer has no buffer: it stays */
    receive_one(p.end[0].qp, 2, in[0], 100);
    (void)turn(&p);
    for (int i = 0; i < 2; i++)
        CHECK_EQUAL(soft_qp_modify(p.end[i].qp, SOFT_QPS_RESET, NULL), 0);
    CHECK_EQUAL(soft_hca_deadline_ns(p.end[0].hca) >= cable_clock_ns, 1);
    connect_pair(&p);
    receive_one(p.end[1].qp, 3, in[1], 100);
    post_one(p.end[0].qp, 4, "again", 5);
    expect_status(&p, 0, 4, SOFT_WC_SUCCESS);
    expect_status(&p, 1, 3, SOFT_WC_SUCCESS);
    CHECK(memcmp(in[1], "again", 5) == 0);
    close_pair(&p);
}

static void destroying_a_connection_flushes_what_is_posted(void)
{
    struct pair p;
    struct soft_wc wc[8];

    open_pair(&p);
    cable_part(p.end[0].hca->udp);
    post_one(p.end[0].qp, 1, out, 5000);
    post_one(p.end[0].qp, 2, out, 5000);
    receive_one(p.end[0].qp, 3, in[0], 100);
    soft_qp_destroy(p.end[0].qp);
    CHECK_EQUAL(soft_cq_poll(p.end[0].cq, 8, wc), 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(wc[i].wr_id, i + 1);
        CHECK_EQUAL(wc[i].status, SOFT_WC_WR_FLUSH_ERR);
    }
    CHECK(TAILQ_EMPTY(&p.end[0].hca->timers) && TAILQ_EMPTY(&p.end[0].hca->work));
    close_pair(&p);
}

/* ---- shared receive queues ------------------------------------------------------------------- */

static void a_shared_queue_checks_its_limits(void)
{
    struct pair p;
    struct soft_srq *srq, *other;
    struct soft_qp_attr attr = {SOFT_QPT_RC, NULL, NULL, 1, 0, 0, 0, NULL, 0, 0};
    struct soft_recv_wr wr[2] = {{.num_sge = 0}, {.num_sge = SOFT_MAX_SGE + 1}};
    struct soft_qp *qp;

    open_ends(&p);
    CHECK_EQUAL(soft_srq_create(p.end[0].hca, 0, &srq), -EINVAL);
    CHECK_EQUAL(soft_srq_create(p.end[0].hca, SOFT_MAX_WR + 1, &srq), -EINVAL);
    CHECK_EQUAL(soft_srq_create(p.end[0].hca, 3, &srq), 0);
    CHECK_EQUAL(soft_srq_create(p.end[1].hca, 3, &other), 0);
    attr.send_cq = attr.recv_cq = p.end[0].cq;
    CHECK_EQUAL(soft_qp_create(p.end[0].hca, &attr, &qp), -EINVAL); /* no queue at all */
    attr.srq = other;
    CHECK_EQUAL(soft_qp_create(p.end[0].hca, &attr, &qp), -EINVAL);
    attr.srq = srq;
    CHECK_EQUAL(soft_qp_create(p.end[0].hca, &attr, &qp), 0);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_INIT, NULL), 0);
    CHECK_EQUAL(soft_qp_post_recv(qp, wr, 1), -EINVAL);
    CHECK_EQUAL(soft_srq_post_recv(srq, wr + 1, 1), -EINVAL);
    CHECK_EQUAL(soft_srq_post_recv(srq, wr, 2), 1);
    CHECK_EQUAL(soft_srq_post_recv(srq, wr, 1), 1);
    CHECK_EQUAL(soft_srq_post_recv(srq, wr, 1), 1);
    CHECK_EQUAL(soft_srq_post_recv(srq, wr, 1), 0);
    CHECK_EQUAL(soft_srq_destroy(srq), -EBUSY);
    soft_qp_destroy(qp);
    CHECK_EQUAL(soft_srq_destroy(srq), 0);
    close_pair(&p);
}

/* More messages in one batch than the shared queue has buffers: a consumer that posts between polls
 * gets them all, and the HCA sends no RNR NAK. */
static void a_poll_ends_where_the_shared_queue_does(void)
{
    enum { BUFFERS = 4, MESSAGES = 30 };
    struct soft_wc wc[MESSAGES];
    struct soft_srq *srq;
    struct pair p;
    int got = 0;

    open_ends(&p);
    CHECK_EQUAL(soft_srq_create(p.end[1].hca, BUFFERS, &srq), 0);
    p.end[0].qp = create_rc(&p.end[0], NULL);
    p.end[1].qp = create_rc(&p.end[1], srq);
    connect_pair(&p);
    for (int i = 0; i < BUFFERS; i++) {
        struct soft_recv_wr wr = {.num_sge = 1, .sg = {{in[0], 100}}};

        CHECK_EQUAL(soft_srq_post_recv(srq, &wr, 1), 1);
    }
    for (int i = 0; i < MESSAGES; i++)
        post_one(p.end[0].qp, (uint64_t)i, out, 100);
    while (got < MESSAGES) {
        int n = soft_cq_poll(p.end[1].cq, MESSAGES, wc);

        CHECK_EQUAL(n, MESSAGES - got < BUFFERS ? MESSAGES - got : BUFFERS);
        for (int i = 0; i < n; i++) {
            struct soft_recv_wr wr = {.num_sge = 1, .sg = {{in[0], 100}}};

            CHECK_EQUAL(soft_srq_post_recv(srq, &wr, 1), 1);
        }
        got += n;
    }
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_NOT_READY), 0);
    CHECK_EQUAL(counted(&p.end[0], SOFT_C_RC_RETRANSMITS), 0);
    close_pair(&p);
}

static void the_buffer_posted_last_to_a_shared_queue_is_used_first(void)
{
    struct soft_wc wc[2];
    struct soft_srq *srq;
    struct pair p;

    open_ends(&p);
    CHECK_EQUAL(soft_srq_create(p.end[1].hca, 4, &srq), 0);
    p.end[0].qp = create_rc(&p.end[0], NULL);
    p.end[1].qp = create_rc(&p.end[1], srq);
    connect_pair(&p);
    for (uint64_t i = 0; i < 3; i++) {
        struct soft_recv_wr wr = {.wr_id = i, .num_sge = 1, .sg = {{in[0], 100}}};

        CHECK_EQUAL(soft_srq_post_recv(srq, &wr, 1), 1);
    }
    post_one(p.end[0].qp, 0, out, 100);
    post_one(p.end[0].qp, 0, out, 100);
    CHECK_EQUAL(soft_cq_poll(p.end[1].cq, 2, wc), 2);
    CHECK_EQUAL(wc[0].wr_id, 2);
    CHECK_EQUAL(wc[1].wr_id, 1);
    close_pair(&p);
}

static void a_queue_pair_in_error_leaves_the_shared_buffers_to_others(void)
{
    struct pair p;
    struct soft_srq *srq;
    struct soft_recv_wr wr = {.num_sge = 1, .sg = {{in[0], 100}}};

    open_ends(&p);
    CHECK_EQUAL(soft_srq_create(p.end[1].hca, 16, &srq), 0);
    p.end[0].qp = create_rc(&p.end[0], NULL);
    p.end[1].qp = create_rc(&p.end[1], srq);
    p.end[0].attr = attr_to(&p.end[1], p.end[1].qp);
    p.end[1].attr = attr_to(&p.end[0], p.end[0].qp);
    connect_qp(p.end[0].qp, &p.end[0].attr);
    CHECK_EQUAL(soft_qp_modify(p.end[1].qp, SOFT_QPS_INIT, NULL), 0);
    CHECK_EQUAL(soft_qp_modify(p.end[1].qp, SOFT_QPS_RTR, &p.end[1].attr), 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(soft_srq_post_recv(srq, &wr, 1), 1);
    for (int i = 0; i < 2; i++) {
        post_one(p.end[0].qp, i, out, 100);
        expect_status(&p, 1, 0, SOFT_WC_SUCCESS);
    }
    CHECK_EQUAL(soft_qp_modify(p.end[1].qp, SOFT_QPS_ERR, NULL), 0);
    CHECK_EQUAL(srq->rq.tail - srq->rq.head, 2);
    soft_qp_destroy(p.end[1].qp);
    CHECK_EQUAL(soft_srq_destroy(srq), 0);
    close_pair(&p);
}

static void a_message_in_part_is_flushed(void)
{
    struct pair p;
    struct soft_srq *srq;
    struct soft_recv_wr wr = {.wr_id = 77, .num_sge = 1, .sg = {{in[0], 100000}}};

    open_ends(&p);
    CHECK_EQUAL(soft_srq_create(p.end[1].hca, 16, &srq), 0);
    p.end[0].qp = create_rc(&p.end[0], NULL);
    p.end[1].qp = create_rc(&p.end[1], srq);
    connect_pair(&p);
    CHECK_EQUAL(soft_srq_post_recv(srq, &wr, 1), 1);
    post_one(p.end[0].qp, 1, out, 100000); /* a window of it goes out */
    CHECK(soft_hca_progress(p.end[1].hca) > 0);
    CHECK_EQUAL(soft_qp_modify(p.end[1].qp, SOFT_QPS_ERR, NULL), 0);
    expect_status(&p, 1, 77, SOFT_WC_WR_FLUSH_ERR);
    expect_status(&p, 0, 1, SOFT_WC_RETRY_EXC_ERR);
    close_pair(&p);
}

static void sixty_four_connections_share_a_queue_and_no_memory_grows(void)
{
    enum { PEERS = 64, BUFFERS = 256, ROUNDS = 50, BYTES = 5000 };
    struct pair p;
    struct soft_srq *srq;
    struct soft_qp *a[PEERS], *b[PEERS];
    uint64_t sent[PEERS] = {0}, got[PEERS] = {0}, total = 0;
    static uint8_t buffer[BUFFERS][BYTES], data[PEERS][BYTES];

    open_ends(&p);
    CHECK_EQUAL(soft_srq_create(p.end[1].hca, BUFFERS, &srq), 0);
    for (int i = 0; i < PEERS; i++) {
        struct soft_rc_attr attr;

        a[i] = create_rc(&p.end[0], NULL);
        b[i] = create_rc(&p.end[1], srq);
        CHECK(b[i]->rq.ring == NULL);
        attr = attr_to(&p.end[1], b[i]);
        connect_qp(a[i], &attr);
        attr = attr_to(&p.end[0], a[i]);
        connect_qp(b[i], &attr);
        memset(data[i], i, BYTES);
    }
    for (uint64_t i = 0; i < BUFFERS; i++) {
        struct soft_recv_wr wr = {.wr_id = i, .num_sge = 1, .sg = {{buffer[i], BYTES}}};

        CHECK_EQUAL(soft_srq_post_recv(srq, &wr, 1), 1);
    }
    while (total < PEERS * ROUNDS) {
        struct soft_wc wc;

        for (int i = 0; i < PEERS; i++)
            for (; sent[i] < ROUNDS && sent[i] < got[i] + 8; sent[i]++)
                post_one(a[i], sent[i], data[i], BYTES);
        while (soft_cq_poll(p.end[0].cq, 1, &wc) == 1)
            CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
        while (soft_cq_poll(p.end[1].cq, 1, &wc) == 1) {
            struct soft_recv_wr wr = {
                .wr_id = wc.wr_id, .num_sge = 1, .sg = {{buffer[wc.wr_id], BYTES}}};
            int which = buffer[wc.wr_id][0];

            CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
            CHECK_EQUAL(wc.qp_num, soft_qp_qpn(b[which]));
            CHECK(memcmp(buffer[wc.wr_id], data[which], BYTES) == 0);
            got[which]++;
            total++;
            CHECK_EQUAL(soft_srq_post_recv(srq, &wr, 1), 1);
        }
        (void)turn(&p);
    }
    for (int i = 0; i < PEERS; i++)
        CHECK_EQUAL(got[i], ROUNDS);
    CHECK_EQUAL(srq->rq.tail - srq->rq.head, BUFFERS);
    close_pair(&p);
}

/* ---- peers that begin messages and fall silent ------------------------------------------------
 */

enum { SHARED = 32, SILENT = 20, SILENT_MOST = SHARED / 2 };

/* The QP whose messages come whole. */
static uint32_t sound_qpn;

static bool only_beginnings(struct soft_udp *from, struct cable_packet *packet)
{
    uint32_t qpn = (uint32_t)packet->data[5] << 16 | packet->data[6] << 8 | packet->data[7];

    (void)from;
    return packet->data[0] > SOFT_ROCE_RC_SEND_ONLY_IMM || qpn == sound_qpn ||
           packet->data[0] == SOFT_ROCE_RC_SEND_FIRST;
}

struct silence {
    struct pair p;
    struct soft_srq *srq;
    struct soft_qp *a[SILENT + 1], *b[SILENT + 1]; /* the last one is sound */
};

/* So many connections begin a message of two packets; the second one never comes. */
static void begin_silence(struct silence *s)
{
    static uint8_t buffer[2 * MTU];
    struct soft_recv_wr wr = {.num_sge = 1, .sg = {{buffer, sizeof(buffer)}}};

    open_ends(&s->p);
    CHECK_EQUAL(soft_srq_create(s->p.end[1].hca, SHARED, &s->srq), 0);
    for (int i = 0; i < SHARED; i++)
        CHECK_EQUAL(soft_srq_post_recv(s->srq, &wr, 1), 1);
    for (int i = 0; i <= SILENT; i++) {
        s->a[i] = s->p.end[0].qp = create_rc(&s->p.end[0], NULL);
        s->b[i] = s->p.end[1].qp = create_rc(&s->p.end[1], s->srq);
        connect_pair(&s->p);
    }
    sound_qpn = soft_qp_qpn(s->b[SILENT]);
    cable.inspect = only_beginnings;
    for (int i = 0; i < SILENT; i++)
        post_one(s->a[i], 0, out, 2 * MTU);
    (void)soft_hca_progress(s->p.end[1].hca);
}

static void a_silent_peer_occupies_its_share_and_no_more(void)
{
    struct silence s;

    begin_silence(&s);
    CHECK_EQUAL(s.srq->receiving_count, SILENT_MOST);
    CHECK_EQUAL(s.srq->rq.tail - s.srq->rq.head, SHARED - SILENT_MOST);
    CHECK_EQUAL(counted(&s.p.end[1], SOFT_C_RC_SHARE), SILENT - SILENT_MOST);
    post_one(s.a[SILENT], 0, out, MTU); /* a message of one packet finds room */
    CHECK_EQUAL(soft_hca_progress(s.p.end[1].hca), 1);
    CHECK_EQUAL(counted(&s.p.end[1], SOFT_C_RX_DELIVERED), 1);
    CHECK_EQUAL(counted(&s.p.end[1], SOFT_C_RC_OVERDUE), 0);
    close_pair(&s.p);
}

static void a_message_that_is_overdue_makes_room(void)
{
    struct silence s;

    begin_silence(&s);
    cable_clock_ns += 1100000000;
    for (int i = 0; i < 3; i++) {
        post_one(s.a[SILENT], 0, out, 2 * MTU);
        (void)soft_hca_progress(s.p.end[1].hca);
    }
    CHECK_EQUAL(counted(&s.p.end[1], SOFT_C_RX_DELIVERED), 3);
    CHECK_EQUAL(counted(&s.p.end[1], SOFT_C_RC_OVERDUE), 1);
    CHECK_EQUAL(soft_qp_state(s.b[0]), SOFT_QPS_ERR);
    CHECK_EQUAL(s.srq->receiving_count, SILENT_MOST - 1);
    for (int i = 0; i < SILENT_MOST; i++) /* its peer learns of it */
        (void)soft_hca_progress(s.p.end[0].hca);
    CHECK_EQUAL(soft_qp_state(s.a[0]), SOFT_QPS_ERR);
    for (int i = 0; i <= SILENT; i++)
        soft_qp_destroy(s.b[i]);
    CHECK_EQUAL(s.srq->receiving_count, 0);
    CHECK_EQUAL(soft_srq_destroy(s.srq), 0);
    close_pair(&s.p);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(states_are_walked_in_order_and_no_other_way),
        TEST(values_out_of_range_are_refused),
        TEST(requests_are_taken_where_the_state_allows),
        TEST(messages_of_every_shape_arrive_whole),
        TEST(a_batch_is_acknowledged_once_and_unsignalled_sends_say_nothing),
        TEST(a_connection_to_its_own_adapter_works),
        TEST(a_full_cq_holds_both_sides_back_and_loses_nothing),
        TEST(an_error_is_flushed_as_fast_as_a_full_cq_allows),
        TEST(a_queue_pair_that_was_reset_can_be_connected_again),
        TEST(destroying_a_connection_flushes_what_is_posted),
        TEST(a_shared_queue_checks_its_limits),
        TEST(a_poll_ends_where_the_shared_queue_does),
        TEST(the_buffer_posted_last_to_a_shared_queue_is_used_first),
        TEST(a_queue_pair_in_error_leaves_the_shared_buffers_to_others),
        TEST(a_message_in_part_is_flushed),
        TEST(a_silent_peer_occupies_its_share_and_no_more),
        TEST(a_message_that_is_overdue_makes_room),
        TEST(sixty_four_connections_share_a_queue_and_no_memory_grows),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
