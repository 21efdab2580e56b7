/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/fragment.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "core/csum.h"
#include "core/ip_header.h"

enum {
    MORE_FRAGMENTS = 0x2000,
    OFFSET_MASK = 0x1FFF, /* in units of eight bytes */
    UNIT = 8,
    IPV6_FRAGMENT_HEADER = 8,
    /* IPv4 options (RFC 791 §3.1) */
    END_OF_OPTIONS = 0,
    NO_OPERATION = 1,
    COPIED = 0x80,
};

/* Finds the end of the headers that each fragment has (RFC 8200 §4.5), and the byte that names what
 * follows; 0: there is a fragment header already, or no whole header. */
static uint32_t find_ipv6(const uint8_t *ip, uint32_t len, uint32_t *next_at)
{
    uint32_t end = IPU_IPV6_HEADER, at = end;
    uint32_t name_at = *next_at = IPU_IPV6_NEXT_HEADER;
    for (;;) {
        uint8_t kind = ip[name_at];
        if (kind == IPPROTO_FRAGMENT)
            return 0;
        if (kind != IPPROTO_HOPOPTS && kind != IPPROTO_ROUTING && kind != IPPROTO_DSTOPTS)
            return end;
        if (at + 8 > len)
            return 0;
        name_at = at;
        at += 8 * (ip[at + 1] + 1u);
        if (at > len)
            return 0;
        if (kind != IPPROTO_DSTOPTS) { /* options for the destination count if a routing header
                                          follows */
            end = at;
            *next_at = name_at;
        }
    }
}

int ipu_fragment_init(struct ipu_segment *segment, uint8_t *ip, uint32_t len, uint32_t mtu,
                      uint32_t id)
{
    bool v4 = ipu_ip_is_v4(ip);
    uint32_t next_at = 0;
    uint32_t start = v4 ? (ip[0] & 15u) * 4 : find_ipv6(ip, len, &next_at);
    uint32_t head_len = v4 ? start : start + IPV6_FRAGMENT_HEADER;
    if (start == 0 || len <= start || head_len > IPU_SEGMENT_HEAD_MAX || mtu < head_len + UNIT)
        return -EMSGSIZE;
    uint32_t size_bytes = (mtu - head_len) / UNIT * UNIT;
    bool df = v4 && ipu_ip_get16(ip + IPU_IPV4_FRAGMENT) & IPU_IPV4_DF;
    *segment = (struct ipu_segment){
        .ip = ip,
        .start = start,
        .head_len = head_len,
        .packet_len = len,
        .size_bytes = size_bytes,
        .at = start,
        .left = (len - start + size_bytes - 1) / size_bytes,
        .fragments = true,
        .next_at = next_at,
        .fragment_id = v4 && !df ? ipu_ip_get16(ip + IPU_IPV4_ID) : id,
    };
    return 0;
}

/* Leaves only the options that each fragment has to have. */
static void drop_options(uint8_t *ip, uint32_t len)
{
    uint32_t at = IPU_IPV4_HEADER;
    while (at < len && ip[at] != END_OF_OPTIONS) {
        uint32_t n = ip[at] == NO_OPERATION ? 1 : at + 1 < len ? ip[at + 1] : 0;
        if (n == 0 || at + n > len || (n == 1 && ip[at] != NO_OPERATION))
            return; /* not options: leave them to the receiver */
        if (!(ip[at] & COPIED))
            memset(ip + at, NO_OPERATION, n);
        at += n;
    }
}

static void finish_ipv4(const struct ipu_segment *segment, uint8_t *ip, uint32_t n)
{
    uint32_t former = ipu_ip_get16(segment->ip + IPU_IPV4_FRAGMENT);
    uint32_t offset = (former & OFFSET_MASK) + (segment->at - segment->start) / UNIT;
    uint32_t more = segment->left > 1 ? MORE_FRAGMENTS : former & MORE_FRAGMENTS;
    if (segment->count > 0)
        drop_options(ip, segment->start);
    ipu_ip_put16(ip + IPU_IPV4_LEN, segment->start + n);
    ipu_ip_put16(ip + IPU_IPV4_ID, segment->fragment_id);
    ipu_ip_put16(ip + IPU_IPV4_FRAGMENT, more | offset);
    memset(ip + IPU_IPV4_CSUM, 0, 2);
    uint16_t csum = ipu_csum_finish(ipu_csum_add(0, ip, segment->start));
    memcpy(ip + IPU_IPV4_CSUM, &csum, sizeof csum);
}

static void finish_ipv6(const struct ipu_segment *segment, uint8_t *ip, uint32_t n)
{
    uint8_t *header = ip + segment->start;
    uint32_t offset = segment->at - segment->start;
    header[0] = ip[segment->next_at];
    header[1] = 0;
    ipu_ip_put16(header + 2, offset | (segment->left > 1));
    ipu_ip_put16(header + 4, segment->fragment_id >> 16);
    ipu_ip_put16(header + 6, segment->fragment_id);
    ip[segment->next_at] = IPPROTO_FRAGMENT;
    ipu_ip_put16(ip + IPU_IPV6_LEN, segment->head_len - IPU_IPV6_HEADER + n);
}

uint32_t ipu_fragment_next(struct ipu_segment *segment, uint8_t *head, const uint8_t **payload)
{
    uint32_t rest = segment->packet_len - segment->at;
    uint32_t n = rest < segment->size_bytes ? rest : segment->size_bytes;
    memcpy(head, segment->ip, segment->start);
    if (ipu_ip_is_v4(head))
        finish_ipv4(segment, head, n);
    else
        finish_ipv6(segment, head, n);
    *payload = segment->ip + segment->at;
    segment->at += n;
    segment->count++;
    segment->left--;
    return n;
}
