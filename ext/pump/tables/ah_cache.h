/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_AH_CACHE_H
#define IPU_AH_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/hash_table.h"
#include "fabric/fabric.h"

/* An address handle and its destination; only the first cache line is hot. */
struct ipu_ah {
    _Alignas(64) void *handle;         /* the fabric's handle, from ah_create() */
    struct ipu_connection *connection; /* if set, packets use this connection instead */
    struct ipu_dest dest;
    uint32_t refs; /* 0: idle, in the list of idle handles */
    uint32_t hash;
    struct ipu_ah *older, *newer;
};

/*
 * Address handles by destination, shared and counted. The cache keeps idle handles (without
 * references), up to a cap, for a neighbour that comes back. They make room for others, the longest
 * idle first, except for handles that a packet of the owner's batch names. Only the pump's thread
 * uses the cache, because it calls the fabric.
 */
struct ipu_ah_cache {
    const struct ipu_fabric *fabric;
    struct ipu_ah **slots;
    uint32_t mask;
    uint32_t count; /* handles in all */
    uint32_t idle;
    uint32_t max;
    uint32_t max_idle;
    struct ipu_ah *oldest, *newest; /* of the idle handles */
    struct ipu_hash_seed seed;

    /* Returns whether the owner still names a handle that has no references; NULL: it names
     * none. */
    bool (*is_named)(const void *owner, const struct ipu_ah *ah);
    const void *owner;

    uint64_t created, evicted, failed; /* handles since init */
};

/* max is the cap in handles (rxe has 32767 in all), max_idle the most unused ones that the cache
 * keeps. seed NULL: random. The fabric outlives the cache. Returns 0, -EINVAL, -ENOMEM, or an error
 * of getrandom(2).
 */
int ipu_ah_cache_init(struct ipu_ah_cache *cache, const struct ipu_fabric *fabric, uint32_t max,
                      uint32_t max_idle, const struct ipu_hash_seed *seed);

/* Destroys every handle, also the referenced ones. Safe to repeat. */
void ipu_ah_cache_free(struct ipu_ah_cache *cache);

/* Takes a reference to the address handle of dest. Returns 0; -ENOSPC at the cap without an idle
 * handle; -ENOMEM; else the error of the fabric's ah_create, which the cache tries again after it
 * has destroyed one idle handle.
 */
int ipu_ah_cache_get(struct ipu_ah_cache *cache, const struct ipu_dest *dest, struct ipu_ah **ah);

/* Returns a hash of a queue pair's address, by which the cache finds its handle. */
uint32_t ipu_ah_cache_hash(const struct ipu_ah_cache *cache, const struct in6_addr *gid,
                           uint32_t qpn);

/* Returns whether the cache has a handle of the queue pair, by any path. */
bool ipu_ah_cache_knows(const struct ipu_ah_cache *cache, const struct in6_addr *gid, uint32_t qpn,
                        uint32_t hash);

/* Gives a reference back, and ignores NULL. After the last one the cache may destroy the handle. */
void ipu_ah_cache_put(struct ipu_ah_cache *cache, struct ipu_ah *ah);

#endif
