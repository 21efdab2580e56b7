/* SPDX-License-Identifier: BSD-2-Clause */
#include "icrc.h"

#include <string.h>

#include "crc32.h"
#include "ipv4.h"
#include "roce.h"

#define UDP        17
#define IPV6_BYTES 40
#define IPV4_BYTES 20
#define LRH_BYTES  8
#define UDP_BYTES  8
#define ID_OFFSET  4 /* of the identification in an IPv4 header */
#define POLYNOMIAL 0xedb88320u

static void put_ipv6(uint8_t ip[IPV6_BYTES], const struct in6_addr *src, const struct in6_addr *dst,
                     uint16_t udp_length)
{
    ip[0] = 0x6f; /* version 6; traffic class and flow label masked */
    memset(ip + 1, 0xff, 3);
    soft_roce_put16(ip + 4, udp_length);
    ip[6] = UDP;
    ip[7] = 0xff;
    memcpy(ip + 8, src, 16);
    memcpy(ip + 24, dst, 16);
}

static void put_ipv4(uint8_t ip[IPV4_BYTES], const struct in6_addr *src, const struct in6_addr *dst,
                     uint16_t udp_length)
{
    ip[0] = 0x45;
    ip[1] = 0xff;
    soft_roce_put16(ip + 2, (uint16_t)(IPV4_BYTES + udp_length));
    memset(ip + ID_OFFSET, 0, 2);
    soft_roce_put16(ip + 6, 0x4000); /* don't fragment */
    ip[8] = 0xff;
    ip[9] = UDP;
    memset(ip + 10, 0xff, 2);
    memcpy(ip + 12, src->s6_addr + 12, 4);
    memcpy(ip + 16, dst->s6_addr + 12, 4);
}

uint32_t soft_icrc_seed(const struct in6_addr *src, const struct in6_addr *dst, uint16_t src_port,
                        uint16_t dst_port, uint16_t udp_bytes)
{
    uint16_t udp_length = (uint16_t)(udp_bytes + UDP_BYTES);
    uint8_t pseudo[LRH_BYTES + IPV6_BYTES + UDP_BYTES];
    uint8_t *udp = pseudo + LRH_BYTES;

    memset(pseudo, 0xff, LRH_BYTES);
    if (soft_is_ipv4(src)) {
        put_ipv4(udp, src, dst, udp_length);
        udp += IPV4_BYTES;
    } else {
        put_ipv6(udp, src, dst, udp_length);
        udp += IPV6_BYTES;
    }
    soft_roce_put16(udp, src_port);
    soft_roce_put16(udp + 2, dst_port);
    soft_roce_put16(udp + 4, udp_length);
    memset(udp + 6, 0xff, 2);
    return soft_crc32_update(0, pseudo, (size_t)(udp + UDP_BYTES - pseudo));
}

uint32_t soft_icrc_port_change(uint16_t from, uint16_t to)
{
    return soft_icrc_seed(&in6addr_any, &in6addr_any, from, 0, 0) ^
           soft_icrc_seed(&in6addr_any, &in6addr_any, to, 0, 0);
}

/* Returns the difference between the right ICRC of the packet, as far as its seed is right, and the
 * stored one. Copies `bytes` from `from` on to `to`. */
static uint32_t difference(uint32_t seed, const uint8_t *packet, size_t len, const uint8_t *from,
                           size_t bytes, uint8_t *to)
{
    const uint8_t *rest = packet + SOFT_ROCE_BTH_BYTES, *end = packet + len - SOFT_ICRC_BYTES;
    uint8_t bth[SOFT_ROCE_BTH_BYTES];
    uint32_t crc;

    memcpy(bth, packet, sizeof(bth));
    bth[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc = soft_crc32_update(seed, bth, sizeof(bth));
    if (bytes > 0) {
        crc = soft_crc32_update(crc, rest, (size_t)(from - rest));
        crc = soft_crc32_copy(crc, to, from, bytes);
        rest = from + bytes;
    }
    crc = soft_crc32_update(crc, rest, (size_t)(end - rest));
    return crc ^ soft_roce_get32le(end);
}

bool soft_icrc_check(uint32_t seed, const uint8_t *packet, size_t len)
{
    return difference(seed, packet, len, NULL, 0, NULL) == 0;
}

bool soft_icrc_check_copy(uint32_t seed, const uint8_t *packet, size_t len, const uint8_t *from,
                          size_t bytes, uint8_t *to)
{
    return difference(seed, packet, len, from, bytes, to) == 0;
}

/* ---- any identification ---------------------------------------------------------------------- */

/* Multiplies two polynomials over GF(2), modulo the CRC's. Bit 31 is the constant term. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

/*
 * A CRC is linear: another identification changes it by the CRC (without the inversions) of a
 * message that is 0 but for these two bytes, which is their polynomial times x^n for the n bits
 * from the start of the identification to the ICRC. We divide the difference by x^n; what is left
 * has to fit into 16 bits.
 */
bool soft_icrc_check_any_id(uint32_t seed, const uint8_t *packet, size_t len)
{
    /* x to the power of -8 times 1, 2, 4 ..: a multiplication for each bit of the length. A flood
     * of bad packets makes us do this for each of them. */
    static const uint32_t inverse[] = {
        0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d,
        0x5139de12, 0xba340226, 0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8,
        0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5, 0x9ea0056d,
    };
    size_t bytes = IPV4_BYTES - ID_OFFSET + UDP_BYTES + len - SOFT_ICRC_BYTES;
    uint32_t id = difference(seed, packet, len, NULL, 0, NULL);

    for (size_t k = 0; bytes >> k != 0; k++)
        if (bytes >> k & 1)
            id = multiply(id, inverse[k]);
    return id >> 16 == 0;
}
