/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_INDEX_RING_H
#define IPU_INDEX_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

/* A ring of frame indices from one thread to another. It has room for every index, so it is never
 * full, and no thread sleeps on it.
 */
struct ipu_index_ring {
    uint32_t *slot;
    uint32_t mask;
    _Alignas(64) _Atomic uint32_t head; /* the producer writes it; head and tail wrap */
    _Alignas(64) _Atomic uint32_t tail; /* the consumer writes it */
};

#define IPU_INDEX_NONE UINT32_MAX

static inline void ipu_index_ring_push(struct ipu_index_ring *ring, uint32_t index)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    assert(head - atomic_load_explicit(&ring->tail, memory_order_relaxed) <= ring->mask);
    ring->slot[head & ring->mask] = index;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* Either thread: returns how many indices are in the ring; the other thread may change that. */
static inline uint32_t ipu_index_ring_count(const struct ipu_index_ring *ring)
{
    return atomic_load_explicit(&ring->head, memory_order_acquire) -
           atomic_load_explicit(&ring->tail, memory_order_acquire);
}

/* Takes the oldest index, or IPU_INDEX_NONE. */
static inline uint32_t ipu_index_ring_pop(struct ipu_index_ring *ring)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&ring->head, memory_order_acquire))
        return IPU_INDEX_NONE;
    uint32_t index = ring->slot[tail & ring->mask];
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return index;
}

#endif
