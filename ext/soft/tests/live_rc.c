/* SPDX-License-Identifier: BSD-2-Clause */
/* Reliable connections between two net devices. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <sys/socket.h>

#include "live.h"

#define CONNECTIONS 8
#define BUFFERS     64
#define BYTES       65524u /* an IP packet of 65520 bytes with the header of IP over InfiniBand */

/* An HCA whose connections share one receive queue. */
struct side {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_srq *srq;
    struct soft_qp *qp[CONNECTIONS];
    uint8_t (*buffer)[BYTES];
    unsigned int path_mtu_bytes;
};

static void post_buffer(struct side *s, uint64_t number)
{
    struct soft_recv_wr wr = {
        .wr_id = number, .num_sge = 1, .sg = {{s->buffer[number], sizeof(s->buffer[number])}}};

    CHECK_EQUAL(soft_srq_post_recv(s->srq, &wr, 1), 1);
}

static void open_side(struct side *s, int which)
{
    struct soft_qp_attr attr = {.type = SOFT_QPT_RC, .max_send_wr = BUFFERS};

    s->hca = open_at(which);
    CHECK_EQUAL(soft_cq_create(s->hca, 4096, &s->cq), 0);
    CHECK_EQUAL(soft_srq_create(s->hca, BUFFERS, &s->srq), 0);
    attr.send_cq = attr.recv_cq = s->cq;
    attr.srq = s->srq;
    for (int i = 0; i < CONNECTIONS; i++)
        CHECK_EQUAL(soft_qp_create(s->hca, &attr, &s->qp[i]), 0);
    s->buffer = malloc(BUFFERS * sizeof(*s->buffer));
    CHECK(s->buffer != NULL);
    for (uint64_t i = 0; i < BUFFERS; i++)
        post_buffer(s, i);
}

static void connect_one(struct side *s, const struct side *peer, int i)
{
    struct soft_rc_attr attr = {
        .path = {.dgid = gid_of(peer->hca)},
        .dest_qpn = soft_qp_qpn(peer->qp[i]),
        .rq_psn = 0xfffffe,
        .path_mtu_bytes = s->path_mtu_bytes,
        .min_rnr_timer = 12,
        .sq_psn = 0xfffffe,
        .timeout = 13, /* 34 ms: under the sanitizers all is slow */
        .retry_count = 7,
        .rnr_retry = 7,
    };

    CHECK_EQUAL(soft_qp_modify(s->qp[i], SOFT_QPS_INIT, NULL), 0);
    CHECK_EQUAL(soft_qp_modify(s->qp[i], SOFT_QPS_RTR, &attr), 0);
    CHECK_EQUAL(soft_qp_modify(s->qp[i], SOFT_QPS_RTS, &attr), 0);
}

static void open_sides_with(struct side *a, struct side *b, unsigned int path_mtu_bytes)
{
    open_side(a, 0);
    open_side(b, 1);
    a->path_mtu_bytes = b->path_mtu_bytes = path_mtu_bytes;
    for (int i = 0; i < CONNECTIONS; i++) {
        connect_one(a, b, i);
        connect_one(b, a, i);
    }
}

static void open_sides(struct side *a, struct side *b)
{
    open_sides_with(a, b, 4096);
}

static void close_side(struct side *s)
{
    soft_hca_close(s->hca);
    free(s->buffer);
}

static void post_message(struct side *s, int connection, uint8_t *data, uint32_t bytes,
                         uint64_t number)
{
    struct soft_send_wr wr = {.wr_id = number,
                              .flags = SOFT_SEND_SIGNALED | SOFT_SEND_WITH_IMM,
                              .imm_data = (uint32_t)number,
                              .num_sge = 1,
                              .sg = {{data, bytes}}};

    CHECK_EQUAL(soft_qp_post_send(s->qp[connection], &wr, 1), 1);
}

/* Makes message `number` of a connection; its bytes follow from both numbers. */
static uint8_t *make_message(int connection)
{
    uint8_t *data = malloc(BYTES);

    CHECK(data != NULL);
    for (uint32_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 7 + i / 251 + (uint32_t)connection);
    return data;
}

/* `messages` on each connection, taken in order; both sides polled by turns. */
static void stream(struct side *a, struct side *b, uint64_t messages)
{
    uint64_t posted[CONNECTIONS] = {0}, done[CONNECTIONS] = {0}, got[CONNECTIONS] = {0};
    uint64_t total = 0;
    uint8_t *data[CONNECTIONS];
    int64_t end_ms = now_ms() + 60000;
    struct soft_wc wc[16];

    for (int i = 0; i < CONNECTIONS; i++)
        data[i] = make_message(i);
    while (total < 2 * messages * CONNECTIONS) {
        int n;

        CHECK(now_ms() < end_ms);
        for (int i = 0; i < CONNECTIONS; i++)
            for (; posted[i] < messages && posted[i] < done[i] + 16; posted[i]++)
                post_message(a, i, data[i], BYTES - (uint32_t)(posted[i] % 3), posted[i]);
        n = soft_cq_poll(a->cq, 16, wc);
        for (int j = 0, i; j < n; j++) {
            CHECK_EQUAL(wc[j].status, SOFT_WC_SUCCESS);
            for (i = 0; soft_qp_qpn(a->qp[i]) != wc[j].qp_num; i++)
                continue;
            CHECK_EQUAL(wc[j].wr_id, done[i]++);
            total++;
        }
        n = soft_cq_poll(b->cq, 16, wc);
        for (int j = 0, i; j < n; j++) {
            CHECK_EQUAL(wc[j].status, SOFT_WC_SUCCESS);
            for (i = 0; soft_qp_qpn(b->qp[i]) != wc[j].qp_num; i++)
                continue;
            CHECK_EQUAL(wc[j].imm_data, got[i]);
            CHECK_EQUAL(wc[j].byte_len, BYTES - got[i] % 3);
            CHECK(memcmp(b->buffer[wc[j].wr_id], data[i], wc[j].byte_len) == 0);
            got[i]++;
            total++;
            post_buffer(b, wc[j].wr_id);
        }
    }
    for (int i = 0; i < CONNECTIONS; i++)
        free(data[i]);
}

static void reliable_messages_cross_as_trains_and_in_order(void)
{
    struct side a, b;

    open_sides(&a, &b);
    stream(&a, &b, 40);
    CHECK(counter(a.hca, SOFT_C_TX_SUPER) > 0);
    CHECK(counter(a.hca, SOFT_C_TX_PACKETS) > 8 * counter(a.hca, SOFT_C_TX_CALLS));
    CHECK(counter(b.hca, SOFT_C_RX_PACKETS) > 4 * counter(b.hca, SOFT_C_RC_ACKS));
    CHECK_EQUAL(counter(b.hca, SOFT_C_DROP_SOCKET), 0);
    close_side(&a);
    close_side(&b);
}

static void packets_may_be_as_long_as_the_wire_takes_them(void)
{
    struct soft_hca_attr attr;
    struct side a, b;
    uint64_t packets;

    open_side(&a, 0);
    soft_hca_query(a.hca, &attr);
    close_side(&a);
    CHECK(attr.datagram_bytes > 8192);
    open_sides_with(&a, &b, attr.datagram_bytes);
    stream(&a, &b, 40);
    packets = (BYTES + attr.datagram_bytes - 1) / attr.datagram_bytes;
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_PACKETS),
                40 * CONNECTIONS * packets + counter(a.hca, SOFT_C_RC_RETRANSMITS));
    close_side(&a);
    close_side(&b);
}

static void a_socket_that_overflows_costs_packets_and_no_message(void)
{
    struct side a, b;
    int bytes = 100000; /* less than a few messages, for eight connections */

    open_sides(&a, &b);
    CHECK_EQUAL(setsockopt(soft_udp_fd(b.hca->udp), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)),
                0);
    stream(&a, &b, 20);
    CHECK(counter(b.hca, SOFT_C_DROP_SOCKET) > 0);
    CHECK(counter(a.hca, SOFT_C_RC_RETRANSMITS) > 0);
    close_side(&a);
    close_side(&b);
}

static void a_reliable_peer_killed_under_load_is_noticed_and_reconnected(void)
{
    uint8_t *data = make_message(0);
    int64_t end_ms = now_ms() + 30000;
    struct side a, b;
    struct soft_wc wc;
    int errors = 0;

    open_sides(&a, &b);
    for (uint64_t i = 0; i < BUFFERS; i++)
        post_message(&a, 0, data, BYTES, i);
    CHECK(soft_hca_progress(b.hca) > 0);
    close_side(&b); /* in the middle of it */
    open_side(&b, 1);
    while (errors == 0) {
        CHECK(now_ms() < end_ms);
        (void)soft_hca_progress(b.hca);
        if (soft_cq_poll(a.cq, 1, &wc) == 0) {
            sched_yield();
            continue;
        }
        errors += wc.status == SOFT_WC_RETRY_EXC_ERR;
        CHECK(wc.status == SOFT_WC_SUCCESS || errors == 1);
    }
    while (soft_cq_poll(a.cq, 1, &wc) == 1)
        CHECK_EQUAL(wc.status, SOFT_WC_WR_FLUSH_ERR);
    for (int i = 0; i < CONNECTIONS; i++) {
        CHECK_EQUAL(soft_qp_modify(a.qp[i], SOFT_QPS_RESET, NULL), 0);
        connect_one(&a, &b, i);
        connect_one(&b, &a, i);
    }
    stream(&a, &b, 4);
    close_side(&a);
    close_side(&b);
    free(data);
}

/* For tshark and scapy: a short message, one of three packets, one that finds no buffer. */
static void known_reliable_messages_for_a_capture(void)
{
    uint8_t *data = make_message(0);
    struct side a, b;
    struct soft_wc wc;
    uint32_t mtu;

    open_sides(&a, &b);
    mtu = mtu_of(a.hca);
    printf("qpn %x %x\n", soft_qp_qpn(a.qp[0]), soft_qp_qpn(b.qp[0]));
    post_message(&a, 0, data, 3, 0x01020304);
    await(b.cq, 1, &wc);
    await(a.cq, 1, &wc);
    post_message(&a, 0, data, 2 * mtu + 1, 0x05060708);
    await(b.cq, 1, &wc);
    await(a.cq, 1, &wc);
    CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
    while (b.srq->rq.head != b.srq->rq.tail) /* no buffers left: receiver not ready */
        b.srq->rq.head++;
    post_message(&a, 0, data, 4, 0);
    await_counter(b.hca, SOFT_C_RC_NOT_READY, 1);
    close_side(&b);
    close_side(&a);
    free(data);
}

const struct test live_rc[] = {
    TEST(reliable_messages_cross_as_trains_and_in_order),
    TEST(packets_may_be_as_long_as_the_wire_takes_them),
    TEST(a_socket_that_overflows_costs_packets_and_no_message),
    TEST(a_reliable_peer_killed_under_load_is_noticed_and_reconnected),
    TEST(known_reliable_messages_for_a_capture),
    {NULL, NULL},
};
