/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_DATAGRAM_H
#define IPU_DATAGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "device/queue.h"

/* UDP datagrams of an application that has no stack: the headers of a packet are made, and read,
 * where the packet is copied. */

enum {
    IPU_DATAGRAM_HEADERS4 = 28, /* IPv4 and UDP */
    IPU_DATAGRAM_HEADERS6 = 48, /* IPv6 and UDP */
    IPU_DATAGRAM_FLOW4 = 12,    /* both addresses and both ports, as they stand in a packet */
    IPU_DATAGRAM_FLOW6 = 36,
};

/* A datagram in a packet; the pointers show into it. */
struct ipu_datagram {
    const uint8_t *flow, *payload;
    uint32_t flow_len, payload_len;
};

/* Producer: queues a datagram behind its headers, of IPU_DATAGRAM_HEADERS4 or _HEADERS6 bytes,
 * whose lengths and checksums the function sets. false: the ring is full. The caller has checked
 * that the packet fits the MTU, and calls ipu_ring_wake() after a batch.
 */
bool ipu_datagram_send(struct ipu_queue *queue, const uint8_t *headers, uint32_t headers_len,
                       const void *payload, uint32_t len);

/* Reads a packet of a peer. false: it is no whole datagram of UDP behind a header without options
 * or extensions, or a checksum is wrong. A datagram of IPv4 may come without a checksum (RFC 768).
 */
bool ipu_datagram_read_untrusted(const uint8_t *packet, uint32_t len, struct ipu_datagram *out);

#endif
