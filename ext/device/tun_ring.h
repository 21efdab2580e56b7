/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TUN_RING_H
#define IPU_TUN_RING_H

#include <stdbool.h>

#include "device/device.h"
#include "device/tun_queues.h"

/*
 * A TUN that the pump reads and writes through an io_uring where the ring is faster: a batch of
 * packets takes one system call, and packets that come while the pump is in the kernel for another
 * reason take none. Otherwise the device is like that of tun.h.
 *
 * Where system calls are slow (`always`; syscall_cost.h), they are most of the cost. Elsewhere the
 * ring takes longer for a single packet than a call does, and is faster only in a flood of short
 * packets: the pump reads frames one by one until 16 have come in a row, and also makes the first
 * writes of each round one by one.
 *
 * Reads fill the pump's own frames (attach), a few at a time: the device queues as many reads as
 * frames came lately, because the kernel wakes every waiting read for each packet. The device
 * queues writes, and flush() ends them.
 */
struct ipu_tun_ring;

/* Takes non-blocking descriptors, one for each queue, which the caller closes after the end of the
 * pump. Returns 0, -ENOSYS (no liburing, or a kernel older than 6.0), -EPERM
 * (kernel.io_uring_disabled, a seccomp filter), another error of io_uring_setup(2), or an error of
 * ipu_tun_queues_init().
 */
int ipu_tun_ring_create(const int *fds, uint32_t count, uint32_t offload, bool always,
                        struct ipu_tun_ring **out);

/* The caller ends the pump first. */
void ipu_tun_ring_destroy(struct ipu_tun_ring *tun);

struct ipu_device *ipu_tun_ring_device(struct ipu_tun_ring *tun);

#endif
