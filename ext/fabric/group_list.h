/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_GROUP_LIST_H
#define IPU_GROUP_LIST_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The groups of a peer, from its control messages. Zero is an empty list. A peer with too many
 * groups gets every group's messages, and so does a peer whose groups are not known yet. */
enum { IPU_GROUP_LIST_MAX = 1024 };

struct ipu_group_list {
    struct in6_addr *mgids;
    int count, room;
    bool is_known; /* the peer has sent its groups */
    bool is_all;   /* the peer is in more groups than we keep */
};

static inline int ipu_group_list_find(const struct ipu_group_list *list,
                                      const struct in6_addr *mgid)
{
    for (int i = 0; i < list->count; i++)
        if (memcmp(&list->mgids[i], mgid, sizeof *mgid) == 0)
            return i;
    return -1;
}

/* Returns whether the peer gets the group's messages; every peer gets those of the broadcast group.
 */
static inline bool ipu_group_list_wants(const struct ipu_group_list *list,
                                        const struct in6_addr *mgid,
                                        const struct in6_addr *broadcast)
{
    return !list->is_known || list->is_all || memcmp(mgid, broadcast, sizeof *mgid) == 0 ||
           ipu_group_list_find(list, mgid) >= 0;
}

static inline void ipu_group_list_add(struct ipu_group_list *list, const struct in6_addr *mgid)
{
    if (ipu_group_list_find(list, mgid) >= 0)
        return;
    if (list->count == list->room && list->room < IPU_GROUP_LIST_MAX) {
        int room = list->room == 0 ? 16 : 2 * list->room;
        struct in6_addr *mgids = realloc(list->mgids, (size_t)room * sizeof *mgids);
        if (mgids != NULL) {
            list->mgids = mgids;
            list->room = room;
        }
    }
    if (list->count < list->room)
        list->mgids[list->count++] = *mgid;
    else
        list->is_all = true;
}

static inline void ipu_group_list_delete(struct ipu_group_list *list, const struct in6_addr *mgid)
{
    int at = ipu_group_list_find(list, mgid);
    if (at >= 0)
        list->mgids[at] = list->mgids[--list->count];
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
