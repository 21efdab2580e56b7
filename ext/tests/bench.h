/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_BENCH_H
#define IPU_TESTS_BENCH_H

#include <stdint.h>
#include <time.h>

/* Returns the CPU time of this thread, which is steadier than the clock on a shared machine. */
static inline double bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The compiler must believe that the value is used. */
static inline void bench_keep(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

#endif
