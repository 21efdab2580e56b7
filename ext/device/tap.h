/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TAP_H
#define IPU_TAP_H

#include "device/device.h"
#include "core/guests.h"

/*
 * A TAP as packet device: the pump sees IP packets as on a TUN, with the Ethernet header apart. On
 * the way out a read scatters the frame, and no byte moves:
 *
 *      -16    -14              0         16
 *       [pad 2][Ethernet 14    ][vnet 16 ][IP, ARP ...]
 *
 * On the way in the device writes the Ethernet header itself: the receiver is the guest that has
 * the packet's destination, or its group. The sender's MAC is in the IPU_MAC_LEN bytes in front of
 * the frame. Vnet headers count from the Ethernet header on the TAP,
 * and from the IP header in the pump.
 */
struct ipu_tap {
    struct ipu_device device;
    struct ipu_guests guests;
    int fd;
};

/* Takes the descriptor of a TAP, set up as tun.h says, which the caller closes. Returns what
 * ipu_guests_init() returns. */
int ipu_tap_init(struct ipu_tap *tap, int fd, uint32_t offload);
void ipu_tap_free(struct ipu_tap *tap);

#endif
