/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_PUMP_ABI_H
#define IPU_PUMP_ABI_H

#include <netinet/in.h>
#include <stdint.h>

#include "core/frame.h"
#include "fabric/fabric.h"

/*
 * What crosses the rings between the engine and the pump. Each record is one fixed head and `len`
 * bytes behind it. IP addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d.
 */

enum ipu_command_type {
    IPU_COMMAND_NEIGH_SET = 1, /* next hop `key`: forward, mtu, dest */
    IPU_COMMAND_NEIGH_DEL,     /* next hop `key` */
    IPU_COMMAND_ROUTE_SET, /* `key`/`prefix_len` (IPv4: 96 more) of kind `forward`, gateway `via` */
    IPU_COMMAND_ROUTE_DEL,
    IPU_COMMAND_SEND_FRAME,  /* data: encapsulation header and payload, to dest */
    IPU_COMMAND_SEND_PACKET, /* data: an IP packet, as if the device had sent it; a miss is a drop
                              */
    IPU_COMMAND_DELIVER,     /* data: an IP packet, to the device */
    IPU_COMMAND_CAPTURE,     /* `mtu`: bytes kept of each frame, 0 to end */
    IPU_COMMAND_SYNC,        /* answered by IPU_EVENT_SYNC with the same token */
    IPU_COMMAND_CONNECTION_ADD, /* connection `token`, `native`; `forward` 1: with vnet headers */
    IPU_COMMAND_CONNECTION_DEL, /* connection `token`: IPU_EVENT_CONNECTION_GONE answers */
    IPU_COMMAND_TX_MODE, /* packets to dest go as `forward` (enum ipu_tx_mode) says; by connection
                            `token`: `mtu`, `superframe_bytes` */
};

enum ipu_tx_mode {
    IPU_TX_UD = 0,
    IPU_TX_UD_NOTIFY = 1, /* by datagram; the first one causes IPU_EVENT_RC_WANTED */
    IPU_TX_RC = 2,
};

struct ipu_command {
    uint32_t type;
    uint32_t len;
    struct in6_addr key;
    struct in6_addr via;
    struct ipu_dest dest;
    uint32_t forward;
    uint32_t mtu;
    uint32_t prefix_len;
    uint32_t superframe_bytes;
    uint64_t token;
    struct ipu_connection *native;
};

enum ipu_event_type {
    IPU_EVENT_MISS = 1,    /* no entry for next hop `key`; data: the IP packet */
    IPU_EVENT_USED,        /* first use of the NOTIFY entry `key` */
    IPU_EVENT_UNREACHABLE, /* dropped at the UNREACHABLE entry `key`; data: the IP packet */
    IPU_EVENT_TOO_BIG,     /* larger than `mtu` of `key`; data: the IP packet */
    IPU_EVENT_HOST,        /* an IGMP or MLD packet left the device; data: the IP packet */
    IPU_EVENT_FRAME,       /* ARP or ND from src_qpn, sgid, dgid; data: from the IPoIB header on */
    IPU_EVENT_FABRIC,      /* `mtu` 0: broken, 1: working again */
    IPU_EVENT_DEVICE,      /* the device failed for good; `mtu`: errno */
    IPU_EVENT_SYNC,
    IPU_EVENT_RC_WANTED,         /* in mode UD_NOTIFY a packet went to src_qpn at dgid */
    IPU_EVENT_CONNECTION_BROKEN, /* connection `token`: a send failed; packets go by datagram */
    IPU_EVENT_CONNECTION_GONE,   /* connection `token`: the pump knows nothing of it any more */
};

#define IPU_EVENT_GRH 1u /* flags: sgid and dgid are valid */

struct ipu_event {
    uint32_t type;
    uint32_t len;
    uint32_t flags;
    uint32_t mtu;
    uint32_t src_qpn;
    uint32_t pad;
    struct in6_addr key;
    struct in6_addr sgid;
    struct in6_addr dgid;
    uint64_t token;
};

/* The capture ring's records: a GRH, made up for what we send, and the first bytes of the frame. */
struct ipu_captured {
    uint64_t time_ns;  /* CLOCK_REALTIME */
    uint32_t outgoing; /* 1: sent, 0: received */
    uint32_t wire_len; /* of GRH and frame together */
    uint32_t len;      /* bytes kept, GRH included */
    uint32_t pad;
};

#endif
