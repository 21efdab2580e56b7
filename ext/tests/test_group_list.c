/* SPDX-License-Identifier: BSD-2-Clause */
/* The groups of a peer. */
#include <arpa/inet.h>

#include "check.h"
#include "fabric/group_list.h"

static struct in6_addr address(uint32_t number)
{
    struct in6_addr ip = {{{0xfe, 0x80}}};
    number = htonl(number);
    memcpy(ip.s6_addr + 12, &number, sizeof number);
    return ip;
}

/* Any order of joins and leaves is that of a list that is searched from its beginning. */
static void groups_of_a_peer_are_found_in_any_order(void)
{
    enum { GROUPS = 64 };
    struct ipu_group_list list = {0};
    bool is_in[GROUPS] = {false};
    struct in6_addr nowhere = {0};
    uint64_t random = 1;
    ipu_group_list_restart(&list);
    for (int i = 0; i < 5000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t which = (uint32_t)(random >> 33) % GROUPS;
        struct in6_addr mgid = address(which * 0x01010101);
        is_in[which] = random >> 63;
        if (is_in[which])
            ipu_group_list_add(&list, &mgid);
        else
            ipu_group_list_delete(&list, &mgid);
        int count = 0;
        for (uint32_t k = 0; k < GROUPS; k++) {
            mgid = address(k * 0x01010101);
            CHECK_EQ(ipu_group_list_wants(&list, &mgid, &nowhere), is_in[k]);
            count += is_in[k];
        }
        CHECK_EQ(list.count, count);
    }
    ipu_group_list_free(&list);
}

int main(void)
{
    RUN(groups_of_a_peer_are_found_in_any_order);
    return 0;
}
