/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TAP_H
#define IPU_TAP_H

#include "device/device.h"

/*
 * A TAP as packet device: the pump sees IP packets as on a TUN, with the Ethernet header apart.
 * Reads scatter a frame and writes gather it, so no byte of it moves:
 *
 *      -16    -14              0         16
 *       [pad 2][Ethernet 14    ][vnet 16 ][IP, ARP ...]
 *
 * Vnet headers count from the Ethernet header on the TAP, and from the IP header in the pump.
 */
struct ipu_tap {
    struct ipu_device device;
    int fd;
};

/* Takes the descriptor of a TAP, set up as tun.h says, which the caller closes. */
void ipu_tap_init(struct ipu_tap *tap, int fd, uint32_t offload);

#endif
