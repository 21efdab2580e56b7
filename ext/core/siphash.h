/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SIPHASH_H
#define IPU_SIPHASH_H

#include <stdint.h>

/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012) of whole 64-bit words: a message authentication code.
 * Whoever has seen codes of other messages cannot make that of a new one, as it could with the hash
 * of core/hash.h.
 */
struct ipu_sip_key {
    uint64_t word[2];
};

static inline uint64_t ipu_sip_turn(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static inline void ipu_sip_rounds(uint64_t v[4], int rounds)
{
    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = ipu_sip_turn(v[1], 13) ^ v[0];
        v[3] = ipu_sip_turn(v[3], 16) ^ v[2];
        v[0] = ipu_sip_turn(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = ipu_sip_turn(v[3], 21) ^ v[0];
        v[1] = ipu_sip_turn(v[1], 17) ^ v[2];
        v[2] = ipu_sip_turn(v[2], 32);
    }
}

static inline uint64_t ipu_siphash(const struct ipu_sip_key *key, const uint64_t *words, uint32_t n)
{
    uint64_t v[4] = {
        key->word[0] ^ 0x736f6d6570736575u,
        key->word[1] ^ 0x646f72616e646f6du,
        key->word[0] ^ 0x6c7967656e657261u,
        key->word[1] ^ 0x7465646279746573u,
    };
    for (uint32_t i = 0; i <= n; i++) {
        uint64_t word = i < n ? words[i] : (uint64_t)n * sizeof *words << 56;
        v[3] ^= word;
        ipu_sip_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    ipu_sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
