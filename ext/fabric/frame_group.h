/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FRAME_GROUP_H
#define IPU_FRAME_GROUP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"

/*
 * Finds the group of a frame by the frame's own addresses. Where hosts replicate multicast to each
 * member, each copy is a unicast message, whose GRH does not name the group.
 */
enum {
    IPU_ARP_LEN = 56,
    IPU_ARP_OPERATION = 7, /* the low byte of the operation */
    IPU_ARP_SENDER_IP = 28,
    IPU_ARP_TARGET_IP = 52,
};

/* Sets *mgid to the group of the frame, encapsulation header first; false: a unicast frame. */
static inline bool ipu_frame_group(const uint8_t *frame, uint32_t len,
                                   const struct in6_addr *broadcast, struct in6_addr *mgid)
{
    const uint8_t *packet = frame + IPU_ENCAP_LEN;
    uint32_t type = ipu_ip_get16(frame), packet_len = len - IPU_ENCAP_LEN;
    *mgid = *broadcast;
    if (type == IPU_TYPE_ARP && packet_len >= IPU_ARP_LEN)
        return packet[IPU_ARP_OPERATION] == 1 ||
               memcmp(packet + IPU_ARP_SENDER_IP, packet + IPU_ARP_TARGET_IP, 4) == 0;
    if (type == IPU_TYPE_IPV4 && packet_len >= IPU_IPV4_HEADER &&
        packet[IPU_IPV4_DESTINATION] >> 4 == 0xe) { /* G3 */
        memset(mgid->s6_addr + 6, 0, 6);
        memcpy(mgid->s6_addr + 12, packet + IPU_IPV4_DESTINATION, 4);
        mgid->s6_addr[12] &= 0x0f;
        return true;
    }
    if (type == IPU_TYPE_IPV6 && packet_len >= IPU_IPV6_HEADER &&
        packet[IPU_IPV6_DESTINATION] == 0xff) {
        mgid->s6_addr[2] = 0x60; /* G2 */
        memcpy(mgid->s6_addr + 6, packet + IPU_IPV6_DESTINATION + 6, 10);
        return true;
    }
    return false;
}

#endif
