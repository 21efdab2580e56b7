/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages from one QP to another, and the keys that admit them. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "bench.h"

/* ---- messages -------------------------------------------------------------------------------- */

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
    wr[1].flags = 0; /* errors complete even unsignalled */
    wr[2] = send_wr(&b, qp, 2, data, 1);
    wr[2].flags = 0;
    wr[3] = send_wr(&b, qp, 3, data, 0x80000000u);
    wr[3].num_sge = 2;
    wr[3].sg[1] = wr[3].sg[0]; /* the sum is 2^32 and must not look like 0 */
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

/* ---- keys ------------------------------------------------------------------------------------ */

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
    struct soft_qp_attr attr = {SOFT_QPT_GSI, b.cq, b.cq, 1, 1, 0, 0, NULL, 0, 0};
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
    wr.pkey_index = 2; /* past the end of the table */
    send_one(&b, gsi, &wr);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_PKEY), 1);
    wr.pkey_index = 0;
    send_one(&b, gsi, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    soft_qp_destroy(gsi);
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &other), 0);
    CHECK_EQUAL(soft_qp_qpn(other), 1);
    soft_hca_close(b.hca);
}

/* ---- TX queues
 * ----------------------------------------------------------------------------------- */

static void a_tx_queue_sends_as_the_queue_pair_that_it_names(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *main_qp = create_ud(&b), *qp;
    struct soft_hca *tx_queue;
    struct soft_cq *cq;
    struct soft_ah *ah;
    struct soft_ah_attr to_us = {.dgid = b.hca->attr.gid};
    uint8_t buffer[64];
    struct soft_wc wc;

    CHECK_EQUAL(soft_hca_open_tx_queue(b.hca, 0x8001, &tx_queue), 0);
    CHECK_EQUAL(soft_cq_create(tx_queue, 4, &cq), 0);
    struct soft_qp_attr attr = {.type = SOFT_QPT_UD,
                                .send_cq = cq,
                                .recv_cq = cq,
                                .max_send_wr = 4,
                                .max_recv_wr = 1,
                                .source_qpn = soft_qp_qpn(main_qp)};
    CHECK_EQUAL(soft_qp_create(tx_queue, &attr, &qp), 0);
    CHECK_EQUAL(soft_ah_create(tx_queue, &to_us, &ah), 0);
    struct soft_send_wr wr = send_wr(&b, main_qp, 7, "hi", 2);
    wr.ah = ah;
    post_recv(main_qp, 42, buffer, sizeof(buffer));
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_PKEY), 1); /* the TX queue's own table has another */
    CHECK_EQUAL(soft_cq_poll(cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 7);
    uint16_t pkey = SOFT_PKEY_DEFAULT;
    CHECK_EQUAL(soft_hca_set_pkeys(tx_queue, &pkey, 1), 0);
    struct pollfd ready = {.fd = soft_cq_fd(b.cq), .events = POLLIN};
    soft_cq_arm(b.cq);
    CHECK_EQUAL(poll(&ready, 1, 0), 0);
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    CHECK_EQUAL(poll(&ready, 1, 0), 1); /* a thread that sleeps on the queue pair wakes up */
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 42);
    CHECK_EQUAL(wc.src_qp, soft_qp_qpn(main_qp));
    CHECK_EQUAL(memcmp(buffer + 40, "hi", 2), 0);
    CHECK_EQUAL(soft_cq_poll(cq, 1, &wc), 1);
    CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
    soft_hca_close(tx_queue);
    soft_hca_close(b.hca);
}

enum { TX_QUEUES = 2, QUEUE_MESSAGES = 2000 };

struct queue_sender {
    const struct bench *b;
    struct soft_qp *as;
    atomic_int *running;
};

static void *send_by_tx_queue(void *arg)
{
    const struct queue_sender *sender = arg;
    struct soft_ah_attr to_us = {.dgid = own_gid};
    struct soft_hca *tx_queue;
    struct soft_cq *cq;
    struct soft_qp *qp;
    struct soft_ah *ah;
    struct soft_wc wc;

    CHECK_EQUAL(soft_hca_open_tx_queue(sender->b->hca, SOFT_PKEY_DEFAULT, &tx_queue), 0);
    CHECK_EQUAL(soft_cq_create(tx_queue, 4, &cq), 0);
    CHECK_EQUAL(soft_ah_create(tx_queue, &to_us, &ah), 0);
    struct soft_qp_attr attr = {.type = SOFT_QPT_UD,
                                .send_cq = cq,
                                .recv_cq = cq,
                                .max_send_wr = 4,
                                .max_recv_wr = 1,
                                .source_qpn = soft_qp_qpn(sender->as)};
    CHECK_EQUAL(soft_qp_create(tx_queue, &attr, &qp), 0);
    for (unsigned int i = 0; i < QUEUE_MESSAGES; i++) {
        struct soft_send_wr wr = send_wr(sender->b, sender->as, i, "tx_queue", 4);

        wr.ah = ah;
        CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
        CHECK_EQUAL(soft_cq_poll(cq, 1, &wc), 1);
        CHECK_EQUAL(wc.wr_id, i);
    }
    soft_hca_close(tx_queue);
    atomic_fetch_sub(sender->running, 1);
    return NULL;
}

static void threads_with_a_tx_queue_each_deliver_to_one_queue_pair(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct pollfd ready = {.fd = soft_cq_fd(b.cq), .events = POLLIN};
    atomic_int running = TX_QUEUES;
    struct queue_sender sender = {&b, qp, &running};
    pthread_t threads[TX_QUEUES];
    uint8_t buffers[16][64];
    uint64_t received = 0;
    struct soft_wc wc;

    for (unsigned int i = 0; i < 16; i++)
        post_recv(qp, i, buffers[i], sizeof(buffers[i]));
    for (int i = 0; i < TX_QUEUES; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, send_by_tx_queue, &sender), 0);
    for (;;) {
        bool last = atomic_load(&running) == 0; /* before the poll: then no more will come */

        if (soft_cq_poll(b.cq, 1, &wc) == 1) {
            CHECK_EQUAL(wc.src_qp, soft_qp_qpn(qp));
            CHECK_EQUAL(wc.byte_len, 44);
            post_recv(qp, wc.wr_id, buffers[wc.wr_id], sizeof(buffers[0]));
            received++;
        } else if (last) {
            break;
        } else {
            soft_cq_arm(b.cq);
            (void)poll(&ready, 1, 1);
        }
    }
    for (int i = 0; i < TX_QUEUES; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQUAL(received, counter(&b, SOFT_C_RX_DELIVERED));
    CHECK_EQUAL(received + counter(&b, SOFT_C_DROP_NO_BUFFER), TX_QUEUES * QUEUE_MESSAGES);
    soft_hca_close(b.hca);
}

static void a_source_of_more_than_24_bits_is_refused(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp_attr attr = {.type = SOFT_QPT_UD,
                                .send_cq = b.cq,
                                .recv_cq = b.cq,
                                .max_send_wr = 1,
                                .max_recv_wr = 1,
                                .source_qpn = 1u << 24};
    struct soft_qp *qp;

    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), -EINVAL);
    soft_hca_close(b.hca);
}

static void a_further_number_is_one_more_queue_pair_to_peers(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b), *peer = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, peer, 1, "to", 2);
    uint32_t own = soft_qp_qpn(qp), wanted = own == 0x777 ? 0x778 : 0x777, number, other;
    uint8_t buffer[64];
    struct soft_wc wc;

    CHECK_EQUAL(soft_qp_add_number(qp, wanted, &number), 0);
    CHECK_EQUAL(number, wanted);
    CHECK_EQUAL(soft_qp_add_number(qp, wanted, &other), 0); /* it is taken: the next free one */
    CHECK(other != wanted && other != own && other != soft_qp_qpn(peer));
    post_recv(peer, 42, buffer, sizeof(buffer));
    wr.source_qpn = number;
    send_one(&b, qp, &wr);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.src_qp, number);
    for (int i = 0; i < 3; i++) {
        post_recv(qp, 50 + i, buffer, sizeof(buffer));
        wr = send_wr(&b, qp, 2, "fro", 3);
        wr.remote_qpn = i == 0 ? own : i == 1 ? number : other;
        send_one(&b, peer, &wr);
        CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
        CHECK_EQUAL(wc.wr_id, 50 + i);
        CHECK_EQUAL(wc.qp_num, wr.remote_qpn);
        CHECK_EQUAL(wc.src_qp, soft_qp_qpn(peer));
    }
    wr.remote_qkey = QKEY + 1; /* the key is the queue pair's */
    send_one(&b, peer, &wr);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QKEY), 1);
    soft_qp_destroy(qp);
    wr.remote_qkey = QKEY;
    send_one(&b, peer, &wr);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QPN), 1);
    CHECK_EQUAL(soft_qp_add_number(create_qp(&b, SOFT_QPT_RC, 0, QKEY), 0, &number), -EINVAL);
    wr.source_qpn = 0x1000000;
    CHECK_EQUAL(soft_qp_post_send(peer, &wr, 1), -EINVAL);
    soft_hca_close(b.hca);
}

static void further_numbers_count_as_queue_pairs(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b), *again;
    uint32_t number;

    for (int i = 1; i < SOFT_MAX_QP; i++)
        CHECK_EQUAL(soft_qp_add_number(qp, 0, &number), 0);
    CHECK_EQUAL(soft_qp_add_number(qp, 0, &number), -ENOSPC);
    soft_qp_destroy(qp);
    again = create_ud(&b);
    CHECK_EQUAL(soft_qp_add_number(again, 0, &number), 0);
    soft_hca_close(b.hca); /* it takes the number along */
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
        TEST(a_tx_queue_sends_as_the_queue_pair_that_it_names),
        TEST(threads_with_a_tx_queue_each_deliver_to_one_queue_pair),
        TEST(a_source_of_more_than_24_bits_is_refused),
        TEST(a_further_number_is_one_more_queue_pair_to_peers),
        TEST(further_numbers_count_as_queue_pairs),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
