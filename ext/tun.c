/* SPDX-License-Identifier: BSD-2-Clause */
#include "tun.h"

#include <errno.h>
#include <unistd.h>

static ssize_t tun_read(void *self, void *buf, size_t cap)
{
    ssize_t n = read(((struct ipu_tun *)self)->fd, buf, cap);
    return n < 0 ? -errno : n;
}

static int tun_write(void *self, const void *buf, size_t len)
{
    return write(((struct ipu_tun *)self)->fd, buf, len) < 0 ? -errno : 0;
}

static int tun_writev(void *self, const struct iovec *iov, int n)
{
    return writev(((struct ipu_tun *)self)->fd, iov, n) < 0 ? -errno : 0;
}

static int tun_fd(void *self)
{
    return ((struct ipu_tun *)self)->fd;
}

static const struct ipu_device_ops tun_ops = {
    .read = tun_read,
    .write = tun_write,
    .writev = tun_writev,
    .fd = tun_fd,
};

void ipu_tun_init(struct ipu_tun *tun, int fd, uint32_t offload)
{
    *tun = (struct ipu_tun){.device = {.ops = &tun_ops, .self = tun, .offload = offload}, .fd = fd};
}
