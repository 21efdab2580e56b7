/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_BENCH_H
#define SOFT_BENCH_H

#include "check.h"
#include "objects.h"

/* A bench for tests of the verbs: an HCA without a device, which reaches itself by the loopback. It
 * needs no network and no privilege.
 */
#define QKEY    0x0b1bu
#define MTU     2048
#define DEPTH   64
#define NOT_SET 0xee

static const struct in6_addr own_gid = {{{0xfe, 0x80, [8] = 2, [15] = 1}}};

struct bench {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_ah *self;
};

static inline struct bench open_bench(unsigned int depth)
{
    struct soft_hca_attr attr = {.gid = own_gid, .active_mtu_bytes = MTU, .datagram_bytes = MTU};
    struct soft_ah_attr to_self = {.dgid = own_gid, .traffic_class = 0xa5, .flow_label = 0x12345};
    struct bench b;

    CHECK_EQUAL(soft_hca_create(&attr, &b.hca), 0);
    CHECK_EQUAL(soft_cq_create(b.hca, depth, &b.cq), 0);
    CHECK_EQUAL(soft_ah_create(b.hca, &to_self, &b.self), 0);
    return b;
}

static inline struct soft_qp *create_qp(const struct bench *b, enum soft_qp_type type,
                                        uint16_t pkey_index, uint32_t qkey)
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

static inline struct soft_qp *create_ud(const struct bench *b)
{
    return create_qp(b, SOFT_QPT_UD, 0, QKEY);
}

static inline void post_recv(struct soft_qp *qp, uint64_t wr_id, void *buffer, uint32_t length)
{
    struct soft_recv_wr wr = {.wr_id = wr_id, .num_sge = 1, .sg = {{buffer, length}}};

    CHECK_EQUAL(soft_qp_post_recv(qp, &wr, 1), 1);
}

static inline struct soft_send_wr send_wr(const struct bench *b, const struct soft_qp *to,
                                          uint64_t wr_id, const void *data, uint32_t length)
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

static inline uint64_t counter(const struct bench *b, enum soft_counter which)
{
    struct soft_hca_counters c;

    soft_hca_counters(b->hca, &c);
    return c.value[which];
}

/* Posts one send and takes its completion off the CQ; the next completion is that of a receive, if
 * there is one. */
static inline void send_one(const struct bench *b, struct soft_qp *from,
                            const struct soft_send_wr *wr)
{
    struct soft_wc wc;

    CHECK_EQUAL(soft_qp_post_send(from, wr, 1), 1);
    CHECK_EQUAL(soft_cq_poll(b->cq, 1, &wc), 1);
    CHECK_EQUAL(wc.opcode, SOFT_WC_SEND);
    CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(wc.wr_id, wr->wr_id);
}

static inline void expect_empty(const struct bench *b)
{
    struct soft_wc wc;

    CHECK_EQUAL(soft_cq_poll(b->cq, 1, &wc), 0);
}

#endif
