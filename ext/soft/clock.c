/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include <time.h>

#include "objects.h"

int64_t soft_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
