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

#include "ipv4.h"

int soft_netdev_open(struct soft_netdev *dev)
{
    dev->ioctl_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
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

/* How well an address serves as GID: the kind counts before the quality. */
enum quality {
    TENTATIVE = 1, /* duplicate address detection is running */
    SECOND_CHOICE, /* deprecated, temporary, secondary, or of a narrow scope */
    USABLE,
    WANTED,
};

struct search {
    unsigned int ifindex;
    enum soft_gid_kind kind;       /* SOFT_GID_ANY: any of them */
    const struct in6_addr *wanted; /* the best one */
    bool only_wanted;
    struct in6_addr best;
    int best_rank; /* 0: none yet */
};

struct found_address {
    struct in6_addr ip; /* mapped, if of IPv4 */
    uint32_t flags;
    uint8_t scope;
};

static enum soft_gid_kind kind_of(const struct in6_addr *ip)
{
    if (soft_is_ipv4(ip))
        return ip->s6_addr[12] == 127 ? SOFT_GID_ANY : SOFT_GID_IPV4;
    if (IN6_IS_ADDR_LINKLOCAL(ip))
        return SOFT_GID_LINK_LOCAL;
    return IN6_IS_ADDR_LOOPBACK(ip) ? SOFT_GID_ANY : SOFT_GID_IPV6;
}

static enum quality quality_of(const struct found_address *a)
{
    bool narrow = kind_of(&a->ip) != SOFT_GID_LINK_LOCAL && a->scope != RT_SCOPE_UNIVERSE;

    if ((a->flags & IFA_F_TENTATIVE) && !(a->flags & IFA_F_OPTIMISTIC))
        return TENTATIVE;
    if (narrow || (a->flags & (IFA_F_DEPRECATED | IFA_F_SECONDARY))) /* SECONDARY: or TEMPORARY */
        return SECOND_CHOICE;
    return USABLE;
}

/* Returns 0 if the address cannot be the GID. */
static int rank_of(const struct search *s, const struct found_address *a)
{
    static const int of_kind[] = {
        [SOFT_GID_LINK_LOCAL] = 3, [SOFT_GID_IPV4] = 2, [SOFT_GID_IPV6] = 1};
    bool wanted = memcmp(&a->ip, s->wanted, sizeof(a->ip)) == 0;
    enum soft_gid_kind kind = kind_of(&a->ip);
    enum quality quality = quality_of(a);

    if ((a->flags & IFA_F_DADFAILED) || kind == SOFT_GID_ANY)
        return 0;
    if (s->only_wanted ? !wanted : s->kind != SOFT_GID_ANY && s->kind != kind)
        return 0;
    return of_kind[kind] * 8 + (int)(quality == USABLE && wanted ? WANTED : quality);
}

static void consider(struct search *s, const struct found_address *a)
{
    int rank = rank_of(s, a);

    if (rank > s->best_rank) {
        s->best_rank = rank;
        s->best = a->ip;
    }
}

static bool is_tentative(const struct search *s)
{
    return s->best_rank % 8 == TENTATIVE;
}

/* Reads IFA_LOCAL or IFA_ADDRESS of either family. */
static void read_address(const struct rtattr *a, struct in6_addr *out)
{
    struct in_addr ip4;

    if (RTA_PAYLOAD(a) == sizeof(*out)) {
        memcpy(out, RTA_DATA(a), sizeof(*out));
    } else if (RTA_PAYLOAD(a) == sizeof(ip4)) {
        memcpy(&ip4, RTA_DATA(a), sizeof(ip4));
        *out = soft_ipv4_mapped(ip4);
    }
}

static void consider_message(struct search *s, const struct nlmsghdr *msg)
{
    const struct ifaddrmsg *ifa = NLMSG_DATA(msg);
    struct found_address found = {.flags = ifa->ifa_flags, .scope = ifa->ifa_scope};
    struct in6_addr address = IN6ADDR_ANY_INIT, local = IN6ADDR_ANY_INIT;
    int left = (int)IFA_PAYLOAD(msg);

    if ((ifa->ifa_family != AF_INET6 && ifa->ifa_family != AF_INET) || ifa->ifa_index != s->ifindex)
        return;
    for (const struct rtattr *a = IFA_RTA(ifa); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        if (a->rta_type == IFA_LOCAL)
            read_address(a, &local);
        if (a->rta_type == IFA_ADDRESS)
            read_address(a, &address);
        if (a->rta_type == IFA_FLAGS && RTA_PAYLOAD(a) == sizeof(found.flags))
            memcpy(&found.flags, RTA_DATA(a), sizeof(found.flags));
    }
    /* On a point-to-point link IFA_ADDRESS is the peer's. */
    found.ip = IN6_IS_ADDR_UNSPECIFIED(&local) ? address : local;
    if (!IN6_IS_ADDR_UNSPECIFIED(&found.ip))
        consider(s, &found);
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
        .body = {.ifa_family = AF_UNSPEC},
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
                return s->best_rank == 0 ? -EADDRNOTAVAIL : is_tentative(s) ? -EAGAIN : 0;
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

int soft_netdev_choose(struct soft_netdev *dev, const struct soft_netdev_state *state,
                       enum soft_gid_kind kind, struct in6_addr *out)
{
    struct search s = {.ifindex = state->ifindex, .kind = kind, .wanted = &state->eui64};
    int error = search_addresses(dev, &s);

    if (error == 0)
        *out = s.best;
    return error;
}
