/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_NETDEV_H
#define SOFT_NETDEV_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>

#include "hca.h"

/* The kernel's data about a net device. The two descriptors tie the answers to the network
 * namespace of the thread that opened them; any thread may ask later.
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
    struct in6_addr eui64; /* the link-local address made from its MAC; :: without a 48-bit MAC */
};

/* Returns -EMFILE, -ENFILE or -ENOMEM. */
int soft_netdev_open(struct soft_netdev *dev);
void soft_netdev_close(struct soft_netdev *dev);

/* These look by name, or by ifindex, which a renaming does not change: -ENODEV, or -EBUSY during a
 * renaming. */
int soft_netdev_find(struct soft_netdev *dev, const char *name, struct soft_netdev_state *out);
int soft_netdev_look(struct soft_netdev *dev, unsigned int ifindex, struct soft_netdev_state *out);

/* Returns 0 if the device has this address and can use it, -EADDRNOTAVAIL if not, and -EAGAIN while
 * duplicate address detection is running.
 */
int soft_netdev_has_address(struct soft_netdev *dev, unsigned int ifindex,
                            const struct in6_addr *address);

/* Chooses the address to use as GID, of the given kind. Of several link-local ones it takes the one
 * made from the MAC, because rxe and hardware make their default GID from the MAC; else the first
 * one, but a deprecated, temporary or secondary one only if there is no other. Errors are those of
 * soft_netdev_has_address.
 */
int soft_netdev_choose(struct soft_netdev *dev, const struct soft_netdev_state *state,
                       enum soft_gid_kind kind, struct in6_addr *out);

/* Returns 0 if the kernel sends there by the device and by no router; else -ENETUNREACH or another
 * error. */
int soft_netdev_has_route(struct soft_netdev *dev, unsigned int ifindex, enum soft_route route);

/* Adds the route, behind those of other devices. Returns -EPERM without CAP_NET_ADMIN. */
int soft_netdev_add_route(struct soft_netdev *dev, unsigned int ifindex, enum soft_route route);

#endif
