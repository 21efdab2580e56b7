/* SPDX-License-Identifier: BSD-2-Clause */
/* Measures a look-up as the table of next hops grows, and the growth itself. */
#include <arpa/inet.h>
#include <stdbool.h>

#include "bench.h"
#include "check.h"
#include "core/random.h"
#include "pump/tables/neigh.h"

enum { LOOKUPS = 4000000, MANY = 100000, SAMPLES = 1 << 20 };

static struct in6_addr ipv4(uint32_t address)
{
    struct in6_addr mapped = {.s6_addr = {[10] = 0xFF, [11] = 0xFF}};
    uint32_t network = htonl(address);
    memcpy(&mapped.s6_addr[12], &network, 4);
    return mapped;
}

static double lookups_ns(const struct ipu_neigh_table *table, const struct in6_addr *keys,
                         uint32_t mask)
{
    double start = bench_now_ns();
    for (uint32_t i = 0; i < LOOKUPS; i++)
        bench_keep((uintptr_t)ipu_neigh_find(table, &keys[i & mask]));
    return (bench_now_ns() - start) / LOOKUPS;
}

/* Measures latency, not rate: each look-up waits for the previous one. */
static double chained_ns(const struct ipu_neigh_table *table, const struct in6_addr *keys,
                         uint32_t mask)
{
    double start = bench_now_ns();
    uint32_t at = 0;
    for (uint32_t i = 0; i < LOOKUPS; i++)
        at = (at + 1 + ipu_neigh_find(table, &keys[at & mask])->action) & mask;
    bench_keep(at);
    return (bench_now_ns() - start) / LOOKUPS;
}

int main(void)
{
    static const uint32_t sizes[] = {1, 100, 1000, 10000, MANY};
    struct in6_addr *keys = malloc(SAMPLES * sizeof *keys);
    CHECK(keys);
    printf("next hops   hit ns   hit, one after the other ns   miss ns\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ipu_neigh_table table;
        struct ipu_ah *former;
        uint64_t random = 1;
        CHECK(ipu_neigh_init(&table, 131072, NULL) == 0);
        for (uint32_t n = 0; n < sizes[i]; n++) {
            struct in6_addr key = ipv4(0x0A000000 + n);
            CHECK(ipu_neigh_set(&table, &key, NULL, IPU_NEIGH_SEND, 2044, &former) == 0);
        }
        for (uint32_t n = 0; n < SAMPLES; n++)
            keys[n] = ipv4(0x0A000000 + ipu_random_below(&random, sizes[i]));
        (void)lookups_ns(&table, keys, SAMPLES - 1); /* warm up */
        double hit = lookups_ns(&table, keys, SAMPLES - 1);
        double chained = chained_ns(&table, keys, SAMPLES - 1);
        for (uint32_t n = 0; n < SAMPLES; n++)
            keys[n] = ipv4(0x0B000000 + ipu_random_below(&random, sizes[i]));
        double miss = lookups_ns(&table, keys, SAMPLES - 1);
        printf("%9u   %6.1f   %27.1f   %7.1f\n", sizes[i], hit, chained, miss);
        ipu_neigh_free(&table);
    }
    free(keys);

    struct ipu_neigh_table table;
    struct ipu_ah *former;
    double slowest = 0, start = bench_now_ns();
    CHECK(ipu_neigh_init(&table, 131072, NULL) == 0);
    for (uint32_t n = 0; n < MANY; n++) {
        struct in6_addr key = ipv4(0x0A000000 + n);
        bool grows = n * 4 == (table.mask + 1) * 3;
        double before = grows ? bench_now_ns() : 0;
        CHECK(ipu_neigh_set(&table, &key, NULL, IPU_NEIGH_SEND, 2044, &former) == 0);
        if (grows && bench_now_ns() - before > slowest)
            slowest = bench_now_ns() - before;
    }
    printf("set: %.0f ns on average over %d, growth included; the slowest growth %.2f ms\n",
           (bench_now_ns() - start) / MANY, MANY, slowest / 1e6);
    ipu_neigh_free(&table);
}
