/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TUN_H
#define IPU_TUN_H

#include "device.h"

/* A TUN as packet device. The descriptor is opened and set up in Python (ipoibu/host/tun.py): no
 * packet information, 16-byte vnet header, non-blocking, offloads as `offload` (IPU_DEVICE_*) says.
 * It stays the caller's to close. */
struct ipu_tun {
    struct ipu_device device;
    int fd;
};

void ipu_tun_init(struct ipu_tun *tun, int fd, uint32_t offload);

#endif
