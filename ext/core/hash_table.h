/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_HASH_TABLE_H
#define IPU_HASH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

/*
 * Open addressing with linear probing, for tables that differ in their slots. A table has a power
 * of two of slots, `mask` is one less, and at most 3/4 of them are in use, so every probe ends at
 * an empty slot. Deletion moves later entries of the run back into the gap, so there are no
 * tombstones.
 *
 * A table describes its slots by a constant; the compiler inlines the functions here, and so the
 * members of the constant, too.
 */
struct ipu_hash_layout {
    size_t bytes; /* of a slot; an empty slot is all zero */
    bool (*is_live)(const void *slot);
    uint32_t (*hash)(const void *slot, const struct ipu_hash_seed *seed);
};

/* Walks the slots i, from the home of the hash on; the body leaves the loop at an empty slot. */
#define IPU_HASH_TABLE_PROBE(i, hash, mask)                                                        \
    for (uint32_t i = (hash) & (mask);; i = (i + 1) & (mask))

#define IPU_HASH_TABLE_INLINE static inline __attribute__((always_inline))

/* Returns whether the table has to grow for one more entry. */
IPU_HASH_TABLE_INLINE bool ipu_hash_table_is_crowded(uint32_t count, uint32_t mask)
{
    return ((uint64_t)count + 1) * 4 > ((uint64_t)mask + 1) * 3;
}

IPU_HASH_TABLE_INLINE void *ipu_hash_table_at(const struct ipu_hash_layout *layout, void *slots,
                                              uint32_t i)
{
    return (char *)slots + i * layout->bytes;
}

/* Returns the empty slot for a new entry with this hash. */
IPU_HASH_TABLE_INLINE void *ipu_hash_table_empty(const struct ipu_hash_layout *layout, void *slots,
                                                 uint32_t mask, uint32_t hash)
{
    IPU_HASH_TABLE_PROBE(i, hash, mask) {
        void *slot = ipu_hash_table_at(layout, slots, i);
        if (!layout->is_live(slot))
            return slot;
    }
}

/* Copies all entries to a larger array of empty slots. */
IPU_HASH_TABLE_INLINE void ipu_hash_table_copy(const struct ipu_hash_layout *layout,
                                               const struct ipu_hash_seed *seed, void *from,
                                               uint32_t from_mask, void *to, uint32_t to_mask)
{
    for (uint32_t i = 0; i <= from_mask; i++) {
        const void *slot = ipu_hash_table_at(layout, from, i);
        if (layout->is_live(slot))
            memcpy(ipu_hash_table_empty(layout, to, to_mask, layout->hash(slot, seed)), slot,
                   layout->bytes);
    }
}

/* Moves all entries to twice as many slots, of which `make` returns as many empty ones as it is
 * asked for. Returns them and frees `slots`; NULL: there is no memory, and nothing has changed. */
IPU_HASH_TABLE_INLINE void *ipu_hash_table_doubled(const struct ipu_hash_layout *layout,
                                                   const struct ipu_hash_seed *seed, void *slots,
                                                   uint32_t *mask, void *(*make)(uint32_t count))
{
    uint32_t larger_mask = 2 * *mask + 1;
    void *larger = make(larger_mask + 1);
    if (!larger)
        return NULL;
    ipu_hash_table_copy(layout, seed, slots, *mask, larger, larger_mask);
    free(slots);
    *mask = larger_mask;
    return larger;
}

/* Empties slot `gap`: a later entry moves back unless that would put it before its home. */
IPU_HASH_TABLE_INLINE void ipu_hash_table_delete(const struct ipu_hash_layout *layout,
                                                 const struct ipu_hash_seed *seed, void *slots,
                                                 uint32_t mask, uint32_t gap)
{
    IPU_HASH_TABLE_PROBE(i, gap + 1, mask) {
        const void *slot = ipu_hash_table_at(layout, slots, i);
        if (!layout->is_live(slot))
            break;
        uint32_t from_home = (i - layout->hash(slot, seed)) & mask;
        uint32_t from_gap = (i - gap) & mask;
        if (from_home >= from_gap) {
            memcpy(ipu_hash_table_at(layout, slots, gap), slot, layout->bytes);
            gap = i;
        }
    }
    memset(ipu_hash_table_at(layout, slots, gap), 0, layout->bytes);
}

#endif
