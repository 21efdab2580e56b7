/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_GROUP_LIST_H
#define IPU_GROUP_LIST_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The groups of a peer, from its control messages, in the order of their bytes: the pump looks at
 * the lists of all peers for each message to a group. Zero is an empty list. A peer with too many
 * groups gets every group's messages, and so does a peer whose groups are not known yet. */
enum { IPU_GROUP_LIST_MAX = 1024 };

struct ipu_group_list {
    struct in6_addr *mgids;
    int count, room;
    bool is_known; /* the peer has sent its groups */
    bool is_all;   /* the peer is in more groups than we keep */
};

/* Returns the place of the group, or that where it would be; *is_there says which. */
static inline int ipu_group_list_find(const struct ipu_group_list *list,
                                      const struct in6_addr *mgid, bool *is_there)
{
    int low = 0, high = list->count;
    while (low < high) {
        int middle = low + (high - low) / 2,
            order = memcmp(&list->mgids[middle], mgid, sizeof *mgid);
        if (order == 0) {
            *is_there = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *is_there = false;
    return low;
}

/* Returns whether the peer gets the group's messages; every peer gets those of the broadcast group.
 */
static inline bool ipu_group_list_wants(const struct ipu_group_list *list,
                                        const struct in6_addr *mgid,
                                        const struct in6_addr *broadcast)
{
    bool is_there;
    if (!list->is_known || list->is_all || memcmp(mgid, broadcast, sizeof *mgid) == 0)
        return true;
    (void)ipu_group_list_find(list, mgid, &is_there);
    return is_there;
}

static inline void ipu_group_list_add(struct ipu_group_list *list, const struct in6_addr *mgid)
{
    bool is_there;
    int at = ipu_group_list_find(list, mgid, &is_there);
    if (is_there)
        return;
    if (list->count == list->room && list->room < IPU_GROUP_LIST_MAX) {
        int room = list->room == 0 ? 16 : 2 * list->room;
        struct in6_addr *mgids = realloc(list->mgids, (size_t)room * sizeof *mgids);
        if (mgids != NULL) {
            list->mgids = mgids;
            list->room = room;
        }
    }
    if (list->count == list->room) {
        list->is_all = true;
        return;
    }
    memmove(&list->mgids[at + 1], &list->mgids[at],
            (size_t)(list->count++ - at) * sizeof *list->mgids);
    list->mgids[at] = *mgid;
}

static inline void ipu_group_list_delete(struct ipu_group_list *list, const struct in6_addr *mgid)
{
    bool is_there;
    int at = ipu_group_list_find(list, mgid, &is_there);
    if (is_there)
        memmove(&list->mgids[at], &list->mgids[at + 1],
                (size_t)(--list->count - at) * sizeof *list->mgids);
}

/* Empties the list: the peer sends all its groups anew. */
static inline void ipu_group_list_restart(struct ipu_group_list *list)
{
    list->count = 0;
    list->is_all = false;
    list->is_known = true;
}

static inline void ipu_group_list_free(struct ipu_group_list *list)
{
    free(list->mgids);
    *list = (struct ipu_group_list){0};
}

#endif
