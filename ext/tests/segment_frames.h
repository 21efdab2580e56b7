/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_SEGMENT_FRAMES_H
#define IPU_TESTS_SEGMENT_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/csum.h"
#include "device/vnet.h"

/* A frame [vnet 16][packet] in memory of exactly its length, so that the sanitizer sees a byte too
 * far. */
struct frame {
    uint8_t *bytes;
    size_t len;
};

static inline struct frame frame_new(const void *packet, size_t len)
{
    struct frame frame = {malloc(IPU_VNET_LEN + len), IPU_VNET_LEN + len};
    CHECK(frame.bytes);
    memset(frame.bytes, 0, IPU_VNET_LEN);
    if (len > 0)
        memcpy(frame.bytes + IPU_VNET_LEN, packet, len);
    return frame;
}

static inline struct frame frame_of_hex(const char *hex)
{
    struct frame frame = frame_new(NULL, 0);
    size_t len = strlen(hex) / 2;
    frame.bytes = realloc(frame.bytes, IPU_VNET_LEN + len);
    CHECK(frame.bytes);
    for (size_t i = 0; i < len; i++) {
        unsigned int byte;
        CHECK_EQ(sscanf(hex + 2 * i, "%2x", &byte), 1);
        frame.bytes[IPU_VNET_LEN + i] = (uint8_t)byte;
    }
    frame.len = IPU_VNET_LEN + len;
    return frame;
}

static inline uint8_t *frame_ip(struct frame frame)
{
    return frame.bytes + IPU_VNET_LEN;
}

/* Replaces the complete checksum at start + offset by the value that a kernel leaves there with
 * NEEDS_CSUM: the sum of the pseudo header. */
static inline void frame_ask_csum(struct frame frame, uint32_t start, uint32_t offset)
{
    uint8_t *transport = frame_ip(frame) + start;
    uint16_t csum, pseudo;
    memcpy(&csum, transport + offset, 2);
    memset(transport + offset, 0, 2);
    uint16_t rest = ipu_csum_finish(ipu_csum_add(0, transport, frame.len - IPU_VNET_LEN - start));
    pseudo = (uint16_t)~ipu_csum_finish((uint64_t)(uint16_t)~csum + rest);
    memcpy(transport + offset, &pseudo, 2);
}

/* Makes the frame a super-frame of this type with headers up to hdr_len, as the kernel does. */
static inline void frame_ask_segments(struct frame frame, uint8_t type, uint16_t hdr_len,
                                      uint16_t size, uint16_t start, uint16_t offset)
{
    frame_ask_csum(frame, start, offset);
    ipu_vnet_write(frame.bytes, (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                                        .gso_type = type,
                                                        .hdr_len = hdr_len,
                                                        .gso_size = size,
                                                        .csum_start = start,
                                                        .csum_offset = offset});
}

static inline void check_hex(const uint8_t *bytes, size_t len, const char *hex)
{
    char text[2 * 2048 + 1];
    CHECK(len < sizeof text / 2);
    text[0] = 0;
    for (size_t i = 0; i < len; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    if (strcmp(text, hex) != 0) {
        fprintf(stderr, "got    %s\nwanted %s\n", text, hex);
        exit(1);
    }
}

#endif
