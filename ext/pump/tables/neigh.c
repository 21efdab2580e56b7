/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/tables/neigh.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LINE_BYTES  64u
#define HUGE_BYTES  (2u << 20)
#define FIRST_SLOTS 64u
#define MAX_ENTRIES (1u << 24)

_Static_assert(sizeof(struct ipu_neigh) == 32, "two entries to a cache line");

static bool is_live(const void *slot)
{
    return ((const struct ipu_neigh *)slot)->live;
}

static uint32_t hash_of(const void *slot, const struct ipu_hash_seed *seed)
{
    (void)seed;
    return ((const struct ipu_neigh *)slot)->hash;
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct ipu_neigh), .is_live = is_live, .hash = hash_of};

/*
 * aligned_alloc, because calloc would let entries straddle cache lines. With huge pages, where the
 * kernel has them, look-ups in a large table miss the TLB less often, and growth causes fewer page
 * faults.
 */
static void *new_slots(uint32_t n)
{
    size_t len = n * sizeof(struct ipu_neigh);
    struct ipu_neigh *slots = aligned_alloc(len < HUGE_BYTES ? LINE_BYTES : HUGE_BYTES, len);
    if (!slots)
        return NULL;
    if (len >= HUGE_BYTES)
        (void)madvise(slots, len, MADV_HUGEPAGE);
    memset(slots, 0, len);
    return slots;
}

int ipu_neigh_init(struct ipu_neigh_table *table, uint32_t max, const struct ipu_hash_seed *seed)
{
    memset(table, 0, sizeof *table);
    if (max == 0 || max > MAX_ENTRIES)
        return -EINVAL;
    int error = ipu_hash_seed_init(&table->seed, seed);
    if (error)
        return error;
    table->slots = new_slots(FIRST_SLOTS);
    if (!table->slots)
        return -ENOMEM;
    table->mask = FIRST_SLOTS - 1;
    table->max = max;
    return 0;
}

void ipu_neigh_free(struct ipu_neigh_table *table)
{
    free(table->slots);
    memset(table, 0, sizeof *table);
}

static int grow(struct ipu_neigh_table *table)
{
    struct ipu_neigh *slots =
        ipu_hash_table_doubled(&layout, &table->seed, table->slots, &table->mask, new_slots);
    if (!slots)
        return -ENOMEM;
    table->slots = slots;
    return 0;
}

int ipu_neigh_set(struct ipu_neigh_table *table, const struct in6_addr *next_hop, struct ipu_ah *ah,
                  enum ipu_neigh_action action, uint32_t mtu, struct ipu_ah **former)
{
    *former = NULL;
    if (mtu > UINT16_MAX || (uint32_t)action > IPU_NEIGH_UNREACHABLE)
        return -EINVAL;
    struct ipu_neigh *slot = ipu_neigh_find(table, next_hop);
    if (slot) {
        *former = slot->ah;
    } else {
        if (table->count == table->max)
            return -ENOSPC;
        if (ipu_hash_table_is_crowded(table->count, table->mask) && grow(table) != 0)
            return -ENOMEM;
        uint32_t hash = (uint32_t)ipu_hash_16(&table->seed, next_hop);
        slot = ipu_hash_table_empty(&layout, table->slots, table->mask, hash);
        slot->next_hop = *next_hop;
        slot->hash = hash;
        slot->live = 1;
        table->count++;
    }
    slot->ah = ah;
    slot->mtu = (uint16_t)mtu;
    slot->action = (uint8_t)action;
    return 0;
}

int ipu_neigh_delete(struct ipu_neigh_table *table, const struct in6_addr *next_hop,
                     struct ipu_ah **former)
{
    *former = NULL;
    struct ipu_neigh *slot = ipu_neigh_find(table, next_hop);
    if (!slot)
        return -ENOENT;
    *former = slot->ah;
    ipu_hash_table_delete(&layout, &table->seed, table->slots, table->mask,
                          (uint32_t)(slot - table->slots));
    table->count--;
    return 0;
}
