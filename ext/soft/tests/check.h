/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_CHECK_H
#define SOFT_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A test is a function whose name is a sentence; a failed check prints its place and ends the
 * program. */
struct test {
    const char *name;
    void (*run)(void);
};

#define TEST(function)                                                                             \
    {                                                                                              \
#function, function                                                                        \
    }

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition);  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQUAL(a, b)                                                                          \
    do {                                                                                           \
        long long check_a = (long long)(a), check_b = (long long)(b);                              \
        if (check_a != check_b) {                                                                  \
            fprintf(stderr, "%s:%d: %s: %s is %lld (0x%llx), not %lld (0x%llx)\n", __FILE__,       \
                    __LINE__, __func__, #a, check_a, check_a, check_b, check_b);                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Runs every test, or only the one that the environment's ONLY names. */
static inline int run_tests(const struct test *tests, size_t count)
{
    const char *only = getenv("ONLY");
    for (size_t i = 0; i < count; i++) {
        if (only != NULL && strcmp(only, tests[i].name) != 0)
            continue;
        tests[i].run();
        printf("ok: %s\n", tests[i].name);
        fflush(stdout);
    }
    return 0;
}

/* xorshift64*: the same numbers in every run. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

#endif
