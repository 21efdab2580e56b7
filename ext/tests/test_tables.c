/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of the core that others fill, to twice their caps: ipoibu/daemon/tables.py names these
 * tests. Bytes are those of the slots, and the work for an entry is how far it lies from its home.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "check.h"
#include "fabric/group_list.h"
#include "pump/admission.h"
#include "pump/neigh.h"
#include "pump/route.h"
#include "pump/route_answers.h"

enum { CAP = 4096, PROBES = 4 /* on average, at 3/4 full: 2.5 */ };

static const struct ipu_hash_seed seed = {
    {0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89}}; /* of pi */

static struct in6_addr address(uint32_t number)
{
    struct in6_addr ip = {{{0xfe, 0x80}}};
    number = htonl(number);
    memcpy(ip.s6_addr + 12, &number, sizeof number);
    return ip;
}

/* Checks slots of `bytes` for at most CAP entries: their memory, and the mean way to an entry. */
static void check_table(const struct ipu_hash_layout *layout, void *slots, uint32_t mask,
                        size_t entry_bytes)
{
    uint64_t ways = 0, entries = 0;
    for (uint32_t i = 0; i <= mask; i++) {
        const void *slot = ipu_hash_table_at(layout, slots, i);
        if (!layout->is_live(slot))
            continue;
        ways += 1 + ((i - layout->hash(slot, &seed)) & mask);
        entries++;
    }
    CHECK_EQ(entries, CAP);
    CHECK(ways <= PROBES * entries);
    CHECK(((uint64_t)mask + 1) * layout->bytes <= CAP * entry_bytes);
}

static bool neigh_is_live(const void *slot)
{
    return ((const struct ipu_neigh *)slot)->live != 0;
}

static uint32_t neigh_hash(const void *slot, const struct ipu_hash_seed *of)
{
    return (uint32_t)ipu_hash_16(of, &((const struct ipu_neigh *)slot)->next_hop);
}

static void next_hops_end_at_their_cap(void)
{
    static const struct ipu_hash_layout layout = {sizeof(struct ipu_neigh), neigh_is_live,
                                                  neigh_hash};
    struct ipu_neigh_table table;
    struct ipu_ah *former;
    CHECK_EQ(ipu_neigh_init(&table, CAP, &seed), 0);
    for (uint32_t i = 0; i < 2 * CAP; i++) {
        struct in6_addr ip = address(i);
        CHECK_EQ(ipu_neigh_set(&table, &ip, NULL, IPU_NEIGH_HOLD, 2044, &former),
                 i < CAP ? 0 : -ENOSPC);
    }
    check_table(&layout, table.slots, table.mask, 86);
    struct in6_addr stranger = address(0), honest = address(3 * CAP);
    CHECK_EQ(ipu_neigh_delete(&table, &stranger, &former), 0);
    CHECK_EQ(ipu_neigh_set(&table, &honest, NULL, IPU_NEIGH_HOLD, 2044, &former), 0);
    ipu_neigh_free(&table);
}

static bool route_is_live(const void *slot)
{
    return ((const struct ipu_route *)slot)->live != 0;
}

static void routes_end_at_their_cap(void)
{
    struct ipu_route_table table;
    CHECK_EQ(ipu_route_init(&table, CAP, &seed), 0);
    for (uint32_t i = 0; i < 2 * CAP; i++) {
        struct in6_addr ip = address(i);
        CHECK_EQ(ipu_route_set(&table, &ip, 128, IPU_ROUTE_UNREACHABLE, NULL),
                 i < CAP ? 0 : -ENOSPC);
    }
    CHECK_EQ(table.count, CAP);
    CHECK(((uint64_t)table.mask + 1) * sizeof *table.slots <= CAP * 108u);
    uint32_t run = 0, longest = 0;
    for (uint32_t i = 0; i <= table.mask; i++) {
        run = route_is_live(&table.slots[i]) ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    CHECK(longest < 128); /* a look-up never walks farther */
    struct in6_addr stranger = address(0), honest = address(3 * CAP);
    CHECK_EQ(ipu_route_delete(&table, &stranger, 128), 0);
    CHECK_EQ(ipu_route_set(&table, &honest, 128, IPU_ROUTE_ON_LINK, NULL), 0);
    ipu_route_free(&table);
}

static void answers_about_flows_end_at_their_cap(void)
{
    struct ipu_route_answers answers;
    CHECK_EQ(ipu_route_answers_init(&answers, CAP, &seed), 0);
    int forgotten = 0;
    for (uint32_t i = 0; i < 2 * CAP + 1; i++) {
        struct ipu_route_answer answer = {.key = {.dst = address(i)}, .kind = IPU_ROUTE_ON_LINK};
        int error = ipu_route_answers_put(&answers, answer);
        CHECK(error >= 0);
        forgotten += error;
        CHECK(answers.count <= CAP);
        CHECK(((uint64_t)answers.mask + 1) * sizeof *answers.slots <= CAP * 214u + (1u << 14));
    }
    CHECK_EQ(forgotten, 2 * CAP);
    struct ipu_flow_key newest = {.dst = address(2 * CAP)};
    CHECK(ipu_route_answers_find(&answers, &newest) != NULL);
    ipu_route_answers_free(&answers);
}

static void questions_share_their_places(void)
{
    static struct ipu_admission admission;
    CHECK_EQ(ipu_admission_init(&admission), 0);
    uint8_t question[4 + 56] = {0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 1};
    for (uint32_t i = 1; i <= 2 * IPU_ADMISSION_SLOTS; i++) {
        uint32_t target = htonl(0x0A000000 + i);
        memcpy(question + 4 + 52, &target, 4);
        ipu_admission_sent(&admission, question, sizeof question);
    }
    /* The latest question has its place, whatever came before. */
    struct ipu_neigh_table nobody;
    struct ipu_resolution none;
    CHECK_EQ(ipu_neigh_init(&nobody, 1, NULL), 0);
    CHECK_EQ(ipu_resolution_init(&none, 1, NULL), 0);
    uint8_t answer[4 + 56] = {0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 2};
    memcpy(answer + 4 + 28, question + 4 + 52, 4);
    struct ipu_admission_sender sender = {.qpn = 7};
    CHECK_EQ(ipu_admission_judge_untrusted(&admission, &nobody, &none, &sender, answer,
                                           sizeof answer, 1),
             IPU_ADMIT);
    ipu_resolution_free(&none);
    ipu_neigh_free(&nobody);
    ipu_admission_free(&admission);
}

static void groups_of_a_peer_end_at_their_cap(void)
{
    struct ipu_group_list list = {0};
    ipu_group_list_restart(&list);
    struct in6_addr nowhere = {0}, last = address(2 * IPU_GROUP_LIST_MAX - 1);
    for (uint32_t i = 0; i < 2 * IPU_GROUP_LIST_MAX; i++) {
        struct in6_addr mgid = address(i);
        ipu_group_list_add(&list, &mgid);
    }
    CHECK_EQ(list.count, IPU_GROUP_LIST_MAX);
    CHECK_EQ(list.room, IPU_GROUP_LIST_MAX);
    CHECK(ipu_group_list_wants(&list, &last, &nowhere)); /* it gets all */
    ipu_group_list_free(&list);
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
    RUN(next_hops_end_at_their_cap);
    RUN(routes_end_at_their_cap);
    RUN(answers_about_flows_end_at_their_cap);
    RUN(questions_share_their_places);
    RUN(groups_of_a_peer_end_at_their_cap);
    RUN(groups_of_a_peer_are_found_in_any_order);
    return 0;
}
