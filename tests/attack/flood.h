/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ATTACK_FLOOD_H
#define ATTACK_FLOOD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Frames of a flood: a template from the BTH on, the headers of RoCEv2 in front, the ICRC behind.
 * Every frame is a copy of the template in which the varied fields have other values.
 */
enum {
    FLOOD_HEAD = 14 + 40 + 8, /* Ethernet, IPv6, UDP */
    FLOOD_TEMPLATE_MAX = 4096 + 64,
    FLOOD_FRAME_MAX = FLOOD_HEAD + FLOOD_TEMPLATE_MAX + 4,
    FLOOD_FIELDS_MAX = 8,
};

enum flood_value {
    FLOOD_RANDOM,
    FLOOD_COUNT, /* the number of frames before this one */
    FLOOD_TWIN,  /* 16 random bits, and their complement elsewhere: a checksum stays right */
};

/* A field of the template, or of the frame's source address. */
struct flood_field {
    enum flood_value value;
    uint32_t offset;
    uint32_t bytes;       /* at most 8; 2 for FLOOD_TWIN */
    uint32_t twin_offset; /* of the complement of FLOOD_TWIN */
};

struct flood {
    uint8_t src_mac[6], dst_mac[6];
    struct in6_addr src, dst;
    uint16_t src_port;
    bool bad_icrc;
    uint32_t source_bytes; /* low bytes of the source address that are random */
    struct flood_field field[FLOOD_FIELDS_MAX];
    uint32_t fields;
    uint8_t template[FLOOD_TEMPLATE_MAX];
    uint32_t template_bytes; /* a multiple of 4 */
    uint64_t count;          /* frames made */
    uint64_t random;         /* never 0 */
};

/* Writes the next frame, FLOOD_FRAME_MAX bytes at most; returns its length. */
size_t flood_next(struct flood *flood, uint8_t *frame);

/* A pseudo-random number; the same numbers follow the same seed. */
uint64_t flood_random(struct flood *flood);

#endif
