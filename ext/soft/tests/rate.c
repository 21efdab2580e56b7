/* SPDX-License-Identifier: BSD-2-Clause */
/* Measures messages a second and their CPU time: one thread sends from the first device, one
 * receives on the second, each in its network namespace.
 *
 *   rate NETNS_A DEVICE_A NETNS_B DEVICE_B [SECONDS [ipv4|ipv6|ADDRESS|any [FLOWS]]]
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "gid_option.h"
#include "hca.h"
#include "rate.h"

#define BATCH 64
#define DEPTH 1024
#define FRAME (SOFT_GRH_BYTES + 4096)
#define QKEY  0x1234u

struct end {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_qp *qp;
    struct soft_hca_attr attr;
    uint8_t *memory;
    double cpu_s; /* CPU time of its thread */
};

static struct soft_ah *peer;
static uint32_t peer_qpn;
static uint32_t message_bytes;
static uint32_t flows = 1;
static _Atomic uint64_t sent, received;

static struct soft_hca_options options;

static void open_end(struct end *e, const char *netns, const char *netdev)
{
    struct soft_qp_attr attr = {
        .type = SOFT_QPT_UD, .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .qkey = QKEY};
    int error;

    e->hca = open_hca_in(netns, netdev, &options);
    soft_hca_query(e->hca, &e->attr);
    error = soft_cq_create(e->hca, 2 * DEPTH, &e->cq);
    if (error != 0)
        fail("completion queue", error);
    attr.send_cq = attr.recv_cq = e->cq;
    error = soft_qp_create(e->hca, &attr, &e->qp);
    if (error != 0)
        fail("queue pair", error);
    e->memory = calloc(DEPTH, FRAME);
    if (e->memory == NULL)
        fail("memory", -12);
}

/* Sleeps until a completion may be there. */
static void rest(struct soft_cq *cq)
{
    struct pollfd p = {.fd = soft_cq_fd(cq), .events = POLLIN};

    poll(&p, 1, 10);
}

static void *send_all(void *argument)
{
    struct end *e = argument;
    struct soft_send_wr wr[BATCH];
    struct soft_wc wc[BATCH];
    unsigned int free_slots = DEPTH;

    for (int i = 0; i < BATCH; i++)
        wr[i] = (struct soft_send_wr){
            .ah = peer,
            .remote_qpn = peer_qpn,
            .remote_qkey = QKEY,
            .flags = i == BATCH - 1 ? SOFT_SEND_SIGNALED : 0,
            .num_sge = 1,
            .flow = (uint32_t)i % flows,
            .sg = {{e->memory + (size_t)i * FRAME, message_bytes}},
        };
    while (!stop) {
        int n;

        if (free_slots >= BATCH) {
            n = soft_qp_post_send(e->qp, wr, BATCH);
            if (n != BATCH)
                fail("post", n < 0 ? n : -5);
            free_slots -= BATCH;
        }
        n = soft_cq_poll(e->cq, BATCH, wc);
        free_slots += (unsigned int)n * BATCH;
        sent += (uint64_t)n * BATCH;
        if (n == 0 && free_slots < BATCH) {
            soft_cq_arm(e->cq);
            rest(e->cq);
        }
    }
    e->cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

static void repost(struct end *e, const struct soft_wc *wc, int n)
{
    struct soft_recv_wr wr[BATCH];

    for (int i = 0; i < n; i++)
        wr[i] = (struct soft_recv_wr){
            .wr_id = wc[i].wr_id, .num_sge = 1, .sg = {{e->memory + wc[i].wr_id * FRAME, FRAME}}};
    n = soft_qp_post_recv(e->qp, wr, n);
    if (n < 0)
        fail("post", n);
}

static void *receive_all(void *argument)
{
    struct end *e = argument;
    struct soft_wc wc[BATCH];

    while (!stop) {
        int n = soft_cq_poll(e->cq, BATCH, wc);

        if (n == 0) {
            soft_cq_arm(e->cq);
            n = soft_cq_poll(e->cq, BATCH, wc);
            if (n == 0)
                rest(e->cq);
        }
        repost(e, wc, n);
        received += (uint64_t)n;
    }
    e->cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

static void measure(char **place, uint32_t bytes, double duration_s)
{
    struct end a = {0}, b = {0};
    struct soft_ah_attr to_b = {0};
    struct soft_hca_counters ca, cb;

    open_end(&a, place[0], place[1]);
    open_end(&b, place[2], place[3]);
    if (bytes > a.attr.active_mtu_bytes || bytes > b.attr.active_mtu_bytes) {
        printf("%5" PRIu32 " bytes: more than the MTU of the devices\n", bytes);
        goto out;
    }
    for (uint64_t i = 0; i < DEPTH; i++)
        repost(&b, &(struct soft_wc){.wr_id = i}, 1);
    to_b.dgid = b.attr.gid;
    if (soft_ah_create(a.hca, &to_b, &peer) != 0)
        fail("address handle", -12);
    peer_qpn = soft_qp_qpn(b.qp);
    message_bytes = bytes;
    sent = received = 0;
    duration_s = run_threads(send_all, &a, receive_all, &b, duration_s);
    soft_hca_counters(a.hca, &ca);
    soft_hca_counters(b.hca, &cb);
    printf("%5" PRIu32 " bytes: sent %8.0f/s, received %8.0f/s = %6.3f Gb/s, "
           "CPU ns a message %4.0f + %4.0f; lost: socket %" PRIu64 ", no buffer %" PRIu64
           "; packets a call %.0f / %.0f\n",
           bytes, (double)sent / duration_s, (double)received / duration_s,
           (double)received * bytes * 8e-9 / duration_s, a.cpu_s * 1e9 / (double)sent,
           b.cpu_s * 1e9 / (double)received, cb.value[SOFT_C_DROP_SOCKET],
           cb.value[SOFT_C_DROP_NO_BUFFER],
           (double)ca.value[SOFT_C_TX_PACKETS] / (double)(ca.value[SOFT_C_TX_CALLS] | 1),
           (double)cb.value[SOFT_C_RX_PACKETS] / (double)(cb.value[SOFT_C_RX_CALLS] | 1));
out:
    soft_hca_close(a.hca);
    soft_hca_close(b.hca);
    free(a.memory);
    free(b.memory);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {64, 1024, 2048, 4096};
    double duration_s = argc > 5 ? atof(argv[5]) : 2;

    if (argc > 7)
        flows = (uint32_t)atoi(argv[7]);
    if (argc < 5 || duration_s <= 0 || flows == 0 ||
        (argc > 6 && strcmp(argv[6], "any") != 0 && !read_gid_option(argv[6], &options))) {
        fprintf(stderr, "usage: rate NETNS DEVICE NETNS DEVICE [SECONDS [GID [FLOWS]]]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        measure(argv + 1, sizes[i], duration_s);
    return 0;
}
