/* SPDX-License-Identifier: BSD-2-Clause */
#include "outlet.h"

static bool same(const struct soft_udp_dest *a, const struct soft_udp_dest *b)
{
    return memcmp(&a->address.ip6, &b->address.ip6, sizeof(a->address.ip6)) == 0 &&
           a->hop_limit == b->hop_limit && a->traffic_class == b->traffic_class;
}

/* A connection would give its traffic class to the messages to others, too. */
static bool may_connect(const struct soft_udp_family *family, const struct soft_udp_dest *dest)
{
    return family->connect != NULL && !IN6_IS_ADDR_MULTICAST(&dest->gid) &&
           dest->traffic_class == 0;
}

void soft_outlet_begin_batch(struct soft_outlet *outlet, const struct soft_udp_family *family,
                             const struct soft_udp_dest *dest, const struct in6_addr *gid,
                             unsigned int ifindex, struct soft_count *count)
{
    if (!may_connect(family, dest))
        return;
    if (soft_outlet_knows(outlet, dest)) {
        outlet->run = 0;
        return;
    }
    if (outlet->run == 0 || !same(&outlet->other, dest)) {
        outlet->other = *dest;
        outlet->run = 0;
    }
    if (++outlet->run < SOFT_OUTLET_RUN)
        return;
    outlet->run = 0;
    outlet->peer = *dest;
    outlet->had_peer = true;
    outlet->connected = family->connect(outlet->fd, dest, gid, ifindex) == 0;
    if (outlet->connected)
        soft_count_add(count, SOFT_C_TX_CONNECTS, 1);
}

bool soft_outlet_knows(const struct soft_outlet *outlet, const struct soft_udp_dest *dest)
{
    return outlet->connected && same(&outlet->peer, dest);
}

bool soft_outlet_forget(struct soft_outlet *outlet)
{
    outlet->connected = false;
    return outlet->had_peer;
}
