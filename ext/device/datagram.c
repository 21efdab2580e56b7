/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/datagram.h"

#include <string.h>

#include "core/csum.h"
#include "core/ip_header.h"

enum {
    PROTOCOL_UDP = 17,
    PLAIN_IPV4 = 0x45, /* version 4, and a header without options */
    PORTS = 4,         /* bytes of both ports */
};

static void seal_ipv4(uint8_t *ip, uint32_t total)
{
    ipu_ip_put16(ip + IPU_IPV4_LEN, (uint16_t)total);
    ipu_ip_put16(ip + IPU_IPV4_CSUM, 0);
    uint16_t sum = ipu_csum_finish(ipu_csum_add(0, ip, IPU_IPV4_HEADER));
    memcpy(ip + IPU_IPV4_CSUM, &sum, sizeof sum);
}

static uint16_t udp_sum(const uint8_t *ip, const uint8_t *udp, uint32_t udp_len)
{
    return ipu_csum_finish(ipu_csum_add(ipu_csum_pseudo(ip, PROTOCOL_UDP, udp_len), udp, udp_len));
}

bool ipu_datagram_send(struct ipu_queue *queue, const uint8_t *headers, uint32_t headers_len,
                       const void *payload, uint32_t len)
{
    uint8_t *ip = ipu_queue_reserve(queue, headers_len + len);
    if (ip == NULL)
        return false;
    uint8_t *udp = ip + headers_len - IPU_UDP_HEADER;
    uint32_t udp_len = IPU_UDP_HEADER + len;
    memcpy(ip, headers, headers_len);
    if (len > 0)
        memcpy(udp + IPU_UDP_HEADER, payload, len);
    if (ipu_ip_is_v4(ip))
        seal_ipv4(ip, headers_len + len);
    else
        ipu_ip_put16(ip + IPU_IPV6_LEN, (uint16_t)udp_len);
    ipu_ip_put16(udp + IPU_UDP_LEN, (uint16_t)udp_len);
    ipu_ip_put16(udp + IPU_UDP_CSUM, 0);
    uint16_t sum = udp_sum(ip, udp, udp_len);
    if (sum == 0)
        sum = 0xFFFF; /* RFC 768: 0 means that there is none */
    memcpy(udp + IPU_UDP_CSUM, &sum, sizeof sum);
    ipu_queue_commit(queue);
    return true;
}

/* Returns the length of the IP header before a whole UDP datagram; 0: the packet has none. */
static uint32_t header_untrusted(const uint8_t *packet, uint32_t len)
{
    if (len >= IPU_DATAGRAM_HEADERS4 && packet[0] == PLAIN_IPV4) {
        uint32_t total = ipu_ip_get16(packet + IPU_IPV4_LEN);
        bool is_plain = total >= IPU_DATAGRAM_HEADERS4 && total <= len &&
                        packet[IPU_IPV4_PROTOCOL] == PROTOCOL_UDP &&
                        !(ipu_ip_get16(packet + IPU_IPV4_FRAGMENT) & IPU_IPV4_FRAGMENT_MASK);
        if (!is_plain || ipu_csum_finish(ipu_csum_add(0, packet, IPU_IPV4_HEADER)) != 0)
            return 0;
        return ipu_ip_get16(packet + IPU_IPV4_HEADER + IPU_UDP_LEN) <= total - IPU_IPV4_HEADER
                   ? IPU_IPV4_HEADER
                   : 0;
    }
    if (len >= IPU_DATAGRAM_HEADERS6 && ipu_ip_is_v6(packet)) {
        uint32_t rest = ipu_ip_get16(packet + IPU_IPV6_LEN);
        bool is_plain = rest >= IPU_UDP_HEADER && rest <= len - IPU_IPV6_HEADER &&
                        packet[IPU_IPV6_NEXT_HEADER] == PROTOCOL_UDP;
        if (!is_plain)
            return 0;
        return ipu_ip_get16(packet + IPU_IPV6_HEADER + IPU_UDP_LEN) <= rest ? IPU_IPV6_HEADER : 0;
    }
    return 0;
}

bool ipu_datagram_read_untrusted(const uint8_t *packet, uint32_t len, struct ipu_datagram *out)
{
    *out = (struct ipu_datagram){0};
    uint32_t header = header_untrusted(packet, len);
    if (header == 0)
        return false;
    const uint8_t *udp = packet + header;
    uint32_t udp_len = ipu_ip_get16(udp + IPU_UDP_LEN);
    if (udp_len < IPU_UDP_HEADER)
        return false;
    bool is_v4 = header == IPU_IPV4_HEADER;
    bool is_sealed = !is_v4 || ipu_ip_get16(udp + IPU_UDP_CSUM) != 0;
    if (is_sealed && (ipu_ip_get16(udp + IPU_UDP_CSUM) == 0 || udp_sum(packet, udp, udp_len) != 0))
        return false;
    out->flow_len = is_v4 ? IPU_DATAGRAM_FLOW4 : IPU_DATAGRAM_FLOW6;
    out->flow = udp + PORTS - out->flow_len;
    out->payload = udp + IPU_UDP_HEADER;
    out->payload_len = udp_len - IPU_UDP_HEADER;
    return true;
}
