/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FRAGMENT_H
#define IPU_FRAGMENT_H

#include "pump/packets/segment.h"

/*
 * Cuts a packet to a group into fragments that fit the group's MTU. In connected mode the device
 * has a larger MTU, and no error may tell an IPv4 sender so (RFC 1122 §3.2.2): "don't fragment"
 * would make the packet vanish, so it does not count. Of IPv6 the caller cuts only packets of its
 * own host (RFC 8200 §5).
 */

/*
 * Begins with a whole IP packet of `len` bytes, checksums complete; ipu_fragment_next() makes the
 * fragments. `id` is theirs, unless the packet has one that counts. Returns -EMSGSIZE when no
 * fragment fits the MTU, or for an IPv6 packet that is a fragment already. The caller keeps the
 * packet in place until it has sent the last fragment.
 */
int ipu_fragment_init(struct ipu_segment *segment, uint8_t *ip, uint32_t len, uint32_t mtu,
                      uint32_t id);

/*
 * Has ipu_fragment_next() cut each segment of a super-frame of UDP that does not fit the MTU into
 * fragments, before the first one. Returns how many segments those are; their ids begin with `id`,
 * unless they have some that count. Returns -EMSGSIZE, with nothing changed, when no fragment fits
 * the MTU.
 */
int ipu_fragment_segments(struct ipu_segment *segment, uint32_t mtu, uint32_t id);

/*
 * Makes the next fragment, or the next segment where it stays whole or none are to be cut: writes
 * its headers to head, `written` bytes. Returns the length of its payload, as ipu_segment_next().
 */
uint32_t ipu_fragment_next(struct ipu_segment *segment, uint8_t *head, const uint8_t **payload);

#endif
