/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdint.h>
#include <sys/random.h>
#include <time.h>

#include "objects.h"

/*
 * A machine that has just booted, above all a small virtual one, may have no randomness for
 * minutes, and getrandom would wait for it. A clock is enough for numbers that differ from those
 * before a restart.
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
