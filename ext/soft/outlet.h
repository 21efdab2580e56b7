/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_OUTLET_H
#define SOFT_OUTLET_H

#include "udp_family.h"

/*
 * A socket that sends. It is connected to the host that its batches go to: so the kernel keeps the
 * route, and a message needs no address, source and hop limit, which is an eighth of what it costs.
 * After SOFT_OUTLET_RUN batches in a row to another host, the outlet is connected to that one.
 * Messages to all others have their addresses, as those of a socket without a connection.
 *
 * The kernel reports ICMP errors to a connected socket, by the next send, whatever its destination:
 * after an error the outlet forgets its connection, and the caller sends once more.
 */
struct soft_outlet {
    int fd;
    uint16_t port;
    bool connected;
    bool had_peer; /* the kernel may report ICMP errors */
    struct soft_udp_dest peer, other;
    unsigned int run; /* batches to `other`, one after the other */
};

#define SOFT_OUTLET_RUN 16 /* a connection costs about as much as it saves in so many batches */

/* Says where the first packet of a batch goes, before the batch is made. */
void soft_outlet_begin_batch(struct soft_outlet *outlet, const struct soft_udp_family *family,
                             const struct soft_udp_dest *dest, const struct in6_addr *gid,
                             unsigned int ifindex, struct soft_count *count);

/* Returns whether packets to this destination need no address. */
bool soft_outlet_knows(const struct soft_outlet *outlet, const struct soft_udp_dest *dest);

/* Returns whether an error of a send may be that of an earlier packet, and forgets the
 * connection. */
bool soft_outlet_forget(struct soft_outlet *outlet);

#endif
