/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/tap.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "device/vnet.h"

enum { PIECES = 64 }; /* of a merged frame */

static int tap_fd(void *self)
{
    return ((struct ipu_tap *)self)->fd;
}

/* Moves what a vnet header refers to by the length of the Ethernet header. */
static void shift(uint8_t *frame, int bytes)
{
    struct virtio_net_hdr vnet = ipu_vnet_read(frame);
    if (vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
        vnet.csum_start = (uint16_t)(vnet.csum_start + bytes);
    if (vnet.hdr_len != 0)
        vnet.hdr_len = (uint16_t)(vnet.hdr_len + bytes);
    memcpy(frame, &vnet, sizeof vnet);
}

static ssize_t tap_read(void *self, void *buf, size_t cap)
{
    uint8_t *frame = buf;
    const struct iovec iov[] = {
        {.iov_base = frame, .iov_len = IPU_VNET_LEN},
        {.iov_base = frame - IPU_ETHERNET_LEN, .iov_len = IPU_ETHERNET_LEN},
        {.iov_base = frame + IPU_VNET_LEN, .iov_len = cap - IPU_VNET_LEN},
    };
    ssize_t n = readv(tap_fd(self), iov, 3);
    if (n < 0)
        return -errno;
    if ((size_t)n < IPU_VNET_LEN + IPU_ETHERNET_LEN)
        return 0; /* no frame is so short; the pump counts it as malformed */
    shift(frame, -(int)IPU_ETHERNET_LEN);
    return n - (ssize_t)IPU_ETHERNET_LEN;
}

static int tap_writev(void *self, const struct iovec *iov, int n)
{
    uint8_t *frame = iov[0].iov_base;
    uint8_t vnet[IPU_VNET_LEN];
    struct iovec pieces[2 + PIECES];
    if (n > PIECES)
        return -EINVAL;
    memcpy(vnet, frame, sizeof vnet);
    shift(vnet, IPU_ETHERNET_LEN);
    pieces[0] = (struct iovec){.iov_base = vnet, .iov_len = sizeof vnet};
    pieces[1] = (struct iovec){.iov_base = frame - IPU_ETHERNET_LEN, .iov_len = IPU_ETHERNET_LEN};
    memcpy(pieces + 2, iov, (size_t)n * sizeof *iov);
    pieces[2].iov_base = frame + IPU_VNET_LEN;
    pieces[2].iov_len -= IPU_VNET_LEN;
    return writev(tap_fd(self), pieces, 2 + n) < 0 ? -errno : 0;
}

static int tap_write(void *self, const void *buf, size_t len)
{
    const struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    return tap_writev(self, &iov, 1);
}

static int tap_write_frame(void *self, const void *frame, size_t len)
{
    uint8_t vnet[IPU_VNET_LEN] = {0};
    const struct iovec iov[] = {
        {.iov_base = vnet, .iov_len = sizeof vnet},
        {.iov_base = (void *)(uintptr_t)frame, .iov_len = len},
    };
    return writev(tap_fd(self), iov, 2) < 0 ? -errno : 0;
}

static const struct ipu_device_ops tap_ops = {
    .read = tap_read,
    .write = tap_write,
    .writev = tap_writev,
    .write_frame = tap_write_frame,
    .fd = tap_fd,
};

void ipu_tap_init(struct ipu_tap *tap, int fd, uint32_t offload)
{
    tap->fd = fd;
    tap->device =
        (struct ipu_device){.ops = &tap_ops, .self = tap, .offload = offload, .ethernet = true};
}
