/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_NETDEV_H
#define SOFT_NETDEV_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>

/*
 * What the kernel knows of a net device. The two descriptors tie the answers to the network
 * namespace of the thread that opened them, whichever thread asks later.
 */
struct soft_netdev {
    int ioctl_fd;
    int netlink_fd;
};

struct soft_netdev_state {
    char name[IF_NAMESIZE];
    unsigned int ifindex;
    unsigned int mtu_bytes;
    bool up;               /* administratively */
    bool running;          /* with carrier */
    struct in6_addr eui64; /* the link-local address that its MAC gives; :: without a 48-bit MAC */
};

/* -EAFNOSUPPORT without IPv6, -EMFILE, -ENFILE, -ENOMEM. */
int soft_netdev_open(struct soft_netdev *dev);
void soft_netdev_close(struct soft_netdev *dev);

/* By name, or by ifindex, which a renaming does not change: -ENODEV, or -EBUSY during one. */
int soft_netdev_find(struct soft_netdev *dev, const char *name, struct soft_netdev_state *out);
int soft_netdev_look(struct soft_netdev *dev, unsigned int ifindex, struct soft_netdev_state *out);

/*
 * Is this an address of the device that can be used? -EADDRNOTAVAIL no, -EAGAIN not yet: duplicate
 * address detection is running.
 */
int soft_netdev_has_address(struct soft_netdev *dev, unsigned int ifindex,
                            const struct in6_addr *address);

/*
 * The link-local address to use as GID: `prefer` when the device has it, as rxe and hardware make
 * their default GID from the MAC, else the first one. Errors as above.
 */
int soft_netdev_link_local(struct soft_netdev *dev, unsigned int ifindex,
                           const struct in6_addr *prefer, struct in6_addr *out);

#endif
