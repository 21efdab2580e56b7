/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/packets/classify.h"

#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"

enum {
    IPV4_WITHOUT_OPTIONS = 0x45,
    DHCP6_OF_SERVER = 547 << 16 | 546, /* the ports, source first */
};

const struct ipu_icmp6_kind ipu_icmp6_kinds[UINT8_MAX + 1] = {
#define X(name, type, host, link, concern) [type] = {host, link, concern},
    IPU_ICMP6(X)
#undef X
};

struct in6_addr ipu_classify_map4(const uint8_t v4[4])
{
    struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(mapped.s6_addr + 12, v4, 4);
    return mapped;
}

bool ipu_classify_is_dhcp(const uint8_t *ip, size_t len, enum ipu_dhcp_ports ports)
{
    return len >= IPU_IPV4_HEADER + IPU_UDP_HEADER &&
           ipu_ip_get32(ip + IPU_IPV4_HEADER) == (uint32_t)ports && ip[0] == IPV4_WITHOUT_OPTIONS &&
           ip[IPU_IPV4_PROTOCOL] == IPPROTO_UDP &&
           (ipu_ip_get16(ip + IPU_IPV4_FRAGMENT) & IPU_IPV4_FRAGMENT_MASK) == 0;
}

bool ipu_classify_is_dhcp6_reply(const uint8_t *ip, size_t len)
{
    return len >= IPU_IPV6_HEADER + IPU_UDP_HEADER &&
           ipu_ip_get32(ip + IPU_IPV6_HEADER) == DHCP6_OF_SERVER && ip[0] >> 4 == 6 &&
           ip[IPU_IPV6_NEXT_HEADER] == IPPROTO_UDP;
}

/* Returns the type of an ICMPv6 message behind at most one hop-by-hop header, which MLD has, or
 * -1. */
static int icmp6_type(const uint8_t *ip, size_t len)
{
    size_t at = IPU_IPV6_HEADER;
    uint8_t next = ip[IPU_IPV6_NEXT_HEADER];
    if (next == IPPROTO_HOPOPTS && len >= at + 8) {
        next = ip[at];
        at += 8u * (ip[at + 1] + 1u);
    }
    return next == IPPROTO_ICMPV6 && len > at ? ip[at] : -1;
}

bool ipu_classify_is_nd(const uint8_t *ip, size_t len)
{
    int type = len > IPU_IPV6_HEADER && ipu_ip_is_v6(ip) ? icmp6_type(ip, len) : -1;
    return type >= 0 && ipu_icmp6_kinds[type].of_link == IPU_RX_ENGINE;
}

static enum ipu_tx_class tx4(const uint8_t *ip, size_t len, struct ipu_flow *flow)
{
    size_t header = (size_t)(ip[0] & 15) * 4;
    if (len < IPU_IPV4_HEADER || header < IPU_IPV4_HEADER || ipu_ip_get16(ip + 2) < header ||
        ipu_ip_get16(ip + 2) > len)
        return IPU_TX_MALFORMED;
    flow->type = IPU_TYPE_IPV4;
    flow->dst = ipu_classify_map4(ip + 16);
    flow->group = (ip[16] & 0xf0) == 0xe0 || (ip[16] & ip[17] & ip[18] & ip[19]) == 0xff;
    bool followed = flow->group && (ip[IPU_IPV4_PROTOCOL] == IPPROTO_IGMP ||
                                    ipu_classify_is_dhcp(ip, len, IPU_DHCP_OF_CLIENT));
    return followed ? IPU_TX_HOST : IPU_TX_FORWARD;
}

static enum ipu_tx_class tx6(const uint8_t *ip, size_t len, struct ipu_flow *flow)
{
    if (len < IPU_IPV6_HEADER || IPU_IPV6_HEADER + (size_t)ipu_ip_get16(ip + 4) > len)
        return IPU_TX_MALFORMED;
    flow->type = IPU_TYPE_IPV6;
    memcpy(&flow->dst, ip + 24, 16);
    if (IN6_IS_ADDR_V4MAPPED(&flow->dst)) /* would match IPv4's entries; such packets never belong
                                             on a wire: RFC 4038 §4.2 */
        return IPU_TX_MALFORMED;
    flow->group = ip[24] == 0xff;
    int type = icmp6_type(ip, len);
    enum ipu_tx_class class = type < 0 ? IPU_TX_FORWARD : ipu_icmp6_kinds[type].of_host;
    return class == IPU_TX_HOST && !flow->group ? IPU_TX_FORWARD : class;
}

enum ipu_tx_class ipu_classify_tx(const uint8_t *ip, size_t len, struct ipu_flow *flow)
{
    if (len == 0)
        return IPU_TX_MALFORMED;
    switch (ip[0] >> 4) {
    case 4:
        return tx4(ip, len, flow);
    case 6:
        return tx6(ip, len, flow);
    default:
        return IPU_TX_MALFORMED;
    }
}

enum ipu_rx_class ipu_classify_rx_untrusted(const uint8_t *frame, size_t len)
{
    const uint8_t *ip = frame + IPU_ENCAP_LEN;
    size_t n = len - IPU_ENCAP_LEN;
    switch (ipu_ip_get16(frame)) {
    case IPU_TYPE_IPV4:
        return n >= IPU_IPV4_HEADER && ipu_ip_is_v4(ip) ? IPU_RX_DELIVER : IPU_RX_MALFORMED;
    case IPU_TYPE_IPV6:
        if (n < IPU_IPV6_HEADER || !ipu_ip_is_v6(ip))
            return IPU_RX_MALFORMED;
        /* RFC 6980: ND has no fragment header; we do not accept ND behind other extension
         * headers. */
        if (ip[IPU_IPV6_NEXT_HEADER] == IPPROTO_ICMPV6 && n > IPU_IPV6_HEADER)
            return ipu_icmp6_kinds[ip[IPU_IPV6_HEADER]].of_link;
        return IPU_RX_DELIVER;
    case IPU_TYPE_ARP:
        return IPU_RX_ENGINE;
    case IPU_TYPE_RAILS:
        return IPU_RX_UNCONCERNED;
    default:
        return IPU_RX_UNKNOWN_TYPE; /* E3 */
    }
}
