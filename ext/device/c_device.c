/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/c_device.h"

#include <errno.h>
#include <string.h>

#include "core/frame.h"
#include "device/vnet.h"

static ssize_t c_read(void *self, void *buf, size_t cap)
{
    struct ipu_c_device *device = self;
    ssize_t n = device->v1->read(device->v1->self, buf, cap);
    if (n > 0 && device->v1->offload == 0)
        memset(buf, 0, IPU_VNET_LEN);
    return n;
}

static ssize_t c_give(void *self, uint32_t *index)
{
    struct ipu_c_device *device = self;
    ssize_t n = device->v1->give(device->v1->self, index);
    if (n > 0 && device->v1->offload == 0)
        memset(ipu_slab_at(&device->loan->tx, *index), 0, IPU_VNET_LEN);
    return n == 0 && device->v1->read == NULL ? -EAGAIN : n;
}

static void c_ended(void *self, uint32_t index)
{
    struct ipu_c_device *device = self;
    device->v1->ended(device->v1->self, index);
}

static int c_writev(void *self, const struct iovec *iov, int n)
{
    struct ipu_c_device *device = self;
    return device->v1->write(device->v1->self, iov, n);
}

static int c_write(void *self, const void *buf, size_t len)
{
    return c_writev(self, &(struct iovec){.iov_base = (void *)(uintptr_t)buf, .iov_len = len}, 1);
}

static int c_take(void *self, uint32_t index, const uint8_t *ip, size_t ip_len)
{
    struct ipu_c_device *device = self;
    struct ipu_loan_rx *rx = ipu_loan_rx_of(device->loan, index);
    if (rx->held == rx->held_max)
        return -ENOBUFS;
    int error = device->v1->keep(device->v1->self, index, ip, ip_len);
    rx->held += error == 0;
    return error;
}

static uint32_t c_back(void *self)
{
    struct ipu_c_device *device = self;
    uint32_t index = device->v1->back(device->v1->self);
    if (index != IPU_INDEX_NONE)
        ipu_loan_rx_of(device->loan, index)->held--;
    return index;
}

static void c_flush(void *self)
{
    struct ipu_c_device *device = self;
    device->v1->flush(device->v1->self);
}

static int c_fd(void *self)
{
    struct ipu_c_device *device = self;
    return device->v1->fd(device->v1->self);
}

static int c_arm(void *self)
{
    struct ipu_c_device *device = self;
    return device->v1->arm(device->v1->self);
}

static int64_t c_deadline_ns(void *self)
{
    struct ipu_c_device *device = self;
    return device->v1->deadline_ns(device->v1->self);
}

static void hold(void *memory)
{
    ipu_loan_hold(memory);
}

static void drop(void *memory)
{
    ipu_loan_drop(memory);
}

static void stop(struct ipu_c_device *device)
{
    struct ipu_loan *loan = device->loan;
    if (loan == NULL)
        return;
    if (device->v1->stop != NULL)
        device->v1->stop(device->v1->self);
    device->loan = NULL;
    ipu_loan_drop(loan);
}

static int c_attach(void *self, const struct ipu_device_frames *frames)
{
    struct ipu_c_device *device = self;
    struct ipu_loan *loan = ipu_loan_create(frames);
    if (loan == NULL)
        return -ENOMEM;
    stop(device); /* the former pump has ended, and its detach() comes later */
    const struct ipoibu_frames_v1 lent = {
        .first = loan->tx.base,
        .stride_bytes = loan->tx.stride_bytes,
        .count = loan->tx_frames,
        .packet_bytes = device->v1->offload != 0 ? IPU_VNET_PACKET_MAX : frames->packet_bytes,
        .mtu_bytes = frames->packet_bytes,
        .memory = loan,
        .hold = hold,
        .drop = drop,
    };
    int error = device->v1->start != NULL ? device->v1->start(device->v1->self, &lent) : 0;
    if (error < 0) {
        ipu_loan_drop(loan);
        return error;
    }
    device->loan = loan;
    return 0;
}

static void c_detach(void *self, const struct ipu_slab *tx)
{
    struct ipu_c_device *device = self;
    if (device->loan != NULL && device->loan->tx.base == tx->base)
        stop(device);
}

static bool is_complete(const struct ipoibu_packet_device_v1 *v1)
{
    const uint32_t known = IPOIBU_OFFLOAD_TCP | IPOIBU_OFFLOAD_UDP;
    bool lends = v1->lent_bytes > 0;
    return v1->write != NULL && v1->fd != NULL && (v1->read != NULL || v1->give != NULL) &&
           lends == (v1->give != NULL) && lends == (v1->ended != NULL) &&
           (v1->keep == NULL) == (v1->back == NULL) && (v1->offload & ~known) == 0;
}

_Static_assert(IPU_DEVICE_TCP == IPOIBU_OFFLOAD_TCP && IPU_DEVICE_UDP == IPOIBU_OFFLOAD_UDP,
               "offloads have one numbering");
_Static_assert(IPU_VNET_LEN == IPOIBU_VNET_BYTES, "a frame has one layout");
_Static_assert(IPU_INDEX_NONE == IPOIBU_NO_FRAME, "frames have one numbering");

int ipu_c_device_init(struct ipu_c_device *device, const struct ipoibu_packet_device_v1 *v1)
{
    if (!is_complete(v1))
        return -EINVAL;
    *device = (struct ipu_c_device){
        .v1 = v1,
        .ops =
            {
                .read = v1->read != NULL ? c_read : NULL,
                .write = c_write,
                .writev = c_writev,
                .flush = v1->flush != NULL ? c_flush : NULL,
                .arm = v1->arm != NULL ? c_arm : NULL,
                .fd = c_fd,
                .deadline_ns = v1->deadline_ns != NULL ? c_deadline_ns : NULL,
                .attach = c_attach,
                .detach = c_detach,
                .give = v1->give != NULL ? c_give : NULL,
                .ended = v1->ended != NULL ? c_ended : NULL,
                .take = v1->keep != NULL ? c_take : NULL,
                .back = v1->back != NULL ? c_back : NULL,
            },
        .device = {.ops = &device->ops,
                   .self = device,
                   .offload = v1->offload,
                   .lent_bytes = v1->lent_bytes},
    };
    return 0;
}
