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

#endif
