/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "refuse.h"
#include "core/random.h"
#include "pump/tables/route.h"

static const struct ipu_hash_seed seed = {
    {0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89}}; /* of pi */

/* Of either family, IPv4 as ::ffff:a.b.c.d. */
static struct in6_addr address(const char *text)
{
    struct in6_addr result = {.s6_addr = {[10] = 0xFF, [11] = 0xFF}};
    if (inet_pton(AF_INET, text, &result.s6_addr[12]) != 1)
        CHECK_EQ(inet_pton(AF_INET6, text, &result), 1);
    return result;
}

static int set(struct ipu_route_table *table, const char *prefix, unsigned length,
               enum ipu_route_kind kind, const char *gateway)
{
    struct in6_addr start = address(prefix), via = gateway ? address(gateway) : start;
    return ipu_route_set(table, &start, length, kind, gateway ? &via : NULL);
}

static int delete (struct ipu_route_table *table, const char *prefix, unsigned length)
{
    struct in6_addr start = address(prefix);
    return ipu_route_delete(table, &start, length);
}

static void expect(const struct ipu_route_table *table, const char *destination,
                   enum ipu_route_kind kind, const char *next_hop)
{
    struct in6_addr to = address(destination), wanted = address(next_hop), got;
    enum ipu_route_kind got_kind = ipu_route_lookup(table, &to, &got);
    if (got_kind != kind || memcmp(&got, &wanted, sizeof got) != 0) {
        char text[INET6_ADDRSTRLEN];
        fprintf(stderr, "%s: kind %d via %s, not kind %d via %s\n", destination, (int)got_kind,
                inet_ntop(AF_INET6, &got, text, sizeof text), (int)kind, next_hop);
        exit(1);
    }
}

static struct ipu_route_table table_of(uint32_t max)
{
    struct ipu_route_table table;
    CHECK_EQ(ipu_route_init(&table, max, &seed), 0);
    return table;
}

static void without_routes_everything_is_on_link(void)
{
    struct ipu_route_table table = table_of(10);
    expect(&table, "10.0.0.1", IPU_ROUTE_ON_LINK, "10.0.0.1");
    expect(&table, "fe80::1", IPU_ROUTE_ON_LINK, "fe80::1");
    expect(&table, "::", IPU_ROUTE_ON_LINK, "::");
    ipu_route_free(&table);
}

static void the_longest_prefix_wins(void)
{
    struct ipu_route_table table = table_of(10);
    CHECK_EQ(set(&table, "0.0.0.0", 96, IPU_ROUTE_GATEWAY, "10.0.0.254"), 0);
    CHECK_EQ(set(&table, "10.0.0.0", 96 + 24, IPU_ROUTE_ON_LINK, NULL), 0);
    CHECK_EQ(set(&table, "10.0.0.255", 128, IPU_ROUTE_BROADCAST, NULL), 0);
    CHECK_EQ(set(&table, "172.16.0.0", 96 + 12, IPU_ROUTE_GATEWAY, "10.0.0.253"), 0);
    CHECK_EQ(set(&table, "172.16.5.0", 96 + 24, IPU_ROUTE_UNREACHABLE, NULL), 0);
    expect(&table, "8.8.8.8", IPU_ROUTE_GATEWAY, "10.0.0.254");
    expect(&table, "10.0.0.7", IPU_ROUTE_ON_LINK, "10.0.0.7");
    expect(&table, "10.0.1.7", IPU_ROUTE_GATEWAY, "10.0.0.254");
    expect(&table, "10.0.0.255", IPU_ROUTE_BROADCAST, "255.255.255.255");
    expect(&table, "172.31.255.255", IPU_ROUTE_GATEWAY, "10.0.0.253");
    expect(&table, "172.32.0.0", IPU_ROUTE_GATEWAY, "10.0.0.254");
    expect(&table, "172.16.5.9", IPU_ROUTE_UNREACHABLE, "172.16.5.9");
    ipu_route_free(&table);
}

static void the_families_have_default_routes_of_their_own(void)
{
    struct ipu_route_table table = table_of(10);
    CHECK_EQ(set(&table, "::", 0, IPU_ROUTE_GATEWAY, "fe80::6"), 0);
    expect(&table, "192.0.2.1", IPU_ROUTE_ON_LINK, "192.0.2.1");
    expect(&table, "2001:db8::1", IPU_ROUTE_GATEWAY, "fe80::6");
    CHECK_EQ(set(&table, "0.0.0.0", 96, IPU_ROUTE_GATEWAY, "10.0.0.4"), 0);
    expect(&table, "192.0.2.1", IPU_ROUTE_GATEWAY, "10.0.0.4");
    expect(&table, "2001:db8::1", IPU_ROUTE_GATEWAY, "fe80::6");
    expect(&table, "::fffe:0:0", IPU_ROUTE_GATEWAY, "fe80::6"); /* beside ::ffff:0:0/96 */
    CHECK_EQ(delete (&table, "::", 0), 0);
    expect(&table, "192.0.2.1", IPU_ROUTE_GATEWAY, "10.0.0.4");
    expect(&table, "2001:db8::1", IPU_ROUTE_ON_LINK, "2001:db8::1");
    ipu_route_free(&table);
}

static void a_gateway_may_be_of_the_other_family(void)
{
    struct ipu_route_table table = table_of(10);
    CHECK_EQ(set(&table, "192.0.2.0", 96 + 24, IPU_ROUTE_GATEWAY, "fe80::1"), 0); /* RFC 5549 */
    expect(&table, "192.0.2.9", IPU_ROUTE_GATEWAY, "fe80::1");
    ipu_route_free(&table);
}

static void multicast_and_limited_broadcast_ignore_the_routes(void)
{
    struct ipu_route_table table = table_of(10);
    CHECK_EQ(set(&table, "::", 0, IPU_ROUTE_GATEWAY, "fe80::6"), 0);
    CHECK_EQ(set(&table, "0.0.0.0", 96, IPU_ROUTE_GATEWAY, "10.0.0.4"), 0);
    expect(&table, "223.255.255.255", IPU_ROUTE_GATEWAY, "10.0.0.4");
    expect(&table, "224.0.0.0", IPU_ROUTE_ON_LINK, "224.0.0.0");
    expect(&table, "239.255.255.255", IPU_ROUTE_ON_LINK, "239.255.255.255");
    expect(&table, "240.0.0.0", IPU_ROUTE_GATEWAY, "10.0.0.4");
    expect(&table, "255.255.255.254", IPU_ROUTE_GATEWAY, "10.0.0.4");
    expect(&table, "255.255.255.255", IPU_ROUTE_ON_LINK, "255.255.255.255");
    expect(&table, "ff02::1", IPU_ROUTE_ON_LINK, "ff02::1");
    expect(&table, "feff::1", IPU_ROUTE_GATEWAY, "fe80::6");
    ipu_route_free(&table);
}

static void prefixes_are_cut_to_their_length(void)
{
    struct ipu_route_table table = table_of(10);
    CHECK_EQ(set(&table, "10.1.2.3", 96 + 8, IPU_ROUTE_UNREACHABLE, NULL), 0);
    CHECK_EQ(set(&table, "10.9.9.9", 96 + 8, IPU_ROUTE_UNREACHABLE, NULL), 0); /* the same */
    CHECK_EQ(table.count, 1);
    expect(&table, "10.200.0.1", IPU_ROUTE_UNREACHABLE, "10.200.0.1");
    CHECK_EQ(delete (&table, "10.77.0.0", 96 + 8), 0);
    expect(&table, "10.200.0.1", IPU_ROUTE_ON_LINK, "10.200.0.1");
    /* Around the middle, where the halves of the address meet. */
    static const unsigned lengths[] = {1, 63, 64, 65, 95, 127, 128};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        CHECK_EQ(set(&table, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", lengths[i],
                     IPU_ROUTE_UNREACHABLE, NULL),
                 0);
        expect(&table, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", IPU_ROUTE_UNREACHABLE,
               "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff");
        CHECK_EQ(delete (&table, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", lengths[i]), 0);
        CHECK_EQ(table.lengths[0] | table.lengths[1] | table.lengths[2], 0);
    }
    ipu_route_free(&table);
}

static void setting_again_replaces_and_deleting_uncovers(void)
{
    struct ipu_route_table table = table_of(10);
    CHECK_EQ(set(&table, "10.0.0.0", 96 + 8, IPU_ROUTE_GATEWAY, "10.0.0.1"), 0);
    CHECK_EQ(set(&table, "10.0.0.0", 96 + 8, IPU_ROUTE_GATEWAY, "10.0.0.2"), 0);
    CHECK_EQ(table.count, 1);
    expect(&table, "10.5.5.5", IPU_ROUTE_GATEWAY, "10.0.0.2");
    CHECK_EQ(set(&table, "10.5.0.0", 96 + 16, IPU_ROUTE_ON_LINK, NULL), 0);
    expect(&table, "10.5.5.5", IPU_ROUTE_ON_LINK, "10.5.5.5");
    CHECK_EQ(delete (&table, "10.5.0.0", 96 + 16), 0);
    expect(&table, "10.5.5.5", IPU_ROUTE_GATEWAY, "10.0.0.2");
    CHECK_EQ(delete (&table, "10.5.0.0", 96 + 16), -ENOENT);
    CHECK_EQ(delete (&table, "10.0.0.0", 96 + 8), 0);
    expect(&table, "10.5.5.5", IPU_ROUTE_ON_LINK, "10.5.5.5");
    CHECK_EQ(table.count, 0);
    CHECK_EQ(delete (&table, "10.0.0.0", 96 + 8), -ENOENT);
    ipu_route_free(&table);
}

static void what_makes_no_sense_is_refused_and_changes_nothing(void)
{
    struct ipu_route_table table;
    CHECK_EQ(ipu_route_init(&table, 0, &seed), -EINVAL);
    CHECK_EQ(ipu_route_init(&table, (1u << 24) + 1, &seed), -EINVAL);
    table = table_of(2);
    CHECK_EQ(set(&table, "::", 129, IPU_ROUTE_ON_LINK, NULL), -EINVAL);
    CHECK_EQ(set(&table, "10.0.0.0", 8, IPU_ROUTE_ON_LINK, NULL), -EINVAL); /* not 96 + 8 */
    CHECK_EQ(set(&table, "10.0.0.0", 95, IPU_ROUTE_ON_LINK, NULL), -EINVAL);
    CHECK_EQ(set(&table, "10.0.0.0", 96 + 8, (enum ipu_route_kind)4, NULL), -EINVAL);
    CHECK_EQ(set(&table, "10.0.0.0", 96 + 8, IPU_ROUTE_GATEWAY, NULL), -EINVAL);
    CHECK_EQ(delete (&table, "::", 129), -EINVAL);
    CHECK_EQ(delete (&table, "10.0.0.0", 8), -EINVAL);
    CHECK_EQ(table.count, 0);
    CHECK_EQ(set(&table, "10.0.0.0", 96 + 8, IPU_ROUTE_ON_LINK, NULL), 0);
    CHECK_EQ(set(&table, "11.0.0.0", 96 + 8, IPU_ROUTE_ON_LINK, NULL), 0);
    CHECK_EQ(set(&table, "12.0.0.0", 96 + 8, IPU_ROUTE_ON_LINK, NULL), -ENOSPC);
    CHECK_EQ(set(&table, "11.0.0.0", 96 + 8, IPU_ROUTE_UNREACHABLE, NULL), 0);
    ipu_route_free(&table);
    ipu_route_free(&table);
}

static void a_refused_allocation_leaves_the_routes_as_they_were(void)
{
    struct ipu_route_table table;
    for (int n = 0; n < 2; n++) { /* getrandom, slots */
        refuse_after(n);
        CHECK_EQ(ipu_route_init(&table, 10, NULL), n == 0 ? -ENOSYS : -ENOMEM);
        CHECK(refuse_stop());
        ipu_route_free(&table);
    }
    table = table_of(1000);
    uint32_t count = 0;
    for (int result = 0; result == 0;) {
        struct in6_addr prefix = address("2001:db8::");
        prefix.s6_addr[15] = (uint8_t)count;
        refuse_after(0);
        result = ipu_route_set(&table, &prefix, 128, IPU_ROUTE_UNREACHABLE, NULL);
        CHECK_EQ(result, refuse_stop() ? -ENOMEM : 0);
        count += result == 0;
    }
    CHECK_EQ(count, 48);
    CHECK_EQ(table.count, 48);
    CHECK_EQ(table.used[128], 48);
    expect(&table, "2001:db8::2f", IPU_ROUTE_UNREACHABLE, "2001:db8::2f");
    expect(&table, "2001:db8::30", IPU_ROUTE_ON_LINK, "2001:db8::30");
    ipu_route_free(&table);
}

/* --- Against a list that is searched from end to end, bit by bit --- */

struct model_route {
    struct in6_addr prefix, gateway;
    unsigned length;
    enum ipu_route_kind kind;
};

enum { MODEL_MAX = 60 };

static struct model_route model[MODEL_MAX];
static uint32_t model_count;

static unsigned bit(const struct in6_addr *of, unsigned i)
{
    return (unsigned)of->s6_addr[i / 8] >> (7 - i % 8) & 1;
}

static bool agrees(const struct in6_addr *a, const struct in6_addr *b, unsigned length)
{
    for (unsigned i = 0; i < length; i++) {
        if (bit(a, i) != bit(b, i))
            return false;
    }
    return true;
}

static struct model_route *model_find(const struct in6_addr *prefix, unsigned length)
{
    for (uint32_t i = 0; i < model_count; i++) {
        if (model[i].length == length && agrees(&model[i].prefix, prefix, length))
            return &model[i];
    }
    return NULL;
}

static enum ipu_route_kind model_lookup(const struct in6_addr *to, struct in6_addr *next_hop)
{
    const struct model_route *best = NULL;
    *next_hop = *to;
    for (uint32_t i = 0; i < model_count; i++) {
        const struct model_route *route = &model[i];
        bool family = IN6_IS_ADDR_V4MAPPED(to) ? route->length >= 96 : true;
        if (family && agrees(&route->prefix, to, route->length) &&
            (!best || route->length > best->length))
            best = route;
    }
    if (!best)
        return IPU_ROUTE_ON_LINK;
    if (best->kind == IPU_ROUTE_GATEWAY)
        *next_hop = best->gateway;
    if (best->kind == IPU_ROUTE_BROADCAST)
        *next_hop = address("255.255.255.255");
    return best->kind;
}

/* Few distinct bits, so that prefixes nest and meet; half of them IPv4, none multicast. */
static struct in6_addr random_address(uint64_t *random)
{
    struct in6_addr result = {{{0}}};
    bool v4 = ipu_random_below(random, 2);
    if (v4)
        result.s6_addr[10] = result.s6_addr[11] = 0xFF;
    else
        result.s6_addr[0] = 0x20;
    for (unsigned i = v4 ? 12 : 1; i < 16; i++) {
        static const uint8_t octets[] = {0, 0, 1, 0x80, 0x7F};
        result.s6_addr[i] = octets[ipu_random_below(random, sizeof octets)];
    }
    return result;
}

static void long_random_runs_agree_with_a_linear_search(void)
{
    for (uint64_t run = 0; run < 20; run++) {
        struct ipu_route_table table = table_of(MODEL_MAX);
        uint64_t random = run;
        model_count = 0;
        for (int step = 0; step < 2000; step++) {
            struct in6_addr prefix = random_address(&random);
            unsigned lowest = IN6_IS_ADDR_V4MAPPED(&prefix) ? 96 : 0;
            unsigned length = lowest + ipu_random_below(&random, 129 - lowest);
            struct model_route *known = model_find(&prefix, length);
            if (ipu_random_below(&random, 5) < 3) {
                struct in6_addr gateway = random_address(&random);
                enum ipu_route_kind kind = (enum ipu_route_kind)ipu_random_below(&random, 4);
                int result = ipu_route_set(&table, &prefix, length, kind, &gateway);
                CHECK_EQ(result, known || model_count < MODEL_MAX ? 0 : -ENOSPC);
                if (result == 0) {
                    known = known ? known : &model[model_count++];
                    *known = (struct model_route){prefix, gateway, length, kind};
                }
            } else {
                /* A random prefix is seldom there. */
                if (model_count > 0 && ipu_random_below(&random, 2)) {
                    known = &model[ipu_random_below(&random, model_count)];
                    prefix = known->prefix;
                    length = known->length;
                }
                CHECK_EQ(ipu_route_delete(&table, &prefix, length), known ? 0 : -ENOENT);
                if (known)
                    *known = model[--model_count];
            }
            CHECK_EQ(table.count, model_count);
            for (int i = 0; i < 5; i++) {
                struct in6_addr to = random_address(&random), got, wanted;
                enum ipu_route_kind kind = model_lookup(&to, &wanted);
                CHECK_EQ(ipu_route_lookup(&table, &to, &got), kind);
                CHECK(memcmp(&got, &wanted, sizeof got) == 0);
            }
        }
        ipu_route_free(&table);
    }
}

static void a_hundred_thousand_routes_are_all_found(void)
{
    enum { ROUTES = 100000 };
    struct ipu_route_table table = table_of(ROUTES);
    struct in6_addr prefix = address("0.0.0.0"), gateway = address("10.0.0.0"), next_hop;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < ROUTES; i++) {
            uint32_t network = htonl(0x01000000 + (i << 8)), via = htonl(0x0A000000 + i);
            memcpy(&prefix.s6_addr[12], &network, 4);
            memcpy(&gateway.s6_addr[12], &via, 4);
            if (pass == 0) {
                CHECK_EQ(ipu_route_set(&table, &prefix, 96 + 24, IPU_ROUTE_GATEWAY, &gateway), 0);
            } else {
                prefix.s6_addr[15] = 77;
                CHECK_EQ(ipu_route_lookup(&table, &prefix, &next_hop), IPU_ROUTE_GATEWAY);
                CHECK(memcmp(&next_hop, &gateway, sizeof gateway) == 0);
            }
        }
    }
    ipu_route_free(&table);
}

static void the_next_hop_may_overwrite_the_destination(void)
{
    struct ipu_route_table table = table_of(10);
    CHECK_EQ(set(&table, "0.0.0.0", 96, IPU_ROUTE_GATEWAY, "10.0.0.4"), 0);
    struct in6_addr at = address("8.8.8.8"), gateway = address("10.0.0.4");
    CHECK_EQ(ipu_route_lookup(&table, &at, &at), IPU_ROUTE_GATEWAY);
    CHECK(memcmp(&at, &gateway, sizeof at) == 0);
    ipu_route_free(&table);
}

static int set_hops(struct ipu_route_table *table, const char *prefix, unsigned length,
                    const char *const *gateways, uint32_t count)
{
    struct ipu_hop hops[IPU_HOPS_MAX + 1];
    struct in6_addr start = address(prefix);
    for (uint32_t i = 0; i < count; i++)
        hops[i] = (struct ipu_hop){.gateway = address(gateways[i % 2]), .weight = i + 1};
    return ipu_route_set_hops(table, &start, length, hops, count);
}

static const char *const gateways[2] = {"10.0.0.1", "10.0.0.2"};

static void a_multipath_route_keeps_its_hops_until_it_is_replaced(void)
{
    struct ipu_route_table table = table_of(400);
    struct in6_addr to = address("10.5.5.5");
    CHECK_EQ(set_hops(&table, "10.5.0.0", 96 + 16, gateways, 2), 0);
    expect(&table, "10.5.5.5", IPU_ROUTE_MULTIPATH, "10.5.5.5");
    CHECK_EQ(ipu_route_match(&table, &to)->hops->count, 2);
    struct in6_addr second = address("10.0.0.2");
    CHECK(memcmp(&ipu_route_match(&table, &to)->hops->hop[1].gateway, &second, sizeof second) == 0);
    for (unsigned i = 0; i < 200; i++) { /* the table grows */
        char prefix[32];
        snprintf(prefix, sizeof prefix, "10.6.%u.0", i);
        CHECK_EQ(set_hops(&table, prefix, 96 + 24, gateways, 1 + i % IPU_HOPS_MAX), 0);
    }
    CHECK_EQ(ipu_route_match(&table, &to)->hops->hop[1].weight, 2);
    CHECK_EQ(set_hops(&table, "10.5.0.0", 96 + 16, gateways, 3), 0);
    CHECK_EQ(ipu_route_match(&table, &to)->hops->count, 3);
    CHECK_EQ(set(&table, "10.5.0.0", 96 + 16, IPU_ROUTE_GATEWAY, "10.0.0.9"), 0);
    expect(&table, "10.5.5.5", IPU_ROUTE_GATEWAY, "10.0.0.9");
    CHECK_EQ(set_hops(&table, "10.5.0.0", 96 + 16, gateways, 2), 0);
    CHECK_EQ(delete (&table, "10.5.0.0", 96 + 16), 0);
    expect(&table, "10.5.5.5", IPU_ROUTE_ON_LINK, "10.5.5.5");
    ipu_route_free(&table); /* with hops in it */
}

static void a_route_to_ask_about_has_the_fields_of_its_flows(void)
{
    struct ipu_route_table table = table_of(4);
    struct in6_addr any = address("::"), to = address("2001:db8::1");
    CHECK(ipu_route_match(&table, &to) == NULL);
    CHECK_EQ(ipu_route_set_ask(&table, &any, 0, IPU_ROUTE_FIELDS + 1), -EINVAL);
    CHECK_EQ(ipu_route_set_ask(&table, &any, 0, IPU_ROUTE_FIELD_SOURCE), 0);
    expect(&table, "2001:db8::1", IPU_ROUTE_ASK, "2001:db8::1");
    CHECK_EQ(ipu_route_match(&table, &to)->fields, IPU_ROUTE_FIELD_SOURCE);
    ipu_route_free(&table);
}

static void hops_that_make_no_sense_are_refused(void)
{
    struct ipu_route_table table = table_of(1);
    struct in6_addr start = address("10.0.0.0");
    struct ipu_hop weightless = {.weight = 0};
    CHECK_EQ(set_hops(&table, "10.5.0.0", 96 + 16, gateways, 0), -EINVAL);
    CHECK_EQ(set_hops(&table, "10.5.0.0", 96 + 16, gateways, IPU_HOPS_MAX + 1), -EINVAL);
    CHECK_EQ(ipu_route_set_hops(&table, &start, 104, &weightless, 1), -EINVAL);
    CHECK_EQ(set_hops(&table, "10.5.0.0", 129, gateways, 2), -EINVAL);
    CHECK_EQ(set_hops(&table, "10.5.0.0", 96 + 16, gateways, 2), 0);
    CHECK_EQ(set_hops(&table, "10.6.0.0", 96 + 16, gateways, 2), -ENOSPC);
    refuse_after(0);
    CHECK_EQ(set_hops(&table, "10.5.0.0", 96 + 16, gateways, 2), -ENOMEM);
    CHECK(refuse_stop());
    CHECK_EQ(table.count, 1);
    ipu_route_free(&table);
}

int main(void)
{
    RUN(without_routes_everything_is_on_link);
    RUN(the_longest_prefix_wins);
    RUN(the_families_have_default_routes_of_their_own);
    RUN(a_gateway_may_be_of_the_other_family);
    RUN(multicast_and_limited_broadcast_ignore_the_routes);
    RUN(prefixes_are_cut_to_their_length);
    RUN(setting_again_replaces_and_deleting_uncovers);
    RUN(what_makes_no_sense_is_refused_and_changes_nothing);
    RUN(a_refused_allocation_leaves_the_routes_as_they_were);
    RUN(long_random_runs_agree_with_a_linear_search);
    RUN(a_hundred_thousand_routes_are_all_found);
    RUN(the_next_hop_may_overwrite_the_destination);
    RUN(a_multipath_route_keeps_its_hops_until_it_is_replaced);
    RUN(a_route_to_ask_about_has_the_fields_of_its_flows);
    RUN(hops_that_make_no_sense_are_refused);
}
