/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_UNICAST_H
#define IPU_UNICAST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

/*
 * A link without multicast (docs/use/unicast.md), as a wrapper around a fabric of datagrams. It
 * knows the peers and their groups. A message to a group becomes one message to each peer in the
 * group, all from the same buffer; the pump gets the cookie back after the last of them. The
 * wrapper drops and counts a datagram whose source (GID and queue pair number) is no peer's. In a
 * replicated message it writes the group into the GRH, where the pump expects it.
 *
 * Threads: the pump's thread calls the fabric; any thread may call the functions that name a peer.
 * The other functions need a stopped pump.
 */
struct ipu_unicast;

struct ipu_unicast_config {
    struct in6_addr broadcast; /* the broadcast group: every peer is in it */
    uint32_t peers_max;
    uint8_t hop_limit; /* of replicated messages */
};

/* Only the wrapper uses the inner fabric, which outlives it. Returns NULL with errno: EINVAL (no
 * peers, or too many), ENOMEM, or an error of getrandom(2). */
struct ipu_unicast *ipu_unicast_create(const struct ipu_fabric *inner,
                                       const struct ipu_unicast_config *config);

/* The caller first stops the inner queue pair, so that it reads no buffer any more. */
void ipu_unicast_destroy(struct ipu_unicast *unicast);

/* The returned fabric lives as long as the wrapper. */
struct ipu_fabric *ipu_unicast_fabric(struct ipu_unicast *unicast);

/* Adds a peer. It gets messages to groups once its groups are known, because only then it accepts
 * our datagrams. Returns 0, -EEXIST (the id, or another peer with this address) or -ENOSPC. */
int ipu_unicast_add(struct ipu_unicast *unicast, uint64_t id, const struct in6_addr *gid,
                    uint32_t qpn);
/* The other functions do nothing for an id that is no peer's. */
void ipu_unicast_remove(struct ipu_unicast *unicast, uint64_t id);
/* Sets the peer's groups; adds it to one group, or takes it out of one. */
void ipu_unicast_groups(struct ipu_unicast *unicast, uint64_t id, const struct in6_addr *mgids,
                        int n);
void ipu_unicast_group(struct ipu_unicast *unicast, uint64_t id, const struct in6_addr *mgid,
                       bool is_in);
/* Returns whether this address is a peer's: for messages that do not pass through the fabric. */
bool ipu_unicast_is_peer(struct ipu_unicast *unicast, const struct in6_addr *gid, uint32_t qpn);

#define IPU_UNICAST_COUNTERS(X)                                                                    \
    X(tx_groups)   /* messages to groups */                                                        \
    X(tx_copies)   /* of these, the copies: one for each peer in the group */                      \
    X(tx_nobody)   /* messages to groups that no peer is in */                                     \
    X(tx_full)     /* lost: too many messages to groups wait already */                            \
    X(tx_no_route) /* copies lost: the device cannot reach that peer */                            \
    X(tx_broken)   /* messages to groups cut short, because the queue pair broke */                \
    X(rx_stranger) /* datagrams of hosts that are no peers */

#define IPU_UNICAST_COUNTERS_FIELD(name) _Atomic uint64_t name;
#define IPU_UNICAST_COUNTERS_ONE(name)   +1
enum { IPU_UNICAST_COUNTERS_N = 0 IPU_UNICAST_COUNTERS(IPU_UNICAST_COUNTERS_ONE) };

/* Reads the counters, in the order of the names; any thread may call it. */
void ipu_unicast_counters(const struct ipu_unicast *unicast,
                          uint64_t values[IPU_UNICAST_COUNTERS_N]);
extern const char *const ipu_unicast_counter_names[IPU_UNICAST_COUNTERS_N];

#endif
