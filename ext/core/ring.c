/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/ring.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * A record is [length 4][unused 4][payload, padded to 8]. A record is never split: if it does not
 * fit before the end of the buffer, a length of WRAP there says that the record is at the start.
 * Positions are multiples of 8 and so is the capacity: there is always room for that header.
 */
#define WRAP      UINT32_MAX
#define MIN_BYTES 64u
#define MAX_BYTES (1u << 30)

static uint32_t padded(uint32_t len)
{
    return IPU_RING_HEADER + ((len + 7) & ~7u);
}

static uint32_t offset_of(const struct ipu_ring *ring, uint64_t position)
{
    return (uint32_t)position & (ring->capacity_bytes - 1);
}

static uint32_t read_length(const struct ipu_ring *ring, uint32_t offset)
{
    uint32_t len;
    memcpy(&len, ring->data + offset, sizeof len);
    return len;
}

static void write_length(struct ipu_ring *ring, uint32_t offset, uint32_t len)
{
    memcpy(ring->data + offset, &len, sizeof len);
}

int ipu_ring_init(struct ipu_ring *ring, uint32_t capacity_bytes)
{
    memset(ring, 0, sizeof *ring);
    ring->wake_fd = -1;
    if (capacity_bytes < MIN_BYTES || capacity_bytes > MAX_BYTES ||
        (capacity_bytes & (capacity_bytes - 1)) != 0)
        return -EINVAL;
    ring->data = aligned_alloc(64, capacity_bytes);
    if (!ring->data)
        return -ENOMEM;
    ring->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ring->wake_fd < 0) {
        int error = errno;
        ipu_ring_free(ring);
        return -error;
    }
    ring->capacity_bytes = capacity_bytes;
    return 0;
}

void ipu_ring_free(struct ipu_ring *ring)
{
    if (ring->data && ring->wake_fd >= 0)
        (void)close(ring->wake_fd);
    free(ring->data);
    memset(ring, 0, sizeof *ring);
    ring->wake_fd = -1;
}

void *ipu_ring_reserve(struct ipu_ring *ring, uint32_t len)
{
    if (len > ipu_ring_max_bytes(ring))
        return NULL;
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t offset = offset_of(ring, head);
    uint32_t to_end = ring->capacity_bytes - offset;
    uint32_t skip = padded(len) > to_end ? to_end : 0;
    uint64_t end = head + skip + padded(len);
    if (end - ring->tail_seen > ring->capacity_bytes) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (end - ring->tail_seen > ring->capacity_bytes)
            return NULL;
    }
    if (skip != 0)
        write_length(ring, offset, WRAP);
    ring->reserved_at = head + skip;
    ring->reserved_bytes = len;
    return ring->data + offset_of(ring, ring->reserved_at) + IPU_RING_HEADER;
}

void ipu_ring_commit(struct ipu_ring *ring, uint32_t len)
{
    assert(len <= ring->reserved_bytes);
    write_length(ring, offset_of(ring, ring->reserved_at), len);
    /* Publishes the wrap mark, too: a consumer that sees a mark always finds the record behind
     * it. */
    atomic_store_explicit(&ring->head, ring->reserved_at + padded(len), memory_order_release);
}

/* No wake-up is lost, because each side first stores, then loads the other's variable, and all four
 * accesses are sequentially consistent: in their total order either this store precedes the load in
 * arm, which then sees the record, or the store in arm precedes the load here. The store repeats
 * the value of the last commit; atomic_thread_fence() would do as well, but thread sanitizers do
 * not model it.
 */
void ipu_ring_wake(struct ipu_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    /* A producer that calls this once a round must not keep an idle consumer busy. */
    if (atomic_load_explicit(&ring->tail, memory_order_relaxed) == head)
        return;
    atomic_store_explicit(&ring->head, head, memory_order_seq_cst);
    if (atomic_load_explicit(&ring->armed, memory_order_seq_cst) == 0)
        return;
    if (atomic_exchange_explicit(&ring->armed, 0, memory_order_relaxed) == 0)
        return;
    uint64_t one = 1;
    /* The write fails only when the count is at its limit, and then the descriptor is readable
     * anyway. */
    ssize_t written = write(ring->wake_fd, &one, sizeof one);
    (void)written;
}

uint32_t ipu_ring_free_bytes(struct ipu_ring *ring)
{
    ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t room = ring->capacity_bytes - (uint32_t)(head - ring->tail_seen);
    uint32_t to_end = ring->capacity_bytes - offset_of(ring, head);
    uint32_t before_end = room < to_end ? room : to_end;
    uint32_t after_wrap = room > to_end ? room - to_end : 0;
    uint32_t best = before_end > after_wrap ? before_end : after_wrap;
    if (best < IPU_RING_HEADER)
        return 0;
    best -= IPU_RING_HEADER;
    return best < ipu_ring_max_bytes(ring) ? best : ipu_ring_max_bytes(ring);
}

void *ipu_ring_peek(struct ipu_ring *ring, uint32_t *len)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail == ring->head_seen) {
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail == ring->head_seen)
            return NULL;
    }
    uint32_t offset = offset_of(ring, tail);
    *len = read_length(ring, offset);
    if (*len == WRAP) {
        atomic_store_explicit(&ring->tail, tail + ring->capacity_bytes - offset,
                              memory_order_release);
        offset = 0;
        *len = read_length(ring, offset);
    }
    return ring->data + offset + IPU_RING_HEADER;
}

void ipu_ring_release(struct ipu_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    assert(tail != ring->head_seen);
    uint32_t len = read_length(ring, offset_of(ring, tail));
    assert(len != WRAP);
    atomic_store_explicit(&ring->tail, tail + padded(len), memory_order_release);
}

/* Disarms. If a producer was faster, it writes the eventfd, or has written it. */
static void take_arm(struct ipu_ring *ring)
{
    if (ring->asked && atomic_exchange_explicit(&ring->armed, 0, memory_order_relaxed) == 0)
        ring->owed++;
    ring->asked = 0;
}

int ipu_ring_arm(struct ipu_ring *ring)
{
    take_arm(ring);
    ring->asked = 1;
    atomic_store_explicit(&ring->armed, 1, memory_order_seq_cst);
    ring->head_seen = atomic_load_explicit(&ring->head, memory_order_seq_cst);
    if (ring->head_seen == atomic_load_explicit(&ring->tail, memory_order_relaxed))
        return 0;
    /* A producer may have seen the ring armed and may still write the eventfd: one spurious
     * wake-up. */
    take_arm(ring);
    return 1;
}

void ipu_ring_disarm(struct ipu_ring *ring)
{
    take_arm(ring);
    if (ring->owed > 0)
        ipu_ring_drain(ring);
}

void ipu_ring_drain(struct ipu_ring *ring)
{
    uint64_t count;
    /* -EAGAIN: the producer has yet to write. */
    if (read(ring->wake_fd, &count, sizeof count) == sizeof count)
        ring->owed -= count < ring->owed ? count : ring->owed;
}
