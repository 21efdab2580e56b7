/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_HOST_SIDE_H
#define IPU_HOST_SIDE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ipu_outbound;
struct ipu_pump;

/*
 * All that depends on the kind of frames that the device has: IP packets (ip_host.c), or Ethernet
 * frames of guests (handoff.c). The pump chooses one of the two when it is made.
 */
struct ipu_host_side {
    uint32_t room;       /* bytes in front of a frame, which the device needs (core/frame.h) */
    uint32_t header_len; /* the last ones of these: the header that the engine sees and writes */
    uint32_t tag_len;    /* bytes of a tag that the device takes from a frame after reading it */
    bool has_guests;     /* the pump has tables of guests, which commands fill */

    /* Classifies a frame of the device, and sends it; returns as ipu_transmit_forward() does. NULL:
     * the frame is an IP packet, for which transmit.c needs no call. */
    bool (*transmit)(struct ipu_pump *pump, struct ipu_outbound *packet);

    /* Sends a packet that is classified, as ipu_transmit_forward() does. */
    bool (*forward)(struct ipu_pump *pump, struct ipu_outbound *packet);

    /* Prepares a packet of the link, which has IPU_VNET_LEN + `header_len` bytes of room in front,
     * for the device. False: it does not go there; the engine has it, or it is counted. NULL: the
     * device takes every packet as it is. */
    bool (*receive)(struct ipu_pump *pump, uint8_t *ip, size_t ip_len, const uint8_t *grh,
                    uint32_t src_qpn);

    /* Writes the engine's packet, with its header, to the device. 0 or negative errno. */
    int (*deliver)(struct ipu_pump *pump, const void *data, uint32_t len);

    /* Returns whether the device has an IPv6 packet from its sender, and not from a router. */
    bool (*is_sender)(const struct ipu_pump *pump, const uint8_t *ip);

    /* Returns whether the packet goes to its destination by a gateway. */
    bool (*is_gateway)(const struct ipu_outbound *packet, const struct in6_addr *next_hop);
};

extern const struct ipu_host_side ipu_ip_host, ipu_ethernet_host;

#endif
