/* SPDX-License-Identifier: BSD-2-Clause */
#include "flood.h"

#include <string.h>

#include "crc32.h"
#include "icrc.h"
#include "roce.h"

enum { ROCE_PORT = 4791, IPV6_BYTES = 40, ETHERNET_BYTES = 14, UDP_BYTES = 8, UDP = 17, HOPS = 64 };

uint64_t flood_random(struct flood *flood)
{
    flood->random ^= flood->random >> 12;
    flood->random ^= flood->random << 25;
    flood->random ^= flood->random >> 27;
    return flood->random * UINT64_C(0x2545f4914f6cdd1d);
}

static void put_number(uint8_t *at, uint32_t bytes, uint64_t value)
{
    for (uint32_t i = bytes; i > 0; i--, value >>= 8)
        at[i - 1] = (uint8_t)value;
}

static void vary(struct flood *flood, uint8_t *packet, struct in6_addr *src)
{
    for (uint32_t i = 0; i < flood->fields; i++) {
        const struct flood_field *field = &flood->field[i];
        uint64_t value = field->value == FLOOD_COUNT ? flood->count : flood_random(flood);
        if (field->value == FLOOD_TWIN) {
            put_number(packet + field->offset, 2, value);
            put_number(packet + field->twin_offset, 2, ~value);
        } else {
            put_number(packet + field->offset, field->bytes, value);
        }
    }
    if (flood->source_bytes > 0)
        put_number(src->s6_addr + 16 - flood->source_bytes, flood->source_bytes,
                   flood_random(flood));
}

static void put_headers(const struct flood *flood, uint8_t *frame, const struct in6_addr *src,
                        uint16_t udp_bytes)
{
    uint8_t *ip = frame + ETHERNET_BYTES, *udp = ip + IPV6_BYTES;
    memcpy(frame, flood->dst_mac, 6);
    memcpy(frame + 6, flood->src_mac, 6);
    soft_roce_put16(frame + 12, 0x86dd);
    soft_roce_put32(ip, 6u << 28);
    soft_roce_put16(ip + 4, udp_bytes);
    ip[6] = UDP;
    ip[7] = HOPS;
    memcpy(ip + 8, src, 16);
    memcpy(ip + 24, &flood->dst, 16);
    soft_roce_put16(udp, flood->src_port);
    soft_roce_put16(udp + 2, ROCE_PORT);
    soft_roce_put16(udp + 4, udp_bytes);
    soft_roce_put16(udp + 6, 0); /* no checksum: the receiver accepts that, the ICRC is there */
}

static uint32_t icrc_of(const struct flood *flood, const struct in6_addr *src,
                        const uint8_t *packet, uint32_t bytes)
{
    uint8_t bth[SOFT_ROCE_BTH_BYTES];
    uint32_t crc = soft_icrc_seed(src, &flood->dst, flood->src_port, ROCE_PORT,
                                  (uint16_t)(bytes + SOFT_ICRC_BYTES));
    memcpy(bth, packet, sizeof bth);
    bth[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc = soft_crc32_update(crc, bth, sizeof bth);
    return soft_crc32_update(crc, packet + sizeof bth, bytes - sizeof bth);
}

size_t flood_next(struct flood *flood, uint8_t *frame)
{
    uint8_t *packet = frame + FLOOD_HEAD;
    uint32_t bytes = flood->template_bytes;
    struct in6_addr src = flood->src;
    memcpy(packet, flood->template, bytes);
    vary(flood, packet, &src);
    put_headers(flood, frame, &src, (uint16_t)(UDP_BYTES + bytes + SOFT_ICRC_BYTES));
    uint32_t crc = icrc_of(flood, &src, packet, bytes);
    soft_roce_put32le(packet + bytes, flood->bad_icrc ? ~crc : crc);
    flood->count++;
    return FLOOD_HEAD + bytes + SOFT_ICRC_BYTES;
}
