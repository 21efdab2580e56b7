/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "membership.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static int open_socket(void)
{
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);

    return fd < 0 ? -errno : fd;
}

void soft_membership_init(struct soft_membership *m, unsigned int ifindex)
{
    m->ifindex = ifindex;
    for (int i = 0; i < SOFT_MEMBERSHIP_SOCKETS; i++) {
        m->fd[i] = -1;
        m->groups[i] = 0;
    }
}

int soft_membership_open(struct soft_membership *m, unsigned int ifindex)
{
    soft_membership_init(m, ifindex);
    m->fd[0] = open_socket();
    return m->fd[0] < 0 ? m->fd[0] : 0;
}

void soft_membership_close(struct soft_membership *m)
{
    for (int i = 0; i < SOFT_MEMBERSHIP_SOCKETS; i++)
        if (m->fd[i] >= 0)
            close(m->fd[i]);
}

/* Returns 0 where the kernel does not know the option (before 5.14): then we check nothing. */
static uint64_t namespace_cookie(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof(cookie);

    return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

static int set_membership(const struct soft_membership *m, int fd, int option,
                          const struct in6_addr *group)
{
    struct ipv6_mreq request = {.ipv6mr_multiaddr = *group, .ipv6mr_interface = m->ifindex};

    return setsockopt(fd, IPPROTO_IPV6, option, &request, sizeof(request)) < 0 ? -errno : 0;
}

static int open_further(struct soft_membership *m, int number)
{
    int fd = open_socket();

    if (fd < 0)
        return fd;
    if (namespace_cookie(fd) != namespace_cookie(m->fd[0])) {
        close(fd);
        return -EXDEV;
    }
    m->fd[number] = fd;
    return 0;
}

int soft_membership_join(struct soft_membership *m, const struct in6_addr *group)
{
    for (int i = 0; i < SOFT_MEMBERSHIP_SOCKETS; i++) {
        int error = m->fd[i] < 0 ? open_further(m, i) : 0;

        if (error != 0)
            return error;
        if (m->groups[i] == SOFT_MEMBERSHIP_PER_SOCKET)
            continue;
        error = set_membership(m, m->fd[i], IPV6_JOIN_GROUP, group);
        if (error == 0) {
            m->groups[i]++;
            return i;
        }
        /* "No memory" on a socket with memberships: optmem_max is spent, so try the next socket. */
        if ((error != -ENOMEM && error != -ENOBUFS) || m->groups[i] == 0)
            return error;
    }
    return -ENOSPC;
}

void soft_membership_leave(struct soft_membership *m, const struct in6_addr *group, int number)
{
    /* This fails only when the device is gone, and the membership with it. */
    (void)set_membership(m, m->fd[number], IPV6_LEAVE_GROUP, group);
    if (--m->groups[number] == 0 && number > 0) {
        close(m->fd[number]);
        m->fd[number] = -1;
    }
}
