/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RANDOM_H
#define IPU_RANDOM_H

#include <stdint.h>

/*
 * A seeded generator for test doubles and tests, never for secrets: splitmix64 (Steele, Lea and
 * Flood, OOPSLA 2014). Every 64-bit state is a good one, so any number can be the seed.
 */
static inline uint64_t ipu_random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Returns 0 to n - 1, with a bias below n / 2^32. */
static inline uint32_t ipu_random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(((ipu_random_next(state) >> 32) * n) >> 32);
}

#endif
