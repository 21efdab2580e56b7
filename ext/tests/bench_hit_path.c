/* SPDX-License-Identifier: BSD-2-Clause */
/* What the pump itself costs for a resolved packet of an IP device, out and in: the device has
 * always frames, and the fabric takes and gives everything at once. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "fake_fabric.h"
#include "stepped_pump.h"
#include "roomy_pump.h"
#include "core/frame.h"
#include "device/vnet.h"

enum { MTU = 2044, LEN = 64, ROUNDS = 20000, REPEATS = 15, BATCH = 64 };

static uint8_t packet[IPU_VNET_LEN + LEN];
static uint64_t ended[4 * BATCH];
static int ended_count;
static struct ipu_recv posted[4096];
static uint32_t posted_count, taken_count;
static bool is_outbound;
static uint64_t written;

static ssize_t read_packet(void *self, void *buf, size_t cap)
{
    (void)self, (void)cap;
    if (!is_outbound)
        return -EAGAIN;
    memcpy(buf, packet, sizeof packet);
    return sizeof packet;
}

static int write_packet(void *self, const void *buf, size_t len)
{
    (void)self, (void)buf, (void)len;
    written++;
    return 0;
}

static int send_all(void *self, const struct ipu_send *sends, int n)
{
    (void)self;
    for (int i = 0; i < n; i++)
        ended[ended_count++] = sends[i].cookie;
    return n;
}

static int sent(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = ended_count < max ? ended_count : max;
    memcpy(cookies, ended + ended_count - n, (size_t)n * sizeof *cookies);
    ended_count -= n;
    return n;
}

static int post(void *self, const struct ipu_recv *recvs, int n)
{
    (void)self;
    for (int i = 0; i < n; i++)
        posted[posted_count++ % 4096] = recvs[i];
    return n;
}

static int received(void *self, struct ipu_received *done, int max)
{
    (void)self;
    int n = 0;
    while (!is_outbound && n < max && taken_count != posted_count) {
        const struct ipu_recv *recv = &posted[taken_count++ % 4096];
        uint8_t *frame = recv->addr;
        memset(frame, 0, IPU_RX_IP);
        frame[IPU_RX_ENCAP] = 0x08;
        memcpy(frame + IPU_RX_IP, packet + IPU_VNET_LEN, LEN);
        done[n++] = (struct ipu_received){.cookie = recv->cookie,
                                          .byte_len = IPU_RX_IP + LEN,
                                          .src_qpn = 0x55,
                                          .flags = IPU_RECEIVED_GRH};
    }
    return n;
}

static const struct ipu_fabric_ops fabric_ops = {
    FAKE_FABRIC_OPS, .send = send_all,     .post = post,
    .sent = sent,    .received = received, .fd = the_fabric_fd,
};
static const struct ipu_device_ops device_ops = {
    .read = read_packet, .write = write_packet, .fd = the_device_fd};
static struct ipu_fabric fabric = {.ops = &fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};
static struct ipu_device device = {.ops = &device_ops};

static void begin(void)
{
    static const uint8_t ip[20] = {0x45, [3] = LEN, [8] = 64, 17, [12] = 10, 0, 0, 1, 10, 0, 0, 2};
    struct ipu_pump_config config = {
        .fabric = &fabric, .device = &device, .mtu = MTU, .rx_frames = 256, ROOMY_PUMP};
    struct in6_addr target = {.s6_addr = {[10] = 0xff, 0xff, 10, 0, 0, 2}};
    memcpy(packet + IPU_VNET_LEN, ip, sizeof ip);
    open_descriptors();
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    give((struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                              .neigh_set = {.next_hop = target, .dest = {.qpn = 7}, .mtu = MTU}},
         NULL);
    (void)ipu_pump_step(pump, BATCH);
}

/* Returns the least time of a packet over all repeats, in ns. */
static double least_ns(const char *name, bool outbound)
{
    double least = 1e9;
    is_outbound = outbound;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        uint64_t before = counter(name);
        double start = bench_now_ns();
        for (int round = 0; round < ROUNDS / BATCH; round++)
            (void)ipu_pump_step(pump, BATCH);
        double each = (bench_now_ns() - start) / (double)(counter(name) - before);
        if (each < least)
            least = each;
    }
    return least;
}

int main(void)
{
    begin();
    printf("hit path: %.1f ns a packet out, %.1f in\n", least_ns("tx_packets", true),
           least_ns("rx_packets", false));
    destroy_pump();
    return 0;
}
