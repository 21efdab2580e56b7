/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_HASH_H
#define IPU_HASH_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

/*
 * A keyed hash for short fixed keys: 64x64->128 multiplications folded by xor (the construction of
 * wyhash). Keys in our tables come from peers, which cannot aim at one bucket without the seed. A
 * seed is 256 random bits: small numbers are poor multipliers.
 */
struct ipu_hash_seed {
    uint64_t word[4];
};

/* Copies the given seed, or with NULL gets a seed from getrandom(2), which never returns so few
 * bytes in parts. Returns 0 or a negative errno. */
static inline int ipu_hash_seed_init(struct ipu_hash_seed *seed, const struct ipu_hash_seed *given)
{
    ssize_t got;
    if (given != NULL) {
        *seed = *given;
        return 0;
    }
    do {
        got = getrandom(seed->word, sizeof seed->word, 0);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : 0;
}

static inline uint64_t ipu_hash_fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t ipu_hash_16(const struct ipu_hash_seed *seed, const void *key)
{
    uint64_t k[2];
    memcpy(k, key, sizeof k);
    uint64_t mixed = ipu_hash_fold(k[0] ^ seed->word[0], k[1] ^ seed->word[1]);
    return ipu_hash_fold(mixed ^ seed->word[2], seed->word[3]);
}

static inline uint64_t ipu_hash_32(const struct ipu_hash_seed *seed, const void *key)
{
    uint64_t k[4];
    memcpy(k, key, sizeof k);
    uint64_t low = ipu_hash_fold(k[0] ^ seed->word[0], k[1] ^ seed->word[1]);
    uint64_t high = ipu_hash_fold(k[2] ^ seed->word[1], k[3] ^ seed->word[2]);
    return ipu_hash_fold(low ^ seed->word[2], high ^ seed->word[3]);
}

#endif
