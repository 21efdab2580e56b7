/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/packets/coalesce.h"

#include <arpa/inet.h>
#include <string.h>

#include "core/csum.h"
#include "core/ip_header.h"
#include "device/vnet.h"
#include "pump/packets/mss.h"

enum { PSH = 0x08, ACK = 0x10 };

#define IPV4_NOT_DF 0xBFFFu /* offset, more fragments, reserved */

/* A packet, read as far as its ports. */
struct packet {
    uint8_t *ip;
    uint32_t len;
    uint32_t start; /* of the transport header */
    uint32_t head_len;
    uint32_t seq;
    uint32_t sender;
    uint16_t id;
    bool tcp;
    bool last; /* this packet ends its run */
};

/* ---- looking at one packet ------------------------------------------------------------------- */

/* Returns whether the packet is TCP or UDP that we can merge. */
static bool find_flow(struct packet *packet, uint8_t *ip, size_t len)
{
    bool v4 = ipu_ip_is_v4(ip);
    uint8_t protocol = v4 ? ip[IPU_IPV4_PROTOCOL] : ip[IPU_IPV6_NEXT_HEADER];
    *packet = (struct packet){.ip = ip,
                              .len = (uint32_t)len,
                              .start = v4 ? IPU_IPV4_HEADER : IPU_IPV6_HEADER,
                              .tcp = protocol == IPPROTO_TCP};
    if (len > IPU_VNET_PACKET_MAX || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
        return false;
    if (v4 ? ip[0] != 0x45 || ipu_ip_get16(ip + 2) != len || ipu_ip_get16(ip + 6) & IPV4_NOT_DF
           : IPU_IPV6_HEADER + (size_t)ipu_ip_get16(ip + 4) != len)
        return false;
    return len >=
           packet->start + (packet->tcp ? (uint32_t)IPU_TCP_HEADER : (uint32_t)IPU_UDP_HEADER);
}

/* Returns whether the packet by itself may be part of a run; we check its checksums later. */
static bool may_merge(struct packet *packet)
{
    const uint8_t *at = packet->ip + packet->start;
    packet->id = ipu_ip_get16(packet->ip + 4);
    if (!packet->tcp) {
        packet->head_len = packet->start + IPU_UDP_HEADER;
        return ipu_ip_get16(at + 4) == packet->len - packet->start &&
               ipu_ip_get16(at + IPU_UDP_CSUM) != 0 && packet->len > packet->head_len;
    }
    uint32_t header = (at[12] >> 4) * 4u;
    packet->head_len = packet->start + header;
    packet->seq = ipu_ip_get32(at + 4);
    packet->last = at[13] & PSH;
    return header >= IPU_TCP_HEADER && packet->len > packet->head_len && (at[12] & 15) == 0 &&
           (at[13] & ~PSH) == ACK;
}

static bool csum_right(const uint8_t *ip, uint32_t start, uint32_t len, bool tcp)
{
    if (ipu_ip_is_v4(ip) && ipu_csum_finish(ipu_csum_add(0, ip, start)) != 0)
        return false;
    uint64_t sum = ipu_csum_pseudo(ip, tcp ? IPPROTO_TCP : IPPROTO_UDP, len - start);
    return ipu_csum_finish(ipu_csum_add(sum, ip + start, len - start)) == 0;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool same_flow(const struct ipu_run *run, const struct packet *packet)
{
    const uint8_t *a = run->ip, *b = packet->ip;
    if (run->tcp != packet->tcp || run->start != packet->start ||
        memcmp(a + run->start, b + run->start, 4) != 0)
        return false;
    return ipu_ip_is_v4(a) ? memcmp(a + 12, b + 12, 8) == 0 : memcmp(a + 8, b + 8, 32) == 0;
}

static bool same_ip_header(const struct ipu_run *run, const struct packet *packet)
{
    const uint8_t *a = run->ip, *b = packet->ip;
    if (!ipu_ip_is_v4(a)) /* version, class, flow label; hop limit */
        return memcmp(a, b, 4) == 0 && a[7] == b[7];
    bool ids =
        ipu_ip_get16(a + 6) & IPU_IPV4_DF || packet->id == run->next_id; /* RFC 6864: DF, no id */
    return ids && a[1] == b[1] && ipu_ip_get16(a + 6) == ipu_ip_get16(b + 6) && a[8] == b[8];
}

/* The acknowledgement, the length of the header, the window, the urgent pointer, all options. */
static bool same_tcp_header(const struct ipu_run *run, const struct packet *packet)
{
    const uint8_t *a = run->ip + run->start, *b = packet->ip + packet->start;
    return packet->seq == run->next_seq && memcmp(a + 8, b + 8, 5) == 0 &&
           memcmp(a + 14, b + 14, 2) == 0 &&
           memcmp(a + 18, b + 18, run->head_len - run->start - 18) == 0;
}

static bool fits(const struct ipu_run *run, const struct packet *packet)
{
    uint32_t payload = packet->len - packet->head_len;
    if (run->packets == IPU_COALESCE_PACKETS || payload > run->size_bytes ||
        run->len + payload > IPU_VNET_PACKET_MAX)
        return false;
    if (!same_ip_header(run, packet) || (run->tcp && !same_tcp_header(run, packet)))
        return false;
    /* We check the first packet's checksum only now, so that most packets that stay alone never pay
     * for it. */
    return (run->packets > 1 || csum_right(run->ip, run->start, run->len, run->tcp)) &&
           csum_right(packet->ip, packet->start, packet->len, packet->tcp);
}

static void begin(struct ipu_run *run, const struct packet *packet)
{
    run->ip = packet->ip;
    run->packets = 1;
    run->start = packet->start;
    run->head_len = packet->head_len;
    run->len = run->bytes = packet->len;
    run->size_bytes = packet->len - packet->head_len;
    run->next_seq = packet->seq + run->size_bytes;
    run->next_id = (uint16_t)(packet->id + 1);
    run->tcp = packet->tcp;
    run->sender = packet->sender;
    run->iov[0] = (struct iovec){packet->ip - IPU_VNET_LEN, IPU_VNET_LEN + packet->len};
}

static void append(struct ipu_run *run, const struct packet *packet)
{
    uint32_t payload = packet->len - packet->head_len;
    run->iov[run->packets++] = (struct iovec){packet->ip + packet->head_len, payload};
    run->len += payload;
    run->bytes += packet->len;
    run->next_seq += payload;
    run->next_id++;
    if (packet->last && run->tcp)
        run->ip[run->start + 13] |= PSH;
}

/* Makes the first packet's headers those of the whole; the kernel completes the checksum. */
static void write_headers(struct ipu_run *run)
{
    uint8_t *ip = run->ip, *transport = ip + run->start;
    uint32_t transport_len = run->len - run->start;
    bool v4 = ipu_ip_is_v4(ip);
    if (v4) {
        ipu_ip_put16(ip + 2, run->len);
        memset(ip + 10, 0, 2);
        uint16_t csum = ipu_csum_finish(ipu_csum_add(0, ip, IPU_IPV4_HEADER));
        memcpy(ip + 10, &csum, sizeof csum);
    } else {
        ipu_ip_put16(ip + 4, transport_len);
    }
    if (!run->tcp)
        ipu_ip_put16(transport + 4, transport_len);
    uint8_t type = !run->tcp ? VIRTIO_NET_HDR_GSO_UDP_L4
                   : v4      ? VIRTIO_NET_HDR_GSO_TCPV4
                             : VIRTIO_NET_HDR_GSO_TCPV6;
    uint16_t csum_offset = run->tcp ? IPU_TCP_CSUM : IPU_UDP_CSUM;
    uint64_t sum = ipu_csum_pseudo(ip, run->tcp ? IPPROTO_TCP : IPPROTO_UDP, transport_len);
    uint16_t pseudo = (uint16_t)~ipu_csum_finish(sum);
    memcpy(transport + csum_offset, &pseudo, sizeof pseudo);
    ipu_vnet_write(ip - IPU_VNET_LEN, (struct virtio_net_hdr){
                                          .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                          .gso_type = type,
                                          .hdr_len = (uint16_t)run->head_len,
                                          .gso_size = (uint16_t)run->size_bytes,
                                          .csum_start = (uint16_t)run->start,
                                          .csum_offset = csum_offset,
                                      });
}

static void sink_alone(struct ipu_coalesce *coalesce, uint8_t *ip, size_t len)
{
    struct iovec iov = {ip - IPU_VNET_LEN, IPU_VNET_LEN + len};
    memset(iov.iov_base, 0, IPU_VNET_LEN);
    coalesce->sink(coalesce->context, &iov, 1, len);
}

static void deliver(struct ipu_coalesce *coalesce, uint32_t sender, uint8_t *ip, size_t len)
{
    if (coalesce->admit(coalesce->context, sender, 1))
        sink_alone(coalesce, ip, len);
}

static void end(struct ipu_coalesce *coalesce, uint32_t i)
{
    struct ipu_run *run = &coalesce->runs[i];
    coalesce->used &= ~(1u << i);
    if (run->packets == 1) {
        deliver(coalesce, run->sender, run->ip, run->len);
        return;
    }
    (void)coalesce->admit(coalesce->context, run->sender, run->packets);
    write_headers(run);
    coalesce->sink(coalesce->context, run->iov, run->packets, run->bytes);
}

/* Returns a place for a new run: a free place, or that of the oldest run. */
static uint32_t make_room(struct ipu_coalesce *coalesce)
{
    uint32_t i = 0;
    while (i < IPU_COALESCE_RUNS && coalesce->used & 1u << i)
        i++;
    if (i == IPU_COALESCE_RUNS) {
        i = coalesce->oldest++ % IPU_COALESCE_RUNS;
        end(coalesce, i);
    }
    coalesce->used |= 1u << i;
    return i;
}

void ipu_coalesce_add_untrusted(struct ipu_coalesce *coalesce, uint32_t sender, uint8_t *ip,
                                size_t len)
{
    struct packet packet;
    if (!find_flow(&packet, ip, len)) {
        if (!coalesce->admit(coalesce->context, sender, 1))
            return; /* the runs of other flows go on */
        ipu_coalesce_flush(coalesce);
        sink_alone(coalesce, ip, len);
        return;
    }
    packet.sender = sender;
    uint32_t i = 0;
    while (i < IPU_COALESCE_RUNS &&
           !(coalesce->used & 1u << i && same_flow(&coalesce->runs[i], &packet)))
        i++;
    bool known = i < IPU_COALESCE_RUNS;
    bool wanted = coalesce->kinds & (packet.tcp ? IPU_COALESCE_TCP : IPU_COALESCE_UDP);
    if (!wanted || !may_merge(&packet)) {
        if (packet.tcp && coalesce->tcp_packet_bytes != 0)
            ipu_mss_lower_untrusted(ip + packet.start, len - packet.start,
                                    coalesce->tcp_packet_bytes - packet.start - IPU_TCP_HEADER);
        if (known)
            end(coalesce, i);
        deliver(coalesce, sender, ip, len);
        return;
    }
    if (known && fits(&coalesce->runs[i], &packet)) {
        struct ipu_run *run = &coalesce->runs[i];
        append(run, &packet);
        if (packet.last || packet.len - packet.head_len < run->size_bytes)
            end(coalesce, i);
        return;
    }
    if (known)
        end(coalesce, i);
    if (packet.last) {
        deliver(coalesce, sender, ip, len);
        return;
    }
    i = make_room(coalesce);
    begin(&coalesce->runs[i], &packet);
}

void ipu_coalesce_flush(struct ipu_coalesce *coalesce)
{
    for (uint32_t i = 0; coalesce->used >> i; i++)
        if (coalesce->used & 1u << i)
            end(coalesce, i);
}

void ipu_coalesce_init(struct ipu_coalesce *coalesce, uint32_t kinds, ipu_coalesce_sink *sink,
                       ipu_coalesce_admit *admit, void *context)
{
    coalesce->sink = sink;
    coalesce->admit = admit;
    coalesce->context = context;
    coalesce->kinds = kinds;
    coalesce->tcp_packet_bytes = 0;
    coalesce->oldest = 0;
    coalesce->used = 0;
}
