/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TUN_H
#define IPU_TUN_H

#include "device/device.h"
#include "device/tun_queues.h"

/* A TUN as packet device. Python (ipoibu/host/tun.py) opens and sets up the descriptor of each
 * queue: no packet information, 16-byte vnet header, non-blocking, offloads as `offload`
 * (IPU_DEVICE_*) says. The caller closes them. */
struct ipu_tun {
    struct ipu_device device;
    struct ipu_tun_queues queues;
};

/* Returns what ipu_tun_queues_init() returns. */
int ipu_tun_init(struct ipu_tun *tun, const int *fds, uint32_t count, uint32_t offload);

#endif
