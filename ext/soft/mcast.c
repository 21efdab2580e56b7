/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipv4.h"
#include "objects.h"

/* The table of groups and their QPs. The kernel delivers every group that any process on this
 * machine has joined on the device; this table decides which of them are ours, and for which QPs.
 */

static unsigned int bucket_of(const struct in6_addr *gid)
{
    const uint8_t *g = gid->s6_addr;
    uint32_t h = 0;

    for (int i = 0; i < 16; i += 4)
        h = (h ^ soft_roce_get32(g + i)) * 0x9e3779b1u; /* 2^32 over the golden ratio */
    return h >> 16 & (SOFT_GROUP_BUCKETS - 1);
}

struct soft_group *soft_mcast_find(const struct soft_hca *hca, const struct in6_addr *gid)
{
    struct soft_group *group = LIST_FIRST(&hca->groups[bucket_of(gid)]);

    while (group != NULL && memcmp(&group->gid, gid, sizeof(*gid)) != 0)
        group = LIST_NEXT(group, entry);
    return group;
}

static int position(const struct soft_group *group, const struct soft_qp *qp)
{
    for (unsigned int i = 0; i < group->qp_count; i++)
        if (group->qp[i] == qp)
            return (int)i;
    return -1;
}

/* Joins a new group and puts it into the table, without members. The caller holds group_mutex. */
static int create_group(struct soft_hca *hca, const struct in6_addr *gid, struct soft_group **out)
{
    struct soft_group *group;

    if (hca->group_count == SOFT_MAX_MCAST)
        return -ENOSPC;
    group = calloc(1, sizeof(*group));
    if (group == NULL)
        return -ENOMEM;
    group->gid = *gid;
    group->membership = hca->udp == NULL ? 0 : soft_membership_join(&hca->membership, gid);
    if (group->membership < 0) {
        int error = group->membership;

        free(group);
        return error;
    }
    soft_lock_acquire(hca);
    LIST_INSERT_HEAD(&hca->groups[bucket_of(gid)], group, entry);
    hca->group_count++;
    soft_lock_release(hca);
    *out = group;
    return 0;
}

/* The caller holds group_mutex. */
static void destroy_if_empty(struct soft_hca *hca, struct soft_group *group)
{
    if (group->qp_count > 0)
        return;
    soft_lock_acquire(hca);
    LIST_REMOVE(group, entry);
    hca->group_count--;
    soft_lock_release(hca);
    if (hca->udp != NULL)
        soft_membership_leave(&hca->membership, &group->gid, group->membership);
    free(group->qp);
    free(group);
}

static int add_member(struct soft_group *group, struct soft_qp *qp)
{
    int error = 0;

    soft_lock_acquire(qp->hca);
    if (group->qp_count == group->qp_room) {
        unsigned int room = group->qp_room == 0 ? 2 : group->qp_room * 2;
        struct soft_qp **grown = realloc(group->qp, room * sizeof(*grown));

        if (grown == NULL) {
            error = -ENOMEM;
        } else {
            group->qp = grown;
            group->qp_room = room;
        }
    }
    if (error == 0) {
        group->qp[group->qp_count++] = qp;
        qp->groups++;
    }
    soft_lock_release(qp->hca);
    return error;
}

static void remove_member(struct soft_group *group, struct soft_qp *qp, int at)
{
    soft_lock_acquire(qp->hca);
    group->qp[at] = group->qp[--group->qp_count];
    qp->groups--;
    soft_lock_release(qp->hca);
}

int soft_qp_attach_mcast(struct soft_qp *qp, const struct in6_addr *mgid)
{
    struct soft_hca *hca = qp->hca;
    struct soft_group *group;
    int error = 0;

    if (!IN6_IS_ADDR_MULTICAST(mgid) || qp->rc != NULL)
        return -EINVAL;
    if (soft_is_ipv4(&hca->attr.gid)) /* no IPv4 address says which MGID a packet is for */
        return -EAFNOSUPPORT;
    pthread_mutex_lock(&hca->group_mutex);
    group = soft_mcast_find(hca, mgid);
    if (group == NULL)
        error = create_group(hca, mgid, &group);
    if (error == 0 && position(group, qp) < 0) {
        error = add_member(group, qp);
        destroy_if_empty(hca, group);
    }
    pthread_mutex_unlock(&hca->group_mutex);
    return error;
}

int soft_qp_detach_mcast(struct soft_qp *qp, const struct in6_addr *mgid)
{
    struct soft_hca *hca = qp->hca;
    struct soft_group *group;
    int at;

    pthread_mutex_lock(&hca->group_mutex);
    group = soft_mcast_find(hca, mgid);
    at = group == NULL ? -1 : position(group, qp);
    if (at >= 0) {
        remove_member(group, qp, at);
        destroy_if_empty(hca, group);
    }
    pthread_mutex_unlock(&hca->group_mutex);
    return at < 0 ? -ENOENT : 0;
}

void soft_mcast_detach_all(struct soft_qp *qp)
{
    struct soft_hca *hca = qp->hca;

    pthread_mutex_lock(&hca->group_mutex);
    for (int i = 0; i < SOFT_GROUP_BUCKETS && qp->groups > 0; i++) {
        struct soft_group *group = LIST_FIRST(&hca->groups[i]);

        while (group != NULL) {
            struct soft_group *next = LIST_NEXT(group, entry);
            int at = position(group, qp);

            if (at >= 0) {
                remove_member(group, qp, at);
                destroy_if_empty(hca, group);
            }
            group = next;
        }
    }
    pthread_mutex_unlock(&hca->group_mutex);
}
