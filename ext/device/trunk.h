/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TRUNK_H
#define IPU_TRUNK_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The VLANs of a TAP (IEEE 802.1Q). The pump that reads the TAP passes a frame with the tag of a
 * VLAN on to the socket of that VLAN, without the tag; another pump reads it there, and writes its
 * own frames with the tag to the TAP itself (tap.h). Any thread adds and removes VLANs.
 */
enum {
    IPU_VLANS = 4096,         /* numbers; 0 and 4095 are no VLANs */
    IPU_VLAN_NUMBER = 0x0fff, /* of the tag's first two bytes; the others say its priority */
    IPU_VLAN_TAG_LEN = 4,
    IPU_VLAN_FULL = -EXFULL, /* of a read: the VLAN's pump is behind, and the frame is lost */
};

struct ipu_trunk {
    _Atomic int sockets[IPU_VLANS]; /* -1: no such VLAN */
};

void ipu_trunk_init(struct ipu_trunk *trunk);

/* The caller keeps `fd`, which must not block, open as long as the trunk is in use, also after the
 * removal. */
void ipu_trunk_set(struct ipu_trunk *trunk, uint16_t vlan, int fd);
void ipu_trunk_remove(struct ipu_trunk *trunk, uint16_t vlan);

/* Passes a frame of `len` bytes on, which ipu_tap has read: [Ethernet 14][vnet 16][tag 2][type
 * ...]. Returns 1, IPU_VLAN_FULL, or 0: the trunk has no such VLAN, or the frame no whole tag. */
int ipu_trunk_pass(struct ipu_trunk *trunk, uint8_t *frame, size_t len);

#endif
