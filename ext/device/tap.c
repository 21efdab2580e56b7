/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/tap.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/ip_header.h"
#include "device/trunk.h"
#include "device/vnet.h"

enum {
    PIECES = 64,     /* of a merged frame */
    VLAN = 0x8100,   /* IEEE 802.1Q */
    PASSED_MAX = 64, /* frames of VLANs in one read, so that the pump does its other work, too */
};

static int tap_fd(void *self)
{
    return ((struct ipu_tap *)self)->fd;
}

static ssize_t read_frame(struct ipu_tap *tap, uint8_t *frame, size_t cap)
{
    const struct iovec iov[] = {
        {.iov_base = frame, .iov_len = IPU_VNET_LEN},
        {.iov_base = frame - IPU_ETHERNET_LEN, .iov_len = IPU_ETHERNET_LEN},
        {.iov_base = frame + IPU_VNET_LEN, .iov_len = cap - IPU_VNET_LEN},
    };
    ssize_t n = readv(tap->fd, iov, 3);
    if (n < 0)
        return -errno;
    if ((size_t)n < IPU_VNET_LEN + IPU_ETHERNET_LEN)
        return 0; /* no frame is so short; the pump counts it as malformed */
    return n - (ssize_t)IPU_ETHERNET_LEN;
}

static bool is_tagged(const uint8_t *frame)
{
    return ipu_ip_get16(frame - 2) == VLAN;
}

/* Takes the tag off a frame that has a priority only (VLAN 0, IEEE 802.1Q §6.9): it is in no VLAN.
 * Its payload moves, which costs a copy. Returns the length. */
static ssize_t drop_priority_tag(uint8_t *frame, ssize_t len)
{
    uint8_t *tag = frame + IPU_VNET_LEN; /* without the type in front of it */
    if (!is_tagged(frame) || len < (ssize_t)(IPU_VNET_LEN + IPU_VLAN_TAG_LEN) ||
        (ipu_ip_get16(tag) & IPU_VLAN_NUMBER) != 0)
        return len;
    len -= IPU_VLAN_TAG_LEN;
    memcpy(frame - 2, tag + 2, 2);
    memmove(tag, tag + IPU_VLAN_TAG_LEN, (size_t)len - IPU_VNET_LEN);
    ipu_vnet_shift(frame, -(int)IPU_VLAN_TAG_LEN);
    return len;
}

static ssize_t tap_read(void *self, void *buf, size_t cap)
{
    struct ipu_tap *tap = self;
    ssize_t n = 0;
    for (int passed = 0; passed < PASSED_MAX; passed++) {
        n = read_frame(tap, buf, cap);
        if (n <= 0)
            return n;
        if (tap->trunk == NULL || !is_tagged(buf))
            break;
        int result = ipu_trunk_pass(tap->trunk, buf, (size_t)n);
        if (result < 0)
            return result;
        if (result == 0)
            break; /* the pump counts it */
        n = -EAGAIN;
    }
    if (n > 0) {
        n = drop_priority_tag(buf, n);
        ipu_vnet_shift(buf, -(int)IPU_ETHERNET_LEN);
    }
    return n;
}

/* Writes the Ethernet header of a frame as pieces, with the tag of the VLAN in it; returns their
 * number. */
static int put_ethernet(const struct ipu_tap *tap, const uint8_t *ethernet, struct iovec *pieces)
{
    uint8_t *at = (uint8_t *)(uintptr_t)ethernet;
    if (tap->vlan == 0) {
        pieces[0] = (struct iovec){.iov_base = at, .iov_len = IPU_ETHERNET_LEN};
        return 1;
    }
    pieces[0] = (struct iovec){.iov_base = at, .iov_len = IPU_ETHERNET_LEN - 2};
    pieces[1] = (struct iovec){.iov_base = (void *)(uintptr_t)tap->tag, .iov_len = sizeof tap->tag};
    pieces[2] = (struct iovec){.iov_base = at + IPU_ETHERNET_LEN - 2, .iov_len = 2};
    return 3;
}

static int tap_writev(void *self, const struct iovec *iov, int n)
{
    const struct ipu_tap *tap = self;
    uint8_t *frame = iov[0].iov_base;
    uint8_t vnet[IPU_VNET_LEN];
    struct iovec pieces[4 + PIECES];
    if (n > PIECES)
        return -EINVAL;
    memcpy(vnet, frame, sizeof vnet);
    ipu_vnet_shift(vnet, IPU_ETHERNET_LEN + (tap->vlan != 0 ? IPU_VLAN_TAG_LEN : 0));
    pieces[0] = (struct iovec){.iov_base = vnet, .iov_len = sizeof vnet};
    int first = 1 + put_ethernet(tap, frame - IPU_ETHERNET_LEN, pieces + 1);
    memcpy(pieces + first, iov, (size_t)n * sizeof *iov);
    pieces[first].iov_base = frame + IPU_VNET_LEN;
    pieces[first].iov_len -= IPU_VNET_LEN;
    return writev(tap->write_fd, pieces, first + n) < 0 ? -errno : 0;
}

static int tap_write(void *self, const void *buf, size_t len)
{
    const struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    return tap_writev(self, &iov, 1);
}

static int tap_write_frame(void *self, const void *frame, size_t len)
{
    const struct ipu_tap *tap = self;
    uint8_t vnet[IPU_VNET_LEN] = {0};
    struct iovec pieces[5];
    if (len < IPU_ETHERNET_LEN)
        return -EINVAL;
    pieces[0] = (struct iovec){.iov_base = vnet, .iov_len = sizeof vnet};
    int n = 1 + put_ethernet(tap, frame, pieces + 1);
    pieces[n] = (struct iovec){.iov_base = (uint8_t *)(uintptr_t)frame + IPU_ETHERNET_LEN,
                               .iov_len = len - IPU_ETHERNET_LEN};
    return writev(tap->write_fd, pieces, n + 1) < 0 ? -errno : 0;
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
    *tap = (struct ipu_tap){.fd = fd, .write_fd = fd};
    tap->device =
        (struct ipu_device){.ops = &tap_ops, .self = tap, .offload = offload, .ethernet = true};
}

void ipu_tap_join(struct ipu_tap *tap, const struct ipu_tap *trunk, int fd, uint16_t vlan)
{
    tap->fd = fd;
    tap->write_fd = trunk->fd;
    tap->vlan = vlan;
    tap->device.offload = trunk->device.offload;
    ipu_ip_put16(tap->tag, VLAN);
    ipu_ip_put16(tap->tag + 2, vlan);
}
