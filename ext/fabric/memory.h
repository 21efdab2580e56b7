/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_MEMORY_H
#define IPU_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

/*
 * A fabric inside the process, for tests and simulation: a switch with ports that behave like UD
 * queue pairs of an HCA. A switch is one partition; it does not model keys. Different threads may
 * drive the ports of one switch: one mutex of the switch guards everything.
 *
 * As on an HCA: a datagram is dropped, and counted by its receiver, if no receive is posted or the
 * posted one is too short; a send longer than the MTU is reported as done and lost (rxe does so);
 * multicast goes to every port attached to the group, also to the sender's own.
 */
struct ipu_memory_switch;
struct ipu_memory_port;

struct ipu_memory_config {
    struct in6_addr gid;
    uint32_t qpn;         /* 0: a free number, random by the switch's seed */
    uint32_t mtu;         /* 256, 512, 1024, 2048 or 4096 */
    uint32_t queue_depth; /* of sends not yet reaped, and of posted receives; 0: 512 */
    bool bare_unicast;    /* unicast arrives without a GRH, as within an InfiniBand subnet (E4) */
    bool one_piece;       /* the port behaves as a queue pair with one SGE */
};

/* Any thread may read them. */
struct ipu_memory_counters {
    _Atomic uint64_t tx_packets;
    _Atomic uint64_t tx_too_big;
    _Atomic uint64_t tx_nobody; /* no such port, or no port attached to the group */
    _Atomic uint64_t rx_packets;
    _Atomic uint64_t rx_no_buffer;
    _Atomic uint64_t rx_too_long; /* longer than the posted buffer */
    _Atomic uint64_t rx_broken;   /* arrived while the port was broken */
};

/* Returns NULL with errno on failure. The seed decides the random QPNs. */
struct ipu_memory_switch *ipu_memory_switch_create(uint64_t seed);

/* The caller destroys all ports first. */
void ipu_memory_switch_destroy(struct ipu_memory_switch *sw);

/* Returns NULL with errno: EINVAL (mtu, qpn), EADDRINUSE (gid and qpn), ENOMEM, or an error of
 * eventfd(2). */
struct ipu_memory_port *ipu_memory_port_create(struct ipu_memory_switch *sw,
                                               const struct ipu_memory_config *config);

/* The caller makes sure that nothing uses the port's fabric. Undelivered datagrams and outstanding
 * cookies are lost. */
void ipu_memory_port_destroy(struct ipu_memory_port *port);

/* The returned fabric lives as long as the port. */
struct ipu_fabric *ipu_memory_port_fabric(struct ipu_memory_port *port);
const struct ipu_memory_counters *ipu_memory_port_counters(const struct ipu_memory_port *port);

/* Any thread may call these. 0; -EINVAL: not multicast, -EEXIST, -ENOENT, -ENOMEM. */
int ipu_memory_attach(struct ipu_memory_port *port, const struct in6_addr *mgid);
int ipu_memory_detach(struct ipu_memory_port *port, const struct in6_addr *mgid);

/* Breaks the queue pair as a completion error does; any thread may call it. Posted receives come
 * back as FAILED; send, post and, once it has nothing to report, sent answer -EIO. recover answers
 * -EBUSY while cookies are outstanding, then -EAGAIN recoveries_to_fail times, then 0.
 */
void ipu_memory_break(struct ipu_memory_port *port, uint32_t recoveries_to_fail);

#endif
