/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_ICRC_H
#define SOFT_ICRC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The invariant CRC of RoCEv2 over IPv6: CRC-32 over
 *
 *   8 bytes of ones (a masked LRH), the IPv6 header with traffic class, flow label and hop limit
 *   set to ones, the UDP header with its checksum set to ones, the BTH with byte 4 (FECN, BECN and
 *   the reserved bits above the destination QPN) set to ones, and all the rest up to the ICRC,
 *
 * stored least significant byte first. (InfiniBand Annex A17 17.3.3; seen on rxe.)
 */
#define SOFT_ICRC_BYTES 4

/* Returns the CRC of the bytes before the BTH. udp_bytes counts from BTH to ICRC, both included,
 * and is at most 65527. The CRC depends on nothing else of the packet, so a caller can keep it for
 * a train of packets.
 */
uint32_t soft_icrc_seed(const struct in6_addr *src, const struct in6_addr *dst, uint16_t src_port,
                        uint16_t dst_port, uint16_t udp_bytes);

/* Returns whether the packet from BTH to ICRC, len >= 16 bytes, ends with the right ICRC. */
bool soft_icrc_check(uint32_t seed, const uint8_t *packet, size_t len);

#endif
