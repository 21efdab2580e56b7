/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RAILS_H
#define IPU_RAILS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

/*
 * Several devices under one interface (docs/use/rails.md), as a wrapper around a fabric of
 * datagrams on each. One rail is active: its GID and queue pair number are those of the interface.
 * Groups are sent and received by the active rail, and so is everything to hosts that have one
 * rail.
 *
 * Connections (RFC 4755) belong to one rail each. Where all fabrics make connections, so does the
 * wrapper.
 *
 * With peers (active-active) the wrapper sends hellos, by which hosts with several rails tell each
 * other their addresses, and find out which rails reach each other. A message to such a peer leaves
 * by the rail that its flow chooses, among those on which the hosts answer each other. The wrapper
 * writes the peer's first address, that of its active rail, over the source of what arrives from
 * its other rails, so the pump knows one address of each host. Nobody becomes a peer, and nothing
 * goes to an address, before the host there has answered a hello of ours.
 *
 * Threads: the pump's thread calls the fabric; any thread may call ipu_rails_set(),
 * ipu_rails_peers() and the counters. The other functions need a stopped pump.
 */
struct ipu_rails;

enum { IPU_RAILS_MAX = 8 };

struct ipu_rails_config {
    const struct ipu_fabric *inner[IPU_RAILS_MAX]; /* NULL: the device is absent */
    uint32_t count;
    uint32_t up; /* as for ipu_rails_set(), which see */
    uint32_t active;
    uint32_t peers_max;         /* 0: no hellos, and so no peers */
    struct ipu_dest broadcast;  /* the broadcast group: hellos go there */
    uint64_t (*clock_ns)(void); /* NULL: CLOCK_MONOTONIC */
};

/* Only the wrapper uses the inner fabrics, which outlive it. Returns NULL with errno: EINVAL (no
 * rails, too many, or the active one is absent), ENOMEM, or an error of getrandom(2), eventfd(2),
 * epoll_create1(2), epoll_ctl(2). */
struct ipu_rails *ipu_rails_create(const struct ipu_rails_config *config);

/* The caller first stops the inner queue pairs, so that they read no buffer any more. */
void ipu_rails_destroy(struct ipu_rails *rails);

/* The returned fabric lives as long as the wrapper. */
struct ipu_fabric *ipu_rails_fabric(struct ipu_rails *rails);

/* Sets which rails carry traffic, a bit for each, and which one is active. Flows leave a rail that
 * is not up at once. */
void ipu_rails_set(struct ipu_rails *rails, uint32_t up, uint32_t active);

/* Makes a connection, which the pump does not know yet, one of that rail, whose fabric has made it.
 */
void ipu_rails_assign(const struct ipu_rails *rails, struct ipu_connection *connection,
                      uint32_t rail);

/* A host with several rails. */
struct ipu_rails_peer {
    struct in6_addr gid; /* of its active rail, as qpn */
    uint32_t qpn;
    uint32_t usable;  /* a bit for each rail by which flows go to it, */
    uint32_t reached; /* and for each on which it has ever answered */
};

/* Copies at most max peers, and returns their number. */
uint32_t ipu_rails_peers(struct ipu_rails *rails, struct ipu_rails_peer *peers, uint32_t max);

#define IPU_RAILS_COUNTERS(X)                                                                      \
    X(tx_hellos)                                                                                   \
    X(tx_no_route)  /* messages lost: the device cannot reach that host */                         \
    X(tx_abandoned) /* messages lost, because their rail broke or its peer has gone */             \
    X(rx_hellos)                                                                                   \
    X(rx_backup)      /* messages to groups at a rail that is not active */                        \
    X(hello_bad)      /* hellos that nobody can read, or of another host than they say */          \
    X(hello_version)  /* hellos of another version */                                              \
    X(hello_unproven) /* hellos that do not answer one of ours */                                  \
    X(hello_busy)     /* of these, without our answer: too many are under way */                   \
    X(hello_unsent)   /* hellos of ours without a handle, a frame or room in the rail's queue */   \
    X(peers_full)     /* hellos of further hosts */                                                \
    X(peers_evicted)  /* peers without traffic that made room for others */

/* Of one rail. */
#define IPU_RAILS_TRAFFIC(X) X(tx_packets) X(tx_bytes) X(rx_packets) X(rx_bytes)

#define IPU_RAILS_FIELD(name) _Atomic uint64_t name;
#define IPU_RAILS_ONE(name)   +1
enum {
    IPU_RAILS_COUNTERS_N = 0 IPU_RAILS_COUNTERS(IPU_RAILS_ONE),
    IPU_RAILS_TRAFFIC_N = 0 IPU_RAILS_TRAFFIC(IPU_RAILS_ONE),
};

/* Read counters, in the order of the names; bytes count from the encapsulation header on. */
void ipu_rails_counters(const struct ipu_rails *rails, uint64_t values[IPU_RAILS_COUNTERS_N]);
void ipu_rails_traffic(const struct ipu_rails *rails, uint32_t rail,
                       uint64_t values[IPU_RAILS_TRAFFIC_N]);
extern const char *const ipu_rails_counter_names[IPU_RAILS_COUNTERS_N];
extern const char *const ipu_rails_traffic_names[IPU_RAILS_TRAFFIC_N];

#endif
