/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_RC_BENCH_H
#define SOFT_RC_BENCH_H

#include "cable.h"
#include "icrc.h"
#include "rc.h"

/* Two HCAs at the ends of a cable, a CQ and an RC QP at each. */
#define END_DEPTH 4096
#define END_WRS   256
#define MTU       1024

struct end {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_qp *qp;
    struct soft_rc_attr attr; /* how qp was connected */
};

struct pair {
    struct end end[2];
};

static inline struct in6_addr gid_number(uint8_t n)
{
    return (struct in6_addr){{{0xfe, 0x80, [8] = 2, [15] = n}}};
}

static inline void calm_cable(uint64_t seed)
{
    memset(&cable, 0, sizeof(cable));
    cable.random = seed;
}

static inline void open_hca(struct end *e, uint8_t number)
{
    struct soft_hca_attr attr = {
        .gid = gid_number(number), .active_mtu_bytes = 4096, .datagram_bytes = 4096};
    struct soft_udp_config udp = {.gid = attr.gid};

    memset(e, 0, sizeof(*e));
    CHECK_EQUAL(soft_hca_create(&attr, &e->hca), 0);
    CHECK_EQUAL(soft_udp_open(&udp, &e->hca->count, &e->hca->udp), 0);
    CHECK_EQUAL(soft_cq_create(e->hca, END_DEPTH, &e->cq), 0);
}

/* soft_hca_close would close a net device, which this HCA does not have. */
static inline void close_hca(struct end *e)
{
    struct soft_udp *udp = e->hca->udp;

    e->hca->udp = NULL;
    soft_hca_close(e->hca);
    soft_udp_close(udp);
}

static inline struct soft_qp *create_rc(struct end *e, struct soft_srq *srq)
{
    struct soft_qp_attr attr = {SOFT_QPT_RC, e->cq, e->cq, END_WRS, END_WRS, 0, 0, srq, 0, 0};
    struct soft_qp *qp = NULL;

    CHECK_EQUAL(soft_qp_create(e->hca, &attr, &qp), 0);
    return qp;
}

static inline struct soft_rc_attr attr_to(const struct end *peer, const struct soft_qp *to)
{
    return (struct soft_rc_attr){
        .path = {.dgid = peer->hca->attr.gid},
        .dest_qpn = soft_qp_qpn(to),
        .rq_psn = 0xfffff0, /* wraps soon */
        .path_mtu_bytes = MTU,
        .min_rnr_timer = 12, /* 0.64 ms */
        .sq_psn = 0xfffff0,
        .timeout = 10, /* 4.2 ms */
        .retry_count = 7,
        .rnr_retry = 7,
    };
}

static inline void connect_qp(struct soft_qp *qp, const struct soft_rc_attr *attr)
{
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_INIT, NULL), 0);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTR, attr), 0);
    CHECK_EQUAL(soft_qp_modify(qp, SOFT_QPS_RTS, attr), 0);
}

static inline void connect_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        p->end[i].attr = attr_to(&p->end[1 - i], p->end[1 - i].qp);
    for (int i = 0; i < 2; i++)
        connect_qp(p->end[i].qp, &p->end[i].attr);
}

static inline void plug(struct pair *p)
{
    cable_join(p->end[0].hca->udp, p->end[1].hca->udp);
}

static inline void open_ends(struct pair *p)
{
    calm_cable(1);
    for (int i = 0; i < 2; i++)
        open_hca(&p->end[i], (uint8_t)(i + 1));
    plug(p);
}

static inline void open_pair(struct pair *p)
{
    open_ends(p);
    for (int i = 0; i < 2; i++)
        p->end[i].qp = create_rc(&p->end[i], NULL);
    connect_pair(p);
}

static inline void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        close_hca(&p->end[i]);
}

static inline void post_one(struct soft_qp *qp, uint64_t wr_id, const void *data, uint32_t bytes)
{
    struct soft_send_wr wr = {.wr_id = wr_id,
                              .flags = SOFT_SEND_SIGNALED,
                              .num_sge = 1,
                              .sg = {{(void *)(uintptr_t)data, bytes}}};

    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
}

static inline void receive_one(struct soft_qp *qp, uint64_t wr_id, void *buffer, uint32_t bytes)
{
    struct soft_recv_wr wr = {.wr_id = wr_id, .num_sge = 1, .sg = {{buffer, bytes}}};

    CHECK_EQUAL(soft_qp_post_recv(qp, &wr, 1), 1);
}

/* Makes progress at both ends without taking completions; when no packet is under way, sets the
 * clock to the next deadline. Returns false when there is none: then the ends stay as they are. */
static inline bool turn(struct pair *p)
{
    int64_t next_ns = SOFT_NO_DEADLINE_NS;
    bool quiet = true;

    for (int i = 0; i < 2; i++)
        if (p->end[i].hca != NULL)
            (void)soft_hca_progress(p->end[i].hca);
    for (int i = 0; i < 2; i++) {
        int64_t deadline_ns;

        if (p->end[i].hca == NULL)
            continue;
        quiet &= cable_quiet(p->end[i].hca->udp) && TAILQ_EMPTY(&p->end[i].hca->stalled);
        deadline_ns = soft_hca_deadline_ns(p->end[i].hca);
        if (deadline_ns < next_ns)
            next_ns = deadline_ns;
    }
    if (!quiet)
        return true;
    if (next_ns == SOFT_NO_DEADLINE_NS)
        return false;
    if (next_ns > cable_clock_ns)
        cable_clock_ns = next_ns;
    return true;
}

/* Takes the next completion of an end, however long that takes. */
static inline struct soft_wc expect_wc(struct pair *p, int which)
{
    struct soft_wc wc;

    while (soft_cq_poll(p->end[which].cq, 1, &wc) == 0)
        CHECK(turn(p) || soft_cq_count(p->end[which].cq) > 0);
    return wc;
}

static inline void expect_status(struct pair *p, int which, uint64_t wr_id, int status)
{
    struct soft_wc wc = expect_wc(p, which);

    CHECK_EQUAL(wc.wr_id, wr_id);
    CHECK_EQUAL(wc.status, status);
}

static inline uint64_t counted(const struct end *e, enum soft_counter which)
{
    struct soft_hca_counters c;

    soft_hca_counters(e->hca, &c);
    return c.value[which];
}

/* Injects a packet into an end as if it came from `src`. */
static inline void put_in(struct pair *p, int to, const struct soft_roce *roce,
                          size_t payload_bytes, const struct in6_addr *src)
{
    static uint8_t data[CABLE_PACKET];
    struct soft_udp_packet ip = {
        .data = data, .src = *src, .dst = p->end[to].hca->attr.gid, .src_port = SOFT_UDP_PORT};
    size_t head = soft_roce_pack(data, roce);

    memset(data + head, 'z', payload_bytes + SOFT_ROCE_TAIL_MAX);
    ip.bytes = head + payload_bytes + roce->pad_bytes + SOFT_ICRC_BYTES;
    soft_lock_acquire(p->end[to].hca);
    soft_progress_take(p->end[to].hca, &ip, true);
    soft_lock_release(p->end[to].hca);
}

static inline struct soft_roce request(struct pair *p, uint8_t opcode, uint32_t psn)
{
    return (struct soft_roce){.opcode = opcode,
                              .pkey = 0xffff,
                              .ack_request = true,
                              .dest_qpn = soft_qp_qpn(p->end[1].qp),
                              .psn = psn};
}

#endif
