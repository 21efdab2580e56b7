/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RING_H
#define IPU_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A byte ring between two threads: one produces records, one consumes them, in order, in place.
 * Each side keeps a copy of the other's position and reads the shared one only when the copy says
 * full or empty. See ext/README.md for the wake protocol.
 *
 *   producer:  p = reserve(len); fill p; commit(len); ... after the batch: wake()
 *   consumer:  while (peek()) { use; release(); }  if (arm() == 0) sleep on fd; disarm(); again
 */
struct ipu_ring {
    uint8_t *data;
    uint32_t capacity_bytes;
    int wake_fd; /* eventfd, non-blocking */

    /* The producer's cache line. Positions count bytes since init and never wrap. */
    _Alignas(64) _Atomic uint64_t head;
    uint64_t tail_seen;
    uint64_t reserved_at; /* start of the record that the producer is filling */
    uint32_t reserved_bytes;

    /* The consumer's cache line. */
    _Alignas(64) _Atomic uint64_t tail;
    uint64_t head_seen;
    uint64_t owed;  /* wakes on the eventfd or on their way to it; 0: no need to read it */
    uint32_t asked; /* the consumer has armed, and has not checked for a wake since */

    /* Both sides write this, but only around a sleep. */
    _Alignas(64) _Atomic uint32_t armed;
};

#define IPU_RING_HEADER 8u /* bytes in front of each record */

/* capacity_bytes is a power of two from 64 to 1 GiB. Returns 0, -EINVAL, -ENOMEM, -EMFILE or
 * another error of eventfd(2). The struct needs 64-byte alignment: static, on a stack, or
 * aligned_alloc().
 */
int ipu_ring_init(struct ipu_ring *ring, uint32_t capacity_bytes);

/* Frees the ring, which neither thread may use any more. Safe after a failed init, and to
 * repeat. */
void ipu_ring_free(struct ipu_ring *ring);

/* Returns the longest record: half the ring less its header, so that an empty ring always takes
 * it. */
static inline uint32_t ipu_ring_max_bytes(const struct ipu_ring *ring)
{
    return ring->capacity_bytes / 2 - IPU_RING_HEADER;
}

/* Producer: returns room for a record of len bytes, 8-byte aligned; NULL: the ring has no room now,
 * or len is above ipu_ring_max_bytes(). The consumer sees nothing before the commit; a second
 * reserve replaces the first.
 */
void *ipu_ring_reserve(struct ipu_ring *ring, uint32_t len);

/* Producer: publishes the reserved record with len bytes, at most as many as it reserved. */
void ipu_ring_commit(struct ipu_ring *ring, uint32_t len);

/* Producer: wakes the consumer if it sleeps. The producer calls this once after a batch of commits,
 * or the consumer may miss them. */
void ipu_ring_wake(struct ipu_ring *ring);

/* Producer: returns the length of the longest record that ipu_ring_reserve() would take now; 0 may
 * also mean none. */
uint32_t ipu_ring_free_bytes(struct ipu_ring *ring);

/* Consumer: returns the oldest record and its length; it stays until released. NULL when the ring
 * is empty. */
void *ipu_ring_peek(struct ipu_ring *ring, uint32_t *len);

/* Consumer: whether a record waits. */
static inline bool ipu_ring_has_record(const struct ipu_ring *ring)
{
    return atomic_load_explicit(&ring->head, memory_order_relaxed) !=
           atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

/* Consumer: drops the record that ipu_ring_peek() gave. */
void ipu_ring_release(struct ipu_ring *ring);

/* Consumer: arms the ring, so that the next wake makes fd() readable. 0: the ring is empty, and the
 * consumer may sleep. 1: there are records, and the ring is not armed.
 */
int ipu_ring_arm(struct ipu_ring *ring);

/* Consumer: disarms after a sleep, whatever ended it; fd() is not readable then. */
void ipu_ring_disarm(struct ipu_ring *ring);

/* Consumer: makes fd() unreadable; any thread may have made it readable. */
void ipu_ring_drain(struct ipu_ring *ring);

static inline int ipu_ring_fd(const struct ipu_ring *ring)
{
    return ring->wake_fd;
}

#endif
