/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_ICRC_H
#define SOFT_ICRC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The invariant CRC of RoCEv2: CRC-32 over
 *
 *   8 bytes of ones (a masked LRH), the IP header, the UDP header with its checksum set to ones,
 * the BTH with byte 4 (FECN, BECN and the reserved bits above the destination QPN) set to ones, and
 *   all the rest up to the ICRC,
 *
 * stored least significant byte first. Of an IPv6 header, traffic class, flow label and hop limit
 * are set to ones; of an IPv4 header, type of service, time to live and checksum. (InfiniBand Annex
 * A17 17.3.3; seen on rxe.)
 *
 * That leaves the identification of an IPv4 header, and its flags. Here they count as 0 and "don't
 * fragment", whatever they are on the wire: they mean nothing in a packet that is not fragmented
 * (RFC 6864, 4.1), others may change them, and a UDP socket neither sets nor sees them. README.md
 * has what that means for other adapters.
 */
#define SOFT_ICRC_BYTES 4

/* Returns the CRC of the bytes before the BTH, over IPv4 if src and dst are mapped IPv4 addresses.
 * udp_bytes counts from BTH to ICRC, both included,
 * and is at most 65527. The CRC depends on nothing else of the packet, so a caller can keep it for
 * a train of packets.
 */
uint32_t soft_icrc_seed(const struct in6_addr *src, const struct in6_addr *dst, uint16_t src_port,
                        uint16_t dst_port, uint16_t udp_bytes);

/* Returns what soft_icrc_seed changes by, as xor, when the source port is `to` and not `from`. A
 * CRC is linear, and the same bytes follow the port, so nothing else matters. */
uint32_t soft_icrc_port_change(uint16_t from, uint16_t to);

/* Returns whether the packet from BTH to ICRC, len >= 16 bytes, ends with the right ICRC. */
bool soft_icrc_check(uint32_t seed, const uint8_t *packet, size_t len);

/* Returns the same, and copies `bytes` of the packet from `from` on, behind its BTH, to `to`. */
bool soft_icrc_check_copy(uint32_t seed, const uint8_t *packet, size_t len, const uint8_t *from,
                          size_t bytes, uint8_t *to);

/* Returns the same for a packet over IPv4 whose identification may be any 16 bits: the packet may
 * be damaged in one of 65536 cases. */
bool soft_icrc_check_any_id(uint32_t seed, const uint8_t *packet, size_t len);

#endif
