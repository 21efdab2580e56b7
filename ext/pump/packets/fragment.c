/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/packets/fragment.h"

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

static uint32_t fragment_header(const struct ipu_segment *segment)
{
    return ipu_ip_is_v4(segment->ip) ? 0 : IPV6_FRAGMENT_HEADER;
}

/* Finds the headers of each fragment, and how much fits behind them. Returns -EMSGSIZE if that is
 * nothing. */
static int plan(struct ipu_segment *segment, uint32_t mtu)
{
    const uint8_t *ip = segment->ip;
    uint32_t each_len = ipu_ip_is_v4(ip) ? (ip[0] & 15u) * 4
                                         : find_ipv6(ip, segment->packet_len, &segment->next_at);
    uint32_t head_len = each_len + fragment_header(segment);
    if (each_len == 0 || segment->packet_len <= each_len || head_len > IPU_SEGMENT_HEAD_MAX ||
        mtu < head_len + UNIT)
        return -EMSGSIZE;
    segment->each_len = each_len;
    segment->fragment_bytes = (mtu - head_len) / UNIT * UNIT;
    return 0;
}

/* Returns whether the packets have an id that counts, which their fragments keep. */
static bool has_id(const struct ipu_segment *segment)
{
    return ipu_ip_is_v4(segment->ip) &&
           !(ipu_ip_get16(segment->ip + IPU_IPV4_FRAGMENT) & IPU_IPV4_DF);
}

static uint32_t pieces(const struct ipu_segment *segment, uint32_t bytes)
{
    return (bytes + segment->fragment_bytes - 1) / segment->fragment_bytes;
}

int ipu_fragment_init(struct ipu_segment *segment, uint8_t *ip, uint32_t len, uint32_t mtu,
                      uint32_t id)
{
    *segment = (struct ipu_segment){.ip = ip, .packet_len = len};
    int error = plan(segment, mtu);
    if (error < 0)
        return error;
    segment->at = segment->each_len;
    segment->rest = len - segment->each_len;
    segment->left = pieces(segment, segment->rest);
    segment->fragment_id = has_id(segment) ? ipu_ip_get16(ip + IPU_IPV4_ID) : id;
    return 0;
}

/* Returns how many packets a segment with so much payload becomes. */
static uint32_t packets_of(const struct ipu_segment *segment, uint32_t payload)
{
    uint32_t len = segment->head_len + payload;
    return len <= segment->whole_len ? 1 : pieces(segment, len - segment->each_len);
}

int ipu_fragment_segments(struct ipu_segment *segment, uint32_t mtu, uint32_t id)
{
    struct ipu_segment planned = *segment;
    uint32_t before = segment->left - 1; /* segments before the last one, */
    uint32_t last = segment->packet_len - segment->at - before * segment->size_bytes;
    if (plan(&planned, mtu) < 0 ||
        segment->head_len + fragment_header(segment) > IPU_SEGMENT_HEAD_MAX ||
        segment->head_len - planned.each_len >= planned.fragment_bytes)
        return -EMSGSIZE;
    planned.whole_len = mtu;
    uint32_t each = packets_of(&planned, segment->size_bytes), of_last = packets_of(&planned, last);
    planned.left = before * each + of_last;
    planned.fragment_id = id - 1;
    *segment = planned;
    return (int)(before * (each > 1) + (of_last > 1));
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
    uint32_t place = (former & OFFSET_MASK) + segment->offset / UNIT;
    uint32_t more = segment->rest > n ? MORE_FRAGMENTS : former & MORE_FRAGMENTS;
    if (segment->offset > 0)
        drop_options(ip, segment->each_len);
    ipu_ip_put16(ip + IPU_IPV4_LEN, segment->each_len + n);
    ipu_ip_put16(ip + IPU_IPV4_ID, segment->fragment_id);
    ipu_ip_put16(ip + IPU_IPV4_FRAGMENT, more | place);
    memset(ip + IPU_IPV4_CSUM, 0, 2);
    uint16_t csum = ipu_csum_finish(ipu_csum_add(0, ip, segment->each_len));
    memcpy(ip + IPU_IPV4_CSUM, &csum, sizeof csum);
}

static void finish_ipv6(const struct ipu_segment *segment, uint8_t *ip, uint32_t n)
{
    uint8_t *header = ip + segment->each_len;
    header[0] = segment->ip[segment->next_at];
    header[1] = 0;
    ipu_ip_put16(header + 2, segment->offset | (segment->rest > n));
    ipu_ip_put16(header + 4, segment->fragment_id >> 16);
    ipu_ip_put16(header + 6, segment->fragment_id);
    ip[segment->next_at] = IPPROTO_FRAGMENT;
    ipu_ip_put16(ip + IPU_IPV6_LEN, segment->each_len - IPU_IPV6_HEADER + IPV6_FRAGMENT_HEADER + n);
}

/* Finishes the headers of a fragment with `n` bytes behind those that all have. */
static void finish(struct ipu_segment *segment, uint8_t *head, uint32_t n)
{
    if (ipu_ip_is_v4(head))
        finish_ipv4(segment, head, n);
    else
        finish_ipv6(segment, head, n);
    segment->offset += n;
    segment->rest -= n;
}

/* Makes the next segment of a super-frame, or its first fragment, which has the transport header.
 */
static uint32_t begin(struct ipu_segment *segment, uint8_t *head, const uint8_t **payload)
{
    uint32_t each_len = segment->each_len;
    uint32_t n = ipu_segment_next(segment, head, payload);
    uint32_t transport_len = segment->head_len - each_len, gap = fragment_header(segment);
    if (segment->head_len + n <= segment->whole_len)
        return n;
    segment->fragment_id =
        has_id(segment) ? ipu_ip_get16(head + IPU_IPV4_ID) : segment->fragment_id + 1;
    memmove(head + each_len + gap, head + each_len, transport_len);
    segment->offset = 0;
    segment->rest = transport_len + n;
    finish(segment, head, segment->fragment_bytes);
    segment->written = segment->head_len + gap;
    segment->at -= segment->rest;
    return segment->fragment_bytes - transport_len;
}

uint32_t ipu_fragment_next(struct ipu_segment *segment, uint8_t *head, const uint8_t **payload)
{
    if (segment->fragment_bytes == 0)
        return ipu_segment_next(segment, head, payload);
    if (segment->rest == 0)
        return begin(segment, head, payload);
    uint32_t n = segment->rest < segment->fragment_bytes ? segment->rest : segment->fragment_bytes;
    memcpy(head, segment->ip, segment->each_len);
    finish(segment, head, n);
    segment->written = segment->each_len + fragment_header(segment);
    *payload = segment->ip + segment->at;
    segment->at += n;
    segment->left--;
    return n;
}
