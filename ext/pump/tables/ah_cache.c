/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/tables/ah_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64u
#define MAX_HANDLES (1u << 24)

_Static_assert(sizeof(struct ipu_dest) == 32, "compared and hashed as bytes");
_Static_assert(offsetof(struct ipu_ah, older) <= 64, "the hot fields fit a cache line");

static bool is_live(const void *slot)
{
    return *(struct ipu_ah *const *)slot != NULL;
}

static uint32_t hash_of(const void *slot, const struct ipu_hash_seed *seed)
{
    (void)seed;
    return (*(struct ipu_ah *const *)slot)->hash;
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct ipu_ah *), .is_live = is_live, .hash = hash_of};

static void *new_slots(uint32_t n)
{
    struct ipu_ah **slots = calloc(n, sizeof(struct ipu_ah *));
    return slots;
}

int ipu_ah_cache_init(struct ipu_ah_cache *cache, const struct ipu_fabric *fabric, uint32_t max,
                      uint32_t max_idle, const struct ipu_hash_seed *seed)
{
    memset(cache, 0, sizeof *cache);
    if (max == 0 || max > MAX_HANDLES)
        return -EINVAL;
    int error = ipu_hash_seed_init(&cache->seed, seed);
    if (error)
        return error;
    cache->slots = new_slots(FIRST_SLOTS);
    if (!cache->slots)
        return -ENOMEM;
    cache->fabric = fabric;
    cache->mask = FIRST_SLOTS - 1;
    cache->max = max;
    cache->max_idle = max_idle;
    return 0;
}

/* Returns the slot of the handle of dest, or the empty slot where it belongs. */
static struct ipu_ah **slot_of(struct ipu_ah_cache *cache, const struct ipu_dest *dest,
                               uint32_t hash)
{
    IPU_HASH_TABLE_PROBE(i, hash, cache->mask) {
        struct ipu_ah *ah = cache->slots[i];
        if (!ah || (ah->hash == hash && memcmp(&ah->dest, dest, sizeof *dest) == 0))
            return &cache->slots[i];
    }
}

static int grow(struct ipu_ah_cache *cache)
{
    struct ipu_ah **slots =
        ipu_hash_table_doubled(&layout, &cache->seed, cache->slots, &cache->mask, new_slots);
    if (!slots)
        return -ENOMEM;
    cache->slots = slots;
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

static bool is_named(const struct ipu_ah_cache *cache, const struct ipu_ah *ah)
{
    return cache->is_named != NULL && cache->is_named(cache->owner, ah);
}

/* Destroys the longest idle handle that no packet names; false: there is none. */
static bool evict(struct ipu_ah_cache *cache)
{
    struct ipu_ah *ah = cache->oldest;
    while (ah != NULL && is_named(cache, ah))
        ah = ah->newer;
    if (ah == NULL)
        return false;
    idle_remove(cache, ah);
    uint32_t at = (uint32_t)(slot_of(cache, &ah->dest, ah->hash) - cache->slots);
    ipu_hash_table_delete(&layout, &cache->seed, cache->slots, cache->mask, at);
    cache->count--;
    cache->evicted++;
    destroy(cache, ah);
    return true;
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
 * The device's own limit may be lower than ours, and shared with others. To destroy one idle handle
 * makes room, whatever the error number (rxe returns EINVAL). We destroy only one, or a peer with
 * an impossible address would empty the cache.
 */
static void *create_handle(struct ipu_ah_cache *cache, const struct ipu_dest *dest)
{
    const struct ipu_fabric *fabric = cache->fabric;
    errno = 0;
    void *handle = fabric->ops->ah_create(fabric->self, dest);
    if (!handle && evict(cache)) {
        errno = 0;
        handle = fabric->ops->ah_create(fabric->self, dest);
    }
    return handle;
}

static int create(struct ipu_ah_cache *cache, const struct ipu_dest *dest, uint32_t hash,
                  struct ipu_ah **ah)
{
    if (cache->count == cache->max && !evict(cache))
        return -ENOSPC;
    if (ipu_hash_table_is_crowded(cache->count, cache->mask) && grow(cache) != 0)
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

/* The path is not in the hash, because a queue pair rarely has handles of two paths. */
uint32_t ipu_ah_cache_hash(const struct ipu_ah_cache *cache, const struct in6_addr *gid,
                           uint32_t qpn)
{
    struct in6_addr key = *gid;
    key.s6_addr32[0] ^= qpn;
    return (uint32_t)ipu_hash_16(&cache->seed, &key);
}

bool ipu_ah_cache_knows(const struct ipu_ah_cache *cache, const struct in6_addr *gid, uint32_t qpn,
                        uint32_t hash)
{
    IPU_HASH_TABLE_PROBE(i, hash, cache->mask) {
        const struct ipu_ah *ah = cache->slots[i];
        if (!ah)
            return false;
        if (ah->hash == hash && ah->dest.qpn == qpn && memcmp(&ah->dest.gid, gid, sizeof *gid) == 0)
            return true;
    }
}

int ipu_ah_cache_get(struct ipu_ah_cache *cache, const struct ipu_dest *dest, struct ipu_ah **ah)
{
    struct ipu_dest key = *dest;
    memset(key.pad, 0, sizeof key.pad);
    uint32_t hash = ipu_ah_cache_hash(cache, &key.gid, key.qpn);
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
    while (cache->idle > cache->max_idle && evict(cache))
        ;
}
