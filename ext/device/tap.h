/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TAP_H
#define IPU_TAP_H

#include "device/device.h"
#include "device/trunk.h"

/*
 * A TAP as packet device: the pump sees IP packets as on a TUN, with the Ethernet header apart.
 * Reads scatter a frame and writes gather it, so no byte of it moves, but behind a priority tag,
 * which reads take off:
 *
 *      -16    -14              0         16
 *       [pad 2][Ethernet 14    ][vnet 16 ][IP, ARP ...]
 *
 * Vnet headers count from the Ethernet header on the TAP, and from the IP header in the pump.
 */
struct ipu_tap {
    struct ipu_device device;
    int fd, write_fd;
    struct ipu_trunk *trunk; /* NULL: frames with a VLAN tag go to the pump, which drops them */
    uint16_t vlan;           /* that frames have which it writes; 0: none */
    uint8_t tag[4];
};

/* Takes the descriptor of a TAP, set up as tun.h says, which the caller closes. */
void ipu_tap_init(struct ipu_tap *tap, int fd, uint32_t offload);

/* Makes the TAP a VLAN of another one, from which `fd` brings frames (trunk.h): it writes to that
 * one, and its own descriptor is of no more use. The caller keeps both. */
void ipu_tap_join(struct ipu_tap *tap, const struct ipu_tap *trunk, int fd, uint16_t vlan);

#endif
