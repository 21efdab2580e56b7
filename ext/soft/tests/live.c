/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The HCA on real net devices: two of them, one in each of two network namespaces joined by a veth
 * pair, in one process.
 *
 *   live TEST NETNS_A DEVICE_A NETNS_B DEVICE_B     run one test (names: live list)
 *   live open NETNS DEVICE                          open, print 0 or the name of the error
 *
 * tests/netns/test_soft_hca.py makes the namespaces. The tests change links and put them back.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "crc32.h"
#include "icrc.h"
#include "objects.h"

#ifndef UDP_NO_CHECK6_TX
#define UDP_NO_CHECK6_TX 101
#endif

#define QKEY        0x0b1bu
#define PATIENCE_MS 10000

static struct {
    const char *netns, *netdev;
} place[2];

static int own_netns;

static void enter(const char *netns)
{
    int fd = open(netns, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    close(fd);
}

static void leave(void)
{
    CHECK(setns(own_netns, CLONE_NEWNET) == 0);
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- an end: HCA, CQ, UD QP, receive buffers
 * ----------------------------------------------------- */

#define RING  4096
#define FRAME (40 + 4096)

struct end {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_qp *qp;
    struct soft_ah *peer; /* address handle to the other end */
    uint8_t (*frame)[FRAME];
};

static struct soft_hca *open_at(int which)
{
    struct soft_hca *hca = NULL;

    enter(place[which].netns);
    CHECK_EQUAL(soft_hca_open(place[which].netdev, &hca), 0);
    leave();
    return hca;
}

static struct in6_addr gid_of(const struct soft_hca *hca)
{
    struct soft_hca_attr attr;

    soft_hca_query(hca, &attr);
    return attr.gid;
}

static unsigned int mtu_of(const struct soft_hca *hca)
{
    struct soft_hca_attr attr;

    soft_hca_query(hca, &attr);
    return attr.active_mtu_bytes;
}

static struct soft_ah *ah_to(struct soft_hca *hca, struct in6_addr gid)
{
    struct soft_ah_attr attr = {.dgid = gid};
    struct soft_ah *ah = NULL;

    CHECK_EQUAL(soft_ah_create(hca, &attr, &ah), 0);
    return ah;
}

static struct soft_qp *qp_on(struct soft_hca *hca, struct soft_cq *cq, unsigned int depth)
{
    struct soft_qp_attr attr = {SOFT_QPT_UD, cq, cq, depth, depth, QKEY, 0};
    struct soft_qp *qp = NULL;

    CHECK_EQUAL(soft_qp_create(hca, &attr, &qp), 0);
    return qp;
}

static void post(struct soft_qp *qp, uint64_t wr_id, void *buffer, uint32_t length)
{
    struct soft_recv_wr wr = {.wr_id = wr_id, .num_sge = 1, .sg = {{buffer, length}}};

    CHECK_EQUAL(soft_qp_post_recv(qp, &wr, 1), 1);
}

static struct end open_end(int which)
{
    struct end e = {.hca = open_at(which)};

    CHECK_EQUAL(soft_cq_create(e.hca, 4 * RING, &e.cq), 0);
    e.qp = qp_on(e.hca, e.cq, RING);
    e.frame = malloc(sizeof(*e.frame) * RING);
    CHECK(e.frame != NULL);
    for (int i = 0; i < RING; i++)
        post(e.qp, (uint64_t)i, e.frame[i], FRAME);
    return e;
}

static void close_end(struct end *e)
{
    soft_hca_close(e->hca);
    free(e->frame);
}

static void open_both(struct end *a, struct end *b)
{
    *a = open_end(0);
    *b = open_end(1);
    a->peer = ah_to(a->hca, gid_of(b->hca));
    b->peer = ah_to(b->hca, gid_of(a->hca));
}

static void close_both(struct end *a, struct end *b)
{
    close_end(a);
    close_end(b);
}

static struct soft_send_wr message(struct soft_ah *ah, uint32_t qpn, const void *data,
                                   size_t length)
{
    return (struct soft_send_wr){
        .ah = ah,
        .remote_qpn = qpn,
        .remote_qkey = QKEY,
        .num_sge = 1,
        .sg = {{(void *)(uintptr_t)data, (uint32_t)length}},
    };
}

static void send_to(struct end *from, struct soft_ah *ah, uint32_t qpn, const void *data,
                    size_t length)
{
    struct soft_send_wr wr = message(ah, qpn, data, length);

    CHECK_EQUAL(soft_qp_post_send(from->qp, &wr, 1), 1);
}

static void show_counters(struct soft_hca *hca)
{
    struct soft_hca_counters c;

    soft_hca_counters(hca, &c);
    for (int i = 0; i < SOFT_C_COUNT; i++)
        if (c.value[i] > 0)
            fprintf(stderr, "%s %llu\n", soft_counter_names[i], (unsigned long long)c.value[i]);
}

/* Poll until n completions have come, sleeping on the descriptor in between. */
static void await(struct soft_cq *cq, int n, struct soft_wc *wc)
{
    struct pollfd p = {.fd = soft_cq_fd(cq), .events = POLLIN};

    for (int got = 0; got < n;) {
        int more = soft_cq_poll(cq, n - got, wc + got);

        got += more;
        if (more > 0 || got == n)
            continue;
        soft_cq_arm(cq);
        more = soft_cq_poll(cq, n - got, wc + got);
        got += more;
        if (more == 0 && poll(&p, 1, PATIENCE_MS) != 1) {
            show_counters(cq->hca);
            CHECK(!"nothing came");
        }
    }
}

static uint64_t counter(struct soft_hca *hca, enum soft_counter which)
{
    struct soft_hca_counters c;

    soft_hca_counters(hca, &c);
    return c.value[which];
}

/* Make progress until the counter has this value. */
static void await_counter(struct soft_hca *hca, enum soft_counter which, uint64_t value)
{
    int64_t end = now_ms() + PATIENCE_MS;

    while (counter(hca, which) < value && now_ms() < end)
        if (soft_hca_progress(hca) == 0)
            sched_yield();
    CHECK_EQUAL(counter(hca, which), value);
}

/* A message each way proves that nothing before it is still under way. */
static void exchange(struct end *a, struct end *b)
{
    struct soft_wc wc;

    send_to(a, a->peer, soft_qp_qpn(b->qp), "there", 5);
    await(b->cq, 1, &wc);
    CHECK_EQUAL(wc.byte_len, 45);
    CHECK(memcmp(b->frame[wc.wr_id] + 40, "there", 5) == 0);
    post(b->qp, wc.wr_id, b->frame[wc.wr_id], FRAME);
    send_to(b, b->peer, soft_qp_qpn(a->qp), "back", 4);
    await(a->cq, 1, &wc);
    CHECK_EQUAL(wc.byte_len, 44);
    post(a->qp, wc.wr_id, a->frame[wc.wr_id], FRAME);
}

/* ---- messages ---------------------------------------------------------------------------------
 */

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
        if (attr.flow_label != 0)
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
    enum { COUNT = 2000, BATCH = 200 };
    static uint8_t data[COUNT][256];
    static struct soft_wc wc[COUNT];
    struct soft_send_wr wr[BATCH];
    uint64_t random = 5;
    struct end a, b;
    uint32_t size[COUNT];

    open_both(&a, &b);
    exchange(&a,
             &b); /* the kernel keeps only so much for a neighbour that it is still looking for */
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
    CHECK(counter(a.hca, SOFT_C_TX_CALLS) <= 2 * COUNT / BATCH);
    CHECK(counter(a.hca, SOFT_C_TX_SUPER) >= COUNT / 2 / 64);
    CHECK_EQUAL(counter(b.hca, SOFT_C_DROP_ICRC), 0);
    printf("tx_super %llu rx_super %llu rx_calls %llu\n",
           (unsigned long long)counter(a.hca, SOFT_C_TX_SUPER),
           (unsigned long long)counter(b.hca, SOFT_C_RX_SUPER),
           (unsigned long long)counter(b.hca, SOFT_C_RX_CALLS));
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

/* ---- groups -----------------------------------------------------------------------------------
 */

static struct in6_addr group_number(int n)
{
    struct in6_addr g;

    CHECK(inet_pton(AF_INET6, "ff12:401b:ffff::", &g) == 1);
    soft_roce_put32(g.s6_addr + 12, (uint32_t)n + 1);
    return g;
}

static void a_group_reaches_all_members_and_the_sender(void)
{
    struct in6_addr group = group_number(0);
    struct soft_qp *second;
    struct soft_ah *ah;
    struct soft_wc wc[2];
    struct end a, b;

    open_both(&a, &b);
    ah = ah_to(a.hca, group);
    second = qp_on(b.hca, b.cq, 4);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    CHECK_EQUAL(soft_qp_attach_mcast(second, &group), 0);
    post(second, 7777, b.frame[RING - 1], FRAME);
    send_to(&a, ah, SOFT_QPN_MCAST, "all", 3);
    await(b.cq, 2, wc);
    CHECK(wc[0].qp_num != wc[1].qp_num);
    CHECK_EQUAL(wc[0].byte_len, 43);
    CHECK_EQUAL(wc[1].src_qp, soft_qp_qpn(a.qp));
    CHECK(memcmp(b.frame[0] + 24, &group, 16) == 0);

    enter(place[0].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(a.qp, &group), 0);
    CHECK_EQUAL(soft_qp_detach_mcast(second, &group), 0);
    send_to(&a, ah, SOFT_QPN_MCAST, "me too", 6);
    await(a.cq, 1, wc);
    CHECK_EQUAL(wc[0].src_qp, soft_qp_qpn(a.qp)); /* our own echo, by which a consumer knows it */
    CHECK_EQUAL(wc[0].byte_len, 46);
    await(b.cq, 1, wc);
    CHECK_EQUAL(wc[0].qp_num, soft_qp_qpn(b.qp));

    /* The last member leaves: B hears no more. A, still attached, does. */
    CHECK_EQUAL(soft_qp_detach_mcast(b.qp, &group), 0);
    send_to(&a, ah, SOFT_QPN_MCAST, "gone", 4);
    await(a.cq, 1, wc);
    exchange(&a, &b);
    CHECK_EQUAL(counter(b.hca, SOFT_C_RX_DELIVERED), 4);
    leave();
    close_both(&a, &b);
}

/* Attach `count` groups at B, send to each from A, in bursts that the socket buffer holds. */
static void reach_groups(int count)
{
    static struct soft_wc wc[64];
    struct end a, b;
    int64_t start = now_ms();

    open_both(&a, &b);
    enter(place[1].netns);
    for (int i = 0; i < count; i++) {
        struct in6_addr group = group_number(i);

        CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    }
    printf("%d groups attached in %lld ms\n", count, (long long)(now_ms() - start));
    for (int i = 0; i < count; i++) {
        struct in6_addr group = group_number(i);
        struct soft_ah *ah = ah_to(a.hca, group);

        send_to(&a, ah, SOFT_QPN_MCAST, &i, sizeof(i));
        soft_ah_destroy(ah);
    }
    for (int i = 0; i < count; i++) {
        struct in6_addr group = group_number(i);
        int got;

        await(b.cq, 1, wc);
        memcpy(&got, b.frame[wc[0].wr_id] + 40, sizeof(got));
        CHECK_EQUAL(got, i);
        CHECK(memcmp(b.frame[wc[0].wr_id] + 24, &group, 16) == 0);
    }
    for (int i = 0; i < count; i++) {
        struct in6_addr group = group_number(i);

        CHECK_EQUAL(soft_qp_detach_mcast(b.qp, &group), 0);
    }
    for (int i = 1; i < SOFT_MEMBERSHIP_SOCKETS; i++)
        CHECK_EQUAL(b.hca->membership.fd[i], -1); /* all but the first are closed again */
    leave();
    close_both(&a, &b);
}

static void a_hundred_groups_are_reached(void)
{
    reach_groups(100);
}

static void a_thousand_groups_are_reached(void)
{
    reach_groups(1000);
}

static void joining_from_another_namespace_is_refused_not_misplaced(void)
{
    struct end b = open_end(1);

    for (int i = 0; i < SOFT_MEMBERSHIP_PER_SOCKET; i++) { /* by the socket of open time */
        struct in6_addr group = group_number(i);

        CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    }
    for (int i = 0; i < 3; i++) {
        struct in6_addr group = group_number(5000 + i);

        CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), -EXDEV);
        enter(place[1].netns);
        CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
        CHECK_EQUAL(soft_qp_detach_mcast(b.qp, &group), 0);
        leave();
    }
    close_end(&b);
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

static void wrong_keys_and_small_buffers_are_counted_drops(void)
{
    static const uint16_t other_partition[] = {0x8001};
    struct soft_send_wr wr;
    struct soft_qp *tight;
    uint8_t small[48];
    struct end a, b;

    open_both(&a, &b);
    tight = qp_on(b.hca, b.cq, 1);
    send_to(&a, a.peer, soft_qp_qpn(tight), "x", 1);
    await_counter(b.hca, SOFT_C_DROP_NO_BUFFER, 1);
    post(tight, 1, small, sizeof(small));
    send_to(&a, a.peer, soft_qp_qpn(tight), "123456789", 9);
    await_counter(b.hca, SOFT_C_DROP_TOO_LONG, 1);
    wr = message(a.peer, soft_qp_qpn(b.qp), "x", 1);
    wr.remote_qkey = QKEY + 1;
    CHECK_EQUAL(soft_qp_post_send(a.qp, &wr, 1), 1);
    await_counter(b.hca, SOFT_C_DROP_QKEY, 1);
    send_to(&a, a.peer, soft_qp_qpn(b.qp) ^ 0x800000, "x", 1);
    await_counter(b.hca, SOFT_C_DROP_QPN, 1);
    CHECK_EQUAL(soft_hca_set_pkeys(a.hca, other_partition, 1), 0);
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "x", 1);
    await_counter(b.hca, SOFT_C_DROP_PKEY, 1);
    CHECK_EQUAL(soft_hca_set_pkeys(b.hca, other_partition, 1), 0);
    exchange(&a, &b);
    close_both(&a, &b);
}

struct stranger {
    int fd;
    struct in6_addr own;
    uint16_t port;
    struct sockaddr_in6 to;
};

/* An ordinary UDP socket in namespace B that sends what it likes to A. */
static struct stranger open_stranger(const struct end *a, const struct end *b)
{
    struct soft_hca_attr attr;
    struct stranger s;
    struct sockaddr_in6 name = {.sin6_family = AF_INET6};
    socklen_t len = sizeof(name);

    soft_hca_query(b->hca, &attr);
    enter(place[1].netns);
    s.fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    leave();
    CHECK(s.fd >= 0);
    name.sin6_addr = s.own = attr.gid;
    name.sin6_scope_id = attr.ifindex;
    CHECK(bind(s.fd, (struct sockaddr *)&name, sizeof(name)) == 0);
    CHECK(getsockname(s.fd, (struct sockaddr *)&name, &len) == 0);
    s.port = ntohs(name.sin6_port);
    s.to = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                 .sin6_port = htons(SOFT_UDP_PORT),
                                 .sin6_addr = gid_of(a->hca),
                                 .sin6_scope_id = attr.ifindex};
    return s;
}

static size_t make_packet(const struct stranger *s, uint32_t qpn, size_t payload_bytes,
                          uint8_t *packet)
{
    struct soft_roce roce = {
        .opcode = SOFT_ROCE_UD_SEND,
        .pad_bytes = -payload_bytes & 3,
        .pkey = 0xffff,
        .dest_qpn = qpn,
        .qkey = QKEY,
        .src_qpn = 0x4711,
    };
    size_t n = soft_roce_pack(packet, &roce);
    uint32_t crc;

    memset(packet + n, 's', payload_bytes + 3);
    n += payload_bytes + roce.pad_bytes;
    crc = soft_icrc_seed(&s->own, &s->to.sin6_addr, s->port, SOFT_UDP_PORT, (uint16_t)(n + 4));
    packet[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc = soft_crc32_update(crc, packet, n);
    packet[SOFT_ROCE_MASKED_BYTE] = 0;
    soft_roce_put32le(packet + n, crc);
    return n + 4;
}

static void throw(const struct stranger *s, const void *packet, size_t bytes)
{
    CHECK_EQUAL(sendto(s->fd, packet, bytes, 0, (const struct sockaddr *)&s->to, sizeof(s->to)),
                bytes);
}

static void corrupted_packets_are_dropped_and_the_good_one_is_not(void)
{
    uint8_t good[256], bad[256];
    uint64_t icrc = 0, malformed = 0, version = 0;
    struct stranger s;
    struct soft_wc wc;
    struct end a, b;
    size_t n;

    open_both(&a, &b);
    s = open_stranger(&a, &b);
    n = make_packet(&s, soft_qp_qpn(a.qp), 50, good);
    for (size_t bit = 0; bit < n * 8; bit++) {
        if (bit / 8 == SOFT_ROCE_MASKED_BYTE)
            continue;
        memcpy(bad, good, n);
        bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (bit / 8 == 1 && bit % 8 < 4)
            version++;
        else
            icrc++;
        throw(&s, bad, n);
    }
    for (size_t len = 0; len < n; len++) {
        if (len < 16 || len % 4 != 0)
            malformed++;
        else
            icrc++;
        throw(&s, good, len);
    }
    throw(&s, good, n);
    await(a.cq, 1, &wc);
    CHECK_EQUAL(wc.src_qp, 0x4711);
    CHECK_EQUAL(wc.byte_len, 90);
    CHECK_EQUAL(counter(a.hca, SOFT_C_DROP_ICRC), icrc);
    CHECK_EQUAL(counter(a.hca, SOFT_C_DROP_VERSION), version);
    CHECK_EQUAL(counter(a.hca, SOFT_C_DROP_MALFORMED), malformed);
    CHECK_EQUAL(counter(a.hca, SOFT_C_RX_DELIVERED), 1);
    close(s.fd);
    close_both(&a, &b);
}

static void packets_without_a_udp_checksum_are_taken_as_rxe_sends_them(void)
{
    uint8_t packet[256];
    struct stranger s;
    struct soft_wc wc;
    struct end a, b;
    int one = 1;

    open_both(&a, &b);
    s = open_stranger(&a, &b);
    CHECK(setsockopt(s.fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, &one, sizeof(one)) == 0);
    throw(&s, packet, make_packet(&s, soft_qp_qpn(a.qp), 50, packet));
    await(a.cq, 1, &wc);
    CHECK_EQUAL(wc.byte_len, 90);
    close(s.fd);
    close_both(&a, &b);
}

static void packets_to_groups_of_other_programs_are_not_ours(void)
{
    struct in6_addr group = group_number(0);
    struct ipv6_mreq membership = {.ipv6mr_multiaddr = group};
    struct soft_hca_attr attr;
    struct stranger s;
    uint8_t packet[256];
    struct end a, b;
    int member;

    open_both(&a, &b);
    s = open_stranger(&a, &b);
    soft_hca_query(a.hca, &attr);
    membership.ipv6mr_interface = attr.ifindex;
    enter(place[0].netns);
    member = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    leave();
    CHECK(setsockopt(member, IPPROTO_IPV6, IPV6_JOIN_GROUP, &membership, sizeof(membership)) == 0);
    s.to.sin6_addr = group;
    throw(&s, packet, make_packet(&s, SOFT_QPN_MCAST, 50, packet));
    await_counter(a.hca, SOFT_C_DROP_ADDRESS, 1);
    close(member);
    close(s.fd);
    close_both(&a, &b);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

static bool readable(const struct soft_cq *cq, int timeout_ms)
{
    struct pollfd p = {.fd = soft_cq_fd(cq), .events = POLLIN};

    return poll(&p, 1, timeout_ms) == 1;
}

static void a_packet_makes_the_descriptor_readable(void)
{
    struct soft_wc wc;
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 0);
    soft_cq_arm(b.cq);
    CHECK(!readable(b.cq, 0));
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "x", 1);
    CHECK(readable(b.cq, PATIENCE_MS));
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, &wc), 1);
    soft_cq_arm(b.cq);
    CHECK(!readable(b.cq, 0));
    close_both(&a, &b);
}

/* Two packets for two CQs arrive in one batch; whoever takes the first leaves the other one
 * fetched. */
static void packets_left_fetched_wake_the_other_cq(void)
{
    struct soft_cq *other;
    struct soft_qp *qp;
    uint8_t buffer[64];
    struct soft_wc wc;
    struct end a, b;

    open_both(&a, &b);
    CHECK_EQUAL(soft_cq_create(b.hca, 4, &other), 0);
    qp = qp_on(b.hca, other, 4);
    post(qp, 5, buffer, sizeof(buffer));
    soft_cq_arm(other);
    CHECK(!readable(other, 0));
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "1", 1);
    send_to(&a, a.peer, soft_qp_qpn(qp), "2", 1);
    await(b.cq, 1, &wc);
    CHECK(readable(other, PATIENCE_MS));
    await(other, 1, &wc);
    CHECK_EQUAL(wc.wr_id, 5);

    /* And with the completion made by the other's progress: the event descriptor alone wakes. */
    post(qp, 6, buffer, sizeof(buffer));
    soft_cq_arm(other);
    CHECK(!readable(other, 0));
    send_to(&a, a.peer, soft_qp_qpn(qp), "3", 1);
    await_counter(b.hca, SOFT_C_RX_DELIVERED, 3);
    CHECK(readable(other, 0));
    CHECK_EQUAL(soft_cq_poll(other, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 6);
    close_both(&a, &b);
}

struct player {
    struct end *end;
    uint32_t remote_qpn;
    int rounds;
    bool starts;
};

static void *play(void *argument)
{
    struct player *p = argument;
    struct soft_wc wc;

    if (p->starts)
        send_to(p->end, p->end->peer, p->remote_qpn, "ball", 4);
    for (int i = 0; i < p->rounds; i++) {
        await(p->end->cq, 1, &wc);
        CHECK_EQUAL(wc.byte_len, 44);
        post(p->end->qp, wc.wr_id, p->end->frame[wc.wr_id], FRAME);
        if (!p->starts || i < p->rounds - 1)
            send_to(p->end, p->end->peer, p->remote_qpn, "ball", 4);
    }
    return NULL;
}

/* Two games on the same two HCAs at once, each player asleep between strokes: any lost wake-up
 * hangs. */
static void threads_share_an_hca_and_none_sleeps_for_ever(void)
{
    struct end a[2], b[2];
    struct player player[4];
    pthread_t thread[4];

    open_both(&a[0], &b[0]);
    a[1] = a[0];
    b[1] = b[0];
    CHECK_EQUAL(soft_cq_create(a[0].hca, 64, &a[1].cq), 0);
    CHECK_EQUAL(soft_cq_create(b[0].hca, 64, &b[1].cq), 0);
    a[1].qp = qp_on(a[0].hca, a[1].cq, 16);
    b[1].qp = qp_on(b[0].hca, b[1].cq, 16);
    a[1].frame = malloc(sizeof(*a[1].frame));
    b[1].frame = malloc(sizeof(*b[1].frame));
    post(a[1].qp, 0, a[1].frame[0], FRAME);
    post(b[1].qp, 0, b[1].frame[0], FRAME);
    for (int i = 0; i < 2; i++) {
        player[2 * i] = (struct player){&a[i], soft_qp_qpn(b[i].qp), 3000, true};
        player[2 * i + 1] = (struct player){&b[i], soft_qp_qpn(a[i].qp), 3000, false};
    }
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(pthread_create(&thread[i], NULL, play, &player[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    free(a[1].frame);
    free(b[1].frame);
    close_both(&a[0], &b[0]);
}

/* ---- back-pressure and trouble ------------------------------------------------------------------
 */

static void shrink_send_buffer(struct soft_hca *hca)
{
    int bytes = 1; /* the kernel makes it its minimum */

    CHECK(setsockopt(soft_udp_fd(hca->udp), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
}

/*
 * Nobody answers for the address, so the first packets wait in the neighbour's queue and fill the
 * small send buffer, until the kernel gives up: the rest waits in the send queue, and EPOLLOUT
 * wakes.
 */
static void a_full_socket_keeps_sends_queued_and_wakes_when_there_is_room(void)
{
    enum { COUNT = 24 };
    static uint8_t data[2000];
    struct soft_send_wr wr[COUNT];
    struct soft_wc wc[COUNT];
    struct end b = open_end(1);
    struct in6_addr nobody = gid_of(b.hca);
    struct soft_ah *ah;
    int done;

    nobody.s6_addr[15] ^= 0x55;
    nobody.s6_addr[9] ^= 0x11;
    ah = ah_to(b.hca, nobody);
    shrink_send_buffer(b.hca);
    for (int i = 0; i < COUNT; i++) {
        wr[i] = message(ah, 2, data, 600 + (size_t)i); /* growing: each one by itself */
        wr[i].wr_id = (uint64_t)i;
        wr[i].flags = SOFT_SEND_SIGNALED;
    }
    CHECK_EQUAL(soft_qp_post_send(b.qp, wr, COUNT), COUNT);
    soft_ah_destroy(ah);
    CHECK_EQUAL(counter(b.hca, SOFT_C_TX_STALLS), 1);
    CHECK(b.hca->wants_writable);
    done = soft_cq_poll(b.cq, COUNT, wc);
    CHECK(done > 0 && done < COUNT);
    await(b.cq, COUNT - done, wc + done);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQUAL(wc[i].wr_id, i);
        CHECK_EQUAL(wc[i].status, SOFT_WC_SUCCESS);
    }
    CHECK(!b.hca->wants_writable);
    CHECK_EQUAL(counter(b.hca, SOFT_C_TX_PACKETS), COUNT);
    close_end(&b);
}

/* Through a rate limiter (set by the caller) with a small send buffer: all of it, in order. */
static void a_slow_link_holds_sends_back_and_loses_none(void)
{
    enum { COUNT = 1000 };
    static uint8_t data[COUNT][1000];
    struct soft_send_wr wr[100];
    static struct soft_wc wc[COUNT];
    struct end a, b;

    open_both(&a, &b);
    exchange(&a, &b);
    shrink_send_buffer(a.hca);
    for (int i = 0; i < COUNT; i++)
        memset(data[i], i, sizeof(data[i]));
    for (int i = 0; i < COUNT; i += 100) {
        for (int j = 0; j < 100; j++) {
            wr[j] = message(a.peer, soft_qp_qpn(b.qp), data[i + j], sizeof(data[i + j]));
            wr[j].flags = j == 99 ? SOFT_SEND_SIGNALED : 0;
        }
        CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 100), 100);
    }
    await(a.cq, COUNT / 100, wc);
    await(b.cq, COUNT, wc);
    for (int i = 0; i < COUNT; i++)
        CHECK(memcmp(b.frame[wc[i].wr_id] + 40, data[i], sizeof(data[i])) == 0);
    CHECK(counter(a.hca, SOFT_C_TX_STALLS) > 0);
    CHECK_EQUAL(counter(b.hca, SOFT_C_RX_DELIVERED), COUNT + 1);
    close_both(&a, &b);
}

static void change_link(int which, bool up, int mtu_bytes)
{
    struct ifreq req = {.ifr_flags = 0};
    int fd;

    enter(place[which].netns);
    fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    leave();
    CHECK(fd >= 0);
    memcpy(req.ifr_name, place[which].netdev, strlen(place[which].netdev) + 1);
    if (mtu_bytes > 0) {
        req.ifr_mtu = mtu_bytes;
        CHECK(ioctl(fd, SIOCSIFMTU, &req) == 0);
    }
    CHECK(ioctl(fd, SIOCGIFFLAGS, &req) == 0);
    req.ifr_flags = (short)(up ? req.ifr_flags | IFF_UP : req.ifr_flags & ~IFF_UP);
    CHECK(ioctl(fd, SIOCSIFFLAGS, &req) == 0);
    close(fd);
}

static void await_port(struct soft_hca *hca, int state)
{
    int64_t end = now_ms() + PATIENCE_MS;

    while (soft_hca_check(hca) != state && now_ms() < end)
        sched_yield();
    CHECK_EQUAL(soft_hca_check(hca), state);
}

static void a_link_that_goes_down_and_up_again_carries_on(void)
{
    struct in6_addr group = group_number(0);
    struct soft_ah *ah;
    struct soft_wc wc[4];
    struct soft_send_wr wr;
    struct end a, b;

    open_both(&a, &b);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    leave();
    CHECK_EQUAL(soft_hca_check(a.hca), 0);
    change_link(0, false, 0);
    CHECK_EQUAL(soft_hca_check(a.hca), -ENETDOWN);
    await_port(b.hca, -ENETDOWN); /* no carrier; the kernel is in no hurry to notice */
    wr = message(a.peer, soft_qp_qpn(b.qp), "lost", 4);
    wr.flags = SOFT_SEND_SIGNALED;
    CHECK_EQUAL(soft_qp_post_send(a.qp, &wr, 1), 1);
    await(a.cq, 1, wc);
    CHECK_EQUAL(wc[0].status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_UNREACHABLE), 1);
    change_link(0, true, 0);
    await_port(a.hca, 0);
    await_port(b.hca, 0);
    exchange(&a, &b);
    ah = ah_to(a.hca, group);
    send_to(&a, ah, SOFT_QPN_MCAST, "still a member", 14);
    await(b.cq, 1, wc);
    CHECK_EQUAL(wc[0].byte_len, 54);
    close_both(&a, &b);
}

static void an_mtu_that_shrinks_is_noticed_and_loses_only_what_is_too_long(void)
{
    static uint8_t data[4096];
    struct soft_send_wr wr[8];
    struct soft_wc wc[8];
    struct end a, b;

    open_both(&a, &b);
    CHECK_EQUAL(mtu_of(a.hca), 4096);
    change_link(0, true, 2128);
    CHECK_EQUAL(soft_hca_check(a.hca), -EMSGSIZE);
    for (int i = 0; i < 8; i++) { /* trains that the kernel refuses whole, and must go singly */
        wr[i] = message(a.peer, soft_qp_qpn(b.qp), data, i < 4 ? 4096 : i == 4 ? 2000 : 100);
        wr[i].flags = SOFT_SEND_SIGNALED;
    }
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 8), 8);
    await(a.cq, 8, wc);
    await(b.cq, 4, wc);
    CHECK_EQUAL(wc[0].byte_len, 2040);
    CHECK_EQUAL(wc[3].byte_len, 140);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_REFUSED), 4);
    change_link(0, true, 9000);
    CHECK_EQUAL(soft_hca_check(a.hca), 0);
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 8), 8);
    await(b.cq, 8, wc);
    CHECK(counter(a.hca, SOFT_C_TX_SUPER) > 0);
    close_both(&a, &b);
}

static void one_device_has_one_hca(void)
{
    struct soft_hca *hca = open_at(0);
    struct soft_hca *second;

    enter(place[0].netns);
    CHECK_EQUAL(soft_hca_open(place[0].netdev, &second), -EADDRINUSE);
    soft_hca_close(hca);
    CHECK_EQUAL(soft_hca_open(place[0].netdev, &second), 0);
    leave();
    soft_hca_close(second);
}

static void a_restarted_hca_has_new_numbers_and_the_old_ones_are_dead(void)
{
    struct soft_wc wc;
    struct end a, b;
    uint32_t old;

    open_both(&a, &b);
    exchange(&a, &b);
    old = soft_qp_qpn(b.qp);
    close_end(&b);
    send_to(&a, a.peer, old, "nobody home", 11); /* an ICMP error comes back and hurts nothing */
    b = open_end(1);
    b.peer = ah_to(b.hca, gid_of(a.hca));
    CHECK(soft_qp_qpn(b.qp) != old); /* once in 16 million runs */
    send_to(&a, a.peer, old, "too late", 8);
    await_counter(b.hca, SOFT_C_DROP_QPN, 1);
    exchange(&a, &b);
    CHECK_EQUAL(soft_cq_poll(a.cq, 1, &wc), 0);
    close_both(&a, &b);
}

static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void opening_and_closing_a_hundred_times_leaves_nothing(void)
{
    int before = open_descriptors();

    for (int i = 0; i < 100; i++) {
        struct end a, b;

        open_both(&a, &b);
        exchange(&a, &b);
        close_both(&a, &b);
    }
    CHECK_EQUAL(open_descriptors(), before);
}

/* For those who watch the wire: known messages, one by one, and a train; then the counters. */
static void known_messages_for_a_capture(void)
{
    static const char *const texts[] = {"", "a", "ab", "abc", "abcd", "The quick brown fox"};
    struct in6_addr group = group_number(0x1234);
    struct soft_send_wr wr[4];
    struct soft_wc wc[16];
    struct end a, b;

    open_both(&a, &b);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    leave();
    printf("qpn %06x %06x\n", soft_qp_qpn(a.qp), soft_qp_qpn(b.qp));
    for (int i = 0; i < 6; i++) {
        wr[0] = message(a.peer, soft_qp_qpn(b.qp), texts[i], strlen(texts[i]));
        wr[0].flags = i == 5 ? SOFT_SEND_SOLICITED | SOFT_SEND_WITH_IMM : 0;
        wr[0].imm_data = 0xcafef00d;
        CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 1), 1);
        await(b.cq, 1, wc);
    }
    wr[0] = message(ah_to(a.hca, group), SOFT_QPN_MCAST, "to the group", 12);
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 1), 1);
    await(b.cq, 1, wc);
    for (int i = 0; i < 4; i++)
        wr[i] = message(a.peer, soft_qp_qpn(b.qp), "one of four", i < 3 ? 11 : 3);
    CHECK_EQUAL(soft_qp_post_send(a.qp, wr, 4), 4);
    await(b.cq, 4, wc);
    CHECK_EQUAL(counter(a.hca, SOFT_C_TX_SUPER), 1);
    close_both(&a, &b);
}

static const struct test tests[] = {
    TEST(messages_of_all_sizes_arrive_with_their_grh),
    TEST(bursts_travel_as_trains),
    TEST(messages_within_one_hca_need_no_wire),
    TEST(many_qps_get_what_is_theirs),
    TEST(a_group_reaches_all_members_and_the_sender),
    TEST(a_hundred_groups_are_reached),
    TEST(a_thousand_groups_are_reached),
    TEST(joining_from_another_namespace_is_refused_not_misplaced),
    TEST(wrong_keys_and_small_buffers_are_counted_drops),
    TEST(corrupted_packets_are_dropped_and_the_good_one_is_not),
    TEST(packets_without_a_udp_checksum_are_taken_as_rxe_sends_them),
    TEST(packets_to_groups_of_other_programs_are_not_ours),
    TEST(a_packet_makes_the_descriptor_readable),
    TEST(packets_left_fetched_wake_the_other_cq),
    TEST(threads_share_an_hca_and_none_sleeps_for_ever),
    TEST(a_full_socket_keeps_sends_queued_and_wakes_when_there_is_room),
    TEST(a_slow_link_holds_sends_back_and_loses_none),
    TEST(a_link_that_goes_down_and_up_again_carries_on),
    TEST(an_mtu_that_shrinks_is_noticed_and_loses_only_what_is_too_long),
    TEST(one_device_has_one_hca),
    TEST(a_restarted_hca_has_new_numbers_and_the_old_ones_are_dead),
    TEST(opening_and_closing_a_hundred_times_leaves_nothing),
    TEST(known_messages_for_a_capture),
};

int main(int argc, char **argv)
{
    size_t count = sizeof(tests) / sizeof(tests[0]);

    own_netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < count; i++)
            printf("%s\n", tests[i].name);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "open") == 0) {
        struct soft_hca *hca;
        int error;

        enter(argv[2]);
        error = soft_hca_open(argv[3], &hca);
        if (error == 0) {
            printf("0 %u\n", mtu_of(hca));
            soft_hca_close(hca);
        } else {
            printf("%s\n", strerrorname_np(-error));
        }
        return 0;
    }
    if (argc == 6) {
        for (int i = 0; i < 2; i++) {
            place[i].netns = argv[2 + 2 * i];
            place[i].netdev = argv[3 + 2 * i];
        }
        for (size_t i = 0; i < count; i++)
            if (strcmp(argv[1], tests[i].name) == 0)
                return run_tests(&tests[i], 1);
    }
    fprintf(stderr,
            "usage: live list | live open NETNS DEVICE | live TEST NETNS DEVICE NETNS DEVICE\n");
    return 2;
}
