/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/tun.h"

#include <errno.h>
#include <unistd.h>

static int tun_fd(void *self)
{
    return ((struct ipu_tun *)self)->queues.fds[0];
}

static ssize_t tun_read(void *self, void *buf, size_t cap)
{
    ssize_t n = read(tun_fd(self), buf, cap);
    return n < 0 ? -errno : n;
}

static int tun_write(void *self, const void *buf, size_t len)
{
    int fd = ipu_tun_queues_fd(&((struct ipu_tun *)self)->queues, buf, len);
    return write(fd, buf, len) < 0 ? -errno : 0;
}

static int tun_writev(void *self, const struct iovec *iov, int n)
{
    int fd = ipu_tun_queues_fd(&((struct ipu_tun *)self)->queues, iov->iov_base, iov->iov_len);
    return writev(fd, iov, n) < 0 ? -errno : 0;
}

static const struct ipu_device_ops tun_ops = {
    .read = tun_read,
    .write = tun_write,
    .writev = tun_writev,
    .fd = tun_fd,
};

int ipu_tun_init(struct ipu_tun *tun, const int *fds, uint32_t count, uint32_t offload)
{
    tun->device = (struct ipu_device){.ops = &tun_ops, .self = tun, .offload = offload};
    return ipu_tun_queues_init(&tun->queues, fds, count);
}
