/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/csum.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/virtio_net.h>
#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"

__extension__ typedef unsigned __int128 wide;

#ifdef __x86_64__
#include <immintrin.h>

enum { AVX2_STEP = 64 };

/*
 * Adds 32-bit words in 64-bit lanes, which overflow after 2^32 words: len is less than 16 GiB, and
 * a multiple of AVX2_STEP. Both ends sum every segment of a super-frame; this is three times as
 * fast as the loop below (bench_csum.c). Copies them, too, unless `to` is NULL, which the compiler
 * knows in both callers.
 */
__attribute__((target("avx2"), always_inline)) static inline uint64_t
sum_avx2(uint8_t *to, const uint8_t *at, size_t len)
{
    const __m256i low = _mm256_set1_epi64x(UINT32_MAX);
    __m256i sum[4];
    for (int i = 0; i < 4; i++)
        sum[i] = _mm256_setzero_si256();
    for (const uint8_t *end = at + len; at < end; at += AVX2_STEP) {
        __m256i a = _mm256_loadu_si256((const __m256i_u *)at);
        __m256i b = _mm256_loadu_si256((const __m256i_u *)(at + 32));
        if (to != NULL) {
            _mm256_storeu_si256((__m256i_u *)to, a);
            _mm256_storeu_si256((__m256i_u *)(to + 32), b);
            to += AVX2_STEP;
        }
        sum[0] = _mm256_add_epi64(sum[0], _mm256_and_si256(a, low));
        sum[1] = _mm256_add_epi64(sum[1], _mm256_srli_epi64(a, 32));
        sum[2] = _mm256_add_epi64(sum[2], _mm256_and_si256(b, low));
        sum[3] = _mm256_add_epi64(sum[3], _mm256_srli_epi64(b, 32));
    }
    uint64_t lanes[4];
    sum[0] = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    _mm256_storeu_si256((__m256i_u *)lanes, sum[0]);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

__attribute__((target("avx2"))) static uint64_t add_avx2(const uint8_t *at, size_t len)
{
    return sum_avx2(NULL, at, len);
}

__attribute__((target("avx2"))) static uint64_t copy_avx2(uint8_t *to, const uint8_t *at,
                                                          size_t len)
{
    return sum_avx2(to, at, len);
}
#endif

/*
 * Adds 64-bit words: 2^16 is 1 modulo 0xFFFF, so the width does not matter (RFC 1071 §2 C). Carries
 * collect in the upper half of 128-bit sums; there are two so that the additions overlap.
 */
uint64_t ipu_csum_add(uint64_t sum, const void *data, size_t len)
{
    const uint8_t *at = data;
    wide even = sum, odd = 0;
#ifdef __x86_64__
    if (len >= 2 * AVX2_STEP && __builtin_cpu_supports("avx2")) {
        size_t n = len - len % AVX2_STEP;
        odd = add_avx2(at, n);
        at += n;
        len -= n;
    }
#endif
    for (; len >= 32; len -= 32, at += 32) {
        uint64_t word[4];
        memcpy(word, at, sizeof word);
        even += word[0];
        odd += word[1];
        even += word[2];
        odd += word[3];
    }
    for (; len >= 8; len -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        even += word;
    }
    if (len > 0) {
        uint64_t word = 0;
        memcpy(&word, at, len);
        odd += word;
    }
    even += odd;
    /* The second fold takes the carry of the first. */
    wide folded = (wide)(uint64_t)even + (uint64_t)(even >> 64);
    return (uint64_t)folded + (uint64_t)(folded >> 64);
}

uint64_t ipu_csum_copy(void *to, const void *data, size_t len)
{
    uint64_t sum = 0;
    size_t n = 0;
#ifdef __x86_64__
    if (len >= 2 * AVX2_STEP && __builtin_cpu_supports("avx2")) {
        n = len - len % AVX2_STEP;
        sum = copy_avx2(to, data, n);
    }
#endif
    memcpy((uint8_t *)to + n, (const uint8_t *)data + n, len - n);
    return ipu_csum_add(sum, (const uint8_t *)data + n, len - n);
}

uint16_t ipu_csum_finish(uint64_t sum)
{
    sum = (sum & UINT32_MAX) + (sum >> 32);
    sum = (sum & UINT16_MAX) + ((sum >> 16) & UINT16_MAX) + (sum >> 32);
    sum = (sum & UINT16_MAX) + (sum >> 16);
    sum = (sum & UINT16_MAX) + (sum >> 16);
    return (uint16_t)~sum;
}

uint64_t ipu_csum_pseudo(const void *ip, uint8_t protocol, uint32_t len)
{
    const uint8_t *header = ip;
    /* The length and the protocol are 32-bit fields of the IPv6 pseudo header (RFC 8200 §8.1);
     * IPv4's fields have the same sum. */
    uint64_t sum = (uint64_t)htonl(protocol) + htonl(len);
    return header[0] >> 4 == 4 ? ipu_csum_add(sum, header + 12, 8)
                               : ipu_csum_add(sum, header + 8, 32);
}

int ipu_csum_complete(uint8_t *frame, size_t len)
{
    struct virtio_net_hdr vnet;
    if (len < IPU_VNET_LEN)
        return -EINVAL;
    memcpy(&vnet, frame, sizeof vnet);
    if (!(vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
        return 0;

    uint8_t *packet = frame + IPU_VNET_LEN;
    size_t packet_len = len - IPU_VNET_LEN;
    /* Sums of 16-bit fields do not overflow. The field at csum_start + csum_offset holds the sum of
     * the pseudo header and is summed, too. */
    size_t start = vnet.csum_start;
    size_t field = start + vnet.csum_offset;
    if (start < IPU_IPV4_HEADER || field + sizeof(uint16_t) > packet_len)
        return -EINVAL;
    uint16_t csum = ipu_csum_finish(ipu_csum_add(0, packet + start, packet_len - start));
    if (csum == 0)
        csum = 0xFFFF;
    memcpy(packet + field, &csum, sizeof csum);

    vnet.flags &= (uint8_t)~VIRTIO_NET_HDR_F_NEEDS_CSUM;
    vnet.csum_start = vnet.csum_offset = 0;
    memcpy(frame, &vnet, sizeof vnet);
    return 0;
}
