/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what an entry of each table of the core costs, as `bytes TABLE N`, TABLE by its names in
 * ipoibu/daemon/tables. Tables that grow are filled to their caps and all that they allocate is
 * counted; the others are arrays. tests/unit/tables/test_core_bytes.py compares the figures with
 * the register.
 */
#include <malloc.h>

#include "check.h"
#include "core/guests.h"
#include "fabric/group_list.h"
#include "fabric/memory.h"
#include "fabric/soft_gsi.h"
#include "pump/tables/admission.h"
#include "pump/tables/ah_cache.h"
#include "pump/tables/neigh.h"
#include "pump/tables/resolution.h"
#include "pump/tables/route.h"
#include "pump/tables/route_answers.h"
#include "pump/tables/write_share.h"
#include "rails/rails_state.h"
#include "soft/objects.h"
#include "unicast/unicast_state.h"

/* Caps at which a table that doubles has just grown: the worst share of its empty slots. */
enum { CAP = 3 * 1024 + 1, HOPS = 4 };

static const struct ipu_hash_seed seed = {{1, 2, 3, 4}};
static struct in6_addr address(uint32_t number)
{
    struct in6_addr ip = {.s6_addr = {0xfd, [15] = 1}};
    memcpy(ip.s6_addr + 8, &number, sizeof number);
    return ip;
}

static void print(const char *table, size_t bytes, size_t entries)
{
    CHECK(entries > 0);
    printf("bytes %s %zu\n", table, (bytes + entries - 1) / entries);
}

static void next_hops(void)
{
    struct ipu_neigh_table table;
    struct ipu_ah *former;
    CHECK_EQ(ipu_neigh_init(&table, CAP, &seed), 0);
    for (uint32_t i = 0; i < CAP; i++) {
        struct in6_addr ip = address(i);
        CHECK_EQ(ipu_neigh_set(&table, &ip, NULL, IPU_NEIGH_HOLD, 2044, &former), 0);
    }
    print("next hops of the pump", ((size_t)table.mask + 1) * sizeof *table.slots, CAP);
    ipu_neigh_free(&table);
}

static void routes(void)
{
    struct ipu_route_table table;
    struct ipu_hop hops[HOPS];
    size_t bytes = 0;
    memset(hops, 0, sizeof hops);
    for (int i = 0; i < HOPS; i++)
        hops[i] = (struct ipu_hop){.gateway = address(1), .weight = 1};
    CHECK_EQ(ipu_route_init(&table, CAP, &seed), 0);
    for (uint32_t i = 0; i < CAP; i++) {
        struct in6_addr ip = address(i);
        CHECK_EQ(ipu_route_set_hops(&table, &ip, 128, hops, HOPS), 0);
        bytes += sizeof(struct ipu_hops) + sizeof hops;
    }
    bytes += ((size_t)table.mask + 1) * sizeof *table.slots;
    print("routes of the pump, with 4 next hops", bytes, CAP);
    ipu_route_free(&table);
}

static void answers(void)
{
    struct ipu_route_answers table;
    CHECK_EQ(ipu_route_answers_init(&table, CAP, &seed), 0);
    for (uint32_t i = 0; i < CAP; i++) {
        struct ipu_route_answer answer = {.key = {.dst = address(i)}, .kind = IPU_ROUTE_ON_LINK};
        CHECK(ipu_route_answers_put(&table, answer) >= 0);
    }
    print("answers of the kernel about flows", ((size_t)table.mask + 1) * sizeof *table.slots, CAP);
    ipu_route_answers_free(&table);
}

static void guests(void)
{
    struct ipu_mac_table table;
    CHECK_EQ(ipu_mac_table_init(&table, IPU_GUESTS_MAX), 0);
    print("guests in the pump", malloc_usable_size(table.slots), IPU_GUESTS_MAX);
    ipu_mac_table_free(&table);
}

static void groups(void)
{
    struct ipu_group_list list = {0};
    for (uint32_t i = 0; i <= IPU_GROUP_LIST_MAX; i++) {
        struct in6_addr mgid = address(i);
        ipu_group_list_add(&list, &mgid);
    }
    CHECK(list.is_all);
    print("groups of a peer", malloc_usable_size(list.mgids), IPU_GROUP_LIST_MAX);
    ipu_group_list_free(&list);
}

static void arrays(void)
{
    const struct ipu_soft_gsi *gsi = NULL;
    const struct ipu_admission *admission = NULL;
    const struct ipu_resolution *resolution = NULL;
    const struct ipu_unicast *unicast = NULL;
    /* One slot of up to 8/3 for each handle, the handle, and the device's. */
    print("address handles",
          3 * sizeof(struct ipu_ah *) + sizeof(struct ipu_ah) + sizeof(struct soft_ah), 1);
    print("resolutions under way", sizeof *resolution->begun, 1);
    print("hosts that have answered", sizeof *resolution->known, 1);
    print("addresses for which we did not ask", sizeof *resolution->refused, 1);
    print("senders of ARP and ND", sizeof *admission->by_sender, 1);
    print("questions by ARP and ND", sizeof *admission->asked, 1);
    print("senders to a saturated pump", sizeof(struct ipu_write_share), IPU_WRITE_SHARE_SENDERS);
    print("peers of a unicast link", sizeof(struct unicast_peer) + 4 * sizeof(struct unicast_key),
          1);
    print("messages to groups of a unicast link under way",
          sizeof unicast->casts + sizeof unicast->free_casts + sizeof unicast->waiting,
          UNICAST_CASTS);
    print("hosts to which flows are spread over rails", sizeof(struct rails_peer), 1);
    print("hellos under way to hosts that have answered none",
          sizeof(struct rails_stranger) + sizeof(uint16_t), 1);
    print("datagrams to queue pair 1", sizeof *gsi->in + sizeof *gsi->out + sizeof *gsi->idle, 1);
}

int main(void)
{
    RUN(next_hops);
    RUN(routes);
    RUN(answers);
    RUN(guests);
    RUN(groups);
    RUN(arrays);
    return 0;
}
