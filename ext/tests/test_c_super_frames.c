/* SPDX-License-Identifier: BSD-2-Clause */
/* Super-frames through packet devices in C: one gives them, ipoibu cuts them, and another one takes
 * what ipoibu has merged again. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"
#include "segment_frames.h"
#include "roomy_pump.h"
#include "core/frame.h"
#include "device/c_device.h"
#include "fabric/memory.h"
#include "pump/loop/pump.h"
#include "pump/records/pump_abi.h"

enum {
    MTU = 2044,
    PAYLOAD = 60000,
    RX_FRAMES = 128,
    OFFLOADS = IPOIBU_OFFLOAD_TCP | IPOIBU_OFFLOAD_UDP,
    TCP = 6,
    UDP = 17,
};

/* ---- the device: it sends one frame, and keeps what it takes */

struct super_device {
    struct ipoibu_packet_device_v1 v1;
    struct ipoibu_frames_v1 frames;
    int fd;
    struct frame to_send;       /* bytes: NULL, when it is sent */
    uint32_t ended;             /* lent frames that came back */
    uint8_t taken[2 * PAYLOAD]; /* the payloads, one behind the other */
    size_t taken_bytes;
    uint32_t headers, writes, merged;
    uint8_t transport;
};

static int super_start(void *self, const struct ipoibu_frames_v1 *frames)
{
    struct super_device *device = self;
    CHECK_EQ(frames->packet_bytes, device->v1.offload != 0 ? 65535 : MTU);
    CHECK_EQ(frames->mtu_bytes, MTU);
    device->frames = *frames;
    return 0;
}

static ssize_t put_frame(struct super_device *device, void *to, size_t bytes)
{
    size_t len = device->to_send.len;
    CHECK(len <= bytes);
    memcpy(to, device->to_send.bytes, len);
    free(device->to_send.bytes);
    device->to_send.bytes = NULL;
    return (ssize_t)len;
}

static ssize_t super_read(void *self, void *frame, size_t bytes)
{
    struct super_device *device = self;
    return device->to_send.bytes == NULL ? -EAGAIN : put_frame(device, frame, bytes);
}

static ssize_t super_give(void *self, uint32_t *frame)
{
    struct super_device *device = self;
    if (device->to_send.bytes == NULL)
        return -EAGAIN;
    *frame = device->frames.count - 1;
    return put_frame(device, device->frames.first + (size_t)*frame * device->frames.stride_bytes,
                     device->frames.stride_bytes);
}

static void super_ended(void *self, uint32_t frame)
{
    struct super_device *device = self;
    CHECK_EQ(frame, device->frames.count - 1);
    device->ended++;
}

/* A merged frame says how to cut it, and its headers say what one packet of its length would. */
static int super_write(void *self, const struct iovec *pieces, int count)
{
    struct super_device *device = self;
    static uint8_t frame[IPOIBU_VNET_BYTES + 65535];
    size_t len = 0;
    for (int i = 0; i < count; i++) {
        CHECK(len + pieces[i].iov_len <= sizeof frame);
        memcpy(frame + len, pieces[i].iov_base, pieces[i].iov_len);
        len += pieces[i].iov_len;
    }
    struct virtio_net_hdr vnet = ipu_vnet_read(frame);
    const uint8_t *ip = frame + IPOIBU_VNET_BYTES;
    size_t ip_bytes = len - IPOIBU_VNET_BYTES;
    bool is_ipv6 = ip[0] >> 4 == 6;
    CHECK_EQ(is_ipv6 ? (size_t)(ip[4] << 8 | ip[5]) + 40 : (size_t)(ip[2] << 8 | ip[3]), ip_bytes);
    CHECK_EQ(is_ipv6 ? ip[6] : ip[9], device->transport);
    device->writes++;
    if (vnet.gso_type != VIRTIO_NET_HDR_GSO_NONE) {
        CHECK(device->v1.offload != 0);
        CHECK_EQ(vnet.hdr_len, device->headers);
        CHECK(device->headers + vnet.gso_size <= MTU);
        CHECK(vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM);
        device->merged++;
    } else {
        CHECK(ip_bytes <= MTU);
    }
    CHECK(device->taken_bytes + ip_bytes - device->headers <= sizeof device->taken);
    memcpy(device->taken + device->taken_bytes, ip + device->headers, ip_bytes - device->headers);
    device->taken_bytes += ip_bytes - device->headers;
    return 0;
}

static int super_fd(void *self)
{
    return ((struct super_device *)self)->fd;
}

static void super_init(struct super_device *device, uint32_t offload, bool lends)
{
    memset(device, 0, sizeof *device);
    device->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    device->v1 = (struct ipoibu_packet_device_v1){
        .self = device,
        .offload = offload,
        .lent_bytes = lends ? 1 << 20 : 0,
        .start = super_start,
        .read = lends ? NULL : super_read,
        .give = lends ? super_give : NULL,
        .ended = lends ? super_ended : NULL,
        .write = super_write,
        .fd = super_fd,
    };
}

/* ---- two hosts of one switch */

struct host {
    uint8_t number;
    struct ipu_memory_port *port;
    struct super_device super;
    struct ipu_c_device device;
    struct ipu_pump *pump;
};

static struct host first = {.number = 1}, second = {.number = 2};

static void open_host(struct host *host, struct ipu_memory_switch *network)
{
    const struct ipu_memory_config port = {
        .gid.s6_addr = {0xfe, 0x80, [15] = host->number}, .qpn = 100u + host->number, .mtu = 2048};
    CHECK(host->port = ipu_memory_port_create(network, &port));
    CHECK_EQ(ipu_c_device_init(&host->device, &host->super.v1), 0);
    const struct ipu_pump_config config = {
        .fabric = ipu_memory_port_fabric(host->port),
        .device = &host->device.device,
        .mtu = MTU,
        .rx_frames = RX_FRAMES,
        ROOMY_PUMP,
    };
    CHECK_EQ(ipu_pump_create(&config, &host->pump), 0);
}

static void close_host(struct host *host)
{
    ipu_memory_break(host->port, 0);
    ipu_pump_destroy(host->pump);
    ipu_memory_port_destroy(host->port);
    close(host->super.fd);
}

static struct in6_addr ip_of(const struct host *host, bool v6)
{
    return v6 ? (struct in6_addr){.s6_addr = {0xfd, [15] = host->number}}
              : (struct in6_addr){.s6_addr = {[10] = 0xff, 0xff, 10, 0, 0, host->number}};
}

static void introduce(struct host *host, const struct host *other, bool v6)
{
    struct ipu_command command = {
        .type = IPU_COMMAND_NEIGH_SET,
        .neigh_set = {.next_hop = ip_of(other, v6),
                      .mtu = MTU,
                      .dest = {.gid.s6_addr = {0xfe, 0x80, [15] = other->number},
                               .qpn = 100u + other->number}},
    };
    struct ipu_ring *commands = ipu_pump_commands(host->pump);
    memcpy(ipu_ring_reserve(commands, sizeof command), &command, sizeof command);
    ipu_ring_commit(commands, sizeof command);
}

static void put16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 131 + i / 251);
}

/* Makes the longest super-frame that there is use for, of segments that fill the MTU. */
static struct frame super_frame(const struct host *from, const struct host *to, bool v6,
                                uint8_t transport, uint32_t *headers)
{
    uint32_t start = v6 ? 40 : 20, header = transport == TCP ? 20 : 8;
    size_t len = start + header + PAYLOAD;
    uint8_t *ip = calloc(1, len);
    struct in6_addr source = ip_of(from, v6), target = ip_of(to, v6);
    if (v6) {
        ip[0] = 0x60;
        put16(ip + 4, len - 40);
        ip[6] = transport;
        ip[7] = 64;
        memcpy(ip + 8, &source, 16);
        memcpy(ip + 24, &target, 16);
    } else {
        ip[0] = 0x45;
        put16(ip + 2, len);
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = transport;
        memcpy(ip + 12, &source.s6_addr[12], 4);
        memcpy(ip + 16, &target.s6_addr[12], 4);
        uint16_t csum = ipu_csum_finish(ipu_csum_add(0, ip, 20));
        memcpy(ip + 10, &csum, 2);
    }
    uint8_t *at = ip + start;
    put16(at, 1000);
    put16(at + 2, 2000);
    if (transport == TCP) {
        at[12] = 5 << 4;
        at[13] = 16; /* ACK */
        put16(at + 14, 500);
    } else {
        put16(at + 4, len - start);
    }
    for (size_t i = 0; i < PAYLOAD; i++)
        at[header + i] = byte_at(i);
    uint32_t csum_at = transport == TCP ? 16 : 6;
    uint16_t csum = ipu_csum_finish(
        ipu_csum_add(ipu_csum_pseudo(ip, transport, (uint32_t)(len - start)), at, len - start));
    memcpy(at + csum_at, &csum, 2);
    struct frame frame = frame_new(ip, len);
    free(ip);
    uint8_t type = transport == UDP ? VIRTIO_NET_HDR_GSO_UDP_L4
                   : v6             ? VIRTIO_NET_HDR_GSO_TCPV6
                                    : VIRTIO_NET_HDR_GSO_TCPV4;
    *headers = start + header;
    frame_ask_segments(frame, type, (uint16_t)*headers, (uint16_t)(MTU - *headers), (uint16_t)start,
                       (uint16_t)csum_at);
    return frame;
}

static uint64_t super_frames_of(const struct host *host)
{
    return atomic_load(&ipu_pump_counters(host->pump)->tx_super_frames);
}

/* Sends one super-frame from each host whose device has offloads. */
static void exchange(bool v6, uint8_t transport)
{
    struct host *hosts[] = {&first, &second};
    for (int i = 0; i < 2; i++) {
        struct super_device *device = &hosts[i]->super;
        device->to_send = super_frame(hosts[i], hosts[1 - i], v6, transport, &device->headers);
        if (device->v1.offload == 0) {
            free(device->to_send.bytes);
            device->to_send.bytes = NULL;
        }
        device->transport = transport;
        device->taken_bytes = 0;
        device->merged = device->writes = 0;
        introduce(hosts[i], hosts[1 - i], v6);
    }
    for (int steps = 0; steps < 100; steps++)
        for (int i = 0; i < 2; i++)
            ipu_pump_step(hosts[i]->pump, 64);
    for (int i = 0; i < 2; i++) {
        struct super_device *device = &hosts[i]->super;
        bool gets = hosts[1 - i]->super.v1.offload != 0;
        CHECK_EQ(device->taken_bytes, gets ? PAYLOAD : 0);
        for (size_t b = 0; b < device->taken_bytes; b++)
            CHECK_EQ(device->taken[b], byte_at(b));
        if (gets && device->v1.offload != 0) { /* it takes nearly all of them in a few frames */
            CHECK(device->merged > 0);
            CHECK(device->writes <= 4);
        }
        if (gets && device->v1.offload == 0)
            CHECK_EQ(device->writes, PAYLOAD / (MTU - device->headers) + 1);
    }
}

static void exchange_all(void)
{
    struct ipu_memory_switch *network = ipu_memory_switch_create(1);
    CHECK(network != NULL);
    open_host(&first, network);
    open_host(&second, network);
    for (int v6 = 0; v6 < 2; v6++) {
        exchange(v6, TCP);
        exchange(v6, UDP);
    }
    CHECK_EQ(super_frames_of(&first), 4);
    CHECK_EQ(super_frames_of(&second), second.super.v1.offload != 0 ? 4 : 0);
    close_host(&first);
    close_host(&second);
    ipu_memory_switch_destroy(network);
}

static void super_frames_cross_in_both_directions(void)
{
    super_init(&first.super, OFFLOADS, false);
    super_init(&second.super, OFFLOADS, false);
    exchange_all();
}

static void a_lent_frame_holds_a_super_frame(void)
{
    super_init(&first.super, OFFLOADS, true);
    super_init(&second.super, OFFLOADS, true);
    exchange_all();
    CHECK_EQ(first.super.ended, 4);
    CHECK_EQ(second.super.ended, 4);
}

static void a_device_without_offloads_takes_what_fits_the_mtu(void)
{
    super_init(&first.super, OFFLOADS, true);
    super_init(&second.super, 0, false);
    exchange_all();
}

int main(void)
{
    RUN(super_frames_cross_in_both_directions);
    RUN(a_lent_frame_holds_a_super_frame);
    RUN(a_device_without_offloads_takes_what_fits_the_mtu);
    return 0;
}
