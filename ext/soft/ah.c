/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

#define FLOW_LABEL_MASK 0xfffffu

bool soft_ah_resolve(const struct soft_hca *hca, const struct soft_ah_attr *attr,
                     struct soft_udp_dest *out)
{
    if (IN6_IS_ADDR_UNSPECIFIED(&attr->dgid) || IN6_IS_ADDR_V4MAPPED(&attr->dgid) ||
        attr->flow_label > FLOW_LABEL_MASK)
        return false;
    *out = (struct soft_udp_dest){
        .address =
            {
                .sin6_family = AF_INET6,
                .sin6_port = htons(SOFT_UDP_PORT),
                .sin6_addr = attr->dgid,
                .sin6_scope_id = hca->attr.ifindex,
                .sin6_flowinfo = htonl(attr->flow_label),
            },
        .hop_limit = attr->hop_limit ? attr->hop_limit : SOFT_HOP_LIMIT,
        .traffic_class = attr->traffic_class,
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
