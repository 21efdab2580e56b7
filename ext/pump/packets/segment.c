/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/packets/segment.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "core/csum.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "device/vnet.h"

enum { FIN = 0x01, PSH = 0x08, CWR = 0x80 };

/* Returns where the transport header starts, and its protocol; 0: none. The IP packet fills all
 * `len` bytes. */
static uint32_t find_transport(const uint8_t *ip, uint32_t len, uint8_t *protocol)
{
    if (len >= IPU_IPV4_HEADER && ipu_ip_is_v4(ip)) {
        uint32_t start = (ip[0] & 15u) * 4;
        bool fragment = ipu_ip_get16(ip + IPU_IPV4_FRAGMENT) & IPU_IPV4_FRAGMENT_MASK;
        *protocol = ip[IPU_IPV4_PROTOCOL];
        return start >= IPU_IPV4_HEADER && ipu_ip_get16(ip + 2) == len && !fragment ? start : 0;
    }
    if (len < IPU_IPV6_HEADER || !ipu_ip_is_v6(ip) ||
        IPU_IPV6_HEADER + (uint32_t)ipu_ip_get16(ip + 4) != len)
        return 0;
    uint32_t start = IPU_IPV6_HEADER;
    *protocol = ip[IPU_IPV6_NEXT_HEADER];
    while (*protocol == IPPROTO_HOPOPTS || *protocol == IPPROTO_ROUTING ||
           *protocol == IPPROTO_DSTOPTS) {
        if (start + 8 > len)
            return 0;
        *protocol = ip[start];
        start += 8 * (ip[start + 1] + 1u);
    }
    return start;
}

/* Checks that gso_type and csum_offset fit the transport header; returns its length, or 0. */
static uint32_t transport_len(const struct virtio_net_hdr *vnet, const uint8_t *ip, uint32_t start,
                              uint32_t len, uint8_t protocol)
{
    uint8_t type = vnet->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;
    if (protocol == IPPROTO_TCP && start + IPU_TCP_HEADER <= len) {
        uint8_t wanted = ipu_ip_is_v4(ip) ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
        uint32_t header = (ip[start + 12] >> 4) * 4u;
        bool good = type == wanted && vnet->csum_offset == IPU_TCP_CSUM && header >= IPU_TCP_HEADER;
        return good ? header : 0;
    }
    if (protocol == IPPROTO_UDP && start + IPU_UDP_HEADER <= len &&
        vnet->gso_type == VIRTIO_NET_HDR_GSO_UDP_L4 && vnet->csum_offset == IPU_UDP_CSUM &&
        ipu_ip_get16(ip + start + 4) == len - start)
        return IPU_UDP_HEADER;
    return 0;
}

static void divide(struct ipu_segment *segment, uint32_t size_bytes)
{
    uint32_t payload = segment->packet_len - segment->head_len;
    segment->size_bytes = size_bytes;
    segment->left = payload == 0 ? 1 : (payload + size_bytes - 1) / size_bytes;
}

/* Sums the headers without the fields that differ in each segment. */
static void sum_headers(struct ipu_segment *segment)
{
    uint8_t head[IPU_SEGMENT_HEAD_MAX];
    uint8_t *transport = head + segment->start;
    memcpy(head, segment->ip, segment->head_len);
    /* The checksum field holds the sum of the pseudo header, length included. It is also right
     * behind a routing header that names another destination, where the IP header would give a
     * wrong sum. */
    uint16_t pseudo;
    memcpy(&pseudo, transport + (segment->tcp ? IPU_TCP_CSUM : IPU_UDP_CSUM), sizeof pseudo);
    if (segment->tcp) {
        segment->seq = ipu_ip_get32(transport + IPU_TCP_SEQ);
        segment->flags = transport[IPU_TCP_FLAGS];
        memset(transport + IPU_TCP_SEQ, 0, 4);
        transport[IPU_TCP_FLAGS] = 0;
        memset(transport + IPU_TCP_CSUM, 0, 2);
    } else {
        memset(transport + IPU_UDP_LEN, 0, 4); /* the length and the checksum */
    }
    uint64_t sum =
        (uint64_t)pseudo + (uint16_t)~htons((uint16_t)(segment->packet_len - segment->start));
    sum = ipu_csum_add(sum, transport, segment->head_len - segment->start);
    segment->transport_sum = (uint16_t)~ipu_csum_finish(sum);
    if (ipu_ip_is_v4(head)) {
        segment->id = ipu_ip_get16(head + IPU_IPV4_ID);
        memset(head + IPU_IPV4_LEN, 0, 4); /* the length and the id */
        memset(head + IPU_IPV4_CSUM, 0, 2);
        segment->ip_sum = (uint16_t)~ipu_csum_finish(ipu_csum_add(0, head, segment->start));
    }
}

int ipu_segment_init(struct ipu_segment *segment, uint8_t *frame, size_t len, uint32_t mtu)
{
    if (len < IPU_VNET_LEN || len - IPU_VNET_LEN > IPU_VNET_PACKET_MAX)
        return -EINVAL;
    struct virtio_net_hdr vnet = ipu_vnet_read(frame);
    uint8_t *ip = frame + IPU_VNET_LEN;
    uint32_t packet_len = (uint32_t)(len - IPU_VNET_LEN);
    uint8_t protocol;
    uint32_t start = find_transport(ip, packet_len, &protocol);
    if (start == 0 || start != vnet.csum_start || vnet.gso_size == 0 ||
        !(vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
        return -EINVAL;
    uint32_t header = transport_len(&vnet, ip, start, packet_len, protocol);
    if (header == 0 || start + header > packet_len || start + header > IPU_SEGMENT_HEAD_MAX)
        return -EINVAL;

    *segment = (struct ipu_segment){
        .ip = ip,
        .start = start,
        .head_len = start + header,
        .packet_len = packet_len,
        .at = start + header,
        .tcp = protocol == IPPROTO_TCP,
    };
    sum_headers(segment);
    divide(segment, vnet.gso_size);
    int error = ipu_segment_fit(segment, mtu);
    if (error < 0)
        segment->left = 0;
    return error;
}

int ipu_segment_fit(struct ipu_segment *segment, uint32_t mtu)
{
    uint32_t payload = segment->packet_len - segment->head_len;
    uint32_t longest = payload < segment->size_bytes ? payload : segment->size_bytes;
    if (segment->head_len + longest <= mtu)
        return 0;
    if (!segment->tcp || mtu <= segment->head_len)
        return -EMSGSIZE;
    divide(segment, mtu - segment->head_len);
    return 0;
}

static void finish_ipv4(const struct ipu_segment *segment, uint32_t k, uint8_t *ip, uint32_t len)
{
    uint16_t id = (uint16_t)(segment->id + k); /* RFC 791: distinct ids */
    ipu_ip_put16(ip + IPU_IPV4_LEN, len);
    ipu_ip_put16(ip + IPU_IPV4_ID, id);
    uint16_t csum = ipu_csum_finish((uint64_t)segment->ip_sum + htons((uint16_t)len) + htons(id));
    memcpy(ip + IPU_IPV4_CSUM, &csum, sizeof csum);
}

/* Writes the fields of segment k, whose payload starts at `at`, and returns their sum. */
static uint64_t finish_tcp(const struct ipu_segment *segment, uint32_t k, uint32_t at, bool last,
                           uint8_t *tcp)
{
    uint32_t seq = htonl(segment->seq + at - segment->head_len);
    uint8_t flags = segment->flags;
    if (!last)
        flags &= (uint8_t) ~(FIN | PSH);
    if (k > 0)
        flags &= (uint8_t)~CWR; /* RFC 3168 §6.1.2: once */
    memcpy(tcp + IPU_TCP_SEQ, &seq, sizeof seq);
    tcp[IPU_TCP_FLAGS] = flags;
    return (uint64_t)seq + htons(flags);
}

/* Returns the length of the payload that starts at `at`. */
static uint32_t payload_at(const struct ipu_segment *segment, uint32_t at)
{
    uint32_t rest = segment->packet_len - at;
    return rest < segment->size_bytes ? rest : segment->size_bytes;
}

/* Writes the headers of segment k, whose payload are the n bytes from `at` on, with the sum
 * `payload_sum`. */
static void write_head(const struct ipu_segment *segment, uint32_t k, uint32_t at, uint32_t n,
                       uint64_t payload_sum, uint8_t *head)
{
    uint32_t len = segment->head_len - segment->start + n; /* of TCP or UDP */
    uint8_t *transport = head + segment->start;
    memmove(head, segment->ip, segment->head_len);

    if (ipu_ip_is_v4(head))
        finish_ipv4(segment, k, head, segment->start + len);
    else
        ipu_ip_put16(head + 4, segment->start + len - IPU_IPV6_HEADER);
    uint64_t sum = (uint64_t)segment->transport_sum + htons((uint16_t)len);
    if (segment->tcp) {
        sum += finish_tcp(segment, k, at, at + n == segment->packet_len, transport);
    } else {
        sum += htons((uint16_t)len);
        ipu_ip_put16(transport + IPU_UDP_LEN, len);
    }
    uint16_t csum = ipu_csum_finish(ipu_csum_join(sum, payload_sum));
    if (csum == 0)
        csum = 0xFFFF; /* RFC 768; equal in value for TCP */
    memcpy(transport + (segment->tcp ? IPU_TCP_CSUM : IPU_UDP_CSUM), &csum, sizeof csum);
}

uint32_t ipu_segment_next(struct ipu_segment *segment, uint8_t *head, const uint8_t **payload)
{
    uint32_t n = payload_at(segment, segment->at);
    uint64_t sum = ipu_csum_add(0, segment->ip + segment->at, n);
    write_head(segment, segment->count, segment->at, n, sum, head);
    *payload = segment->ip + segment->at;
    segment->written = segment->head_len;
    segment->at += n;
    segment->count++;
    segment->left--;
    return n;
}

/* ---- super-frames that the fabric cuts --------------------------------------------------------
 */

static uint32_t make(const void *context, uint32_t k, uint8_t *to)
{
    const struct ipu_segment *segment = context;
    uint32_t at = segment->head_len + k * segment->size_bytes;
    uint32_t n = payload_at(segment, at);
    uint8_t *ip = to + IPU_ENCAP_LEN;
    uint64_t sum = ipu_csum_copy(ip + segment->head_len, segment->ip + at, n);
    memcpy(to, segment->ip - IPU_ENCAP_LEN, IPU_ENCAP_LEN);
    write_head(segment, k, at, n, sum, ip);
    return IPU_ENCAP_LEN + segment->head_len + n;
}

struct ipu_cut ipu_segment_cut(const struct ipu_segment *segment)
{
    return (struct ipu_cut){
        .packets = segment->left,
        .size_bytes = segment->size_bytes,
        .make = make,
        .context = segment,
    };
}

size_t ipu_segment_trim(struct ipu_segment *segment)
{
    const uint8_t *payload;
    uint32_t n = ipu_segment_next(segment, segment->ip, &payload);
    segment->left = 0;
    return segment->head_len + n;
}
