/* SPDX-License-Identifier: BSD-2-Clause */
/* Measures the longest match by the number of prefix lengths in use. */
#include <arpa/inet.h>

#include "bench.h"
#include "check.h"
#include "core/random.h"
#include "pump/tables/route.h"

enum { LOOKUPS = 2000000, ROUTES = 100000, SAMPLES = 1 << 16 };

static struct in6_addr ipv4(uint32_t address)
{
    struct in6_addr mapped = {.s6_addr = {[10] = 0xFF, [11] = 0xFF}};
    uint32_t network = htonl(address);
    memcpy(&mapped.s6_addr[12], &network, 4);
    return mapped;
}

static void measure(const char *what, const struct ipu_route_table *table)
{
    static struct in6_addr keys[SAMPLES];
    struct in6_addr next_hop;
    uint64_t random = 1;
    for (uint32_t i = 0; i < SAMPLES; i++)
        keys[i] = ipv4(0x01000000 + ipu_random_below(&random, 0xDE000000));
    double start = bench_now_ns();
    for (uint32_t i = 0; i < LOOKUPS; i++) {
        bench_keep(ipu_route_lookup(table, &keys[i % SAMPLES], &next_hop));
        bench_keep(next_hop.s6_addr[15]);
    }
    printf("%-46s %6.1f ns\n", what, (bench_now_ns() - start) / LOOKUPS);
}

int main(void)
{
    struct ipu_route_table table;
    struct in6_addr any = ipv4(0), lan = ipv4(0x0A000000), gateway = ipv4(0x0A000001);
    CHECK(ipu_route_init(&table, ROUTES + 100, NULL) == 0);
    measure("no routes", &table);
    CHECK(ipu_route_set(&table, &any, 96, IPU_ROUTE_GATEWAY, &gateway) == 0);
    CHECK(ipu_route_set(&table, &lan, 96 + 24, IPU_ROUTE_ON_LINK, NULL) == 0);
    measure("a network and a default route", &table);
    uint64_t random = 2;
    for (uint32_t i = 0; i < ROUTES; i++) {
        struct in6_addr prefix = ipv4((uint32_t)ipu_random_next(&random));
        unsigned length = 96 + 8 + ipu_random_below(&random, 17);
        CHECK(ipu_route_set(&table, &prefix, length, IPU_ROUTE_GATEWAY, &gateway) == 0);
    }
    measure("100 000 random routes of 17 lengths", &table);
    ipu_route_free(&table);
}
