/* SPDX-License-Identifier: BSD-2-Clause */
#include "crc32_vector.h"

#ifdef __x86_64__
#include <immintrin.h>

/*
 * A message is a polynomial over GF(2) whose first bit has the highest power. 128 bits that stand D
 * bits ahead of others are worth their first half times x^(D+64), plus their second half times x^D.
 * So two carry-less multiplications by these powers, modulo the CRC's polynomial, add them to those
 * others: the message becomes shorter and keeps its CRC. (V. Gopal et al., "Fast CRC Computation
 * for Generic Polynomials Using PCLMULQDQ", Intel 2009.)
 *
 * This CRC has its bits in reverse. Of reversed numbers a power fills the upper half of 64 bits,
 * and a product of two lacks one place: so the exponents are less by 32, and powers shifted by 1.
 */
#define TARGET     __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define INLINE     TARGET __attribute__((always_inline)) static inline
#define POLYNOMIAL 0xedb88320u
#define VECTOR     32
#define LANES      4 /* chains of multiplications, which are slow, side by side */
#define BLOCK      (LANES * VECTOR)

/* The powers by which 128 bits go 1024, 512, 256 and 128 bits ahead: {x^(D+64), x^D}. */
static uint64_t by_block[2], by_two[2], by_vector[2], by_half[2];

static uint64_t power(unsigned int n)
{
    uint32_t value = 1u << 31;

    for (; n > 0; n--)
        value = value & 1 ? value >> 1 ^ POLYNOMIAL : value >> 1;
    return (uint64_t)value << 1;
}

static void set_fold(uint64_t fold[2], unsigned int bytes)
{
    fold[0] = power(8 * bytes + 64 - 32);
    fold[1] = power(8 * bytes - 32);
}

bool soft_crc32_vector_prepare(void)
{
    set_fold(by_block, BLOCK);
    set_fold(by_two, 2 * VECTOR);
    set_fold(by_vector, VECTOR);
    set_fold(by_half, VECTOR / 2);
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("vpclmulqdq");
}

bool soft_crc32_vector_is_wider(void)
{
    return __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("vpclmulqdq");
}

INLINE __m128i add_half(__m128i ahead, __m128i to)
{
    __m128i by = _mm_loadu_si128((const void *)by_half);

    return to ^ _mm_clmulepi64_si128(ahead, by, 0x00) ^ _mm_clmulepi64_si128(ahead, by, 0x11);
}

INLINE __m256i powers(const uint64_t fold[2])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)fold));
}

INLINE __m256i add(__m256i ahead, __m256i by, __m256i to)
{
    return to ^ _mm256_clmulepi64_epi128(ahead, by, 0x00) ^
           _mm256_clmulepi64_epi128(ahead, by, 0x11);
}

INLINE __m256i take(uint8_t *to, const uint8_t *from)
{
    __m256i data = _mm256_loadu_si256((const void *)from);

    if (to != NULL)
        _mm256_storeu_si256((void *)to, data);
    return data;
}

INLINE __m128i shorten(uint32_t crc, uint8_t *to, const uint8_t *from, size_t bytes)
{
    const __m256i by = powers(by_block), by_next = powers(by_vector);
    __m256i x[LANES];
    __m128i half;
    size_t at = 0;

#define TAKE(at) take(to == NULL ? NULL : to + (at), from + (at))
    x[0] = TAKE(0) ^ _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc));
    at = VECTOR;
    if (bytes >= BLOCK) {
        for (; at < BLOCK; at += VECTOR)
            x[at / VECTOR] = TAKE(at);
        for (; at + BLOCK <= bytes; at += BLOCK)
            for (int i = 0; i < LANES; i++)
                x[i] = add(x[i], by, TAKE(at + (size_t)i * VECTOR));
        x[2] = add(x[0], powers(by_two), x[2]);
        x[3] = add(x[1], powers(by_two), x[3]);
        x[0] = add(x[2], by_next, x[3]);
    }
    for (; at + VECTOR <= bytes; at += VECTOR)
        x[0] = add(x[0], by_next, TAKE(at));
#undef TAKE
    half = add_half(_mm256_castsi256_si128(x[0]), _mm256_extracti128_si256(x[0], 1));
    if (bytes - at >= sizeof(half)) {
        __m128i data = _mm_loadu_si128((const void *)(from + at));

        if (to != NULL)
            _mm_storeu_si128((void *)(to + at), data);
        half = add_half(half, data);
    }
    return half;
}

TARGET void soft_crc32_shorten(uint32_t crc, uint8_t *to, const uint8_t *from, size_t bytes,
                               uint8_t rest[SOFT_CRC32_REST])
{
    __m128i shortened =
        to == NULL ? shorten(crc, NULL, from, bytes) : shorten(crc, to, from, bytes);

    _mm_storeu_si128((void *)rest, shortened);
    _mm256_zeroupper(); /* compilers do so only when they optimize */
}

#else

bool soft_crc32_vector_prepare(void)
{
    return false;
}

bool soft_crc32_vector_is_wider(void)
{
    return false;
}

void soft_crc32_shorten(uint32_t crc, uint8_t *to, const uint8_t *from, size_t bytes,
                        uint8_t rest[SOFT_CRC32_REST])
{
    (void)crc, (void)to, (void)from, (void)bytes, (void)rest;
}
#endif
