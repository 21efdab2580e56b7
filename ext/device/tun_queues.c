/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/tun_queues.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "core/ip_header.h"
#include "device/vnet.h"

enum { PORTS_LEN = 4 };

/* One end of a flow. */
struct end {
    uint8_t address[16];
    uint8_t port[2];
    uint8_t protocol; /* 0: without a port */
    uint8_t pad[13];
};

_Static_assert(sizeof(struct end) == 32, "hashed as bytes");

static struct end end_of(const uint8_t *address, size_t address_len, const uint8_t *port,
                         uint8_t protocol)
{
    struct end end = {.protocol = protocol};
    memcpy(end.address, address, address_len);
    if (protocol != 0)
        memcpy(end.port, port, sizeof end.port);
    return end;
}

static bool has_ports(uint8_t protocol)
{
    return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/* The addition gives both directions the same key. */
static uint32_t queue_of(const struct ipu_tun_queues *tun, const struct end *from,
                         const struct end *to)
{
    uint64_t hash = ipu_hash_32(&tun->seed, from) + ipu_hash_32(&tun->seed, to);
    return (uint32_t)(((hash >> 32) * tun->count) >> 32);
}

static uint32_t choose(const struct ipu_tun_queues *tun, const uint8_t *addresses,
                       size_t address_len, const uint8_t *ports, uint8_t protocol)
{
    const struct end from = end_of(addresses, address_len, ports, protocol);
    const struct end to = end_of(addresses + address_len, address_len, ports + 2, protocol);
    return queue_of(tun, &from, &to);
}

uint32_t ipu_tun_queues_choose(const struct ipu_tun_queues *tun, const uint8_t *ip, size_t len)
{
    uint8_t protocol = 0;
    if (len >= IPU_IPV4_HEADER && ipu_ip_is_v4(ip)) {
        size_t header = (size_t)(ip[0] & 15) * 4;
        bool is_fragment = (ipu_ip_get16(ip + IPU_IPV4_FRAGMENT) & IPU_IPV4_FRAGMENT_MASK) != 0;
        if (has_ports(ip[IPU_IPV4_PROTOCOL]) && !is_fragment && header >= IPU_IPV4_HEADER &&
            header + PORTS_LEN <= len)
            protocol = ip[IPU_IPV4_PROTOCOL];
        return choose(tun, ip + 12, 4, ip + (protocol != 0 ? header : 0), protocol);
    }
    if (len >= IPU_IPV6_HEADER && ipu_ip_is_v6(ip)) {
        /* Behind an extension header, such as that of a fragment, the packet need not have
         * ports. */
        if (has_ports(ip[IPU_IPV6_NEXT_HEADER]) && IPU_IPV6_HEADER + PORTS_LEN <= len)
            protocol = ip[IPU_IPV6_NEXT_HEADER];
        return choose(tun, ip + 8, 16, ip + (protocol != 0 ? IPU_IPV6_HEADER : 0), protocol);
    }
    return 0;
}

int ipu_tun_queues_fd(const struct ipu_tun_queues *tun, const uint8_t *frame, size_t len)
{
    if (tun->count == 1 || len < IPU_VNET_LEN)
        return tun->fds[0];
    return tun->fds[ipu_tun_queues_choose(tun, frame + IPU_VNET_LEN, len - IPU_VNET_LEN)];
}

int ipu_tun_queues_init(struct ipu_tun_queues *tun, const int *fds, uint32_t count)
{
    if (count < 1 || count > IPU_TX_QUEUES_MAX)
        return -EINVAL;
    memset(tun, 0, sizeof *tun);
    tun->count = count;
    memcpy(tun->fds, fds, count * sizeof *fds);
    return ipu_hash_seed_init(&tun->seed, NULL);
}
