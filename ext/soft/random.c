/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdint.h>
#include <sys/random.h>
#include <time.h>

#include "objects.h"

/*
 * A machine that has just booted, a small virtual one above all, may be without randomness for
 * minutes, and getrandom would wait for it. Numbers that differ from those before a restart need no
 * more than a clock.
 */
uint32_t soft_random(void)
{
    struct timespec t;
    uint32_t value;

    if (getrandom(&value, sizeof(value), GRND_NONBLOCK) == sizeof(value))
        return value;
    clock_gettime(CLOCK_REALTIME, &t);
    return ((uint32_t)t.tv_sec * 1000000007u + (uint32_t)t.tv_nsec) * 0x9e3779b1u >> 4;
}
