/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SEGMENT_H
#define IPU_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"

/*
 * Cuts a super-frame of TCP or UDP from the device into packets that fit an MTU. Each packet gets
 * headers of its own; the payload stays in place. ipu_segment_init() checks all fields of the vnet
 * header and the packet, and ignores hdr_len, because csum_start and the transport header give the
 * start of the payload.
 */
#define IPU_SEGMENT_HEAD_MAX 184u /* IPv4 60 or IPv6 40 with extension headers, TCP 60 */

/* The bounds of a super-frame that crosses whole, so that one message of a peer does not become
 * tens of thousands of packets in the receiver: Linux's UDP_MAX_SEGMENTS and TCP_MIN_SND_MSS. */
#define IPU_SEGMENTS_MAX 128u
#define IPU_SEGMENT_MIN  48u

struct ipu_segment {
    uint8_t *ip;         /* the packet; its headers are the template of all segments' headers */
    uint32_t start;      /* of the transport header */
    uint32_t head_len;   /* of all headers */
    uint32_t packet_len; /* headers and payload */
    uint32_t size_bytes; /* payload of each segment; the last may have less */
    uint32_t at;         /* offset of the next segment's payload in the packet */
    uint32_t left;       /* segments still to come; 0: there is no super-frame */
    uint32_t count;      /* segments cut */
    /* Sums without the fields that differ in each segment: of the IPv4 header, and of the pseudo
     * header and the transport header. */
    uint16_t ip_sum, transport_sum;
    uint16_t id;   /* of the first segment, IPv4 */
    uint32_t seq;  /* of the first segment, TCP */
    uint8_t flags; /* of the super-frame, TCP */
    bool tcp;
    uint32_t written; /* headers of the packet made last */
    /* Fragments: fragment.h */
    uint32_t fragment_bytes; /* behind the headers of each, but for the last; 0: no fragments */
    uint32_t each_len;       /* headers that each fragment has, */
    uint32_t next_at;        /* IPv6: and the byte that names what follows them */
    uint32_t whole_len;      /* a segment up to this length stays whole */
    uint32_t offset, rest;   /* of the packet that is being cut: made, and still to come */
    uint32_t fragment_id;
};

/*
 * Begins with a frame [vnet 16][IP packet] of len bytes whose gso_type is not NONE. Returns 0;
 * -EINVAL when its headers are invalid, or of a kind that we cannot cut (UFO, fragments, ESP);
 * -EMSGSIZE when no segment fits the MTU. The caller keeps the frame in place until it has sent the
 * last segment.
 */
int ipu_segment_init(struct ipu_segment *segment, uint8_t *frame, size_t len, uint32_t mtu);

/*
 * Fits a smaller MTU, with more segments for TCP, before the first segment. Returns -EMSGSIZE, with
 * nothing changed, for UDP, where a segment is a datagram, and when no payload has room.
 */
int ipu_segment_fit(struct ipu_segment *segment, uint32_t mtu);

/*
 * Makes the next segment: writes its headers to head, head_len bytes, checksums complete. Returns
 * the length of its payload, which starts at *payload. Only while some are left.
 */
uint32_t ipu_segment_next(struct ipu_segment *segment, uint8_t *head, const uint8_t **payload);

/* Returns, before the first segment, whether the super-frame stays within the bounds above. */
static inline bool ipu_segment_may_cross(const struct ipu_segment *segment)
{
    return segment->left <= IPU_SEGMENTS_MAX &&
           (segment->left == 1 || segment->size_bytes >= IPU_SEGMENT_MIN);
}

/*
 * Returns how a fabric cuts the super-frame, before the first segment. The encapsulation header
 * stands in front of the packet. The segment and the frame stay in place until the send has ended.
 */
struct ipu_cut ipu_segment_cut(const struct ipu_segment *segment);

/* Makes the packet its own first segment, and returns the segment's length; the other segments are
 * lost. */
size_t ipu_segment_trim(struct ipu_segment *segment);

#endif
