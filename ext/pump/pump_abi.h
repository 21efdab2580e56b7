/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_PUMP_ABI_H
#define IPU_PUMP_ABI_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/guests.h"
#include "fabric/fabric.h"

/*
 * The records that cross the rings between the engine and the pump: commands down, events up. A
 * record is a head, whose `type` says which member of the union holds its arguments, and `len`
 * bytes of data behind it. IP addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d.
 *
 * A new command takes three places: its struct and its line of IPU_COMMANDS here, its handler in
 * command.c, its method in ext/python/pump.pyx. tests/unit/core/test_pump_abi.py checks this.
 */

/* The mode in which packets to a destination leave. */
enum ipu_tx_mode {
    IPU_TX_UD = 0,
    IPU_TX_UD_NOTIFY = 1, /* by datagram; the first packet causes IPU_EVENT_RC_WANTED */
    IPU_TX_RC = 2,
    /* By datagram, while a connection is being made: a packet that is too long for a datagram waits
     * for it (IPU_EVENT_CONNECTING), because an ICMP error would bind the sender to short packets.
     * Too many of them are dropped (tx_connecting). */
    IPU_TX_UD_CONNECTING = 3,
};

struct ipu_neigh_set {
    struct in6_addr next_hop;
    struct ipu_dest dest; /* unless the action is HOLD or UNREACHABLE */
    uint32_t action;      /* enum ipu_neigh_action */
    uint32_t mtu;         /* largest IP packet, bytes */
};

struct ipu_neigh_del {
    struct in6_addr next_hop;
};

/* Data, for IPU_ROUTE_MULTIPATH: the next hops, struct ipu_hop. */
struct ipu_route_set {
    struct in6_addr prefix;
    struct in6_addr gateway; /* for IPU_ROUTE_GATEWAY */
    uint32_t prefix_len;     /* bits; IPv4: 96 more */
    uint32_t kind;           /* enum ipu_route_kind */
    uint32_t fields;         /* for IPU_ROUTE_ASK, which also forgets all answers */
};

/* The answer to IPU_EVENT_ROUTE_ASK. Data: the next hops (struct ipu_hop), then the IP packet. */
struct ipu_route_answer_set {
    struct in6_addr gateway; /* for IPU_ROUTE_GATEWAY */
    uint32_t kind;           /* enum ipu_route_kind, but not IPU_ROUTE_ASK */
    uint32_t hops;           /* for IPU_ROUTE_MULTIPATH: how many */
    uint32_t send;           /* 1: send the packet by the answer */
};

struct ipu_own_set {
    struct in6_addr ip;
    uint32_t ours; /* 0: no longer */
};

struct ipu_route_del {
    struct in6_addr prefix;
    uint32_t prefix_len;
};

/* Data: encapsulation header and payload. */
struct ipu_send_frame {
    struct ipu_dest dest;
    uint32_t source_qpn; /* a guest's queue pair; 0: the interface's */
};

/* A guest behind a TAP has the address. */
struct ipu_guest_set {
    struct in6_addr ip;
    uint8_t mac[IPU_MAC_LEN];
    uint8_t firm; /* 1: no other guest may send from the address */
};

struct ipu_guest_del {
    struct in6_addr ip;
};

/* The guest has a queue pair of its own. */
struct ipu_guest_qpn_set {
    uint8_t mac[IPU_MAC_LEN];
    uint32_t qpn; /* 0: no longer */
};

struct ipu_mac_set {
    uint8_t mac[IPU_MAC_LEN]; /* the source of packets of hosts that have no MAC */
};

/* Packets of a host of the link get this source towards guests. */
struct ipu_host_mac_set {
    struct in6_addr gid;
    uint32_t qpn;
    uint8_t mac[IPU_MAC_LEN];
};

struct ipu_host_mac_del {
    struct in6_addr gid;
    uint32_t qpn;
};

struct ipu_capture_set {
    uint32_t snap_len; /* bytes kept of each frame; 0 ends the capture */
};

/* As the fields of struct ipu_pump_config. */
struct ipu_busy_poll_set {
    uint32_t busy_poll_us;
    uint32_t adaptive;
};

/* IPU_EVENT_SYNC answers with the same token. */
struct ipu_sync {
    uint64_t token;
};

struct ipu_connection_add {
    uint64_t id;
    struct ipu_connection *native;
    uint32_t superframes; /* 1: messages begin with a vnet header */
};

/* IPU_EVENT_CONNECTION_GONE answers. */
struct ipu_connection_del {
    uint64_t id;
};

struct ipu_tx_mode_set {
    struct ipu_dest dest;
    uint32_t mode;             /* enum ipu_tx_mode; the rest is for IPU_TX_RC */
    uint32_t mtu;              /* largest IP packet of the connection, bytes */
    uint32_t superframe_bytes; /* largest super-frame that the peer takes; 0: none */
    uint64_t id;               /* of the connection */
};

/* Each command: its enumerator, and the name of its handler do_... in command.c. */
#define IPU_COMMANDS(X)                                                                            \
    X(NEIGH_SET, neigh_set)                                                                        \
    X(NEIGH_DEL, neigh_del)                                                                        \
    X(ROUTE_SET, route_set)                                                                        \
    X(ROUTE_DEL, route_del)                                                                        \
    X(ROUTE_ANSWER, route_answer)                                                                  \
    X(SEND_FRAME, send_frame)                                                                      \
    X(SEND_PACKET, send_packet) /* data: an IP packet, onto the transmit path; a miss is a drop */ \
    X(FORWARD, forward)         /* the same, but a miss is an event */                             \
    X(DELIVER, deliver)         /* data: an IP packet, to the device */                            \
    X(OWN_SET, own_set)                                                                            \
    X(GUEST_SET, guest_set)                                                                        \
    X(GUEST_DEL, guest_del)                                                                        \
    X(GUEST_QPN_SET, guest_qpn_set)                                                                \
    X(MAC_SET, mac_set)                                                                            \
    X(HOST_MAC_SET, host_mac_set)                                                                  \
    X(HOST_MAC_DEL, host_mac_del)                                                                  \
    X(CAPTURE, capture)                                                                            \
    X(BUSY_POLL, busy_poll)                                                                        \
    X(DHCP_WATCH, dhcp_watch) /* DHCP messages of both directions to one host go to the engine */  \
    X(SYNC, sync)                                                                                  \
    X(CONNECTION_ADD, connection_add)                                                              \
    X(CONNECTION_DEL, connection_del)                                                              \
    X(TX_MODE_SET, tx_mode_set)

enum ipu_command_type {
    IPU_COMMAND_NONE = 0,
#define X(NAME, handler) IPU_COMMAND_##NAME,
    IPU_COMMANDS(X)
#undef X
        IPU_COMMAND_TYPES
};

struct ipu_command {
    uint32_t type;
    uint32_t len;
    union {
        struct ipu_neigh_set neigh_set;
        struct ipu_neigh_del neigh_del;
        struct ipu_route_set route_set;
        struct ipu_route_del route_del;
        struct ipu_own_set own_set;
        struct ipu_guest_set guest_set;
        struct ipu_guest_del guest_del;
        struct ipu_guest_qpn_set guest_qpn_set;
        struct ipu_mac_set mac_set;
        struct ipu_host_mac_set host_mac_set;
        struct ipu_host_mac_del host_mac_del;
        struct ipu_route_answer_set route_answer;
        struct ipu_send_frame send_frame;
        struct ipu_capture_set capture;
        struct ipu_busy_poll_set busy_poll;
        struct ipu_sync sync;
        struct ipu_connection_add connection_add;
        struct ipu_connection_del connection_del;
        struct ipu_tx_mode_set tx_mode_set;
    };
};

enum ipu_event_type {
    IPU_EVENT_MISS = 1,    /* next_hop: no entry; data: the IP packet */
    IPU_EVENT_USED,        /* next_hop: first use of a NOTIFY entry */
    IPU_EVENT_UNREACHABLE, /* next_hop: dropped at an UNREACHABLE entry; data: the IP packet */
    IPU_EVENT_TOO_BIG,     /* too_big; data: the IP packet */
    IPU_EVENT_HOST,        /* IGMP, MLD or a DHCP request left the device; data: the IP packet */
    IPU_EVENT_FRAME,       /* frame: ARP or ND arrived; data: from the IPoIB header on */
    IPU_EVENT_FABRIC,      /* fabric */
    IPU_EVENT_DEVICE,      /* device: it failed for good */
    IPU_EVENT_SYNC,        /* sync */
    IPU_EVENT_RC_WANTED,   /* rc_wanted */
    IPU_EVENT_CONNECTION_BROKEN, /* connection: a send failed; packets go by datagram */
    IPU_EVENT_CONNECTION_GONE,   /* connection: the pump has forgotten it */
    IPU_EVENT_ROUTE_ASK,         /* next_hop: the destination; data: the IP packet */
    IPU_EVENT_WANTED, /* next_hop: no entry for a hop of a multipath route; packets go by another */
    IPU_EVENT_NEIGH_REFUSED,      /* neigh_refused: NEIGH_SET failed, the table is as it was */
    IPU_EVENT_CONTROL_LIMITED,    /* frame: the first ARP or ND message refused in a second */
    IPU_EVENT_DHCP_REPLY,         /* of DHCP or DHCPv6; data: the IP packet */
    IPU_EVENT_DROPPED,            /* dropped: a peer's datagram, which is counted already */
    IPU_EVENT_CONNECTION_DROPPED, /* dropped: the same, of a connection */
    IPU_EVENT_LINK_PACKET,        /* frame: to an address that no guest has; data: the IP packet */
    IPU_EVENT_SPOOFED,    /* next_hop: the source address, which another guest has; data: the MAC */
    IPU_EVENT_CONNECTING, /* next_hop; data: the IP packet, too long before there is a connection */
    IPU_EVENT_RESOLUTION_LIMITED, /* next_hop: the first in a second that may not be resolved */
};

struct ipu_neigh_refused {
    struct in6_addr next_hop;
    uint32_t error; /* errno; ENOSPC: our own cap */
};

struct ipu_too_big {
    struct in6_addr next_hop;
    uint32_t mtu; /* largest IP packet that the next hop takes, bytes */
};

struct ipu_frame_received {
    struct in6_addr sgid;
    struct in6_addr dgid;
    uint32_t src_qpn;
    uint32_t has_grh; /* 0: the GIDs are not valid */
};

struct ipu_fabric_state {
    uint32_t working; /* 0: broken, 1: working again */
};

struct ipu_device_failed {
    uint32_t error; /* errno */
};

/* A packet went to a destination in mode IPU_TX_UD_NOTIFY. */
struct ipu_rc_wanted {
    struct in6_addr gid;
    uint32_t qpn;
};

struct ipu_connection_event {
    uint64_t id;
};

struct ipu_dropped {
    union {
        struct ipu_frame_received frame;
        struct ipu_connection_event connection;
    };
    uint32_t counter; /* enum ipu_counter */
};

struct ipu_event {
    uint32_t type;
    uint32_t len;
    union {
        struct in6_addr next_hop;
        struct ipu_neigh_refused neigh_refused;
        struct ipu_too_big too_big;
        struct ipu_frame_received frame;
        struct ipu_dropped dropped;
        struct ipu_fabric_state fabric;
        struct ipu_device_failed device;
        struct ipu_sync sync;
        struct ipu_rc_wanted rc_wanted;
        struct ipu_connection_event connection;
    };
};

/* The capture ring's records: a GRH, which the pump makes for sent frames, and the first bytes of
 * the frame. */
struct ipu_captured {
    uint64_t time_ns;  /* CLOCK_REALTIME */
    uint32_t outgoing; /* 1: sent, 0: received */
    uint32_t wire_len; /* of GRH and frame together */
    uint32_t len;      /* bytes kept, GRH included */
    uint32_t pad;
};

#endif
