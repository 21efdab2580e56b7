/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "refuse.h"
#include "core/random.h"
#include "pump/tables/neigh.h"

static const struct ipu_hash_seed seed = {
    {0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89}}; /* of pi */

/* Never dereferenced by the table. */
static struct ipu_ah *ah(uintptr_t number)
{
    return (struct ipu_ah *)(number * 64);
}

static struct in6_addr ipv4(uint32_t address)
{
    struct in6_addr mapped = {.s6_addr = {[10] = 0xFF, [11] = 0xFF}};
    uint32_t network = htonl(address);
    memcpy(&mapped.s6_addr[12], &network, 4);
    return mapped;
}

static struct in6_addr link_local(uint64_t interface)
{
    struct in6_addr address = {.s6_addr = {0xFE, 0x80}};
    memcpy(&address.s6_addr[8], &interface, 8);
    return address;
}

static void set(struct ipu_neigh_table *table, struct in6_addr next_hop, struct ipu_ah *to)
{
    struct ipu_ah *former;
    CHECK_EQ(ipu_neigh_set(table, &next_hop, to, IPU_NEIGH_SEND, 2044, &former), 0);
}

static void an_entry_is_found_with_what_was_set_and_others_are_not(void)
{
    struct ipu_neigh_table table;
    struct ipu_ah *former = ah(9);
    struct in6_addr host = ipv4(0x0A000001), other = ipv4(0x0A000002);
    CHECK_EQ(ipu_neigh_init(&table, 10, NULL), 0);
    CHECK(!ipu_neigh_find(&table, &host));
    CHECK_EQ(ipu_neigh_set(&table, &host, ah(1), IPU_NEIGH_NOTIFY, 65520, &former), 0);
    CHECK(former == NULL);
    struct ipu_neigh *neigh = ipu_neigh_find(&table, &host);
    CHECK(neigh && neigh->ah == ah(1));
    CHECK_EQ(neigh->action, IPU_NEIGH_NOTIFY);
    CHECK_EQ(neigh->mtu, 65520);
    CHECK(!ipu_neigh_find(&table, &other));
    ipu_neigh_free(&table);
}

static void replacing_and_deleting_hand_the_former_path_back(void)
{
    struct ipu_neigh_table table;
    struct ipu_ah *former;
    struct in6_addr host = link_local(1);
    CHECK_EQ(ipu_neigh_init(&table, 10, &seed), 0);
    set(&table, host, ah(1));
    CHECK_EQ(ipu_neigh_set(&table, &host, ah(2), IPU_NEIGH_SEND, 2044, &former), 0);
    CHECK(former == ah(1));
    CHECK_EQ(ipu_neigh_set(&table, &host, NULL, IPU_NEIGH_UNREACHABLE, 0, &former), 0);
    CHECK(former == ah(2));
    CHECK_EQ(table.count, 1);
    CHECK_EQ(ipu_neigh_find(&table, &host)->action, IPU_NEIGH_UNREACHABLE);
    set(&table, host, ah(3));
    CHECK_EQ(ipu_neigh_delete(&table, &host, &former), 0);
    CHECK(former == ah(3));
    CHECK_EQ(ipu_neigh_delete(&table, &host, &former), -ENOENT);
    CHECK(former == NULL);
    CHECK_EQ(table.count, 0);
    ipu_neigh_free(&table);
}

static void the_zero_address_is_a_key_like_any_other(void)
{
    struct ipu_neigh_table table;
    struct in6_addr zero = {{{0}}};
    CHECK_EQ(ipu_neigh_init(&table, 10, &seed), 0);
    CHECK(!ipu_neigh_find(&table, &zero));
    set(&table, zero, ah(1));
    CHECK(ipu_neigh_find(&table, &zero)->ah == ah(1));
    ipu_neigh_free(&table);
}

static void bad_values_are_refused_and_change_nothing(void)
{
    struct ipu_neigh_table table;
    struct ipu_ah *former = ah(9);
    struct in6_addr host = ipv4(1);
    CHECK_EQ(ipu_neigh_init(&table, 0, &seed), -EINVAL);
    CHECK_EQ(ipu_neigh_init(&table, (1u << 24) + 1, &seed), -EINVAL);
    CHECK_EQ(ipu_neigh_init(&table, 10, &seed), 0);
    CHECK_EQ(ipu_neigh_set(&table, &host, ah(1), IPU_NEIGH_SEND, 65536, &former), -EINVAL);
    CHECK_EQ(ipu_neigh_set(&table, &host, ah(1), (enum ipu_neigh_action)4, 2044, &former), -EINVAL);
    CHECK(former == NULL);
    CHECK_EQ(table.count, 0);
    ipu_neigh_free(&table);
    ipu_neigh_free(&table);
}

static void at_the_cap_only_known_next_hops_can_be_set(void)
{
    struct ipu_neigh_table table;
    struct ipu_ah *former;
    CHECK_EQ(ipu_neigh_init(&table, 100, &seed), 0);
    for (uint32_t i = 0; i < 100; i++)
        set(&table, ipv4(i), ah(i));
    struct in6_addr one_more = ipv4(100), known = ipv4(42);
    CHECK_EQ(ipu_neigh_set(&table, &one_more, ah(1), IPU_NEIGH_SEND, 2044, &former), -ENOSPC);
    CHECK_EQ(ipu_neigh_set(&table, &known, ah(1), IPU_NEIGH_SEND, 2044, &former), 0);
    CHECK(former == ah(42));
    CHECK_EQ(ipu_neigh_delete(&table, &known, &former), 0);
    CHECK_EQ(ipu_neigh_set(&table, &one_more, ah(1), IPU_NEIGH_SEND, 2044, &former), 0);
    ipu_neigh_free(&table);
}

static void a_refused_allocation_leaves_the_table_as_it_was(void)
{
    struct ipu_neigh_table table;
    struct ipu_ah *former;
    for (int n = 0; n < 2; n++) { /* getrandom, slots */
        refuse_after(n);
        CHECK_EQ(ipu_neigh_init(&table, 10, NULL), n == 0 ? -ENOSYS : -ENOMEM);
        CHECK(refuse_stop());
        ipu_neigh_free(&table);
    }
    CHECK_EQ(ipu_neigh_init(&table, 1000, &seed), 0);
    uint32_t count = 0;
    for (;; count++) {
        struct in6_addr host = ipv4(count);
        refuse_after(0);
        int result = ipu_neigh_set(&table, &host, ah(count), IPU_NEIGH_SEND, 2044, &former);
        if (refuse_stop()) {
            CHECK_EQ(result, -ENOMEM);
            break;
        }
        CHECK_EQ(result, 0);
    }
    CHECK_EQ(count, 48); /* 3/4 of the first 64 slots */
    CHECK_EQ(table.count, count);
    for (uint32_t i = 0; i <= count; i++) {
        struct in6_addr host = ipv4(i);
        const struct ipu_neigh *neigh = ipu_neigh_find(&table, &host);
        CHECK(i < count ? neigh && neigh->ah == ah(i) : neigh == NULL);
    }
    set(&table, ipv4(count), ah(count)); /* grows now */
    CHECK_EQ(table.mask, 127);
    ipu_neigh_free(&table);
}

/*
 * 20 next hops whose home is the last or the first slot form one run over the end of the table:
 * every order of deletion leaves the others reachable and, at the end, no occupied slot.
 */
static void deletion_closes_the_gap_across_the_end_of_the_table(void)
{
    enum { RUN_LENGTH = 20 };
    struct in6_addr run[RUN_LENGTH];
    uint32_t n = 0;
    for (uint64_t i = 0; n < RUN_LENGTH; i++) {
        struct in6_addr candidate = link_local(i);
        uint32_t home = (uint32_t)ipu_hash_16(&seed, &candidate) & 63;
        if (home == (n < RUN_LENGTH / 2 ? 63u : 0u))
            run[n++] = candidate;
    }
    uint64_t random = 5;
    for (int round = 0; round < 200; round++) {
        struct ipu_neigh_table table;
        CHECK_EQ(ipu_neigh_init(&table, 64, &seed), 0);
        for (uint32_t i = RUN_LENGTH; i > 1; i--) { /* shuffle */
            uint32_t j = ipu_random_below(&random, i);
            struct in6_addr swap = run[j];
            run[j] = run[i - 1];
            run[i - 1] = swap;
        }
        for (uint32_t i = 0; i < RUN_LENGTH; i++)
            set(&table, run[RUN_LENGTH - 1 - i], ah(i));
        for (uint32_t i = 0; i < RUN_LENGTH; i++) {
            struct ipu_ah *former;
            CHECK_EQ(ipu_neigh_delete(&table, &run[i], &former), 0);
            for (uint32_t j = 0; j < RUN_LENGTH; j++)
                CHECK_EQ(ipu_neigh_find(&table, &run[j]) != NULL, j > i);
        }
        for (uint32_t i = 0; i < 64; i++)
            CHECK(!table.slots[i].live);
        ipu_neigh_free(&table);
    }
}

static void a_long_random_run_agrees_with_an_array(void)
{
    enum { KEYS = 3000, CAP = 2000, STEPS = 300000 };
    static struct {
        struct ipu_ah *ah;
        uint32_t mtu;
        bool live;
    } model[KEYS];
    struct ipu_neigh_table table;
    uint64_t random = 7;
    uint32_t count = 0;
    CHECK_EQ(ipu_neigh_init(&table, CAP, &seed), 0);
    for (int step = 0; step < STEPS; step++) {
        uint32_t key = ipu_random_below(&random, KEYS);
        struct in6_addr host = key % 2 ? ipv4(0x0A000000 + key) : link_local(key);
        struct ipu_ah *former;
        /* Phases of growth and of decay, so that the table meets the cap and emptiness. */
        bool growing = step / 30000 % 2 == 0;
        if (ipu_random_below(&random, 4) < (growing ? 3u : 1u)) {
            uint32_t mtu = ipu_random_below(&random, 65536);
            struct ipu_ah *new = ah(1 + ipu_random_below(&random, 1000));
            int result = ipu_neigh_set(&table, &host, new, IPU_NEIGH_SEND, mtu, &former);
            CHECK_EQ(result, model[key].live || count < CAP ? 0 : -ENOSPC);
            CHECK(former == (model[key].live ? model[key].ah : NULL));
            if (result == 0) {
                count += !model[key].live;
                model[key].live = true;
                model[key].ah = new;
                model[key].mtu = mtu;
            }
        } else {
            int result = ipu_neigh_delete(&table, &host, &former);
            CHECK_EQ(result, model[key].live ? 0 : -ENOENT);
            CHECK(former == (model[key].live ? model[key].ah : NULL));
            count -= model[key].live;
            model[key].live = false;
        }
        CHECK_EQ(table.count, count);
        uint32_t probe = ipu_random_below(&random, KEYS);
        struct in6_addr other = probe % 2 ? ipv4(0x0A000000 + probe) : link_local(probe);
        const struct ipu_neigh *neigh = ipu_neigh_find(&table, &other);
        CHECK_EQ(neigh != NULL, model[probe].live);
        CHECK(!neigh || (neigh->ah == model[probe].ah && neigh->mtu == model[probe].mtu));
    }
    ipu_neigh_free(&table);
}

static double mean_probes(const struct ipu_neigh_table *table)
{
    uint64_t probes = 0;
    for (uint32_t i = 0; i <= table->mask; i++) {
        if (table->slots[i].live)
            probes += 1 + ((i - table->slots[i].hash) & table->mask);
    }
    return (double)probes / table->count;
}

/* Knuth, TAOCP 3 §6.4: (1 + 1/(1-a))/2 probes for a hit, 2.5 at a = 3/4. */
static void the_addresses_of_real_networks_spread_as_random_ones(void)
{
    enum { FULL = 3 * 65536 / 4 };
    struct ipu_neigh_table table;
    for (int kind = 0; kind < 4; kind++) {
        CHECK_EQ(ipu_neigh_init(&table, FULL, &seed), 0);
        for (uint32_t i = 0; i < FULL; i++) {
            if (kind == 0)
                set(&table, ipv4(0x0A000000 + i), ah(1)); /* 10/8, in order */
            else if (kind == 1)
                set(&table, ipv4(0x0A000001 + (i << 8)), ah(1)); /* x.y.z.1 */
            else if (kind == 2)
                set(&table, link_local(i), ah(1));
            else
                set(&table, link_local((uint64_t)i << 40), ah(1));
        }
        CHECK_EQ(table.mask, 65535);
        CHECK(mean_probes(&table) < 2.7);
        ipu_neigh_free(&table);
    }
}

static void next_hops_chosen_to_collide_under_one_seed_spread_under_another(void)
{
    enum { CHOSEN = 400 };
    struct in6_addr chosen[CHOSEN];
    uint32_t n = 0;
    for (uint64_t i = 0; n < CHOSEN; i++) {
        struct in6_addr candidate = link_local(i);
        if (((uint32_t)ipu_hash_16(&seed, &candidate) & 1023) == 7)
            chosen[n++] = candidate;
    }
    for (uint64_t other = 0; other < 20; other++) {
        struct ipu_hash_seed theirs = seed;
        if (other > 0) {
            uint64_t random = other;
            for (int i = 0; i < 4; i++)
                theirs.word[i] = ipu_random_next(&random);
        }
        struct ipu_neigh_table table;
        CHECK_EQ(ipu_neigh_init(&table, CHOSEN, &theirs), 0);
        for (uint32_t i = 0; i < CHOSEN; i++)
            set(&table, chosen[i], ah(1));
        CHECK_EQ(table.mask, 1023);
        CHECK(other == 0 ? mean_probes(&table) > 200 : mean_probes(&table) < 2);
        ipu_neigh_free(&table);
    }
}

int main(void)
{
    RUN(an_entry_is_found_with_what_was_set_and_others_are_not);
    RUN(replacing_and_deleting_hand_the_former_path_back);
    RUN(the_zero_address_is_a_key_like_any_other);
    RUN(bad_values_are_refused_and_change_nothing);
    RUN(at_the_cap_only_known_next_hops_can_be_set);
    RUN(a_refused_allocation_leaves_the_table_as_it_was);
    RUN(deletion_closes_the_gap_across_the_end_of_the_table);
    RUN(a_long_random_run_agrees_with_an_array);
    RUN(the_addresses_of_real_networks_spread_as_random_ones);
    RUN(next_hops_chosen_to_collide_under_one_seed_spread_under_another);
}
