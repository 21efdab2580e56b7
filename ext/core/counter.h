/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_COUNTER_H
#define IPU_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

/* Adds to a counter that one thread writes and any thread reads, without a locked instruction. */
static inline void ipu_counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + n, memory_order_relaxed);
}

/* A list of counters is a macro that applies another one to each name; this one makes its text. */
#define IPU_COUNTER_NAME(name) #name,

/* Reads n counters, the members of a structure that has no others. Each value is whole, but they
 * are not all of one moment. */
static inline void ipu_counter_read(const void *counters, int n, uint64_t *values)
{
    const _Atomic uint64_t *counter = counters;
    for (int i = 0; i < n; i++)
        values[i] = atomic_load_explicit(&counter[i], memory_order_relaxed);
}

#endif
