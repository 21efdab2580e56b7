/* SPDX-License-Identifier: BSD-2-Clause */
/* The flow that the pump names with each send: the pump is stepped by hand. */
#include <netinet/udp.h>

#include "fake_fabric.h"
#include "stepped_pump.h"
#include "roomy_pump.h"
#include "core/frame.h"
#include "device/vnet.h"

enum { MTU = 2044, SEGMENT = 1400, UDP = 28, QUEUE = 256, PORTS = 200 };

static struct {
    uint8_t frame[IPU_VNET_LEN + 65536];
    size_t len; /* 0: no frame */
} next_frame;

static struct {
    uint32_t flow[QUEUE];
    uint64_t cookie[QUEUE];
    int count;
    int ended;
} sends;

static int record_sends(void *self, const struct ipu_send *given, int n)
{
    (void)self;
    for (int i = 0; i < n; i++) {
        CHECK(sends.count < QUEUE);
        sends.cookie[sends.count] = given[i].cookie;
        sends.flow[sends.count++] = given[i].flow;
    }
    return n;
}

static int end_sends(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = 0;
    while (n < max && sends.ended < sends.count)
        cookies[n++] = sends.cookie[sends.ended++];
    return n;
}

static const struct ipu_fabric_ops fabric_ops = {
    FAKE_FABRIC_OPS,   .send = record_sends,      .post = fake_post,
    .sent = end_sends, .received = fake_received, .fd = the_fabric_fd,
};

static ssize_t device_read(void *self, void *buf, size_t cap)
{
    (void)self;
    size_t len = next_frame.len;
    if (len == 0)
        return -EAGAIN;
    CHECK(len <= cap);
    memcpy(buf, next_frame.frame, len);
    next_frame.len = 0;
    return (ssize_t)len;
}

static const struct ipu_device_ops device_ops = {
    .read = device_read, .write = write_to_nobody, .fd = the_device_fd};
static struct ipu_device device = {.ops = &device_ops, .offload = IPU_DEVICE_TCP | IPU_DEVICE_UDP};
static struct ipu_fabric fabric = {.ops = &fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};

static void begin(bool spreads_flows)
{
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = &device,
        .mtu = MTU,
        .rx_frames = 8,
        ROOMY_PUMP,
    };
    fabric.spreads_flows = spreads_flows;
    next_frame.len = 0;
    open_descriptors();
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    give(
        (struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                             .neigh_set = {.next_hop = {{{[10] = 0xff, [11] = 0xff, 10, 0, 0, 2}}},
                                           .dest = {.qpn = 0x55, .gid = {{{0xfe, 0x80, [15] = 2}}}},
                                           .mtu = MTU}},
        NULL);
    ipu_pump_step(pump, 1);
}

/* Sends a UDP packet of the flow with this source port, in as many segments; returns its flow. */
static uint32_t flow_of(uint8_t port, int segments, bool is_fragment)
{
    size_t udp_len = sizeof(struct udphdr) + (size_t)segments * SEGMENT, len = 20 + udp_len;
    uint8_t *ip = next_frame.frame + IPU_VNET_LEN;
    memset(next_frame.frame, 0, IPU_VNET_LEN + UDP);
    memcpy(ip, (uint8_t[]){0x45, 0, (uint8_t)(len >> 8), (uint8_t)len, 0, 0, is_fragment ? 32 : 0},
           7);
    memcpy(ip + 8, (uint8_t[]){64, IPPROTO_UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 12);
    memcpy(ip + 20, (uint8_t[]){0, port, 0, 9, (uint8_t)(udp_len >> 8), (uint8_t)udp_len}, 6);
    if (segments > 1)
        ipu_vnet_write(next_frame.frame,
                       (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                               .gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
                                               .gso_size = SEGMENT,
                                               .csum_start = 20,
                                               .csum_offset = 6});
    next_frame.len = IPU_VNET_LEN + len;
    sends.count = sends.ended = 0;
    while (sends.ended < segments)
        CHECK(ipu_pump_step(pump, 64) > 0);
    CHECK_EQ(sends.count, segments);
    for (int i = 1; i < segments; i++)
        CHECK_EQ(sends.flow[i], sends.flow[0]);
    return sends.flow[0];
}

static void a_flow_has_one_number_and_others_have_others(void)
{
    uint32_t flow[PORTS];
    unsigned int outlets = 0;
    begin(true);
    for (uint8_t port = 0; port < PORTS; port++) {
        flow[port] = flow_of(port, 1, false);
        CHECK_EQ(flow_of(port, 1, false), flow[port]);
        CHECK_EQ(flow_of(port, 3, false), flow[port]);
        for (uint8_t other = 0; other < port; other++)
            CHECK(flow[other] != flow[port]);
        outlets |= 1u << flow[port] % 8;
    }
    CHECK_EQ(outlets, 0xff);
    destroy_pump();
}

static void fragments_of_one_packet_are_one_flow(void)
{
    begin(true);
    CHECK_EQ(flow_of(1, 1, true), flow_of(2, 1, true)); /* behind the first there are no ports */
    destroy_pump();
}

static void a_fabric_with_one_way_gets_no_number(void)
{
    begin(false);
    CHECK_EQ(flow_of(1, 1, false), 0);
    CHECK_EQ(flow_of(2, 3, false), 0);
    destroy_pump();
}

int main(void)
{
    RUN(a_flow_has_one_number_and_others_have_others);
    RUN(fragments_of_one_packet_are_one_flow);
    RUN(a_fabric_with_one_way_gets_no_number);
    return 0;
}
