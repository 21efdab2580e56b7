/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VNET_H
#define IPU_VNET_H

#include <linux/virtio_net.h>
#include <stdint.h>
#include <string.h>

#include "core/frame.h"

/*
 * The header in front of every frame of the device: 10 bytes of struct virtio_net_hdr in the byte
 * order of the machine, then padding (IPU_VNET_LEN). What the device says in it is not trusted.
 */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5 /* since Linux 6.2 */
#endif

/* The lengths of a packet with its headers end here: 16 bits in IPv4, no jumbograms in IPv6. */
#define IPU_VNET_PACKET_MAX 65535u

static inline struct virtio_net_hdr ipu_vnet_read(const uint8_t *frame)
{
    struct virtio_net_hdr vnet;
    memcpy(&vnet, frame, sizeof vnet);
    return vnet;
}

static inline void ipu_vnet_write(uint8_t *frame, struct virtio_net_hdr vnet)
{
    memset(frame, 0, IPU_VNET_LEN);
    memcpy(frame, &vnet, sizeof vnet);
}

#endif
