/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "ipv4.h"
#include "udp_family.h"

/*
 * IP_PMTUDISC_DO: packets have "don't fragment", and the identification 0 if they are no part of a
 * train (README.md has what the kernel sends).
 */
static const struct soft_udp_option options[] = {
    {IPPROTO_IP, IP_PKTINFO, 1},
    {IPPROTO_IP, IP_RECVTTL, 1},
    {IPPROTO_IP, IP_RECVTOS, 1},
    {IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO},
    {0, 0, 0},
};

/* An IPv4 adapter has no groups. */
static int set_group_device(int fd, unsigned int ifindex)
{
    (void)fd, (void)ifindex;
    return 0;
}

static struct cmsghdr *put_control(struct msghdr *m, const struct soft_udp_dest *dest,
                                   const struct in6_addr *gid, unsigned int ifindex)
{
    struct in_pktinfo source = {.ipi_spec_dst = soft_ipv4_of(gid), .ipi_ifindex = (int)ifindex};
    int hop_limit = dest->hop_limit;
    int traffic_class = dest->traffic_class;
    struct cmsghdr *c = m->msg_control;

    c = soft_udp_put_control(m, c, IPPROTO_IP, IP_PKTINFO, &source, sizeof(source));
    c = soft_udp_put_control(m, c, IPPROTO_IP, IP_TTL, &hop_limit, sizeof(hop_limit));
    if (traffic_class != 0)
        c = soft_udp_put_control(m, c, IPPROTO_IP, IP_TOS, &traffic_class, sizeof(traffic_class));
    return c;
}

static bool take_control(struct cmsghdr *c, struct soft_udp_packet *p)
{
    if (c->cmsg_level != IPPROTO_IP)
        return false;
    if (c->cmsg_type == IP_PKTINFO) {
        struct in_pktinfo info;

        memcpy(&info, CMSG_DATA(c), sizeof(info));
        p->dst = soft_ipv4_mapped(info.ipi_addr);
        return true;
    }
    if (c->cmsg_type == IP_TTL) {
        int value;

        memcpy(&value, CMSG_DATA(c), sizeof(value));
        p->hop_limit = (uint8_t)value;
    } else if (c->cmsg_type == IP_TOS) { /* one byte */
        p->flow_info = (uint32_t)*CMSG_DATA(c) << 20;
    }
    return false;
}

static void take_source(const union soft_udp_address *from, struct soft_udp_packet *p)
{
    p->src = soft_ipv4_mapped(from->ip4.sin_addr);
    p->src_port = ntohs(from->ip4.sin_port);
}

const struct soft_udp_family soft_udp_ipv4 = {
    .domain = AF_INET,
    .address_bytes = sizeof(struct sockaddr_in),
    .options = options,
    .fragment = {IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT},
    .set_group_device = set_group_device,
    .put_control = put_control,
    .take_control = take_control,
    .take_source = take_source,
};
