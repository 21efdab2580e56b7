/* SPDX-License-Identifier: BSD-2-Clause */
/* A TAP frame by frame, with a pair of sockets in its place. */
#include "device/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "check.h"
#include "core/ip_header.h"
#include "core/mac_table.h"
#include "device/vnet.h"

enum { IP = 28, FRAME = IPU_VNET_LEN + IPU_ETHERNET_LEN + IP };

static const uint8_t guest[IPU_MAC_LEN] = {2, [5] = 7}, host[IPU_MAC_LEN] = {2, [5] = 9};

struct bed {
    int kernel;
    struct ipu_tap tap;
    const struct ipu_device_ops *ops;
};

static void make(struct bed *bed)
{
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    bed->kernel = ends[1];
    ipu_tap_init(&bed->tap, ends[0], IPU_DEVICE_TCP);
    bed->ops = bed->tap.device.ops;
    CHECK(bed->tap.device.ethernet);
    CHECK_EQ(bed->tap.device.offload, IPU_DEVICE_TCP);
}

static void end(struct bed *bed)
{
    close(bed->kernel);
    close(bed->tap.fd);
}

/* [vnet][Ethernet][IPv4] to 10.0.0.LAST */
static void put(uint8_t *frame, uint8_t last)
{
    struct virtio_net_hdr vnet = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                  .hdr_len = IPU_ETHERNET_LEN + IP,
                                  .csum_start = IPU_ETHERNET_LEN + IPU_IPV4_HEADER,
                                  .csum_offset = 6};
    memset(frame, 0, FRAME);
    ipu_vnet_write(frame, vnet);
    memcpy(frame + IPU_VNET_LEN, host, IPU_MAC_LEN);
    memcpy(frame + IPU_VNET_LEN + IPU_MAC_LEN, guest, IPU_MAC_LEN);
    ipu_ip_put16(frame + IPU_VNET_LEN + 2 * IPU_MAC_LEN, IPU_TYPE_IPV4);
    uint8_t *ip = frame + IPU_VNET_LEN + IPU_ETHERNET_LEN;
    ip[0] = 0x45;
    ip[16] = 10;
    ip[19] = last;
}

static void a_read_puts_the_ethernet_header_in_front(void)
{
    struct bed bed;
    uint8_t sent[FRAME], buffer[IPU_TAP_ROOM + FRAME], *frame = buffer + IPU_TAP_ROOM;
    make(&bed);
    put(sent, 9);
    CHECK_EQ(send(bed.kernel, sent, FRAME, 0), FRAME);
    CHECK_EQ(bed.ops->read(&bed.tap, frame, FRAME), IPU_VNET_LEN + IP);
    CHECK_EQ(memcmp(frame - IPU_ETHERNET_LEN, sent + IPU_VNET_LEN, IPU_ETHERNET_LEN), 0);
    CHECK_EQ(memcmp(frame + IPU_VNET_LEN, sent + IPU_VNET_LEN + IPU_ETHERNET_LEN, IP), 0);
    CHECK_EQ(ipu_vnet_read(frame).csum_start, IPU_IPV4_HEADER);
    CHECK_EQ(ipu_vnet_read(frame).hdr_len, IP);
    CHECK_EQ(bed.ops->read(&bed.tap, frame, FRAME), -EAGAIN);
    CHECK_EQ(send(bed.kernel, sent, IPU_VNET_LEN + IPU_ETHERNET_LEN - 1, 0),
             IPU_VNET_LEN + IPU_ETHERNET_LEN - 1);
    CHECK_EQ(bed.ops->read(&bed.tap, frame, FRAME), 0);
    end(&bed);
}

static void a_write_takes_the_ethernet_header_from_the_front(void)
{
    struct bed bed;
    uint8_t wanted[FRAME], got[2 * FRAME], buffer[IPU_TAP_ROOM + IPU_VNET_LEN + IP];
    uint8_t *frame = buffer + IPU_TAP_ROOM;
    const size_t len = IPU_VNET_LEN + IP;
    make(&bed);
    put(wanted, 7);
    memcpy(wanted + IPU_VNET_LEN, guest, IPU_MAC_LEN);
    memcpy(wanted + IPU_VNET_LEN + IPU_MAC_LEN, host, IPU_MAC_LEN);
    memcpy(frame - IPU_ETHERNET_LEN, wanted + IPU_VNET_LEN, IPU_ETHERNET_LEN);
    memcpy(frame, wanted, IPU_VNET_LEN);
    memcpy(frame + IPU_VNET_LEN, wanted + IPU_VNET_LEN + IPU_ETHERNET_LEN, IP);
    struct virtio_net_hdr vnet = ipu_vnet_read(frame);
    vnet.csum_start = IPU_IPV4_HEADER;
    vnet.hdr_len = IP;
    ipu_vnet_write(frame, vnet);
    CHECK_EQ(bed.ops->write(&bed.tap, frame, len), 0);
    CHECK_EQ(recv(bed.kernel, got, sizeof got, 0), FRAME);
    CHECK_EQ(memcmp(got, wanted, FRAME), 0);
    struct iovec pieces[2] = {{frame, len}, {"payload", 7}};
    CHECK_EQ(bed.ops->writev(&bed.tap, pieces, 2), 0);
    CHECK_EQ(recv(bed.kernel, got, sizeof got, 0), FRAME + 7);
    CHECK_EQ(memcmp(got, wanted, FRAME), 0);
    CHECK_EQ(memcmp(got + FRAME, "payload", 7), 0);
    CHECK_EQ(bed.ops->writev(&bed.tap, pieces, 65), -EINVAL);
    end(&bed);
}

static void a_frame_of_the_engine_is_written_as_it_is(void)
{
    struct bed bed;
    uint8_t got[64], none[IPU_VNET_LEN] = {0};
    make(&bed);
    CHECK_EQ(bed.ops->write_frame(&bed.tap, "a frame with ARP", 16), 0);
    CHECK_EQ(recv(bed.kernel, got, sizeof got, 0), IPU_VNET_LEN + 16);
    CHECK_EQ(memcmp(got, none, sizeof none), 0);
    CHECK_EQ(memcmp(got + IPU_VNET_LEN, "a frame with ARP", 16), 0);
    CHECK_EQ(bed.ops->write_frame(&bed.tap, "short", 5), -EINVAL);
    end(&bed);
}

static void the_errors_of_the_kernel_are_passed_on(void)
{
    struct bed bed;
    uint8_t buffer[IPU_TAP_ROOM + IPU_VNET_LEN + IP] = {0}, *frame = buffer + IPU_TAP_ROOM;
    make(&bed);
    frame[IPU_VNET_LEN] = 0x45;
    frame[IPU_VNET_LEN + 16] = 224;
    signal(SIGPIPE, SIG_IGN);
    close(bed.kernel);
    CHECK_EQ(bed.ops->write(&bed.tap, frame, IPU_VNET_LEN + IP), -EPIPE);
    CHECK_EQ(bed.ops->write_frame(&bed.tap, frame, IP), -EPIPE);
    CHECK_EQ(bed.ops->fd(&bed.tap), bed.tap.fd);
    bed.kernel = dup(0);
    end(&bed);
}

int main(void)
{
    RUN(a_read_puts_the_ethernet_header_in_front);
    RUN(a_write_takes_the_ethernet_header_from_the_front);
    RUN(a_frame_of_the_engine_is_written_as_it_is);
    RUN(the_errors_of_the_kernel_are_passed_on);
    return 0;
}
