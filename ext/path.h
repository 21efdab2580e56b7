/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_PATH_H
#define IPU_PATH_H

#include <stdint.h>

#include "fabric.h"
#include "hash.h"

/* One destination with its address handle; only the first cache line is hot. */
struct ipu_path {
    _Alignas(64) void *ah;
    struct ipu_connection *connection; /* by which packets go rather; connection.h */
    struct ipu_dest dest;
    uint32_t refs; /* 0: idle, in the list of idle paths */
    uint32_t hash;
    struct ipu_path *older, *newer;
};

/*
 * Address handles by destination, shared and counted. Idle ones (no references) are kept, up to a
 * cap, for the neighbour that comes back, and make room for others, the longest idle first. One
 * thread only: the pump's, since it calls the fabric.
 */
struct ipu_path_cache {
    const struct ipu_fabric *fabric;
    struct ipu_path **slots; /* open addressing, as ext/neigh.h */
    uint32_t mask;
    uint32_t count; /* paths in all, each with an address handle */
    uint32_t idle;
    uint32_t max;
    uint32_t max_idle;
    struct ipu_path *oldest, *newest; /* of the idle ones */
    struct ipu_hash_seed seed;

    uint64_t created, evicted, failed; /* handles since init */
};

/*
 * max: the cap in handles (rxe has 32767 in all); max_idle: how many of them may be kept unused.
 * seed NULL: random. The fabric outlives the cache. 0, -EINVAL, -ENOMEM, or getrandom(2)'s.
 */
int ipu_path_init(struct ipu_path_cache *cache, const struct ipu_fabric *fabric, uint32_t max,
                  uint32_t max_idle, const struct ipu_hash_seed *seed);

/* Destroys every handle, also the referenced ones. Safe to repeat. */
void ipu_path_free(struct ipu_path_cache *cache);

/*
 * A reference to the path of dest. 0; -ENOSPC: the cap, and none idle; -ENOMEM; else what the
 * fabric's ah_create said, after one idle handle was given up for a second try.
 */
int ipu_path_get(struct ipu_path_cache *cache, const struct ipu_dest *dest, struct ipu_path **path);

/* Give a reference back. NULL is ignored. The path may be gone after the last one. */
void ipu_path_put(struct ipu_path_cache *cache, struct ipu_path *path);

/* Destroy all idle handles: the port's addresses have changed. */
void ipu_path_flush(struct ipu_path_cache *cache);

#endif
