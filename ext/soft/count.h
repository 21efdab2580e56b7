/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_COUNT_H
#define SOFT_COUNT_H

#include <stdatomic.h>

#include "hca.h"

/*
 * The counters of an HCA. The HCA writes them under its mutex, and any thread reads them: so they
 * are atomic, and a plain load and store takes the place of an atomic addition.
 */
struct soft_count {
    _Atomic uint64_t value[SOFT_C_COUNT];
    struct in6_addr source[SOFT_C_COUNT]; /* who sent the last dropped packet; under the mutex */
};

static inline void soft_count_add(struct soft_count *count, enum soft_counter which, uint64_t n)
{
    uint64_t v = atomic_load_explicit(&count->value[which], memory_order_relaxed);

    atomic_store_explicit(&count->value[which], v + n, memory_order_relaxed);
}

/* Counts a packet of `source` that the HCA drops. Call with the HCA's mutex. */
static inline void soft_count_drop(struct soft_count *count, enum soft_counter why,
                                   const struct in6_addr *source)
{
    soft_count_add(count, why, 1);
    count->source[why] = *source;
}

#endif
