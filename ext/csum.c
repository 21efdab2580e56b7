/* SPDX-License-Identifier: BSD-2-Clause */
#include "csum.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/virtio_net.h>
#include <string.h>

#include "frame.h"

#define IPV4_MIN_HEADER 20u

__extension__ typedef unsigned __int128 wide;

/*
 * 64-bit words are summed: 2^16 is 1 modulo 0xFFFF, so the width does not matter (RFC 1071 §2 C).
 * Carries collect in the upper half of 128-bit sums, two of them so that the additions overlap. An
 * AVX2 version was rejected: packets are short, and this is not what limits them (bench_csum.c).
 */
uint64_t ipu_csum_add(uint64_t sum, const void *data, size_t len)
{
    const uint8_t *at = data;
    wide even = sum, odd = 0;
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
    /* Both are 32-bit fields of the IPv6 pseudo header (RFC 8200 §8.1); IPv4's sums the same. */
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
    /* 16-bit fields: their sum does not overflow. The field at csum_start + csum_offset holds the
     * sum of the pseudo header and takes part. */
    size_t start = vnet.csum_start;
    size_t field = start + vnet.csum_offset;
    if (start < IPV4_MIN_HEADER || field + sizeof(uint16_t) > packet_len)
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
