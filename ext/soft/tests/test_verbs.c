/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs, completion queues, address handles and groups on an HCA without a device: it reaches
 * itself by the loopback, and packets of others are put in by hand. No network, no privilege.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "check.h"
#include "crc32.h"
#include "icrc.h"
#include "objects.h"

#define QKEY    0x0b1bu
#define MTU     2048
#define DEPTH   64
#define NOT_SET 0xee

static const struct in6_addr own_gid = {{{0xfe, 0x80, [8] = 2, [15] = 1}}};
static const struct in6_addr peer_gid = {{{0xfe, 0x80, [8] = 2, [15] = 2}}};
static const struct in6_addr group_gid = {
    {{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}}};

/* ---- a bench: one HCA, one CQ, address handles to ourselves and to nobody -----------------------
 */

struct bench {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_ah *self;
};

static struct bench open_bench(unsigned int depth)
{
    struct soft_hca_attr attr = {.gid = own_gid, .active_mtu_bytes = MTU};
    struct soft_ah_attr to_self = {.dgid = own_gid, .traffic_class = 0xa5, .flow_label = 0x12345};
    struct bench b;

    CHECK_EQUAL(soft_hca_create(&attr, &b.hca), 0);
    CHECK_EQUAL(soft_cq_create(b.hca, depth, &b.cq), 0);
    CHECK_EQUAL(soft_ah_create(b.hca, &to_self, &b.self), 0);
    return b;
}

static struct soft_qp *create_qp(const struct bench *b, enum soft_qp_type type, uint16_t pkey_index,
                                 uint32_t qkey)
{
    struct soft_qp_attr attr = {
        .type = type,
        .send_cq = b->cq,
        .recv_cq = b->cq,
        .max_send_wr = 16,
        .max_recv_wr = 16,
        .qkey = qkey,
        .pkey_index = pkey_index,
    };
    struct soft_qp *qp;

    CHECK_EQUAL(soft_qp_create(b->hca, &attr, &qp), 0);
    return qp;
}

static struct soft_qp *create_ud(const struct bench *b)
{
    return create_qp(b, SOFT_QPT_UD, 0, QKEY);
}

static void post_recv(struct soft_qp *qp, uint64_t wr_id, void *buffer, uint32_t length)
{
    struct soft_recv_wr wr = {.wr_id = wr_id, .num_sge = 1, .sg = {{buffer, length}}};

    CHECK_EQUAL(soft_qp_post_recv(qp, &wr, 1), 1);
}

static struct soft_send_wr send_wr(const struct bench *b, const struct soft_qp *to, uint64_t wr_id,
                                   const void *data, uint32_t length)
{
    return (struct soft_send_wr){
        .wr_id = wr_id,
        .ah = b->self,
        .remote_qpn = soft_qp_qpn(to),
        .remote_qkey = QKEY,
        .flags = SOFT_SEND_SIGNALED,
        .num_sge = 1,
        .sg = {{(void *)(uintptr_t)data, length}},
    };
}

static uint64_t counter(const struct bench *b, enum soft_counter which)
{
    struct soft_hca_counters c;

    soft_hca_counters(b->hca, &c);
    return c.value[which];
}

/* Post one request of its own and take its completion off the CQ; the next one is a receive, if
 * any. */
static void send_one(const struct bench *b, struct soft_qp *from, const struct soft_send_wr *wr)
{
    struct soft_wc wc;

    CHECK_EQUAL(soft_qp_post_send(from, wr, 1), 1);
    CHECK_EQUAL(soft_cq_poll(b->cq, 1, &wc), 1);
    CHECK_EQUAL(wc.opcode, SOFT_WC_SEND);
    CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(wc.wr_id, wr->wr_id);
}

static void expect_empty(const struct bench *b)
{
    struct soft_wc wc;

    CHECK_EQUAL(soft_cq_poll(b->cq, 1, &wc), 0);
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static void a_message_to_ourselves_arrives_behind_its_grh(void)
{
    static const uint8_t grh[40] = {
        0x6a, 0x51, 0x23, 0x45, 0,    28,   0x1b, 64, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
        0,    0,    0,    1,    0xfe, 0x80, 0,    0,  0,    0,    0, 0, 2, 0, 0, 0, 0, 0, 0, 1,
    };
    struct bench b = open_bench(DEPTH);
    struct soft_qp *from = create_ud(&b), *to = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, to, 7, "hi", 2);
    uint8_t buffer[64];
    struct soft_wc wc;

    wr.flags |= SOFT_SEND_WITH_IMM;
    wr.imm_data = 0xdeadbeef;
    wr.sg[0].length = 0; /* empty entries are fine */
    wr.sg[1] = (struct soft_sge){"h", 1};
    wr.sg[2] = (struct soft_sge){NULL, 0};
    wr.sg[3] = (struct soft_sge){"i", 1};
    wr.num_sge = 4;
    memset(buffer, NOT_SET, sizeof(buffer));
    post_recv(to, 42, buffer, sizeof(buffer));
    send_one(&b, from, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 42);
    CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(wc.opcode, SOFT_WC_RECV);
    CHECK_EQUAL(wc.byte_len, 42);
    CHECK_EQUAL(wc.qp_num, soft_qp_qpn(to));
    CHECK_EQUAL(wc.src_qp, soft_qp_qpn(from));
    CHECK_EQUAL(wc.flags, SOFT_WC_GRH | SOFT_WC_WITH_IMM);
    CHECK_EQUAL(wc.imm_data, 0xdeadbeef);
    CHECK_EQUAL(wc.pkey_index, 0);
    CHECK(memcmp(buffer + 8, grh + 8, 32) == 0);
    CHECK(memcmp(buffer, grh, 4) == 0);
    CHECK_EQUAL(buffer[5], 32); /* BTH 12, DETH 8, immediate 4, two bytes padded to 4, ICRC 4 */
    CHECK(memcmp(buffer + 6, grh + 6, 2) == 0);
    CHECK(memcmp(buffer + 40, "hi", 2) == 0);
    CHECK_EQUAL(buffer[42], NOT_SET);
    soft_hca_close(b.hca);
}

static void all_sizes_survive_gather_and_scatter(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    uint8_t data[MTU], buffer[40 + MTU];
    uint64_t random = 3;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)next_random(&random);
    for (unsigned int len = 0; len <= MTU; len = len < 70        ? len + 1
                                                 : len * 2 > MTU ? len + 501
                                                                 : len * 2) {
        struct soft_send_wr out = send_wr(&b, qp, len, data, len);
        struct soft_recv_wr in = {.wr_id = len, .num_sge = 4};
        struct soft_wc wc;
        uint32_t cut = len / 3;

        out.num_sge = 3;
        out.sg[0] = (struct soft_sge){data, cut};
        out.sg[1] = (struct soft_sge){data + cut, cut};
        out.sg[2] = (struct soft_sge){data + 2 * cut, len - 2 * cut};
        in.sg[0] = (struct soft_sge){buffer, 7}; /* the GRH itself is cut, too */
        in.sg[1] = (struct soft_sge){buffer + 7, 0};
        in.sg[2] = (struct soft_sge){buffer + 7, 33 + len / 2};
        in.sg[3] = (struct soft_sge){buffer + 40 + len / 2, len - len / 2}; /* to the byte */
        memset(buffer, NOT_SET, sizeof(buffer));
        CHECK_EQUAL(soft_qp_post_recv(qp, &in, 1), 1);
        send_one(&b, qp, &out);
        CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
        CHECK_EQUAL(wc.byte_len, 40 + len);
        CHECK_EQUAL(buffer[0] >> 4, 6);
        CHECK(memcmp(buffer + 40, data, len) == 0);
        if (len == MTU)
            break;
    }
    CHECK_EQUAL(counter(&b, SOFT_C_RX_DELIVERED), counter(&b, SOFT_C_TX_PACKETS));
    soft_hca_close(b.hca);
}

static void messages_over_the_mtu_complete_in_error_and_in_order(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    static uint8_t data[MTU + 1], buffer[3][40 + MTU];
    struct soft_send_wr wr[4];
    struct soft_wc wc[8];

    for (int i = 0; i < 3; i++)
        post_recv(qp, 100 + i, buffer[i], sizeof(buffer[i]));
    wr[0] = send_wr(&b, qp, 0, data, MTU);
    wr[1] = send_wr(&b, qp, 1, data, MTU + 1);
    wr[1].flags = 0; /* errors complete even if not asked to */
    wr[2] = send_wr(&b, qp, 2, data, 1);
    wr[2].flags = 0;
    wr[3] = send_wr(&b, qp, 3, data, UINT32_MAX);
    wr[3].num_sge = 4;
    for (int i = 1; i < 4; i++)
        wr[3].sg[i] = (struct soft_sge){data, UINT32_MAX}; /* the sum must not wrap */
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 4), 4);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 5);
    CHECK_EQUAL(wc[0].wr_id, 0);
    CHECK_EQUAL(wc[0].status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(wc[1].wr_id, 100);
    CHECK_EQUAL(wc[2].wr_id, 1);
    CHECK_EQUAL(wc[2].status, SOFT_WC_LOC_LEN_ERR);
    CHECK_EQUAL(wc[2].opcode, SOFT_WC_SEND);
    CHECK_EQUAL(wc[3].wr_id, 101);
    CHECK_EQUAL(wc[4].wr_id, 3);
    CHECK_EQUAL(wc[4].status, SOFT_WC_LOC_LEN_ERR);
    CHECK_EQUAL(counter(&b, SOFT_C_TX_LENGTH), 2);
    CHECK_EQUAL(counter(&b, SOFT_C_TX_PACKETS), 2);
    soft_hca_close(b.hca);
}

static void a_buffer_too_small_drops_and_stays(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, qp, 1, "12345", 5);
    uint8_t buffer[44];
    struct soft_wc wc;

    send_one(&b, qp, &wr);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_NO_BUFFER), 1);
    post_recv(qp, 9, buffer, sizeof(buffer));
    send_one(&b, qp, &wr);
    expect_empty(&b);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_TOO_LONG), 1);
    wr.sg[0].length = 4;
    send_one(&b, qp, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 9);
    CHECK_EQUAL(wc.byte_len, 44);
    soft_hca_close(b.hca);
}

/* ---- keys -------------------------------------------------------------------------------------
 */

static void the_q_key_must_be_the_receivers_and_bit_31_means_our_own(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *mine = create_qp(&b, SOFT_QPT_UD, 0, 0x80001234u);
    struct soft_qp *same = create_qp(&b, SOFT_QPT_UD, 0, 0x80001234u);
    struct soft_qp *plain = create_qp(&b, SOFT_QPT_UD, 0, 0x1234);
    struct soft_send_wr wr = send_wr(&b, plain, 1, "x", 1);
    uint8_t buffer[2][64];
    struct soft_wc wc;

    post_recv(plain, 10, buffer[0], 64);
    post_recv(same, 11, buffer[1], 64);
    wr.remote_qkey = 0x1235;
    send_one(&b, mine, &wr);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QKEY), 1);
    wr.remote_qkey = 0x80000000u | 0x1234; /* not 0x1234, nor itself: the QP's 0x80001234 */
    send_one(&b, mine, &wr);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QKEY), 2);
    expect_empty(&b);
    wr.remote_qkey = 0x1234;
    send_one(&b, mine, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 10);
    wr.remote_qpn = soft_qp_qpn(same);
    wr.remote_qkey = 0xffffffffu;
    send_one(&b, mine, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 11);
    soft_qp_set_qkey(plain, 0x4321);
    post_recv(plain, 12, buffer[0], 64);
    wr.remote_qpn = soft_qp_qpn(plain);
    wr.remote_qkey = 0x1234;
    send_one(&b, mine, &wr);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QKEY), 3);
    wr.remote_qkey = 0x4321;
    send_one(&b, mine, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 12);
    soft_hca_close(b.hca);
}

static void the_p_key_must_match_with_a_full_member_on_one_side(void)
{
    static const uint16_t table[] = {0xffff, 0x7fff, 0x8001, 0x0001, 0x8000};
    static const struct {
        uint16_t from, to;
        bool passes;
    } rules[] = {
        {0, 0, true},  {0, 1, true},  {1, 0, true},  {1, 1, false}, {2, 3, true}, {3, 3, false},
        {0, 2, false}, {4, 4, false}, {5, 5, false}, {0, 5, false}, /* past the end of the table */
    };
    struct bench b = open_bench(DEPTH);
    uint64_t dropped = 0;

    CHECK_EQUAL(soft_hca_set_pkeys(b.hca, table, 0), -EINVAL);
    CHECK_EQUAL(soft_hca_set_pkeys(b.hca, table, SOFT_MAX_PKEYS + 1), -EINVAL);
    CHECK_EQUAL(soft_hca_set_pkeys(b.hca, table, 5), 0);
    CHECK_EQUAL(soft_hca_find_pkey(b.hca, 0x7fff), 0);
    CHECK_EQUAL(soft_hca_find_pkey(b.hca, 0x0001), 2);
    CHECK_EQUAL(soft_hca_find_pkey(b.hca, 0x8002), -ENOENT);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct soft_qp *from = create_qp(&b, SOFT_QPT_UD, rules[i].from, QKEY);
        struct soft_qp *to = create_qp(&b, SOFT_QPT_UD, rules[i].to, QKEY);
        struct soft_send_wr wr = send_wr(&b, to, 1, "x", 1);
        uint8_t buffer[64];
        struct soft_wc wc;

        post_recv(to, 2, buffer, sizeof(buffer));
        send_one(&b, from, &wr);
        if (rules[i].passes) {
            CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
            CHECK_EQUAL(wc.pkey_index, rules[i].to);
        } else {
            CHECK_EQUAL(counter(&b, SOFT_C_DROP_PKEY), ++dropped);
            expect_empty(&b);
        }
        soft_qp_destroy(from);
        soft_qp_destroy(to);
        while (soft_cq_poll(b.cq, 1, &wc) == 1) /* the flushed receive */
            CHECK_EQUAL(wc.status, SOFT_WC_WR_FLUSH_ERR);
    }
    soft_hca_close(b.hca);
}

static void qp1_is_one_per_hca_with_its_q_key_and_all_p_keys(void)
{
    static const uint16_t table[] = {0xffff, 0x8001};
    struct bench b = open_bench(DEPTH);
    struct soft_qp *gsi = create_qp(&b, SOFT_QPT_GSI, 0, 0x1111);
    struct soft_qp *ud = create_qp(&b, SOFT_QPT_UD, 1, QKEY);
    struct soft_qp_attr attr = {SOFT_QPT_GSI, b.cq, b.cq, 1, 1, 0, 0};
    struct soft_send_wr wr = send_wr(&b, gsi, 1, "mad", 3);
    struct soft_qp *other;
    uint8_t buffer[3][64];
    struct soft_wc wc;

    CHECK_EQUAL(soft_qp_qpn(gsi), 1);
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &other), -EEXIST);
    CHECK_EQUAL(soft_hca_set_pkeys(b.hca, table, 2), 0);
    for (int i = 0; i < 3; i++)
        post_recv(gsi, i, buffer[i], sizeof(buffer[i]));
    send_one(&b, ud, &wr);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QKEY), 1);
    wr.pkey_index = 1;
    wr.remote_qkey = SOFT_QKEY_GSI;
    send_one(&b, gsi, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.pkey_index, 1);
    CHECK_EQUAL(wc.src_qp, 1);
    wr.pkey_index = 0;
    send_one(&b, gsi, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.pkey_index, 0);
    soft_qp_set_qkey(gsi, 5); /* has no effect */
    send_one(&b, gsi, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    soft_qp_destroy(gsi);
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &other), 0);
    CHECK_EQUAL(soft_qp_qpn(other), 1);
    soft_hca_close(b.hca);
}

/* ---- queues -----------------------------------------------------------------------------------
 */

static void a_full_cq_drops_receives_and_holds_sends_back(void)
{
    struct bench b = open_bench(3);
    struct soft_cq *send_cq;
    struct soft_qp_attr attr = {SOFT_QPT_UD, NULL, b.cq, 8, 8, QKEY, 0};
    struct soft_qp *qp;
    struct soft_send_wr wr[10];
    static uint8_t buffer[8][64];
    struct soft_wc wc[8];

    CHECK_EQUAL(soft_cq_create(b.hca, 2, &send_cq), 0);
    attr.send_cq = send_cq;
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    for (int i = 0; i < 8; i++) {
        post_recv(qp, 100 + i, buffer[i], 64);
        wr[i] = send_wr(&b, qp, i, "abcdefgh", (uint32_t)i);
    }
    /* Eight fit into the queue, two of them complete, and the others wait for room. */
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 8), 8);
    CHECK_EQUAL(counter(&b, SOFT_C_TX_PACKETS), 2);
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 8), 2);
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 1), 0);
    CHECK_EQUAL(soft_cq_poll(send_cq, 8, wc), 4); /* room was made, and used at once */
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(wc[i].wr_id, i);
    CHECK_EQUAL(counter(&b, SOFT_C_TX_PACKETS), 4);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_CQ_FULL), 1);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 5); /* 0, 1, 2; 3 was dropped; and 4, 5 by a retry */
    CHECK_EQUAL(wc[2].wr_id, 102);
    CHECK_EQUAL(wc[2].byte_len, 42);
    CHECK_EQUAL(wc[3].wr_id, 103);
    CHECK_EQUAL(wc[3].byte_len, 44);
    CHECK_EQUAL(soft_cq_poll(send_cq, 2, wc), 2);
    CHECK_EQUAL(wc[1].wr_id, 5);
    while (soft_cq_poll(send_cq, 8, wc) > 0)
        ;
    CHECK_EQUAL(counter(&b, SOFT_C_TX_PACKETS), 10);
    soft_hca_close(b.hca);
}

static void invalid_requests_are_refused_where_they_stand(void)
{
    struct bench a = open_bench(DEPTH), b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&a);
    struct soft_send_wr wr[3];
    struct soft_recv_wr in[2] = {{.num_sge = 0}, {.num_sge = SOFT_MAX_SGE + 1}};
    struct soft_wc wc[4];

    for (int fault = 0; fault < 4; fault++) {
        wr[0] = wr[1] = wr[2] = send_wr(&a, qp, 1, "x", 1);
        if (fault == 0)
            wr[1].ah = NULL;
        if (fault == 1)
            wr[1].ah = b.self;
        if (fault == 2)
            wr[1].num_sge = SOFT_MAX_SGE + 1;
        if (fault == 3)
            wr[1].remote_qpn = 0x1000000;
        CHECK_EQUAL(soft_qp_post_send(qp, wr, 3), 1);
        CHECK_EQUAL(soft_qp_post_send(qp, wr + 1, 2), -EINVAL);
        CHECK_EQUAL(soft_cq_poll(a.cq, 4, wc), 1);
    }
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 0), 0);
    CHECK_EQUAL(soft_qp_post_recv(qp, in, 2), 1);
    CHECK_EQUAL(soft_qp_post_recv(qp, in + 1, 1), -EINVAL);
    for (int i = 0; i < 15; i++)
        CHECK_EQUAL(soft_qp_post_recv(qp, in, 1), 1);
    CHECK_EQUAL(soft_qp_post_recv(qp, in, 1), 0);
    soft_hca_close(a.hca);
    soft_hca_close(b.hca);
}

static void creation_checks_its_limits(void)
{
    struct bench a = open_bench(DEPTH), b = open_bench(DEPTH);
    struct soft_qp_attr good = {SOFT_QPT_UD, a.cq, a.cq, 1, 1, 0, 0};
    struct soft_ah_attr ah_attr = {.dgid = IN6ADDR_ANY_INIT};
    struct soft_qp_attr bad[8];
    struct soft_qp *qp;
    struct soft_cq *cq;
    struct soft_ah *ah;

    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].type = 2; /* RC: not yet */
    bad[1].send_cq = NULL;
    bad[2].recv_cq = b.cq;
    bad[3].max_send_wr = 0;
    bad[4].max_send_wr = SOFT_MAX_WR + 1;
    bad[5].max_recv_wr = 0;
    bad[6].max_recv_wr = SOFT_MAX_WR + 1;
    bad[7].pkey_index = SOFT_MAX_PKEYS;
    for (int i = 0; i < 8; i++)
        CHECK_EQUAL(soft_qp_create(a.hca, &bad[i], &qp), -EINVAL);
    CHECK_EQUAL(soft_cq_create(a.hca, 0, &cq), -EINVAL);
    CHECK_EQUAL(soft_cq_create(a.hca, SOFT_MAX_CQE + 1, &cq), -EINVAL);
    CHECK_EQUAL(soft_ah_create(a.hca, &ah_attr, &ah), -EINVAL);
    CHECK(inet_pton(AF_INET6, "::ffff:10.0.0.1", &ah_attr.dgid) == 1);
    CHECK_EQUAL(soft_ah_create(a.hca, &ah_attr, &ah), -EINVAL);
    ah_attr.dgid = peer_gid;
    ah_attr.flow_label = 0x100000;
    CHECK_EQUAL(soft_ah_create(a.hca, &ah_attr, &ah), -EINVAL);
    CHECK_EQUAL(soft_qp_create(a.hca, &good, &qp), 0);
    CHECK_EQUAL(soft_cq_destroy(a.cq), -EBUSY);
    soft_qp_destroy(qp);
    CHECK_EQUAL(soft_cq_destroy(a.cq), 0);
    soft_hca_close(a.hca);
    soft_hca_close(b.hca);
}

static void destroying_a_qp_flushes_what_is_posted(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_cq *narrow;
    struct soft_qp_attr attr = {SOFT_QPT_UD, NULL, b.cq, 8, 8, QKEY, 0};
    struct soft_send_wr wr[3];
    struct soft_qp *qp;
    uint8_t buffer[64];
    struct soft_wc wc[8];

    CHECK_EQUAL(soft_cq_create(b.hca, 2, &narrow), 0);
    attr.send_cq = narrow;
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    post_recv(qp, 50, buffer, 10);
    post_recv(qp, 51, buffer, 10);
    for (int i = 0; i < 3; i++)
        wr[i] = send_wr(&b, qp, i, "x", 1);
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 3), 3); /* two complete, the third waits */
    soft_ah_destroy(b.self);                      /* still held by the third */
    CHECK_EQUAL(soft_cq_poll(narrow, 1, wc), 1);
    CHECK_EQUAL(soft_cq_poll(narrow, 1, wc), 1);
    soft_qp_destroy(qp);
    CHECK_EQUAL(soft_cq_poll(narrow, 8, wc), 1); /* went out when there was room */
    CHECK_EQUAL(wc[0].wr_id, 2);
    CHECK_EQUAL(wc[0].status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(wc[i].wr_id, 50 + i);
        CHECK_EQUAL(wc[i].status, SOFT_WC_WR_FLUSH_ERR);
        CHECK_EQUAL(wc[i].opcode, SOFT_WC_RECV);
    }
    soft_hca_close(b.hca);
}

static void destroying_a_qp_flushes_sends_that_wait(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_cq *narrow;
    struct soft_qp_attr attr = {SOFT_QPT_UD, NULL, b.cq, 8, 8, QKEY, 0};
    struct soft_send_wr wr[4];
    struct soft_qp *first, *second;
    struct soft_wc wc[8];

    CHECK_EQUAL(soft_cq_create(b.hca, 2, &narrow), 0);
    attr.send_cq = narrow;
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &first), 0);
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &second), 0);
    for (int i = 0; i < 4; i++)
        wr[i] = send_wr(&b, first, i, "x", 1);
    CHECK_EQUAL(soft_qp_post_send(first, wr, 4), 4);
    CHECK_EQUAL(soft_qp_post_send(second, wr, 4), 4); /* both wait now */
    soft_ah_destroy(b.self);
    soft_qp_destroy(
        first); /* the CQ is full: its flush is lost, as documented, and nothing leaks */
    CHECK_EQUAL(soft_cq_poll(narrow, 2, wc), 2);
    soft_qp_destroy(second);
    CHECK_EQUAL(soft_cq_poll(narrow, 8, wc), 2);
    CHECK_EQUAL(wc[0].qp_num, wc[1].qp_num);
    CHECK_EQUAL(wc[0].status, SOFT_WC_SUCCESS); /* the retry of the poll above */
    soft_hca_close(b.hca);
}

static void a_send_without_a_device_is_lost_and_counted(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, qp, 5, "x", 1);
    struct soft_ah_attr attr = {.dgid = peer_gid};

    CHECK_EQUAL(soft_ah_create(b.hca, &attr, &wr.ah), 0);
    send_one(&b, qp, &wr);
    expect_empty(&b);
    CHECK_EQUAL(counter(&b, SOFT_C_TX_UNREACHABLE), 1);
    soft_hca_close(b.hca);
}

static void qp_numbers_start_at_random_and_skip_the_reserved(void)
{
    struct bench a = open_bench(DEPTH), b = open_bench(DEPTH), c = open_bench(DEPTH);
    struct soft_qp *in_use;

    /* Two of three equal by chance: once in five million runs. */
    CHECK(a.hca->next_qpn != b.hca->next_qpn || b.hca->next_qpn != c.hca->next_qpn);
    a.hca->next_qpn = 3;
    in_use = create_ud(&a);
    CHECK_EQUAL(soft_qp_qpn(in_use), 3);
    a.hca->next_qpn = 0xfffffe;
    CHECK_EQUAL(soft_qp_qpn(create_ud(&a)), 0xfffffe);
    CHECK_EQUAL(soft_qp_qpn(create_ud(&a)), 2);
    CHECK_EQUAL(soft_qp_qpn(create_ud(&a)), 4);
    soft_qp_destroy(in_use);
    CHECK_EQUAL(soft_qp_qpn(create_ud(&a)), 5); /* a freed number is not given again at once */
    soft_hca_close(a.hca);
    soft_hca_close(b.hca);
    soft_hca_close(c.hca);
}

static void the_qp_table_ends_at_its_limit(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp_attr attr = {SOFT_QPT_UD, b.cq, b.cq, 1, 1, QKEY, 0};
    struct soft_qp *qp = NULL;

    for (int i = 0; i < SOFT_MAX_QP; i++)
        CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    CHECK(soft_qp_create(b.hca, &attr, &qp) == -ENOSPC);
    soft_qp_destroy(qp);
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    soft_hca_close(b.hca);
}

/* ---- packets of others ------------------------------------------------------------------------
 */

struct wire {
    uint8_t data[512];
    struct soft_udp_packet ip;
};

static void seal(struct wire *w)
{
    size_t n = w->ip.bytes - SOFT_ICRC_BYTES;
    uint8_t kept = w->data[SOFT_ROCE_MASKED_BYTE];
    uint32_t crc = soft_icrc_seed(&w->ip.src, &w->ip.dst, w->ip.src_port, SOFT_UDP_PORT,
                                  (uint16_t)w->ip.bytes);

    w->data[SOFT_ROCE_MASKED_BYTE] = 0xff;
    soft_roce_put32le(w->data + n, soft_crc32_update(crc, w->data, n));
    w->data[SOFT_ROCE_MASKED_BYTE] = kept;
}

static void make_packet(struct wire *w, const struct in6_addr *dst, uint32_t dest_qpn,
                        size_t payload_bytes)
{
    struct soft_roce roce = {
        .opcode = SOFT_ROCE_UD_SEND,
        .pad_bytes = -payload_bytes & 3,
        .pkey = 0xffff,
        .dest_qpn = dest_qpn,
        .qkey = QKEY,
        .src_qpn = 0x1234,
    };
    size_t head = soft_roce_pack(w->data, &roce);

    memset(w->data + head, 'p', payload_bytes + 3);
    w->ip =
        (struct soft_udp_packet){.data = w->data, .src = peer_gid, .dst = *dst, .src_port = 49152};
    w->ip.bytes = head + payload_bytes + roce.pad_bytes + SOFT_ICRC_BYTES;
    seal(w);
}

static void put_in(const struct bench *b, const struct wire *w)
{
    soft_progress_lock(b->hca);
    soft_progress_take(b->hca, &w->ip, false);
    soft_progress_unlock(b->hca);
}

static void each_fault_of_a_packet_has_its_counter(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    uint8_t buffer[128];
    struct soft_wc wc;
    struct wire w;

    post_recv(qp, 1, buffer, sizeof(buffer));
    make_packet(&w, &own_gid, soft_qp_qpn(qp), 10);
    w.data[30] ^= 1;
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_ICRC), 1);

    make_packet(&w, &own_gid, soft_qp_qpn(qp), 10);
    w.data[1] |= 1;
    seal(&w);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_VERSION), 1);

    make_packet(&w, &own_gid, soft_qp_qpn(qp), 10);
    w.data[0] = 0x04; /* RC SEND only */
    seal(&w);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_OPCODE), 1);

    make_packet(&w, &own_gid, soft_qp_qpn(qp), 12);
    w.ip.bytes -= 2;
    put_in(&b, &w);
    w.ip.bytes = 15;
    put_in(&b, &w);
    w.ip.bytes = 0;
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_MALFORMED), 3);

    make_packet(&w, &own_gid, soft_qp_qpn(qp) ^ 1, 10);
    put_in(&b, &w);
    make_packet(&w, &own_gid, SOFT_QPN_MCAST, 10);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QPN), 2);

    make_packet(&w, &peer_gid, soft_qp_qpn(qp), 10);
    put_in(&b, &w);
    make_packet(&w, &group_gid, SOFT_QPN_MCAST, 10);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_ADDRESS), 2);

    expect_empty(&b);
    make_packet(&w, &own_gid, soft_qp_qpn(qp), 10);
    put_in(&b, &w);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.src_qp, 0x1234);
    CHECK_EQUAL(wc.byte_len, 50);
    soft_hca_close(b.hca);
}

static void a_group_packet_goes_to_every_attached_qp(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp[4];
    uint8_t buffer[4][128];
    struct soft_wc wc[8];
    struct wire w;

    for (int i = 0; i < 4; i++) {
        qp[i] = create_qp(&b, SOFT_QPT_UD, 0, i == 2 ? 0x9999 : QKEY);
        post_recv(qp[i], i, buffer[i], sizeof(buffer[i]));
        if (i < 3)
            CHECK_EQUAL(soft_qp_attach_mcast(qp[i], &group_gid), 0);
    }
    CHECK_EQUAL(soft_qp_attach_mcast(qp[0], &group_gid), 0); /* twice is once */
    CHECK_EQUAL(soft_qp_attach_mcast(qp[0], &peer_gid), -EINVAL);
    CHECK_EQUAL(soft_qp_detach_mcast(qp[3], &group_gid), -ENOENT);
    make_packet(&w, &group_gid, SOFT_QPN_MCAST, 10);
    put_in(&b, &w);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 2);
    CHECK_EQUAL(wc[0].wr_id + wc[1].wr_id, 1);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QKEY), 1);
    CHECK(memcmp(buffer[1] + 24, &group_gid, 16) == 0); /* the group is the GRH's DGID */
    CHECK(memcmp(buffer[1] + 40, "pppppppppp", 10) == 0);

    make_packet(&w, &group_gid, soft_qp_qpn(qp[0]), 10);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QPN), 1);

    CHECK_EQUAL(soft_qp_detach_mcast(qp[0], &group_gid), 0);
    CHECK_EQUAL(soft_qp_detach_mcast(qp[0], &group_gid), -ENOENT);
    soft_qp_destroy(qp[2]); /* detaches */
    post_recv(qp[1], 11, buffer[1], sizeof(buffer[1]));
    make_packet(&w, &group_gid, SOFT_QPN_MCAST, 10);
    put_in(&b, &w);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 2);
    CHECK_EQUAL(wc[0].status, SOFT_WC_WR_FLUSH_ERR);
    CHECK_EQUAL(wc[1].wr_id, 11);
    CHECK_EQUAL(b.hca->group_count, 1);
    CHECK_EQUAL(soft_qp_detach_mcast(qp[1], &group_gid), 0);
    CHECK_EQUAL(b.hca->group_count, 0);
    soft_hca_close(b.hca);
}

static void many_groups_are_found_and_the_table_ends_at_its_limit(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b), *other = create_ud(&b);
    struct in6_addr gid = group_gid;
    uint8_t buffer[128];
    struct soft_wc wc;
    struct wire w;

    for (int i = 0; i < SOFT_MAX_MCAST; i++) {
        gid.s6_addr[14] = (uint8_t)(i >> 8);
        gid.s6_addr[15] = (uint8_t)i;
        CHECK_EQUAL(soft_qp_attach_mcast(i % 2 ? qp : other, &gid), 0);
    }
    CHECK_EQUAL(soft_qp_attach_mcast(qp, &gid), 0); /* it exists */
    gid.s6_addr[13] = 0;
    CHECK_EQUAL(soft_qp_attach_mcast(qp, &gid), -ENOSPC);
    gid.s6_addr[13] = 0xff;
    gid.s6_addr[14] = 0x12;
    gid.s6_addr[15] = 0x35;
    post_recv(qp, 77, buffer, sizeof(buffer));
    make_packet(&w, &gid, SOFT_QPN_MCAST, 1);
    put_in(&b, &w);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 77);
    soft_qp_destroy(qp);
    CHECK_EQUAL(b.hca->group_count, SOFT_MAX_MCAST / 2);
    soft_qp_destroy(other);
    CHECK_EQUAL(b.hca->group_count, 0);
    soft_hca_close(b.hca);
}

static void mutated_packets_are_delivered_or_counted_and_nothing_else(void)
{
    static const enum soft_counter ends[] = {
        SOFT_C_RX_DELIVERED, SOFT_C_DROP_ADDRESS,  SOFT_C_DROP_MALFORMED, SOFT_C_DROP_VERSION,
        SOFT_C_DROP_ICRC,    SOFT_C_DROP_OPCODE,   SOFT_C_DROP_QPN,       SOFT_C_DROP_PKEY,
        SOFT_C_DROP_QKEY,    SOFT_C_DROP_TOO_LONG,
    };
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    uint64_t random = 4791, ended = 0;
    const int rounds = 200000;

    for (int i = 0; i < rounds; i++) {
        struct wire w;
        struct soft_wc wc;
        uint8_t *buffer = malloc(100);

        make_packet(&w, &own_gid, soft_qp_qpn(qp), next_random(&random) % 80);
        for (int n = (int)(next_random(&random) % 4); n > 0; n--)
            w.data[next_random(&random) % w.ip.bytes] ^= (uint8_t)(1 << next_random(&random) % 8);
        if (next_random(&random) % 4 == 0)
            w.ip.bytes = next_random(&random) % (w.ip.bytes + 1);
        if (w.ip.bytes >= SOFT_ICRC_BYTES && next_random(&random) % 4 != 0)
            seal(&w); /* mostly with a correct ICRC, or nothing would get past it */
        w.ip.data = malloc(w.ip.bytes + (w.ip.bytes == 0)); /* exact, for the sanitizer */
        memcpy((uint8_t *)(uintptr_t)w.ip.data, w.data, w.ip.bytes);
        post_recv(qp, i, buffer, 100);
        put_in(&b, &w);
        free((uint8_t *)(uintptr_t)w.ip.data);
        if (soft_cq_poll(b.cq, 1, &wc) == 0) { /* take the buffer back, by a message to ourselves */
            struct soft_send_wr wr = send_wr(&b, qp, 0, "", 0);

            wr.flags = 0;
            CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
            CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
        }
        CHECK_EQUAL(wc.wr_id, i);
        CHECK(wc.byte_len <= 100);
        free(buffer);
    }
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        CHECK(counter(&b, ends[i]) > 0 || ends[i] == SOFT_C_DROP_ADDRESS);
        ended += counter(&b, ends[i]);
    }
    CHECK_EQUAL(ended, counter(&b, SOFT_C_RX_PACKETS));
    soft_hca_close(b.hca);
}

/* ---- sleeping and waking ----------------------------------------------------------------------
 */

static bool readable(const struct soft_cq *cq)
{
    struct pollfd p = {.fd = soft_cq_fd(cq), .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void an_armed_cq_wakes_once_for_a_completion(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, qp, 1, "x", 1);
    struct soft_wc wc;

    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    CHECK(!readable(b.cq)); /* not armed */
    soft_cq_arm(b.cq);
    CHECK(readable(b.cq)); /* there is something already */
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    soft_cq_arm(b.cq);
    CHECK(!readable(b.cq));
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    CHECK(readable(b.cq));
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK(readable(b.cq)); /* until it is armed again */
    soft_cq_arm(b.cq);
    CHECK(!readable(b.cq));
    CHECK_EQUAL(soft_hca_deadline_ns(b.hca), SOFT_NO_DEADLINE_NS);
    soft_hca_close(b.hca);
}

struct sleeper {
    struct soft_cq *cq;
    _Atomic int woken;
};

static void *sleep_on_cq(void *argument)
{
    struct sleeper *s = argument;
    struct pollfd p = {.fd = soft_cq_fd(s->cq), .events = POLLIN};
    struct soft_wc wc;

    while (s->woken < 1000) {
        if (soft_cq_poll(s->cq, 1, &wc) == 1) {
            s->woken++;
            continue;
        }
        soft_cq_arm(s->cq);
        if (soft_cq_poll(s->cq, 1, &wc) == 1)
            s->woken++;
        else
            CHECK_EQUAL(poll(&p, 1, 60000), 1); /* a lost wake-up ends here */
    }
    return NULL;
}

static void completions_made_by_one_thread_wake_another(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_cq *own;
    struct soft_qp_attr attr = {SOFT_QPT_UD, NULL, b.cq, 8, 16, QKEY, 0};
    struct soft_qp *qp;
    struct sleeper sleeper = {.cq = b.cq};
    pthread_t thread;
    uint8_t buffer[64];
    struct soft_wc wc;

    CHECK_EQUAL(soft_cq_create(b.hca, 1, &own), 0);
    attr.send_cq = own;
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    CHECK_EQUAL(pthread_create(&thread, NULL, sleep_on_cq, &sleeper), 0);
    for (int i = 0; i < 1000; i++) {
        struct soft_send_wr wr = send_wr(&b, qp, i, "x", 1);
        struct soft_recv_wr in = {.num_sge = 1, .sg = {{buffer, sizeof(buffer)}}};

        CHECK_EQUAL(soft_qp_post_recv(qp, &in, 1), 1);
        CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
        CHECK_EQUAL(soft_cq_poll(own, 1, &wc), 1);
        while (i - sleeper.woken >= 16) /* the CQ must not overflow */
            sched_yield();
    }
    pthread_join(thread, NULL);
    CHECK_EQUAL(sleeper.woken, 1000);
    soft_hca_close(b.hca);
}

static void every_counter_has_a_name_of_its_own(void)
{
    for (int i = 0; i < SOFT_C_COUNT; i++) {
        CHECK(soft_counter_names[i] != NULL && soft_counter_names[i][0] != '\0');
        for (int j = 0; j < i; j++)
            CHECK(strcmp(soft_counter_names[i], soft_counter_names[j]) != 0);
    }
}

static void opening_a_device_that_cannot_be_says_so(void)
{
    struct soft_hca *hca;

    CHECK_EQUAL(soft_hca_open("nosuchdevice0", &hca), -ENODEV);
    CHECK_EQUAL(soft_hca_open("", &hca), -ENODEV);
    CHECK_EQUAL(soft_hca_open("a-name-longer-than-any-device-has", &hca), -ENODEV);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_message_to_ourselves_arrives_behind_its_grh),
        TEST(all_sizes_survive_gather_and_scatter),
        TEST(messages_over_the_mtu_complete_in_error_and_in_order),
        TEST(a_buffer_too_small_drops_and_stays),
        TEST(the_q_key_must_be_the_receivers_and_bit_31_means_our_own),
        TEST(the_p_key_must_match_with_a_full_member_on_one_side),
        TEST(qp1_is_one_per_hca_with_its_q_key_and_all_p_keys),
        TEST(a_full_cq_drops_receives_and_holds_sends_back),
        TEST(invalid_requests_are_refused_where_they_stand),
        TEST(creation_checks_its_limits),
        TEST(destroying_a_qp_flushes_what_is_posted),
        TEST(destroying_a_qp_flushes_sends_that_wait),
        TEST(a_send_without_a_device_is_lost_and_counted),
        TEST(qp_numbers_start_at_random_and_skip_the_reserved),
        TEST(the_qp_table_ends_at_its_limit),
        TEST(each_fault_of_a_packet_has_its_counter),
        TEST(a_group_packet_goes_to_every_attached_qp),
        TEST(many_groups_are_found_and_the_table_ends_at_its_limit),
        TEST(mutated_packets_are_delivered_or_counted_and_nothing_else),
        TEST(an_armed_cq_wakes_once_for_a_completion),
        TEST(completions_made_by_one_thread_wake_another),
        TEST(every_counter_has_a_name_of_its_own),
        TEST(opening_a_device_that_cannot_be_says_so),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
