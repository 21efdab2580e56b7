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
};

static inline void soft_count_add(struct soft_count *count, enum soft_counter which, uint64_t n)
{
    uint64_t v = atomic_load_explicit(&count->value[which], memory_order_relaxed);

    atomic_store_explicit(&count->value[which], v + n, memory_order_relaxed);
}

#endif
