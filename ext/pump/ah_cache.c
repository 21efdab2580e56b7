/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/ah_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64u
#define MAX_HANDLES (1u << 24)

_Static_assert(sizeof(struct ipu_dest) == 32, "compared and hashed as bytes");
_Static_assert(offsetof(struct ipu_ah, older) <= 64, "what is hot fits a cache line");

int ipu_ah_cache_init(struct ipu_ah_cache *cache, const struct ipu_fabric *fabric, uint32_t max,
                      uint32_t max_idle, const struct ipu_hash_seed *seed)
{
    memset(cache, 0, sizeof *cache);
    if (max == 0 || max > MAX_HANDLES)
        return -EINVAL;
    int error = ipu_hash_seed_init(&cache->seed, seed);
    if (error)
        return error;
    cache->slots = calloc(FIRST_SLOTS, sizeof(struct ipu_ah *));
    if (!cache->slots)
        return -ENOMEM;
    cache->fabric = fabric;
    cache->mask = FIRST_SLOTS - 1;
    cache->max = max;
    cache->max_idle = max_idle;
    return 0;
}

/* The slot of the handle of dest, or the empty one where it belongs. */
static struct ipu_ah **slot_of(struct ipu_ah_cache *cache, const struct ipu_dest *dest,
                               uint32_t hash)
{
    uint32_t i = hash & cache->mask;
    for (;; i = (i + 1) & cache->mask) {
        struct ipu_ah *ah = cache->slots[i];
        if (!ah || (ah->hash == hash && memcmp(&ah->dest, dest, sizeof *dest) == 0))
            return &cache->slots[i];
    }
}

static int grow(struct ipu_ah_cache *cache)
{
    struct ipu_ah **old = cache->slots;
    uint32_t old_mask = cache->mask;
    struct ipu_ah **slots = calloc(2 * ((size_t)old_mask + 1), sizeof(struct ipu_ah *));
    if (!slots)
        return -ENOMEM;
    cache->slots = slots;
    cache->mask = 2 * old_mask + 1;
    for (uint32_t i = 0; i <= old_mask; i++) {
        if (old[i])
            *slot_of(cache, &old[i]->dest, old[i]->hash) = old[i];
    }
    free(old);
    return 0;
}

static void idle_remove(struct ipu_ah_cache *cache, struct ipu_ah *ah)
{
    *(ah->older ? &ah->older->newer : &cache->oldest) = ah->newer;
    *(ah->newer ? &ah->newer->older : &cache->newest) = ah->older;
    ah->older = ah->newer = NULL;
    cache->idle--;
}

static void idle_append(struct ipu_ah_cache *cache, struct ipu_ah *ah)
{
    ah->older = cache->newest;
    ah->newer = NULL;
    *(ah->older ? &ah->older->newer : &cache->oldest) = ah;
    cache->newest = ah;
    cache->idle++;
}

static void destroy(struct ipu_ah_cache *cache, struct ipu_ah *ah)
{
    cache->fabric->ops->ah_destroy(cache->fabric->self, ah->handle);
    free(ah);
}

/* Destroys the handle that was idle for the longest time. */
static void evict(struct ipu_ah_cache *cache)
{
    struct ipu_ah *ah = cache->oldest;
    idle_remove(cache, ah);

    /* Close the gap, as in ipu_neigh_delete(). */
    uint32_t mask = cache->mask;
    uint32_t gap = (uint32_t)(slot_of(cache, &ah->dest, ah->hash) - cache->slots);
    for (uint32_t i = (gap + 1) & mask; cache->slots[i]; i = (i + 1) & mask) {
        uint32_t from_home = (i - cache->slots[i]->hash) & mask;
        uint32_t from_gap = (i - gap) & mask;
        if (from_home >= from_gap) {
            cache->slots[gap] = cache->slots[i];
            gap = i;
        }
    }
    cache->slots[gap] = NULL;
    cache->count--;
    cache->evicted++;
    destroy(cache, ah);
}

void ipu_ah_cache_free(struct ipu_ah_cache *cache)
{
    for (uint32_t i = 0; cache->slots && i <= cache->mask; i++) {
        if (cache->slots[i])
            destroy(cache, cache->slots[i]);
    }
    free(cache->slots);
    memset(cache, 0, sizeof *cache);
}

/*
 * The device's own limit may be lower than ours, and shared with others: one idle handle makes room
 * for one, whatever the error is called (rxe says EINVAL). Not more than one, or a peer with an
 * address that cannot work would empty the cache.
 */
static void *create_handle(struct ipu_ah_cache *cache, const struct ipu_dest *dest)
{
    const struct ipu_fabric *fabric = cache->fabric;
    errno = 0;
    void *handle = fabric->ops->ah_create(fabric->self, dest);
    if (!handle && cache->idle > 0) {
        evict(cache);
        errno = 0;
        handle = fabric->ops->ah_create(fabric->self, dest);
    }
    return handle;
}

static int create(struct ipu_ah_cache *cache, const struct ipu_dest *dest, uint32_t hash,
                  struct ipu_ah **ah)
{
    if (cache->count == cache->max) {
        if (cache->idle == 0)
            return -ENOSPC;
        evict(cache);
    }
    if (((uint64_t)cache->count + 1) * 4 > ((uint64_t)cache->mask + 1) * 3 && grow(cache) != 0)
        return -ENOMEM;
    struct ipu_ah *new = aligned_alloc(64, sizeof *new);
    if (!new)
        return -ENOMEM;
    void *handle = create_handle(cache, dest);
    if (!handle) {
        int error = errno ? errno : EIO;
        free(new);
        return -error;
    }
    *new = (struct ipu_ah){.handle = handle, .dest = *dest, .hash = hash, .refs = 1};
    *slot_of(cache, dest, hash) = new;
    cache->count++;
    cache->created++;
    *ah = new;
    return 0;
}

int ipu_ah_cache_get(struct ipu_ah_cache *cache, const struct ipu_dest *dest, struct ipu_ah **ah)
{
    struct ipu_dest key = *dest;
    memset(key.pad, 0, sizeof key.pad);
    uint32_t hash = (uint32_t)ipu_hash_32(&cache->seed, &key);
    *ah = *slot_of(cache, &key, hash);
    if (!*ah) {
        int error = create(cache, &key, hash, ah);
        if (error)
            cache->failed++;
        return error;
    }
    if ((*ah)->refs++ == 0)
        idle_remove(cache, *ah);
    return 0;
}

void ipu_ah_cache_put(struct ipu_ah_cache *cache, struct ipu_ah *ah)
{
    if (!ah)
        return;
    assert(ah->refs > 0);
    if (--ah->refs > 0)
        return;
    idle_append(cache, ah);
    if (cache->idle > cache->max_idle)
        evict(cache);
}
