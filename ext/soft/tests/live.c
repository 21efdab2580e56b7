/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The HCA on real net devices: two of them, one in each of two network namespaces joined by a veth
 * pair, in one process.
 *
 *   live TEST NETNS_A DEVICE_A NETNS_B DEVICE_B [GID]  run one test (names: live list)
 *   live open NETNS DEVICE [GID]                       open; print 0, MTU, datagram and GID, or the
 *                                                      name of the error
 *
 * GID is any, link, ipv4, ipv6 or an address.
 *
 * tests/netns/test_soft_hca.py makes the namespaces. The tests change links and put them back.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "gid_option.h"
#include "live.h"

struct place place[2];
static struct soft_hca_options options;

static int own_netns;

void enter(const char *netns)
{
    int fd = open(netns, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    close(fd);
}

void leave(void)
{
    CHECK(setns(own_netns, CLONE_NEWNET) == 0);
}

int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- an end: HCA, CQ, UD QP, receive buffers ------------------------------------------------- */

struct soft_hca *open_at(int which)
{
    struct soft_hca *hca = NULL;

    enter(place[which].netns);
    CHECK_EQUAL(soft_hca_open(place[which].netdev, &options, &hca), 0);
    leave();
    return hca;
}

struct in6_addr gid_of(const struct soft_hca *hca)
{
    struct soft_hca_attr attr;

    soft_hca_query(hca, &attr);
    return attr.gid;
}

unsigned int mtu_of(const struct soft_hca *hca)
{
    struct soft_hca_attr attr;

    soft_hca_query(hca, &attr);
    return attr.active_mtu_bytes;
}

struct soft_ah *ah_to(struct soft_hca *hca, struct in6_addr gid)
{
    struct soft_ah_attr attr = {.dgid = gid};
    struct soft_ah *ah = NULL;

    CHECK_EQUAL(soft_ah_create(hca, &attr, &ah), 0);
    return ah;
}

struct soft_qp *qp_on(struct soft_hca *hca, struct soft_cq *cq, unsigned int depth)
{
    struct soft_qp_attr attr = {SOFT_QPT_UD, cq, cq, depth, depth, QKEY, 0, NULL, 0, 0};
    struct soft_qp *qp = NULL;

    CHECK_EQUAL(soft_qp_create(hca, &attr, &qp), 0);
    return qp;
}

void post(struct soft_qp *qp, uint64_t wr_id, void *buffer, uint32_t length)
{
    struct soft_recv_wr wr = {.wr_id = wr_id, .num_sge = 1, .sg = {{buffer, length}}};

    CHECK_EQUAL(soft_qp_post_recv(qp, &wr, 1), 1);
}

struct end open_end(int which)
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

void close_end(struct end *e)
{
    soft_hca_close(e->hca);
    free(e->frame);
}

void open_both(struct end *a, struct end *b)
{
    *a = open_end(0);
    *b = open_end(1);
    a->peer = ah_to(a->hca, gid_of(b->hca));
    b->peer = ah_to(b->hca, gid_of(a->hca));
}

void close_both(struct end *a, struct end *b)
{
    close_end(a);
    close_end(b);
}

struct soft_send_wr message(struct soft_ah *ah, uint32_t qpn, const void *data, size_t length)
{
    return (struct soft_send_wr){
        .ah = ah,
        .remote_qpn = qpn,
        .remote_qkey = QKEY,
        .num_sge = 1,
        .sg = {{(void *)(uintptr_t)data, (uint32_t)length}},
    };
}

void send_to(struct end *from, struct soft_ah *ah, uint32_t qpn, const void *data, size_t length)
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

/* Polls until n completions have come, and sleeps on the descriptor in between. */
void await(struct soft_cq *cq, int n, struct soft_wc *wc)
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
        if (more == 0 && poll(&p, 1, TIMEOUT_MS) != 1) {
            show_counters(cq->hca);
            CHECK(!"nothing came");
        }
    }
}

uint64_t counter(struct soft_hca *hca, enum soft_counter which)
{
    struct soft_hca_counters c;

    soft_hca_counters(hca, &c);
    return c.value[which];
}

/* Makes progress until the counter has this value. */
void await_counter(struct soft_hca *hca, enum soft_counter which, uint64_t value)
{
    int64_t end = now_ms() + TIMEOUT_MS;

    while (counter(hca, which) < value && now_ms() < end)
        if (soft_hca_progress(hca) == 0)
            sched_yield();
    CHECK_EQUAL(counter(hca, which), value);
}

/* A message each way proves that nothing before it is still under way. */
void exchange(struct end *a, struct end *b)
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

struct in6_addr group_number(int n)
{
    struct in6_addr g;

    CHECK(inet_pton(AF_INET6, "ff12:401b:ffff::", &g) == 1);
    soft_roce_put32(g.s6_addr + 12, (uint32_t)n + 1);
    return g;
}

static const struct test *const suites[] = {
    live_messages, live_groups, live_refusals, live_waiting, live_trouble, live_rc, NULL,
};

int main(int argc, char **argv)
{

    own_netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (int i = 0; suites[i] != NULL; i++)
            for (const struct test *t = suites[i]; t->name != NULL; t++)
                printf("%s\n", t->name);
        return 0;
    }
    if (argc > 2 && argc == (strcmp(argv[1], "open") == 0 ? 5 : 7) &&
        !read_gid_option(argv[--argc], &options))
        return 2;
    if (argc == 4 && strcmp(argv[1], "open") == 0) {
        struct soft_hca_attr attr;
        struct soft_hca *hca;
        char gid[INET6_ADDRSTRLEN];
        int error;

        enter(argv[2]);
        error = soft_hca_open(argv[3], &options, &hca);
        if (error == 0) {
            soft_hca_query(hca, &attr);
            printf("0 %u %u %s\n", attr.active_mtu_bytes, attr.datagram_bytes,
                   inet_ntop(AF_INET6, &attr.gid, gid, sizeof(gid)));
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
        for (int i = 0; suites[i] != NULL; i++)
            for (const struct test *t = suites[i]; t->name != NULL; t++)
                if (strcmp(argv[1], t->name) == 0)
                    return run_tests(t, 1);
    }
    fprintf(stderr, "usage: live list | live open NETNS DEVICE [GID]"
                    " | live TEST NETNS DEVICE NETNS DEVICE [GID]\n");
    return 2;
}
