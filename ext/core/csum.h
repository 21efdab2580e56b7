/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_CSUM_H
#define IPU_CSUM_H

#include <stddef.h>
#include <stdint.h>

/*
 * The Internet checksum (RFC 1071). A sum has the byte order of memory, as the one's complement
 * allows (§2 B): the caller stores the result of ipu_csum_finish() with memcpy, unswapped.
 */

/* Adds data, at any alignment, to a partial sum (0 at first). All parts but the last have an even
 * length. */
uint64_t ipu_csum_add(uint64_t sum, const void *data, size_t len);

/* Copies data, and returns its sum. The areas do not overlap. */
uint64_t ipu_csum_copy(void *to, const void *data, size_t len);

/* Returns the sum of two sums, of which the first one's data has an even length. */
static inline uint64_t ipu_csum_join(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum + (sum < b); /* the carry */
}

/* Returns the complement of the sum, folded to 16 bits; 0 when the summed data holds its own
 * checksum. */
uint16_t ipu_csum_finish(uint64_t sum);

/* Returns the sum of the pseudo header of TCP, UDP or ICMPv6 for the IP header at ip (20 bytes for
 * version 4, 40 for version 6, which the function reads from it) and len bytes of protocol.
 */
uint64_t ipu_csum_pseudo(const void *ip, uint8_t protocol, uint32_t len);

/*
 * Completes the checksum of a frame [vnet 16][IP packet] of len bytes, vnet included, whose vnet
 * header asks for it (VIRTIO_NET_HDR_F_NEEDS_CSUM), and clears that request; leaves other frames as
 * they are. Stores a result of 0 as 0xFFFF: UDP requires it (RFC 768), and the value is equal for
 * all others. 0; -EINVAL when the frame is short or csum_start and csum_offset lie outside it.
 * Segmentation (gso_type) comes before this; the function ignores it.
 */
int ipu_csum_complete(uint8_t *frame, size_t len);

#endif
