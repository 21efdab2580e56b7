/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages over the wire. */
#include "ipv4.h"
#include "live.h"
#include "outlet.h"

/* ---- messages -------------------------------------------------------------------------------- */

static void messages_of_all_sizes_arrive_with_their_grh(void)
{
    static uint8_t data[4096];
    uint64_t random = 11;
    struct end a, b;

    open_both(&a, &b);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)next_random(&random);
    for (unsigned int len = 0; len <= mtu_of(a.hca); len += len < 20 ? 1 : 509) {
        struct in6_addr sgid = gid_of(a.hca), dgid = gid_of(b.hca);
        struct soft_ah_attr attr = {.dgid = dgid, .hop_limit = 3, .traffic_class = 0x28};
        struct soft_send_wr wr = message(NULL, soft_qp_qpn(b.qp), data, len);
        const uint8_t *grh;
        struct soft_wc wc;

        attr.flow_label = len % 2 ? 0xabcde : 0;
        CHECK_EQUAL(soft_ah_create(a.hca, &attr, &wr.ah), 0);
        wr.wr_id = len;
        wr.flags = SOFT_SEND_SIGNALED | SOFT_SEND_WITH_IMM;
        wr.imm_data = len * 3;
        CHECK_EQUAL(soft_qp_post_send(a.qp, &wr, 1), 1);
        soft_ah_destroy(wr.ah);
        await(a.cq, 1, &wc);
        CHECK_EQUAL(wc.opcode, SOFT_WC_SEND);
        CHECK_EQUAL(wc.wr_id, len);
        CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
        await(b.cq, 1, &wc);
        CHECK_EQUAL(wc.opcode, SOFT_WC_RECV);
        CHECK_EQUAL(wc.byte_len, 40 + len);
        CHECK_EQUAL(wc.src_qp, soft_qp_qpn(a.qp));
        CHECK_EQUAL(wc.qp_num, soft_qp_qpn(b.qp));
        CHECK_EQUAL(wc.imm_data, len * 3);
        grh = b.frame[wc.wr_id];
        CHECK_EQUAL(soft_roce_get32(grh) >> 20, 0x628); /* version 6, traffic class */
        if (attr.flow_label != 0 && !soft_is_ipv4(&sgid))
            CHECK_EQUAL(soft_roce_get32(grh) & 0xfffff, 0xabcde);
        CHECK_EQUAL(soft_roce_get32(grh + 4), ((28 + (len + 3) / 4 * 4) << 16 | 0x1b00 | 3));
        CHECK(memcmp(grh + 8, &sgid, 16) == 0 && memcmp(grh + 24, &dgid, 16) == 0);
        CHECK(memcmp(grh + 40, data, len) == 0);
    }
    exchange(&a, &b);
    CHECK_EQUAL(counter(b.hca, SOFT_C_DROP_ICRC), 0);
    close_both(&a, &b);
}

/* Bursts of equal and of mixed sizes: trains on the wire, order and content intact. */
static void bursts_travel_as_trains(void)
{
    enum { COUNT = 2100, BATCH = 300 }; /* more than one system call takes at a time */
    static uint8_t data[COUNT][256];
    static struct soft_wc wc[COUNT];
    struct soft_send_wr wr[BATCH];
    uint64_t random = 5;
    struct end a, b;
    uint32_t size[COUNT];

    open_both(&a, &b);
    exchange(&a, &b); /* the kernel keeps only a few packets for an unresolved neighbour */
    for (int i = 0; i < COUNT; i++) {
        /* runs of equal size, now and then one that is shorter (ends a train) or longer (begins
         * one) */
        size[i] = i < COUNT / 2 || next_random(&random) % 4
                      ? 200
                      : (uint32_t)(next_random(&random) % 257);
        for (uint32_t j = 0; j < size[i]; j++)
            data[i][j] = (uint8_t)next_random(&random);
    }
    for (int i = 0; i < COUNT; i += BATCH) {
        for (int j = 0; j < BATCH; j++) {
            wr[j] = message(a.peer, soft_qp_qpn(b.qp), data[i + j], size[i + j]);
            wr[j].wr_id = (uint64_t)(i + j);
            wr[j].flags = j == BATCH - 1 ? SOFT_SEND_SIGNALED : 0;
        }
        CHECK_EQUAL(soft_qp_post_send(a.qp, wr, BATCH), BATCH);
        await(a.cq, 1, wc);
        CHECK_EQUAL(wc[0].wr_id, i + BATCH - 1);
    }
    await(b.cq, COUNT, wc);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQUAL(wc[i].wr_id, i + 1); /* frame 0 has been used before */
        CHECK_EQUAL(wc[i].byte_len, 40 + size[i]);
        CHECK(memcmp(b.frame[i + 1] + 40, data[i], size[i]) == 0);
    }
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_PACKETS), COUNT + 1);
    CHECK(counter(a.hca, SOFT_C_TX_CALLS) <= 1 + 2 * COUNT / BATCH);
    CHECK(counter(a.hca, SOFT_C_TX_SUPER) >= COUNT / 2 / 64);
    CHECK_EQUAL(counter(b.hca, SOFT_C_DROP_ICRC), 0);
    printf("tx_super %llu rx_super %llu rx_calls %llu\n",
           (unsigned long long)counter(a.hca, SOFT_C_TX_SUPER),
           (unsigned long long)counter(b.hca, SOFT_C_RX_SUPER),
           (unsigned long long)counter(b.hca, SOFT_C_RX_CALLS));
    close_both(&a, &b);
}

/* The kernel's limits for a train are 64 packets and 65507 bytes. */
static void trains_are_as_long_as_the_kernel_takes_them(void)
{
    static const struct {
        uint32_t bytes, messages, trains;
    } cases[] = {
        {100, 256, 4},  /* 64 each */
        {4096, 64, 5},  /* 15 of 4120 bytes each, and 4 */
        {1000, 127, 2}, /* 63 of 1024 bytes each, and one by itself */
    };
    static uint8_t data[4096];
    struct soft_send_wr wr[256];
    struct soft_wc wc[256];
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    for (int i = 0; i < 3; i++) {
        uint64_t trains = counter(a.hca, SOFT_C_TX_SUPER), calls = counter(a.hca, SOFT_C_TX_CALLS);
        int n = (int)cases[i].messages;

        for (int j = 0; j < n; j++)
            wr[j] = message(a.peer, soft_qp_qpn(b.qp), data, cases[i].bytes);
        CHECK_EQUAL(soft_qp_post_send(a.qp, wr, n), n);
        await(b.cq, n, wc);
        CHECK_EQUAL(counter(a.hca, SOFT_C_TX_SUPER), trains + cases[i].trains);
        CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CALLS), calls + 1);
    }
    close_both(&a, &b);
}

/* The same size to two destinations by turns: one batch, but no trains. */
static void a_batch_may_go_to_several_destinations(void)
{
    struct in6_addr group = group_number(0);
    struct soft_send_wr wr[8];
    struct soft_wc wc[8];
    struct soft_ah *ah;
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    ah = ah_to(a.hca, group);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    leave();
    for (int i = 0; i < 8; i++)
        wr[i] = i % 2 ? message(ah, SOFT_QPN_MCAST, "group", 5)
                      : message(a.peer, soft_qp_qpn(b.qp), "alone", 5);
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 8), 8);
    await(b.cq, 8, wc);
    for (int i = 0; i < 8; i++) {
        const uint8_t *frame = b.frame[wc[i].wr_id];

        CHECK(memcmp(frame + 40, i % 2 ? "group" : "alone", 5) == 0);
        CHECK_EQUAL(frame[24], i % 2 ? 0xff : 0xfe);
    }
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_SUPER), 0);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CALLS), 2);
    close_both(&a, &b);
}

/* Completion queues much narrower than the traffic, at both ends: it waits, and none is lost. */
static void narrow_completion_queues_slow_down_and_lose_nothing(void)
{
    struct soft_cq *send_cq, *recv_cq;
    struct soft_qp *from, *to;
    struct soft_send_wr wr[16];
    struct soft_wc wc[16];
    struct end a, b;
    int sent = 0, received = 0;

    open_both(&a, &b);
    exchange(&a, &b);
    CHECK_EQUAL(soft_cq_create(a.hca, 3, &send_cq), 0);
    CHECK_EQUAL(soft_cq_create(b.hca, 4, &recv_cq), 0);
    from = qp_on(a.hca, send_cq, 16);
    to = qp_on(b.hca, recv_cq, 16);
    for (int i = 0; i < 16; i++) {
        post(to, 3000 + (uint64_t)i, b.frame[3000 + i], FRAME);
        wr[i] = message(a.peer, soft_qp_qpn(to), &wr[i], 8);
        wr[i].flags = SOFT_SEND_SIGNALED;
        wr[i].wr_id = (uint64_t)i;
    }
    CHECK_EQUAL(soft_qp_post_send(from, wr, 16), 16);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_PACKETS), 1 + 3);
    for (int n; sent < 16; sent += n) {
        await(send_cq, 1, wc);
        n = 1 + soft_cq_poll(send_cq, 15, wc + 1);
        for (int i = 0; i < n; i++)
            CHECK_EQUAL(wc[i].wr_id, sent + i);
    }
    for (int n; received < 16; received += n) {
        await(recv_cq, 1, wc);
        n = 1 + soft_cq_poll(recv_cq, 15, wc + 1);
        for (int i = 0; i < n; i++)
            CHECK_EQUAL(wc[i].wr_id, 3000 + received + i);
    }
    CHECK_EQUAL(counter(b.hca, SOFT_C_DROP_CQ_FULL), 0);
    close_both(&a, &b);
}

static void messages_within_one_hca_need_no_wire(void)
{
    struct end a = open_end(0);
    struct soft_qp *other = qp_on(a.hca, a.cq, 4);
    struct soft_ah *self = ah_to(a.hca, gid_of(a.hca));
    struct soft_wc wc;

    send_to(&a, self, soft_qp_qpn(a.qp), "me", 2);
    await(a.cq, 1, &wc);
    CHECK_EQUAL(wc.qp_num, soft_qp_qpn(a.qp));
    CHECK_EQUAL(wc.byte_len, 42);
    post(other, 99, a.frame[0], FRAME);
    send_to(&a, self, soft_qp_qpn(other), "you", 3);
    await(a.cq, 1, &wc);
    CHECK_EQUAL(wc.qp_num, soft_qp_qpn(other));
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CALLS), 0);
    close_end(&a);
}

static void many_qps_get_what_is_theirs(void)
{
    enum { QPS = 100 };
    struct soft_qp *qp[QPS];
    uint8_t buffer[QPS][64];
    struct soft_wc wc[QPS];
    struct end a, b;

    open_both(&a, &b);
    for (int i = 0; i < QPS; i++) {
        qp[i] = qp_on(b.hca, b.cq, 4);
        post(qp[i], 1000 + (uint64_t)i, buffer[i], sizeof(buffer[i]));
    }
    for (int i = 0; i < QPS; i++)
        send_to(&a, a.peer, soft_qp_qpn(qp[i]), &i, sizeof(i));
    await(b.cq, QPS, wc);
    for (int i = 0; i < QPS; i++) {
        int got;

        CHECK_EQUAL(wc[i].wr_id, 1000 + i);
        CHECK_EQUAL(wc[i].qp_num, soft_qp_qpn(qp[i]));
        memcpy(&got, buffer[i] + 40, sizeof(got));
        CHECK_EQUAL(got, i);
    }
    close_both(&a, &b);
}

/* Each flow is a train of its own, however its messages mix with others, and keeps its order. */
static void a_flow_keeps_its_port_and_its_order(void)
{
    enum { FLOWS = SOFT_UDP_OUTLETS, COUNT = 8 * FLOWS };
    struct soft_send_wr wr[COUNT];
    struct soft_wc wc[COUNT];
    int data[COUNT], next[FLOWS] = {0};
    uint64_t trains;
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    trains = counter(a.hca, SOFT_C_TX_SUPER);
    for (int i = 0; i < COUNT; i++) {
        data[i] = i;
        wr[i] = message(a.peer, soft_qp_qpn(b.qp), &data[i], sizeof(data[i]));
        wr[i].flow = (uint32_t)i; /* the number modulo the outlets counts */
        CHECK(soft_udp_outlet_port(a.hca->udp, (unsigned int)i % FLOWS) >= SOFT_UDP_OUTLET_PORT);
    }
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, COUNT), COUNT);
    await(b.cq, COUNT, wc);
    for (int i = 0; i < COUNT; i++) {
        int got;

        memcpy(&got, b.frame[wc[i].wr_id] + 40, sizeof(got));
        CHECK_EQUAL(got / FLOWS, next[got % FLOWS]++);
    }
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_SUPER) - trains, FLOWS);
    CHECK_EQUAL(counter(b.hca, SOFT_C_DROP_ICRC), 0);
    close_both(&a, &b);
}

static void send_batches(struct end *a, struct end *b, struct soft_ah *ah, int n)
{
    struct soft_wc wc;

    for (int i = 0; i < n; i++) {
        send_to(a, ah, soft_qp_qpn(b->qp), &i, sizeof(i));
        await(b->cq, 1, &wc);
        CHECK_EQUAL(wc.src_qp, soft_qp_qpn(a->qp));
        CHECK(memcmp(b->frame[wc.wr_id] + 40, &i, sizeof(i)) == 0);
        CHECK(memcmp(b->frame[wc.wr_id] + 8, &a->hca->attr.gid, 16) == 0);
        CHECK_EQUAL(b->frame[wc.wr_id][7], ah->dest.hop_limit);
        CHECK_EQUAL((b->frame[wc.wr_id][0] << 4 | b->frame[wc.wr_id][1] >> 4) & 0xff,
                    ah->dest.traffic_class);
    }
}

/* Two handles of one GID stand for two hosts. Neither turns alone connect an outlet, nor do they
 * end a connection; and each message has the hop limit of its handle. */
static void an_outlet_is_connected_to_the_host_that_its_batches_go_to(void)
{
    struct soft_ah_attr near = {.hop_limit = 7}, marked = {.traffic_class = 4};
    struct soft_ah *other, *classed;
    struct end a, b;

    open_both(&a, &b);
    near.dgid = marked.dgid = gid_of(b.hca);
    CHECK_EQUAL(soft_ah_create(a.hca, &near, &other), 0);
    CHECK_EQUAL(soft_ah_create(a.hca, &marked, &classed), 0);
    for (int i = 0; i < 2 * SOFT_OUTLET_RUN; i++) {
        send_batches(&a, &b, a.peer, 1);
        send_batches(&a, &b, other, 1);
    }
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CONNECTS), 0);
    send_batches(&a, &b, a.peer, SOFT_OUTLET_RUN);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CONNECTS), 1);
    for (int i = 0; i < 2 * SOFT_OUTLET_RUN; i++) {
        send_batches(&a, &b, a.peer, 1);
        send_batches(&a, &b, other, 1);
        send_batches(&a, &b, classed, 1);
    }
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CONNECTS), 1);
    send_batches(&a, &b, other, SOFT_OUTLET_RUN);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CONNECTS), 2);
    send_batches(&a, &b, classed, 2 * SOFT_OUTLET_RUN);
    send_batches(&a, &b, a.peer, 1);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_CONNECTS), 2);
    CHECK_EQUAL(counter(b.hca, SOFT_C_DROP_ICRC), 0);
    soft_ah_destroy(other);
    soft_ah_destroy(classed);
    close_both(&a, &b);
}

/* A TX queue's packets leave from ports of its own, in the name of the queue pair that it names. */
static void a_tx_queue_sends_over_outlets_of_its_own(void)
{
    struct soft_hca *tx_queue;
    struct soft_cq *cq;
    struct soft_qp *qp;
    struct soft_ah *ah;
    struct soft_wc wc;
    struct end a, b;

    open_both(&a, &b);
    enter(place[0].netns);
    CHECK_EQUAL(soft_hca_open_tx_queue(a.hca, SOFT_PKEY_DEFAULT, &tx_queue), 0);
    leave();
    for (unsigned int i = 0; i < SOFT_UDP_OUTLETS; i++)
        CHECK(soft_udp_outlet_port(tx_queue->udp, i) >
              soft_udp_outlet_port(a.hca->udp, SOFT_UDP_OUTLETS - 1));
    CHECK_EQUAL(soft_cq_create(tx_queue, 4, &cq), 0);
    struct soft_qp_attr attr = {.type = SOFT_QPT_UD,
                                .send_cq = cq,
                                .recv_cq = cq,
                                .max_send_wr = 4,
                                .max_recv_wr = 1,
                                .qkey = QKEY,
                                .source_qpn = soft_qp_qpn(a.qp)};
    CHECK_EQUAL(soft_qp_create(tx_queue, &attr, &qp), 0);
    ah = ah_to(tx_queue, gid_of(b.hca));
    struct soft_send_wr wr = message(ah, soft_qp_qpn(b.qp), "hi", 2);
    wr.flags = SOFT_SEND_SIGNALED;
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    await(cq, 1, &wc);
    CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
    await(b.cq, 1, &wc);
    CHECK_EQUAL(wc.src_qp, soft_qp_qpn(a.qp));
    CHECK(memcmp(b.frame[wc.wr_id] + 40, "hi", 2) == 0);
    soft_ah_destroy(ah);
    soft_hca_close(tx_queue);
    exchange(&a, &b);
    close_both(&a, &b);
}

const struct test live_messages[] = {
    TEST(messages_of_all_sizes_arrive_with_their_grh),
    TEST(bursts_travel_as_trains),
    TEST(trains_are_as_long_as_the_kernel_takes_them),
    TEST(a_batch_may_go_to_several_destinations),
    TEST(narrow_completion_queues_slow_down_and_lose_nothing),
    TEST(messages_within_one_hca_need_no_wire),
    TEST(many_qps_get_what_is_theirs),
    TEST(a_flow_keeps_its_port_and_its_order),
    TEST(an_outlet_is_connected_to_the_host_that_its_batches_go_to),
    TEST(a_tx_queue_sends_over_outlets_of_its_own),
    {NULL, NULL},
};
