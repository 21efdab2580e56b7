/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that the HCA cuts into datagrams. */
#include <errno.h>

#include "rc_bench.h"

#define QKEY    0x0b1bu
#define BUFFERS 4096
#define BYTES   1000

static uint8_t buffer[BUFFERS][SOFT_GRH_BYTES + BYTES];

/* Two ends with a UD QP each. */
struct link {
    struct pair pair;
    struct soft_ah *ah; /* from the first end to the second */
};

static struct soft_qp *create_ud(struct end *e)
{
    struct soft_qp_attr attr = {
        .type = SOFT_QPT_UD,
        .send_cq = e->cq,
        .recv_cq = e->cq,
        .max_send_wr = END_WRS,
        .max_recv_wr = BUFFERS,
        .qkey = QKEY,
    };
    struct soft_qp *qp;

    CHECK_EQUAL(soft_qp_create(e->hca, &attr, &qp), 0);
    return qp;
}

static void open_link(struct link *link)
{
    struct end *end = link->pair.end;
    struct soft_ah_attr to;

    open_ends(&link->pair);
    to = (struct soft_ah_attr){.dgid = end[1].hca->attr.gid};
    CHECK_EQUAL(soft_ah_create(end[0].hca, &to, &link->ah), 0);
    for (int i = 0; i < 2; i++)
        end[i].qp = create_ud(&end[i]);
    for (unsigned int i = 0; i < BUFFERS; i++)
        receive_one(end[1].qp, i, buffer[i], sizeof(buffer[i]));
}

static void close_link(struct link *link)
{
    soft_ah_destroy(link->ah);
    close_pair(&link->pair);
}

/* What a request is made from: each datagram has its number, and then bytes that follow from it. */
struct source {
    uint32_t first, packets, bytes, last_bytes;
};

static void fill(uint8_t *to, uint32_t number, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(number >> 8 * (i % 4));
}

static uint32_t make(const void *context, uint32_t k, uint8_t *to)
{
    const struct source *source = context;
    uint32_t bytes = k + 1 < source->packets ? source->bytes : source->last_bytes;

    CHECK(k < source->packets);
    fill(to, source->first + k, bytes);
    return bytes;
}

static struct soft_send_wr request_of(const struct link *link, const struct source *source)
{
    return (struct soft_send_wr){
        .wr_id = source->first,
        .ah = link->ah,
        .remote_qpn = soft_qp_qpn(link->pair.end[1].qp),
        .remote_qkey = QKEY,
        .flags = SOFT_SEND_SIGNALED | SOFT_SEND_CUT,
        .cut = {source->packets, source->bytes, source->last_bytes, make, source},
    };
}

static void expect_datagram(struct link *link, uint32_t number, uint32_t bytes)
{
    struct soft_wc wc = expect_wc(&link->pair, 1);
    uint8_t wanted[BYTES];

    CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(wc.byte_len, SOFT_GRH_BYTES + bytes);
    fill(wanted, number, bytes);
    CHECK(memcmp(buffer[wc.wr_id] + SOFT_GRH_BYTES, wanted, bytes) == 0);
}

static void a_request_leaves_as_datagrams_and_ends_once(void)
{
    struct source source = {.first = 7, .packets = 5, .bytes = 301, .last_bytes = 2};
    struct soft_send_wr wr;
    struct link link;
    struct soft_wc wc;

    open_link(&link);
    wr = request_of(&link, &source);
    CHECK_EQUAL(soft_qp_post_send(link.pair.end[0].qp, &wr, 1), 1);
    CHECK_EQUAL(soft_cq_poll(link.pair.end[0].cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 7);
    CHECK_EQUAL(wc.byte_len, 4 * 301 + 2);
    for (uint32_t k = 0; k < 5; k++)
        expect_datagram(&link, 7 + k, k < 4 ? 301 : 2);
    CHECK_EQUAL(counted(&link.pair.end[0], SOFT_C_TX_PACKETS), 5);
    CHECK_EQUAL(counted(&link.pair.end[0], SOFT_C_TX_BYTES), 4 * 301 + 2);
    CHECK_EQUAL(soft_cq_poll(link.pair.end[0].cq, 1, &wc), 0);
    close_link(&link);
}

/* The socket may be full after any packet: each leaves once, and in order. */
static void a_full_socket_in_the_middle_of_a_request_repeats_and_loses_nothing(void)
{
    enum { REQUESTS = 60, ROUNDS = 2 };
    static struct source sources[REQUESTS];
    uint64_t random = 5;
    struct link link;

    open_link(&link);
    cable.stalled = 700;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t number = 0;

        for (int i = 0; i < REQUESTS; i++) {
            struct soft_send_wr wr;

            sources[i] = (struct source){.first = number,
                                         .packets = 1 + (uint32_t)(next_random(&random) % 32),
                                         .bytes = 4 + (uint32_t)(next_random(&random) % 900)};
            sources[i].last_bytes = 1 + (uint32_t)(next_random(&random) % sources[i].bytes);
            number += sources[i].packets;
            wr = request_of(&link, &sources[i]);
            CHECK_EQUAL(soft_qp_post_send(link.pair.end[0].qp, &wr, 1), 1);
        }
        for (int i = 0; i < REQUESTS; i++) {
            for (uint32_t k = 0; k < sources[i].packets; k++)
                expect_datagram(&link, sources[i].first + k,
                                k + 1 < sources[i].packets ? sources[i].bytes
                                                           : sources[i].last_bytes);
            expect_status(&link.pair, 0, sources[i].first, SOFT_WC_SUCCESS);
        }
    }
    CHECK_EQUAL(counted(&link.pair.end[1], SOFT_C_DROP_NO_BUFFER), 0);
    close_link(&link);
}

static void a_request_to_ourselves_arrives_as_datagrams(void)
{
    struct source source = {.first = 9, .packets = 3, .bytes = 17, .last_bytes = 17};
    struct soft_ah_attr to_self;
    struct soft_send_wr wr;
    struct link link;
    struct end *end = &link.pair.end[1];

    open_link(&link);
    to_self = (struct soft_ah_attr){.dgid = end->hca->attr.gid};
    wr = request_of(&link, &source);
    CHECK_EQUAL(soft_ah_create(end->hca, &to_self, &wr.ah), 0);
    CHECK_EQUAL(soft_qp_post_send(end->qp, &wr, 1), 1);
    expect_status(&link.pair, 1, 9, SOFT_WC_SUCCESS);
    for (uint32_t k = 0; k < 3; k++)
        expect_datagram(&link, 9 + k, 17);
    soft_ah_destroy(wr.ah);
    close_link(&link);
}

static void a_request_out_of_bounds_is_invalid(void)
{
    struct source source = {.packets = 1, .bytes = 4, .last_bytes = 4};
    struct soft_send_wr wr;
    struct link link;
    struct soft_qp *rc;

    open_link(&link);
    rc = create_rc(&link.pair.end[0], NULL);
    wr = request_of(&link, &source);
    CHECK_EQUAL(soft_qp_post_send(rc, &wr, 1), -EINVAL);
    wr.cut.packets = 0;
    CHECK_EQUAL(soft_qp_post_send(link.pair.end[0].qp, &wr, 1), -EINVAL);
    wr.cut.packets = SOFT_CUT_PACKETS + 1;
    CHECK_EQUAL(soft_qp_post_send(link.pair.end[0].qp, &wr, 1), -EINVAL);
    wr.cut.packets = 2;
    wr.cut.last_bytes = 5;
    CHECK_EQUAL(soft_qp_post_send(link.pair.end[0].qp, &wr, 1), -EINVAL);
    wr.cut.bytes = wr.cut.last_bytes = SOFT_CUT_BYTES / 2;
    CHECK_EQUAL(soft_qp_post_send(link.pair.end[0].qp, &wr, 1), -EINVAL);
    CHECK_EQUAL(counted(&link.pair.end[0], SOFT_C_TX_PACKETS), 0);
    close_link(&link);
}

static void datagrams_over_the_mtu_complete_in_error(void)
{
    struct source source = {.first = 3, .packets = 2, .bytes = 4097, .last_bytes = 1};
    struct soft_send_wr wr;
    struct link link;

    open_link(&link);
    wr = request_of(&link, &source);
    CHECK_EQUAL(soft_qp_post_send(link.pair.end[0].qp, &wr, 1), 1);
    expect_status(&link.pair, 0, 3, SOFT_WC_LOC_LEN_ERR);
    CHECK_EQUAL(counted(&link.pair.end[0], SOFT_C_TX_LENGTH), 1);
    close_link(&link);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_request_leaves_as_datagrams_and_ends_once),
        TEST(a_full_socket_in_the_middle_of_a_request_repeats_and_loses_nothing),
        TEST(a_request_to_ourselves_arrives_as_datagrams),
        TEST(a_request_out_of_bounds_is_invalid),
        TEST(datagrams_over_the_mtu_complete_in_error),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
