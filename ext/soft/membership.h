/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_MEMBERSHIP_H
#define SOFT_MEMBERSHIP_H

#include <netinet/in.h>

/*
 * IPv6 group memberships of one device, spread over as many sockets as the kernel's limits require.
 * The kernel charges a socket's memberships to net.core.optmem_max (about 400 at 20 KiB, the
 * default of older kernels), and each join walks the list of the socket's memberships. We never
 * bind or read these sockets: the kernel delivers packets to the one bound socket of the HCA.
 */
#define SOFT_MEMBERSHIP_PER_SOCKET 256
#define SOFT_MEMBERSHIP_SOCKETS    64 /* SOFT_MAX_MCAST / SOFT_MEMBERSHIP_PER_SOCKET */

struct soft_membership {
    unsigned int ifindex;
    int fd[SOFT_MEMBERSHIP_SOCKETS]; /* -1: not open */
    unsigned int groups[SOFT_MEMBERSHIP_SOCKETS];
};

/* For an HCA that joins no groups: opens no socket. */
void soft_membership_init(struct soft_membership *m, unsigned int ifindex);
/* Opens the first socket in the namespace of the calling thread; it is enough for a few groups. */
int soft_membership_open(struct soft_membership *m, unsigned int ifindex);
void soft_membership_close(struct soft_membership *m);

/* Joins the group; returns the socket's number, which the leave needs. -EXDEV: the calling thread
 * is in another network namespace and the join needs a further socket; -ENOSPC: all sockets are
 * full; else the kernel's error.
 */
int soft_membership_join(struct soft_membership *m, const struct in6_addr *group);
void soft_membership_leave(struct soft_membership *m, const struct in6_addr *group, int number);

#endif
