/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_IPV4_H
#define SOFT_IPV4_H

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

/* IPv4 addresses as GIDs: ::ffff:a.b.c.d (InfiniBand Annex A17, 17.3.1.2.1). */

static inline bool soft_is_ipv4(const struct in6_addr *gid)
{
    return IN6_IS_ADDR_V4MAPPED(gid);
}

static inline struct in6_addr soft_ipv4_mapped(struct in_addr ip)
{
    struct in6_addr gid = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    memcpy(gid.s6_addr + 12, &ip, sizeof(ip));
    return gid;
}

static inline struct in_addr soft_ipv4_of(const struct in6_addr *gid)
{
    struct in_addr ip;

    memcpy(&ip, gid->s6_addr + 12, sizeof(ip));
    return ip;
}

#endif
