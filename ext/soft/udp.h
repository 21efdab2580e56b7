/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_UDP_H
#define SOFT_UDP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "count.h"
#include "roce.h"

/*
 * Packets to and from the wire: one UDP socket, batched system calls, trains of equal packets as
 * one UDP_SEGMENT send, and UDP_GRO trains split into packets. This file knows addresses and
 * lengths, and nothing of the packets' contents. It has no lock: every caller holds the HCA's
 * mutex.
 */
struct soft_udp;

union soft_udp_address {
    struct sockaddr any;
    struct sockaddr_in ip4;
    struct sockaddr_in6 ip6;
};

/* What soft_udp_open needs. The GID, the source of all packets, decides between IPv4 and IPv6. */
struct soft_udp_config {
    const char *netdev;
    unsigned int ifindex;
    struct in6_addr gid;
    uint16_t port;     /* 0: a free port; the socket then only sends */
    bool sends_singly; /* no trains, and no fragments */
    int adopted_fd;    /* not 0: the socket is a duplicate of this one, with its packets */
};

/* Opens the socket and binds it to one device and to the port, or checks that the adopted one is
 * so. Errors are those of soft_hca_open. */
int soft_udp_open(const struct soft_udp_config *config, struct soft_count *count,
                  struct soft_udp **out);
void soft_udp_close(struct soft_udp *udp);
int soft_udp_fd(const struct soft_udp *udp);
uint16_t soft_udp_port(const struct soft_udp *udp);

/* Returns how many packets the kernel dropped since the open because the receive buffer was
 * full. */
uint64_t soft_udp_overruns(const struct soft_udp *udp);

/* ---- sending: a batch at a time -------------------------------------------------------------- */

struct soft_udp_dest {
    union soft_udp_address address; /* of the GID's family */
    struct in6_addr gid;
    uint32_t flow_label;
    uint8_t hop_limit;
    uint8_t traffic_class;
};

#define SOFT_UDP_SLOT_IOV (SOFT_MAX_SGE + 2)
#define SOFT_UDP_HEAD_MAX 232 /* transport headers, and short data behind them */

/* One packet of the batch: the caller fills iov[0..iov_count) from head, tail and its own data,
 * which must stay in place until it has sent the batch. */
struct soft_udp_slot {
    const struct soft_udp_dest *dest; /* equal pointers are one destination */
    struct iovec *iov;
    unsigned int iov_count;
    unsigned int bytes; /* of all iov together */
    uint8_t head[SOFT_UDP_HEAD_MAX + SOFT_ROCE_TAIL_MAX];
    uint8_t tail[SOFT_ROCE_TAIL_MAX];
};

/* Returns the next free slot of the batch, or NULL when the batch is full; a slot counts once
 * committed. */
struct soft_udp_slot *soft_udp_reserve(struct soft_udp *udp);
void soft_udp_commit(struct soft_udp *udp);

/* Sends the batch and empties it. Returns the number of packets, from the first on, that the kernel
 * took or that an error lost, which a counter counts. If that is not all of them, *stall is EAGAIN
 * (wait for EPOLLOUT) or ENOBUFS (wait a little), and the caller must offer the rest again.
 */
unsigned int soft_udp_send(struct soft_udp *udp, int *stall);

/* ---- receiving ------------------------------------------------------------------------------- */

struct soft_udp_packet {
    const uint8_t *data; /* valid until the next soft_udp_receive */
    size_t bytes;
    struct in6_addr src; /* IPv4 addresses are mapped */
    struct in6_addr dst;
    uint32_t flow_info; /* traffic class and flow label (0 over IPv4), host order */
    uint16_t src_port;
    uint8_t hop_limit;
    bool same_flow; /* src, dst, src_port and bytes as in the packet before */
};

/* Takes the next packet of the current batch. */
bool soft_udp_next(struct soft_udp *udp, struct soft_udp_packet *out);

/* Returns whether the current batch has packets left. */
bool soft_udp_pending(const struct soft_udp *udp);

/* Fetches the next batch, once nothing is pending; false when the socket has nothing. */
bool soft_udp_receive(struct soft_udp *udp);

#endif
