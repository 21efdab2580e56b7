/* SPDX-License-Identifier: BSD-2-Clause */
#include "icrc.h"

#include <string.h>

#include "crc32.h"
#include "roce.h"

#define IPV6_UDP 17

uint32_t soft_icrc_seed(const struct in6_addr *src, const struct in6_addr *dst, uint16_t src_port,
                        uint16_t dst_port, uint16_t udp_bytes)
{
    uint16_t udp_length = (uint16_t)(udp_bytes + 8);
    uint8_t pseudo[8 + 40 + 8];
    uint8_t *ip = pseudo + 8;
    uint8_t *udp = ip + 40;

    memset(pseudo, 0xff, 8);
    ip[0] = 0x6f; /* version 6; traffic class and flow label masked */
    memset(ip + 1, 0xff, 3);
    soft_roce_put16(ip + 4, udp_length);
    ip[6] = IPV6_UDP;
    ip[7] = 0xff;
    memcpy(ip + 8, src, 16);
    memcpy(ip + 24, dst, 16);
    soft_roce_put16(udp, src_port);
    soft_roce_put16(udp + 2, dst_port);
    soft_roce_put16(udp + 4, udp_length);
    memset(udp + 6, 0xff, 2);
    return soft_crc32_update(0, pseudo, sizeof(pseudo));
}

bool soft_icrc_check(uint32_t seed, const uint8_t *packet, size_t len)
{
    uint8_t bth[SOFT_ROCE_BTH_BYTES];
    const uint8_t *stored = packet + len - SOFT_ICRC_BYTES;
    uint32_t crc;

    memcpy(bth, packet, sizeof(bth));
    bth[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc = soft_crc32_update(seed, bth, sizeof(bth));
    crc = soft_crc32_update(crc, packet + sizeof(bth), len - sizeof(bth) - SOFT_ICRC_BYTES);
    return crc == soft_roce_get32le(stored);
}
