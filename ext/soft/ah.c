/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipv4.h"
#include "objects.h"

#define FLOW_LABEL_MASK 0xfffffu

/* A packet has one IP version, and over IPv4 there are no groups. */
static bool can_reach(const struct in6_addr *own, const struct in6_addr *gid)
{
    if (soft_is_ipv4(own) != soft_is_ipv4(gid))
        return false;
    if (!soft_is_ipv4(gid))
        return !IN6_IS_ADDR_UNSPECIFIED(gid);
    return gid->s6_addr[12] != 0 && !IN_MULTICAST(ntohl(soft_ipv4_of(gid).s_addr));
}

bool soft_ah_resolve(const struct soft_hca *hca, const struct soft_ah_attr *attr,
                     struct soft_udp_dest *out)
{
    if (!can_reach(&hca->attr.gid, &attr->dgid) || attr->flow_label > FLOW_LABEL_MASK)
        return false;
    *out = (struct soft_udp_dest){
        .gid = attr->dgid,
        .flow_label = attr->flow_label,
        .hop_limit = attr->hop_limit ? attr->hop_limit : SOFT_HOP_LIMIT,
        .traffic_class = attr->traffic_class,
    };
    if (soft_is_ipv4(&attr->dgid))
        out->address.ip4 = (struct sockaddr_in){
            .sin_family = AF_INET,
            .sin_port = htons(SOFT_UDP_PORT),
            .sin_addr = soft_ipv4_of(&attr->dgid),
        };
    else
        out->address.ip6 = (struct sockaddr_in6){
            .sin6_family = AF_INET6,
            .sin6_port = htons(SOFT_UDP_PORT),
            .sin6_addr = attr->dgid,
            .sin6_scope_id = hca->attr.ifindex,
            .sin6_flowinfo = htonl(attr->flow_label),
        };
    return true;
}

int soft_ah_create(struct soft_hca *hca, const struct soft_ah_attr *attr, struct soft_ah **out)
{
    struct soft_udp_dest dest;
    struct soft_ah *ah;
    bool full;

    if (!soft_ah_resolve(hca, attr, &dest))
        return -EINVAL;
    ah = calloc(1, sizeof(*ah));
    if (ah == NULL)
        return -ENOMEM;
    ah->hca = hca;
    ah->references = 1;
    ah->dest = dest;
    ah->local = memcmp(&attr->dgid, &hca->attr.gid, sizeof(attr->dgid)) == 0;
    soft_lock_acquire(hca);
    full = hca->ah_count == SOFT_MAX_AH;
    if (!full) {
        hca->ah_count++;
        LIST_INSERT_HEAD(&hca->ahs, ah, entry);
    }
    soft_lock_release(hca);
    if (full) {
        free(ah);
        return -ENOSPC;
    }
    *out = ah;
    return 0;
}

void soft_ah_release(struct soft_ah *ah)
{
    if (--ah->references > 0)
        return;
    LIST_REMOVE(ah, entry);
    ah->hca->ah_count--;
    free(ah);
}

void soft_ah_destroy(struct soft_ah *ah)
{
    struct soft_hca *hca = ah->hca;

    soft_lock_acquire(hca);
    soft_ah_release(ah);
    soft_lock_release(hca);
}
