/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VNET_H
#define IPU_VNET_H

#include <linux/virtio_net.h>
#include <stdint.h>
#include <string.h>

#include "core/frame.h"

/*
 * The header in front of every frame of the device: 10 bytes of struct virtio_net_hdr in the byte
 * order of the machine, then padding (IPU_VNET_LEN). The pump does not trust it.
 */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5 /* since Linux 6.2 */
#endif

/* The longest packet with its headers: IPv4 has 16 bits for it, and IPv6 jumbograms do not
 * occur. */
#define IPU_VNET_PACKET_MAX 65535u

static inline struct virtio_net_hdr ipu_vnet_read(const uint8_t *frame)
{
    struct virtio_net_hdr vnet;
    memcpy(&vnet, frame, sizeof vnet);
    return vnet;
}

/* Moves what the vnet header of a frame refers to by so many bytes. */
static inline void ipu_vnet_shift(uint8_t *frame, int bytes)
{
    struct virtio_net_hdr vnet;
    memcpy(&vnet, frame, sizeof vnet);
    if (vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
        vnet.csum_start = (uint16_t)(vnet.csum_start + bytes);
    if (vnet.hdr_len != 0)
        vnet.hdr_len = (uint16_t)(vnet.hdr_len + bytes);
    memcpy(frame, &vnet, sizeof vnet);
}

static inline void ipu_vnet_write(uint8_t *frame, struct virtio_net_hdr vnet)
{
    memset(frame, 0, IPU_VNET_LEN);
    memcpy(frame, &vnet, sizeof vnet);
}

#endif
