/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/packets/flow_key.h"

#include <stdbool.h>
#include <string.h>

#include "core/ip_header.h"
#include "pump/packets/classify.h"

_Static_assert(sizeof(struct ipu_flow_key) == 40, "compared as bytes");

enum { PORTS_LEN = 4 };

static bool has_ports(uint8_t protocol)
{
    return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP ||
           protocol == IPPROTO_UDPLITE || protocol == IPPROTO_DCCP;
}

static void take_ports(struct ipu_flow_key *key, const uint8_t *ip, size_t len, size_t header)
{
    if (has_ports(key->protocol) && header + PORTS_LEN <= len)
        memcpy(key->ports, ip + header, PORTS_LEN);
}

struct ipu_flow_key ipu_flow_key_of(const uint8_t *ip, size_t len)
{
    struct ipu_flow_key key;
    memset(&key, 0, sizeof key);
    if (ipu_ip_is_v4(ip)) {
        key.src = ipu_classify_map4(ip + 12);
        key.dst = ipu_classify_map4(ip + IPU_IPV4_DESTINATION);
        key.tos = ip[1];
        if ((ipu_ip_get16(ip + IPU_IPV4_FRAGMENT) & IPU_IPV4_FRAGMENT_MASK) == 0) {
            key.protocol = ip[IPU_IPV4_PROTOCOL];
            take_ports(&key, ip, len, (size_t)(ip[0] & 15) * 4);
        }
        return key;
    }
    memcpy(&key.src, ip + 8, sizeof key.src);
    memcpy(&key.dst, ip + IPU_IPV6_DESTINATION, sizeof key.dst);
    key.tos = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
    /* Behind an extension header, such as that of a fragment, the packet need not have ports. */
    if (ip[IPU_IPV6_NEXT_HEADER] != IPPROTO_FRAGMENT) {
        key.protocol = ip[IPU_IPV6_NEXT_HEADER];
        take_ports(&key, ip, len, IPU_IPV6_HEADER);
    }
    return key;
}

void ipu_flow_key_mask(struct ipu_flow_key *key, uint32_t fields)
{
    if (!(fields & IPU_ROUTE_FIELD_SOURCE))
        memset(&key->src, 0, sizeof key->src);
    if (!(fields & IPU_ROUTE_FIELD_TOS))
        key->tos = 0;
    if (!(fields & IPU_ROUTE_FIELD_PORTS)) {
        memset(key->ports, 0, sizeof key->ports);
        key->protocol = 0;
    }
}

/* Makes every bit of the result depend on every bit of `x`: the finalizer of MurmurHash3. A product
 * alone maps ports that count up to an arithmetic progression, which under some seeds leaves out
 * whole parts of the range. */
static uint64_t avalanche(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
    x = (x ^ x >> 33) * UINT64_C(0xC4CEB9FE1A85EC53);
    return x ^ x >> 33;
}

uint32_t ipu_flow_key_hash(const struct ipu_flow_key *key, const struct ipu_hash_seed *seed)
{
    uint32_t ports;
    memcpy(&ports, key->ports, sizeof ports);
    uint64_t rest = (uint64_t)ports << 8 | key->protocol;
    return (uint32_t)(avalanche(ipu_hash_32(seed, key) ^ rest) >> 32);
}
