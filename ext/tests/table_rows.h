/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_TABLE_ROWS_H
#define IPU_TESTS_TABLE_ROWS_H

/*
 * Tables of the core that others fill, to twice their caps: the work for an entry at a quarter and
 * at the end, the counter, and an honest entry. tests/unit/tables/test_core_tables.py compares the
 * rows with ipoibu/daemon/tables; test_table_bytes.c has the bytes.
 */
#include <arpa/inet.h>
#include <string.h>

#include "check.h"
#include "steps.h"

enum {
    CAP = 1000, /* of tables whose true one takes long */
    SAMPLE = 15,
    FACTOR = 2, /* between the work for an early and a late entry: 4 if the table is walked */
    STEP = 16,  /* basic blocks to refuse an entry, and for each that the work may grow by */
    HONEST = 0xFFFFF,
};

struct row {
    const char *name;
    uint32_t cap;
    void (*open)(void);
    void (*add)(uint32_t number);
    uint32_t (*count)(void);
    uint64_t (*counted)(void); /* NULL: nobody has to know */
    bool (*admits_honest)(void);
    void (*close)(void);
    uint32_t growth; /* entries that the work for one may grow by; 0: it does not grow */
    bool is_shared;  /* entries share places, or budgets bound them: it need not fill up */
};

static inline struct in6_addr address(uint32_t number)
{
    struct in6_addr ip = {.s6_addr = {0xfe, 0x80}};
    number = htonl(number);
    memcpy(ip.s6_addr + 12, &number, sizeof number);
    return ip;
}

static inline int compare_steps(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static inline uint64_t median_of(uint64_t *values, uint32_t n)
{
    qsort(values, n, sizeof *values, compare_steps);
    return values[n / 2];
}

static inline void fill_table(const struct row *row)
{
    uint32_t quarter = row->cap / 4, n = quarter < SAMPLE ? quarter : SAMPLE;
    uint64_t early[SAMPLE], late[SAMPLE];
    row->open();
    for (uint32_t i = 0; i < 2 * row->cap; i++) {
        uint64_t before = steps;
        row->add(i);
        if (i >= quarter - n && i < quarter)
            early[i - (quarter - n)] = steps - before;
        if (i >= 2 * row->cap - n)
            late[i - (2 * row->cap - n)] = steps - before;
        if (i == row->cap - 1 && !row->is_shared)
            CHECK_EQ(row->count(), row->cap);
    }
    CHECK(row->count() > 0);
    CHECK(row->count() <= row->cap);
    uint64_t least = median_of(early, n), most = median_of(late, n);
    CHECK(least > 0); /* steps are counted */
    uint64_t most_allowed = FACTOR * least + STEP * (1 + (uint64_t)row->growth);
    if (most > most_allowed)
        fprintf(stderr, "%s: %llu steps for an entry, and %llu at the cap\n", row->name,
                (unsigned long long)least, (unsigned long long)most);
    CHECK(most <= most_allowed);
    if (row->counted != NULL)
        CHECK(row->counted() >= row->cap / 2);
    CHECK(row->admits_honest());
    CHECK(row->count() <= row->cap);
    row->close();
}

/* Prints how the work for an entry behaves, as the register says it. */
static inline void fill_tables(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!check_is_wanted(rows[i].name))
            continue;
        alarm(TIME_LIMIT_S);
        fill_table(&rows[i]);
        printf("ok %s (%s)\n", rows[i].name, rows[i].growth > 0 ? "grows" : "constant");
        fflush(stdout);
    }
}

#endif
