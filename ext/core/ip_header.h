/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_IP_HEADER_H
#define IPU_IP_HEADER_H

#include <stdbool.h>
#include <stdint.h>

/* The headers of IP, TCP and UDP: their shortest lengths, and the offsets of their fields. */
enum {
    IPU_IPV4_HEADER = 20,
    IPU_IPV4_LEN = 2,
    IPU_IPV4_ID = 4,
    IPU_IPV4_FRAGMENT = 6,
    IPU_IPV4_PROTOCOL = 9,
    IPU_IPV4_CSUM = 10,
    IPU_IPV4_DESTINATION = 16,

    IPU_IPV6_HEADER = 40,
    IPU_IPV6_LEN = 4,
    IPU_IPV6_NEXT_HEADER = 6,
    IPU_IPV6_SOURCE = 8,
    IPU_IPV6_DESTINATION = 24,

    IPU_TCP_HEADER = 20,
    IPU_TCP_SEQ = 4,
    IPU_TCP_FLAGS = 13,
    IPU_TCP_CSUM = 16,

    IPU_UDP_HEADER = 8,
    IPU_UDP_LEN = 4,
    IPU_UDP_CSUM = 6,
};

#define IPU_IPV4_DF            0x4000u
#define IPU_IPV4_FRAGMENT_MASK 0x3FFFu /* more fragments, or an offset (RFC 791 §3.1) */

static inline bool ipu_ip_is_v4(const uint8_t *ip)
{
    return ip[0] >> 4 == 4;
}

static inline bool ipu_ip_is_v6(const uint8_t *ip)
{
    return ip[0] >> 4 == 6;
}

/* Fields are big-endian, at any alignment. */
static inline uint16_t ipu_ip_get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t ipu_ip_get32(const uint8_t *at)
{
    return (uint32_t)ipu_ip_get16(at) << 16 | ipu_ip_get16(at + 2);
}

static inline void ipu_ip_put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

#endif
