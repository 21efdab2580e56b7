/* SPDX-License-Identifier: BSD-2-Clause */
/* Super-frames that the fabric cuts, and datagrams that it lends: the pump is stepped by hand. */
#include <netinet/udp.h>

#include "fake_fabric.h"
#include "pump/state/pump_state.h" /* comes first: it has parameters that are called pump */
#include "stepped_pump.h"
#include "core/frame.h"
#include "device/vnet.h"

enum { MTU = 2044, UDP = 28, QUEUE = 1024, ONE = 0x55, GROUP = IPU_MULTICAST_QPN };

/* ---- the device: it has `frames` frames alike, and keeps what it is given */

static struct {
    uint8_t frame[IPU_VNET_LEN + 65536];
    size_t len;
    int frames, read;
    uint8_t last[IPU_VNET_LEN + 65536];
    size_t last_len;
    int written;
} host;

static ssize_t device_read(void *self, void *buf, size_t cap)
{
    (void)self;
    if (host.read == host.frames)
        return -EAGAIN;
    CHECK(host.len <= cap);
    memcpy(buf, host.frame, host.len);
    host.read++;
    return (ssize_t)host.len;
}

static int device_writev(void *self, const struct iovec *iov, int n)
{
    (void)self;
    host.last_len = 0;
    for (int i = 0; i < n; i++) {
        memcpy(host.last + host.last_len, iov[i].iov_base, iov[i].iov_len);
        host.last_len += iov[i].iov_len;
    }
    host.written++;
    return 0;
}

static const struct ipu_device_ops device_ops = {
    .read = device_read, .write = write_to_nobody, .writev = device_writev, .fd = the_device_fd};
static struct ipu_device device = {.ops = &device_ops, .offload = IPU_DEVICE_TCP | IPU_DEVICE_UDP};

/* ---- the fabric: it keeps the bytes of all datagrams, one behind the other */

static struct {
    uint64_t cookie[QUEUE];
    int count, ended, ends; /* of the sends that it has taken, it has ended so many, and may end */
    uint8_t bytes[1 << 20];
    size_t len;
    bool fails;
    int lent_batches; /* that it still has, of */
    bool lends;
    uint8_t lent[IPU_BATCH][64 + MTU];
} wire;

static void keep(const void *data, size_t len)
{
    memcpy(wire.bytes + wire.len, data, len);
    wire.len += len;
}

static int keep_sends(void *self, const struct ipu_send *given, int n)
{
    (void)self;
    if (wire.fails)
        return -EIO;
    for (int i = 0; i < n; i++) {
        CHECK(wire.count < QUEUE);
        wire.cookie[wire.count++] = given[i].cookie;
        if (given[i].cut == NULL) {
            if (given[i].head_len > 0)
                keep(given[i].head, given[i].head_len);
            keep(given[i].addr, given[i].len);
            continue;
        }
        for (uint32_t k = 0; k < given[i].cut->packets; k++)
            wire.len += given[i].cut->make(given[i].cut->context, k, wire.bytes + wire.len);
    }
    return n;
}

static int end_sends(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = 0;
    while (n < max && wire.ended < wire.count && wire.ended < wire.ends)
        cookies[n++] = wire.cookie[wire.ended++];
    return n;
}

static void note_lend(void *self)
{
    (void)self;
    wire.lends = true;
}

enum { LENT_PAYLOAD = 100 };

/* Lends a batch of datagrams of one flow, and spoils those that it has lent before. */
static int lend_batch(void *self, struct ipu_received *done, int max)
{
    (void)self;
    memset(wire.lent, 0xee, sizeof wire.lent);
    if (wire.lent_batches == 0)
        return 0;
    CHECK_EQ(max, IPU_BATCH);
    for (int i = 0; i < IPU_BATCH; i++) {
        uint8_t *frame = wire.lent[i] + IPU_GRH_LEN, *ip = frame + IPU_ENCAP_LEN;
        uint16_t udp_len = htons(8 + LENT_PAYLOAD), ip_len = htons(UDP + LENT_PAYLOAD);
        memset(frame, 0, IPU_ENCAP_LEN + UDP);
        frame[0] = 0x08;
        memcpy(ip, (uint8_t[]){0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, IPPROTO_UDP}, 10);
        memcpy(ip + 2, &ip_len, 2);
        memcpy(ip + 12, (uint8_t[]){10, 0, 0, 2, 10, 0, 0, 1, 0, 7, 0, 9}, 12);
        memcpy(ip + 24, &udp_len, 2);
        memset(ip + UDP, i, LENT_PAYLOAD);
        uint16_t csum = ipu_csum_finish(ipu_csum_add(0, ip, 20));
        memcpy(ip + 10, &csum, 2);
        uint64_t sum = ipu_csum_pseudo(ip, IPPROTO_UDP, 8 + LENT_PAYLOAD);
        csum = ipu_csum_finish(ipu_csum_add(sum, ip + 20, 8 + LENT_PAYLOAD));
        memcpy(ip + 26, &csum, 2);
        done[i] = (struct ipu_received){
            .byte_len = IPU_RX_IP + UDP + LENT_PAYLOAD,
            .src_qpn = ONE,
            .flags = IPU_RECEIVED_GRH | IPU_RECEIVED_LENT,
            .lent = frame,
            .lent_grh = wire.lent[i],
        };
    }
    wire.lent_batches--;
    return IPU_BATCH;
}

static const struct ipu_fabric_ops fabric_ops = {
    FAKE_FABRIC_OPS,   .send = keep_sends,     .post = fake_post,   .lend = note_lend,
    .sent = end_sends, .received = lend_batch, .fd = the_fabric_fd,
};
static struct ipu_fabric fabric = {.ops = &fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};

/* ---- */

static void begin(bool cuts, uint32_t qpn)
{
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = &device,
        .mtu = MTU,
        .rx_frames = 8,
        .neigh_max = 16,
        .route_max = 16,
        .ah_max = 16,
        .command_bytes = 1 << 17,
        .event_bytes = 1 << 17,
        .capture_bytes = 1 << 18,
    };
    fabric.cuts = cuts;
    memset(&wire, 0, sizeof wire);
    wire.ends = QUEUE;
    host.frames = host.read = host.written = 0;
    open_descriptors();
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    give((struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                              .neigh_set = {.next_hop = {{{[10] = 0xff, [11] = 0xff, 10, 0, 0, 2}}},
                                            .dest = {.qpn = qpn, .gid = {{{0xfe, 0x80, [15] = 2}}}},
                                            .mtu = MTU}},
         NULL);
    ipu_pump_step(pump, 1);
}

/* The host has so many super-frames of UDP. */
static void host_sends(int frames, int segments, uint16_t segment_bytes)
{
    size_t udp_len = sizeof(struct udphdr) + (size_t)segments * segment_bytes, len = 20 + udp_len;
    uint8_t *ip = host.frame + IPU_VNET_LEN;
    memset(host.frame, 0, sizeof host.frame);
    memcpy(ip, (uint8_t[]){0x45, 0, (uint8_t)(len >> 8), (uint8_t)len}, 4);
    memcpy(ip + 8, (uint8_t[]){64, IPPROTO_UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 12);
    memcpy(ip + 20, (uint8_t[]){0, 7, 0, 9, (uint8_t)(udp_len >> 8), (uint8_t)udp_len}, 6);
    for (size_t i = UDP + 1; i < len; i++)
        ip[i] = (uint8_t)(i * 7);
    ipu_vnet_write(host.frame, (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                                       .gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
                                                       .gso_size = segment_bytes,
                                                       .csum_start = 20,
                                                       .csum_offset = 6});
    host.len = IPU_VNET_LEN + len;
    host.frames += frames;
}

static void a_fabric_that_cuts_sends_what_the_pump_would(void)
{
    enum { FRAMES = 3, SEGMENTS = 33 };
    static uint8_t wanted[sizeof wire.bytes];
    size_t len = 0;
    uint64_t packets = 0, bytes = 0;
    for (int cuts = 0; cuts < 2; cuts++) {
        begin(cuts, ONE);
        host_sends(FRAMES, SEGMENTS, 1400);
        step_until_idle();
        CHECK_EQ(wire.count, cuts ? FRAMES : FRAMES * SEGMENTS);
        CHECK_EQ(counter("tx_super_frames"), FRAMES);
        CHECK_EQ(pump->tx.free_frames, pump->tx.frames);
        if (cuts) {
            CHECK_EQ(wire.len, len);
            CHECK(memcmp(wire.bytes, wanted, len) == 0);
            CHECK_EQ(counter("tx_packets"), packets);
            CHECK_EQ(counter("tx_bytes"), bytes);
        }
        memcpy(wanted, wire.bytes, len = wire.len);
        packets = counter("tx_packets");
        bytes = counter("tx_bytes");
        destroy_pump();
    }
    CHECK_EQ(packets, FRAMES * SEGMENTS);
    CHECK_EQ(bytes, FRAMES * SEGMENTS * (UDP + 1400));
}

/* Each shows or counts the packets of the link, or costs the fabric too long at once. */
static void the_pump_cuts_for_groups_and_captures_and_into_many_packets(void)
{
    begin(true, GROUP);
    host_sends(1, 3, 1400);
    step_until_idle();
    CHECK_EQ(wire.count, 3);
    CHECK_EQ(counter("tx_multicast_packets"), 3);
    destroy_pump();

    begin(true, ONE);
    host_sends(1, IPU_CUT_PACKETS + 1, 16);
    step_until_idle();
    CHECK_EQ(wire.count, IPU_CUT_PACKETS + 1);
    host_sends(1, IPU_CUT_PACKETS, 16);
    step_until_idle();
    CHECK_EQ(wire.count, IPU_CUT_PACKETS + 2);

    give((struct ipu_command){.type = IPU_COMMAND_CAPTURE, .capture = {.snap_len = 96}}, NULL);
    host_sends(1, 4, 1400);
    step_until_idle();
    CHECK_EQ(wire.count, IPU_CUT_PACKETS + 6);
    CHECK_EQ(counter("capture_packets"), 4);
    destroy_pump();
}

/* So that the kernel's queue, and not the fabric's, holds what the link does not take. */
static void so_many_packets_are_under_way_and_no_more(void)
{
    enum { SEGMENTS = 44 };
    begin(true, ONE);
    wire.ends = 0;
    host_sends(40, SEGMENTS, 100);
    step_until_idle();
    int under_way = host.read;
    CHECK(under_way * SEGMENTS >= 512 && (under_way - 1) * SEGMENTS < 512);
    wire.ends = 1;
    step_until_idle();
    CHECK_EQ(host.read, under_way + 1);
    wire.ends = QUEUE;
    step_until_idle();
    CHECK_EQ(host.read, 40);
    CHECK_EQ(counter("tx_packets"), 40 * SEGMENTS);
    destroy_pump();
}

static void a_fabric_that_breaks_costs_the_packets_of_its_super_frames(void)
{
    begin(true, ONE);
    wire.fails = true;
    host_sends(1, 5, 1400);
    (void)ipu_pump_step(pump, 64);
    CHECK_EQ(counter("tx_fabric_error"), 5);
    CHECK_EQ(pump->tx.free_frames, pump->tx.frames);
    CHECK_EQ(pump->uncut_packets, 0);
    CHECK_EQ(pump->pending_packets, 0);
    destroy_pump();
}

static void lent_datagrams_reach_the_device_before_the_fabric_takes_them_back(void)
{
    begin(true, ONE);
    CHECK(wire.lends);
    wire.lent_batches = 3;
    CHECK_EQ(ipu_pump_step(pump, 256), 3 * IPU_BATCH);
    CHECK_EQ(host.written, 3);
    CHECK_EQ(counter("rx_packets"), 3 * IPU_BATCH);
    CHECK_EQ(counter("rx_merged"), 3 * IPU_BATCH);
    CHECK_EQ(host.last_len, IPU_VNET_LEN + UDP + IPU_BATCH * LENT_PAYLOAD);
    for (size_t i = 0; i < IPU_BATCH * LENT_PAYLOAD; i++)
        CHECK_EQ(host.last[IPU_VNET_LEN + UDP + i], i / LENT_PAYLOAD);
    destroy_pump();
}

int main(void)
{
    RUN(a_fabric_that_cuts_sends_what_the_pump_would);
    RUN(the_pump_cuts_for_groups_and_captures_and_into_many_packets);
    RUN(so_many_packets_are_under_way_and_no_more);
    RUN(a_fabric_that_breaks_costs_the_packets_of_its_super_frames);
    RUN(lent_datagrams_reach_the_device_before_the_fabric_takes_them_back);
    return 0;
}
