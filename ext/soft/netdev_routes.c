/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "netdev.h"

/*
 * The kernel gives each device with IPv6 two routes: to all groups, and to its link. Another
 * device's route of the same prefix and metric takes the place of either (`ip -6 route replace`),
 * and then no option of a socket makes the kernel send there by the device.
 */
static const struct {
    struct in6_addr prefix;
    uint8_t prefix_len, table, type;
    struct in6_addr example;
} of_kind[] = {
    [SOFT_ROUTE_GROUPS] = {{{{0xff}}}, 8, RT_TABLE_LOCAL, RTN_MULTICAST, {{{0xff, 2, [15] = 1}}}},
    [SOFT_ROUTE_LINK] = {{{{0xfe, 0x80}}},
                         64,
                         RT_TABLE_MAIN,
                         RTN_UNICAST,
                         /* the address of no host: the kernel keeps it for subnet anycast */
                         {{{0xfe, 0x80, [8] = 0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}}},
};

#define METRIC       256 /* IP6_RT_PRIO_ADDRCONF */
#define ANSWER_BYTES 4096

struct request {
    struct nlmsghdr head;
    struct rtmsg body;
    char attributes[128];
};

static void put(struct request *r, unsigned short type, const void *value, size_t bytes)
{
    struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->head.nlmsg_len));

    a->rta_type = type;
    a->rta_len = (unsigned short)RTA_LENGTH(bytes);
    memcpy(RTA_DATA(a), value, bytes);
    r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static struct request request_of(uint16_t type, uint16_t flags)
{
    return (struct request){
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)),
                 .nlmsg_type = type,
                 .nlmsg_flags = NLM_F_REQUEST | flags},
        .body = {.rtm_family = AF_INET6},
    };
}

/* Returns whether a route of the kernel's answer leads to a router. */
static bool has_router(const struct nlmsghdr *m)
{
    const struct rtmsg *rtm = NLMSG_DATA(m);
    int left = (int)RTM_PAYLOAD(m);

    for (const struct rtattr *a = RTM_RTA(rtm); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == RTA_GATEWAY)
            return true;
    return false;
}

/* Returns the error that the kernel answers, or 0, and -ENETUNREACH for a route by a router. */
static int ask(struct soft_netdev *dev, const struct request *r)
{
    char buffer[ANSWER_BYTES] __attribute__((aligned(NLMSG_ALIGNTO)));
    struct nlmsghdr *m = (void *)buffer;
    ssize_t got;

    if (send(dev->netlink_fd, r, r->head.nlmsg_len, 0) < 0)
        return -errno;
    do /* the kernel answers at once, so this does not wait */
        got = recv(dev->netlink_fd, buffer, sizeof(buffer), 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    if (!NLMSG_OK(m, (unsigned int)got))
        return -EPROTO;
    if (m->nlmsg_type == NLMSG_ERROR)
        return ((struct nlmsgerr *)NLMSG_DATA(m))->error;
    return has_router(m) ? -ENETUNREACH : 0;
}

int soft_netdev_has_route(struct soft_netdev *dev, unsigned int ifindex, enum soft_route route)
{
    struct request r = request_of(RTM_GETROUTE, 0);

    r.body.rtm_dst_len = 128;
    put(&r, RTA_DST, &of_kind[route].example, sizeof(of_kind[route].example));
    put(&r, RTA_OIF, &ifindex, sizeof(ifindex));
    return ask(dev, &r);
}

int soft_netdev_add_route(struct soft_netdev *dev, unsigned int ifindex, enum soft_route route)
{
    struct request r = request_of(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_APPEND);
    const uint32_t metric = METRIC;

    r.body.rtm_dst_len = of_kind[route].prefix_len;
    r.body.rtm_table = of_kind[route].table;
    r.body.rtm_type = of_kind[route].type;
    r.body.rtm_protocol = RTPROT_KERNEL;
    r.body.rtm_scope = RT_SCOPE_UNIVERSE;
    put(&r, RTA_DST, &of_kind[route].prefix, sizeof(of_kind[route].prefix));
    put(&r, RTA_OIF, &ifindex, sizeof(ifindex));
    put(&r, RTA_PRIORITY, &metric, sizeof(metric));
    return ask(dev, &r);
}
