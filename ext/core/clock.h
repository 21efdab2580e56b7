/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_CLOCK_H
#define IPU_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC. */
static inline uint64_t ipu_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC_COARSE: cheaper, and late by a tick of the kernel. */
static inline uint64_t ipu_clock_coarse_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

#endif
