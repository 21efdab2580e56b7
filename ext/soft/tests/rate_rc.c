/* SPDX-License-Identifier: BSD-2-Clause */
/* Measures the messages of reliable connections and their CPU time: one thread sends from the first
 * device, one receives on the second, each in its network namespace, over one or more connections.
 *
 *   rate_rc NETNS_A DEVICE_A NETNS_B DEVICE_B [SECONDS [CONNECTIONS]]
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "gid_option.h"
#include "hca.h"
#include "rate.h"

#define BATCH           16
#define DEPTH           64 /* of a connection */
#define BUFFERS         512
#define FRAME           65536
#define MAX_CONNECTIONS 64

struct end {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_srq *srq;
    struct soft_qp *qp[MAX_CONNECTIONS];
    struct soft_hca_attr attr;
    uint8_t *memory;
    double cpu_s; /* CPU time of its thread */
};

static uint32_t message_bytes;
static int connections = 1;
static _Atomic uint64_t received;

static struct soft_hca_options options;

static void post_buffer(struct end *e, uint64_t number)
{
    struct soft_recv_wr wr = {
        .wr_id = number, .num_sge = 1, .sg = {{e->memory + number * FRAME, FRAME}}};
    int n = soft_srq_post_recv(e->srq, &wr, 1);

    if (n != 1)
        fail("post a receive", n < 0 ? n : -5);
}

static void open_end(struct end *e, const char *netns, const char *netdev)
{
    struct soft_qp_attr attr = {.type = SOFT_QPT_RC, .max_send_wr = DEPTH};
    int error;

    e->hca = open_hca_in(netns, netdev, &options);
    soft_hca_query(e->hca, &e->attr);
    error = soft_cq_create(e->hca, MAX_CONNECTIONS * DEPTH + BUFFERS, &e->cq);
    if (error == 0)
        error = soft_srq_create(e->hca, BUFFERS, &e->srq);
    if (error != 0)
        fail("queues", error);
    attr.send_cq = attr.recv_cq = e->cq;
    attr.srq = e->srq;
    for (int i = 0; i < connections && error == 0; i++)
        error = soft_qp_create(e->hca, &attr, &e->qp[i]);
    if (error != 0)
        fail("queue pair", error);
    e->memory = calloc(BUFFERS, FRAME);
    if (e->memory == NULL)
        fail("memory", -12);
    for (uint64_t i = 0; i < BUFFERS; i++)
        post_buffer(e, i);
}

static void connect_to(struct end *e, const struct end *peer)
{
    unsigned int mtu = e->attr.active_mtu_bytes < peer->attr.active_mtu_bytes
                           ? e->attr.active_mtu_bytes
                           : peer->attr.active_mtu_bytes;

    for (int i = 0; i < connections; i++) {
        struct soft_rc_attr attr = {
            .path = {.dgid = peer->attr.gid},
            .dest_qpn = soft_qp_qpn(peer->qp[i]),
            .path_mtu_bytes = mtu,
            .min_rnr_timer = 12,
            .timeout = 18,
            .retry_count = 7,
            .rnr_retry = 7,
        };
        int error = soft_qp_modify(e->qp[i], SOFT_QPS_INIT, NULL);

        if (error == 0)
            error = soft_qp_modify(e->qp[i], SOFT_QPS_RTR, &attr);
        if (error == 0)
            error = soft_qp_modify(e->qp[i], SOFT_QPS_RTS, &attr);
        if (error != 0)
            fail("connect", error);
    }
}

/* Takes up to BATCH completions, after a sleep until there may be some. */
static int completions(struct end *e, struct soft_wc *wc)
{
    struct pollfd p = {.fd = soft_cq_fd(e->cq), .events = POLLIN};
    int n = soft_cq_poll(e->cq, BATCH, wc);

    if (n == 0) {
        soft_cq_arm(e->cq);
        n = soft_cq_poll(e->cq, BATCH, wc);
        if (n == 0)
            poll(&p, 1, 5); /* shorter than any timer of the connections */
    }
    for (int i = 0; i < n; i++)
        if (wc[i].status != SOFT_WC_SUCCESS) {
            fprintf(stderr, "rate_rc: completion with status %d\n", wc[i].status);
            exit(1);
        }
    return n;
}

static void post_again(struct end *e, struct soft_send_wr *wr, int n, uint64_t connection)
{
    for (int i = 0; i < n; i++)
        wr[i].wr_id = connection;
    if (soft_qp_post_send(e->qp[connection], wr, n) != n)
        fail("post a send", -5);
}

static void *send_all(void *argument)
{
    struct end *e = argument;
    struct soft_send_wr wr[BATCH];
    struct soft_wc wc[BATCH];

    for (int i = 0; i < BATCH; i++)
        wr[i] = (struct soft_send_wr){.flags = SOFT_SEND_SIGNALED,
                                      .num_sge = 1,
                                      .sg = {{e->memory + (size_t)i * FRAME, message_bytes}}};
    for (int i = 0; i < connections; i++)
        for (int j = 0; j < DEPTH / BATCH; j++)
            post_again(e, wr, BATCH, (uint64_t)i);
    while (!stop) {
        int n = completions(e, wc);

        for (int i = 0, run; i < n; i += run) {
            for (run = 1; i + run < n && wc[i + run].wr_id == wc[i].wr_id; run++)
                continue;
            post_again(e, wr, run, wc[i].wr_id);
        }
    }
    e->cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

static void *receive_all(void *argument)
{
    struct end *e = argument;
    struct soft_wc wc[BATCH];

    while (!stop) {
        int n = completions(e, wc);

        for (int i = 0; i < n; i++)
            post_buffer(e, wc[i].wr_id);
        received += (uint64_t)n;
    }
    e->cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

static void measure(char **place, uint32_t bytes, double duration_s)
{
    struct end a = {0}, b = {0};
    struct soft_hca_counters ca, cb;

    open_end(&a, place[0], place[1]);
    open_end(&b, place[2], place[3]);
    connect_to(&a, &b);
    connect_to(&b, &a);
    message_bytes = bytes;
    received = 0;
    duration_s = run_threads(send_all, &a, receive_all, &b, duration_s);
    soft_hca_counters(a.hca, &ca);
    soft_hca_counters(b.hca, &cb);
    printf("%5" PRIu32 " bytes: received %8.0f/s = %6.3f Gb/s, CPU ns a message %5.0f + %5.0f; "
           "lost in the socket %" PRIu64 ", sent again %" PRIu64 ", timeouts %" PRIu64
           ", not ready %" PRIu64 "; packets an ACK %.0f, a call %.0f / %.0f\n",
           bytes, (double)received / duration_s, (double)received * bytes * 8e-9 / duration_s,
           a.cpu_s * 1e9 / (double)received, b.cpu_s * 1e9 / (double)received,
           cb.value[SOFT_C_DROP_SOCKET], ca.value[SOFT_C_RC_RETRANSMITS],
           ca.value[SOFT_C_RC_TIMEOUTS], cb.value[SOFT_C_RC_NOT_READY],
           (double)cb.value[SOFT_C_RX_PACKETS] / (double)(cb.value[SOFT_C_RC_ACKS] | 1),
           (double)ca.value[SOFT_C_TX_PACKETS] / (double)(ca.value[SOFT_C_TX_CALLS] | 1),
           (double)cb.value[SOFT_C_RX_PACKETS] / (double)(cb.value[SOFT_C_RX_CALLS] | 1));
    soft_hca_close(a.hca);
    soft_hca_close(b.hca);
    free(a.memory);
    free(b.memory);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {64, 4096, 65524};
    double duration_s = argc > 5 ? atof(argv[5]) : 2;

    if (argc > 6)
        connections = atoi(argv[6]);
    if (argc < 5 || duration_s <= 0 || connections < 1 || connections > MAX_CONNECTIONS ||
        (argc > 7 && !read_gid_option(argv[7], &options))) {
        fprintf(stderr, "usage: rate_rc NETNS DEVICE NETNS DEVICE [SECONDS [CONNECTIONS [GID]]]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        measure(argv + 1, sizes[i], duration_s);
    return 0;
}
