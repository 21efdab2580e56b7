/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "netdev.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int soft_netdev_open(struct soft_netdev *dev)
{
    dev->ioctl_fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (dev->ioctl_fd < 0)
        return -errno;
    dev->netlink_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (dev->netlink_fd < 0) {
        int error = -errno;

        close(dev->ioctl_fd);
        return error;
    }
    return 0;
}

void soft_netdev_close(struct soft_netdev *dev)
{
    close(dev->ioctl_fd);
    close(dev->netlink_fd);
}

static void eui64_address(const struct sockaddr *mac, struct in6_addr *out)
{
    const uint8_t *m = (const uint8_t *)mac->sa_data;
    uint8_t *a = out->s6_addr;

    memset(out, 0, sizeof(*out));
    if (mac->sa_family != ARPHRD_ETHER)
        return;
    a[0] = 0xfe;
    a[1] = 0x80;
    memcpy(a + 8, m, 3);
    a[8] ^= 2;
    a[11] = 0xff;
    a[12] = 0xfe;
    memcpy(a + 13, m + 3, 3);
}

static int look_by_name(struct soft_netdev *dev, struct soft_netdev_state *out)
{
    struct ifreq req;

    memset(&req, 0, sizeof(req));
    memcpy(req.ifr_name, out->name, sizeof(out->name));
    if (ioctl(dev->ioctl_fd, SIOCGIFINDEX, &req) < 0)
        return -errno;
    out->ifindex = (unsigned int)req.ifr_ifindex;
    if (ioctl(dev->ioctl_fd, SIOCGIFMTU, &req) < 0)
        return -errno;
    out->mtu_bytes = (unsigned int)req.ifr_mtu;
    if (ioctl(dev->ioctl_fd, SIOCGIFFLAGS, &req) < 0)
        return -errno;
    out->up = req.ifr_flags & IFF_UP;
    out->running = req.ifr_flags & IFF_RUNNING;
    if (ioctl(dev->ioctl_fd, SIOCGIFHWADDR, &req) < 0)
        return -errno;
    eui64_address(&req.ifr_hwaddr, &out->eui64);
    return 0;
}

int soft_netdev_find(struct soft_netdev *dev, const char *name, struct soft_netdev_state *out)
{
    size_t len = strlen(name);

    if (len == 0 || len >= sizeof(out->name))
        return -ENODEV;
    memset(out, 0, sizeof(*out));
    memcpy(out->name, name, len);
    return look_by_name(dev, out);
}

int soft_netdev_look(struct soft_netdev *dev, unsigned int ifindex, struct soft_netdev_state *out)
{
    struct ifreq req;
    int error;

    memset(&req, 0, sizeof(req));
    memset(out, 0, sizeof(*out));
    req.ifr_ifindex = (int)ifindex;
    if (ioctl(dev->ioctl_fd, SIOCGIFNAME, &req) < 0)
        return -ENODEV;
    memcpy(out->name, req.ifr_name, sizeof(out->name));
    error = look_by_name(dev, out);
    if (error == 0 && out->ifindex == ifindex)
        return 0;
    if (error != 0 && error != -ENODEV)
        return error;
    /* During a renaming the kernel finds the device by neither name, for some milliseconds. */
    return ioctl(dev->ioctl_fd, SIOCGIFNAME, &req) < 0 ? -ENODEV : -EBUSY;
}

/* ---- addresses ------------------------------------------------------------------------------- */

struct search {
    unsigned int ifindex;
    const struct in6_addr *wanted;
    bool only_wanted;
    struct in6_addr best;
    int best_rank; /* 0: none yet, 1: tentative, 2: usable, 3: the preferred one */
};

static bool is_zero(const struct in6_addr *a)
{
    return IN6_IS_ADDR_UNSPECIFIED(a);
}

static void consider(struct search *s, const struct in6_addr *address, uint32_t flags)
{
    bool wanted = memcmp(address, s->wanted, 16) == 0;
    int rank = 2;

    if (s->only_wanted ? !wanted : !IN6_IS_ADDR_LINKLOCAL(address))
        return;
    if (flags & IFA_F_DADFAILED)
        return;
    if ((flags & IFA_F_TENTATIVE) && !(flags & IFA_F_OPTIMISTIC))
        rank = 1;
    else if (wanted)
        rank = 3;
    if (rank > s->best_rank) {
        s->best_rank = rank;
        s->best = *address;
    }
}

static void consider_message(struct search *s, const struct nlmsghdr *msg)
{
    const struct ifaddrmsg *ifa = NLMSG_DATA(msg);
    struct in6_addr address = IN6ADDR_ANY_INIT;
    uint32_t flags = ifa->ifa_flags;
    int left = (int)IFA_PAYLOAD(msg);

    if (ifa->ifa_family != AF_INET6 || ifa->ifa_index != s->ifindex)
        return;
    for (const struct rtattr *a = IFA_RTA(ifa); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        /* IFA_LOCAL is our own address of a point-to-point link and comes after IFA_ADDRESS. */
        if ((a->rta_type == IFA_LOCAL || (a->rta_type == IFA_ADDRESS && is_zero(&address))) &&
            RTA_PAYLOAD(a) == sizeof(address))
            memcpy(&address, RTA_DATA(a), sizeof(address));
        if (a->rta_type == IFA_FLAGS && RTA_PAYLOAD(a) == sizeof(flags))
            memcpy(&flags, RTA_DATA(a), sizeof(flags));
    }
    consider(s, &address, flags);
}

static int search_addresses(struct soft_netdev *dev, struct search *s)
{
    struct {
        struct nlmsghdr head;
        struct ifaddrmsg body;
    } request = {
        .head = {.nlmsg_len = sizeof(request),
                 .nlmsg_type = RTM_GETADDR,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.ifa_family = AF_INET6},
    };
    char buffer[16384] __attribute__((aligned(NLMSG_ALIGNTO)));

    if (send(dev->netlink_fd, &request, sizeof(request), 0) < 0)
        return -errno;
    for (;;) { /* the kernel answers a dump at once, so this does not wait */
        ssize_t got = recv(dev->netlink_fd, buffer, sizeof(buffer), 0);
        unsigned int left = got < 0 ? 0 : (unsigned int)got;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        for (struct nlmsghdr *m = (void *)buffer; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
            if (m->nlmsg_type == NLMSG_DONE)
                return s->best_rank == 0 ? -EADDRNOTAVAIL : s->best_rank == 1 ? -EAGAIN : 0;
            if (m->nlmsg_type == NLMSG_ERROR)
                return ((struct nlmsgerr *)NLMSG_DATA(m))->error;
            if (m->nlmsg_type == RTM_NEWADDR)
                consider_message(s, m);
        }
    }
}

int soft_netdev_has_address(struct soft_netdev *dev, unsigned int ifindex,
                            const struct in6_addr *address)
{
    struct search s = {.ifindex = ifindex, .wanted = address, .only_wanted = true};

    return search_addresses(dev, &s);
}

int soft_netdev_link_local(struct soft_netdev *dev, unsigned int ifindex,
                           const struct in6_addr *prefer, struct in6_addr *out)
{
    struct search s = {.ifindex = ifindex, .wanted = prefer};
    int error = search_addresses(dev, &s);

    if (error == 0)
        *out = s.best;
    return error;
}
