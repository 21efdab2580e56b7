/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include <errno.h>

#include "udp_family.h"

/* From the kernel's headers; netinet/in.h and linux/in6.h do not go together. */
#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif
#ifndef IPV6_FLOWINFO_SEND
#define IPV6_FLOWINFO_SEND 33
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

/*
 * IPV6_MULTICAST_ALL stays on: the memberships are on sockets of their own (membership.h), and a
 * socket without memberships delivers all groups of the device without walking a list. The HCA's
 * own table decides.
 */
static const struct soft_udp_option options[] = {
    {IPPROTO_IPV6, IPV6_V6ONLY, 1},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO, 1},
    {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1},
    {IPPROTO_IPV6, IPV6_FLOWINFO, 1},
    {IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1},
    {IPPROTO_IPV6, IPV6_DONTFRAG, 1},
    {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1},
    {IPPROTO_UDP, UDP_NO_CHECK6_RX, 1},
    {0, 0, 0},
};

static int set_group_device(int fd, unsigned int ifindex)
{
    int value = (int)ifindex;

    return setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &value, sizeof(value)) < 0 ? -errno : 0;
}

static struct cmsghdr *put_control(struct msghdr *m, const struct soft_udp_dest *dest,
                                   const struct in6_addr *gid, unsigned int ifindex)
{
    struct in6_pktinfo source = {.ipi6_addr = *gid, .ipi6_ifindex = ifindex};
    int hop_limit = dest->hop_limit;
    int traffic_class = dest->traffic_class;
    struct cmsghdr *c = m->msg_control;

    c = soft_udp_put_control(m, c, IPPROTO_IPV6, IPV6_PKTINFO, &source, sizeof(source));
    c = soft_udp_put_control(m, c, IPPROTO_IPV6, IPV6_HOPLIMIT, &hop_limit, sizeof(hop_limit));
    if (traffic_class != 0)
        c = soft_udp_put_control(m, c, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class,
                                 sizeof(traffic_class));
    return c;
}

static int connect_to(int fd, const struct soft_udp_dest *dest, const struct in6_addr *gid,
                      unsigned int ifindex)
{
    struct in6_pktinfo source = {.ipi6_addr = *gid, .ipi6_ifindex = ifindex};
    int hop_limit = dest->hop_limit;

    if (setsockopt(fd, IPPROTO_IPV6, IPV6_PKTINFO, &source, sizeof(source)) < 0 ||
        setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hop_limit, sizeof(hop_limit)) < 0 ||
        connect(fd, &dest->address.any, sizeof(dest->address.ip6)) < 0)
        return -errno;
    return 0;
}

static bool take_control(struct cmsghdr *c, struct soft_udp_packet *p)
{
    int value = 0;

    if (c->cmsg_level != IPPROTO_IPV6)
        return false;
    if (c->cmsg_type == IPV6_PKTINFO) {
        struct in6_pktinfo info;

        memcpy(&info, CMSG_DATA(c), sizeof(info));
        p->dst = info.ipi6_addr;
        return true;
    }
    memcpy(&value, CMSG_DATA(c), sizeof(value));
    if (c->cmsg_type == IPV6_HOPLIMIT)
        p->hop_limit = (uint8_t)value;
    else if (c->cmsg_type == IPV6_FLOWINFO)
        p->flow_info = ntohl((uint32_t)value);
    return false;
}

static void take_source(const union soft_udp_address *from, struct soft_udp_packet *p)
{
    p->src = from->ip6.sin6_addr;
    p->src_port = ntohs(from->ip6.sin6_port);
}

const struct soft_udp_family soft_udp_ipv6 = {
    .domain = AF_INET6,
    .address_bytes = sizeof(struct sockaddr_in6),
    .options = options,
    .fragment = {IPPROTO_IPV6, IPV6_DONTFRAG, 0},
    .set_group_device = set_group_device,
    .put_control = put_control,
    .connect = connect_to,
    .take_control = take_control,
    .take_source = take_source,
};
