/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "device/trunk.h"

#include <sys/socket.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "device/vnet.h"

void ipu_trunk_init(struct ipu_trunk *trunk)
{
    for (int i = 0; i < IPU_VLANS; i++)
        atomic_init(&trunk->sockets[i], -1);
}

void ipu_trunk_set(struct ipu_trunk *trunk, uint16_t vlan, int fd)
{
    atomic_store_explicit(&trunk->sockets[vlan & IPU_VLAN_NUMBER], fd, memory_order_release);
}

void ipu_trunk_remove(struct ipu_trunk *trunk, uint16_t vlan)
{
    ipu_trunk_set(trunk, vlan, -1);
}

int ipu_trunk_pass(struct ipu_trunk *trunk, uint8_t *frame, size_t len)
{
    uint8_t *tag = frame + IPU_VNET_LEN; /* without the type in front of it */
    if (len < IPU_VNET_LEN + IPU_VLAN_TAG_LEN)
        return 0;
    int fd = atomic_load_explicit(&trunk->sockets[ipu_ip_get16(tag) & IPU_VLAN_NUMBER],
                                  memory_order_acquire);
    if (fd < 0)
        return 0;
    ipu_vnet_shift(frame, -(int)IPU_VLAN_TAG_LEN);
    struct iovec pieces[] = {
        {.iov_base = frame, .iov_len = IPU_VNET_LEN},
        {.iov_base = frame - IPU_ETHERNET_LEN, .iov_len = IPU_ETHERNET_LEN - 2},
        {.iov_base = tag + 2, .iov_len = len - IPU_VNET_LEN - 2},
    };
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? IPU_VLAN_FULL : 1;
}
