/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_UDP_FAMILY_H
#define SOFT_UDP_FAMILY_H

#include <string.h>

#include "udp.h"

/*
 * The differences between IPv4 and IPv6 for udp.c: the socket's options, and the control data of a
 * message. All packets of a socket are of one family, that of the GID.
 */
struct soft_udp_option {
    int level, name, value;
};

struct soft_udp_family {
    int domain;
    socklen_t address_bytes;
    const struct soft_udp_option *options; /* all are required; the last has level 0, name 0 */
    struct soft_udp_option fragment;       /* lets the kernel send packets in fragments */

    /* Sets the device that packets to groups leave by. Returns 0 or a negative errno. */
    int (*set_group_device)(int fd, unsigned int ifindex);
    /* Fills the source address, the hop limit and the traffic class into a message with room for
     * control data; returns the place of the next control data. */
    struct cmsghdr *(*put_control)(struct msghdr *m, const struct soft_udp_dest *dest,
                                   const struct in6_addr *gid, unsigned int ifindex);
    /* Connects a socket of this HCA to a destination without traffic class, which it then sends to
     * without address and control data. Returns 0 or a negative errno. NULL: no socket is connected
     * (over IPv4 the kernel would number its packets, and the ICRC covers that number). */
    int (*connect)(int fd, const struct soft_udp_dest *dest, const struct in6_addr *gid,
                   unsigned int ifindex);
    /* Reads one piece of control data. Returns whether it held the destination address. */
    bool (*take_control)(struct cmsghdr *c, struct soft_udp_packet *p);
    void (*take_source)(const union soft_udp_address *from, struct soft_udp_packet *p);
};

extern const struct soft_udp_family soft_udp_ipv4, soft_udp_ipv6;

static inline struct cmsghdr *soft_udp_put_control(struct msghdr *m, struct cmsghdr *c, int level,
                                                   int type, const void *value, size_t bytes)
{
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(c), value, bytes);
    m->msg_controllen += CMSG_SPACE(bytes);
    return (struct cmsghdr *)((uint8_t *)c + CMSG_SPACE(bytes));
}

#endif
