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
 * A new command takes three places: its struct and its line of IPU_COMMANDS here (of
 * IPU_GUEST_COMMANDS, if it is for guests behind a TAP alone), its handler in command.c, its
 * method in ext/python/pump.pyx. A new event takes two: its line of IPU_EVENTS here, and its
 * line of EVENTS in ipoibu/endpoint/interface/shell.py. Somebody then emits it (ipu_event_emit(),
 * with ipu_event_spend() where a peer can cause it). Only new arguments take more: their struct, a
 * member of the union and its line of IPU_EVENT_MEMBERS, and the branch of decode() in pump.pyx
 * that sets fields of Event. tests/unit/core/test_pump_abi.py checks all of this.
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

/* The fields mean what those of struct ipu_pump_config mean. */
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
    X(CAPTURE, capture)                                                                            \
    X(BUSY_POLL, busy_poll)                                                                        \
    X(DHCP_WATCH, dhcp_watch) /* DHCP messages of both directions to one host go to the engine */  \
    X(SYNC, sync)                                                                                  \
    X(CONNECTION_ADD, connection_add)                                                              \
    X(CONNECTION_DEL, connection_del)                                                              \
    X(TX_MODE_SET, tx_mode_set)

#define IPU_GUEST_COMMANDS(X)                                                                      \
    X(GUEST_SET, guest_set)                                                                        \
    X(GUEST_DEL, guest_del)                                                                        \
    X(GUEST_QPN_SET, guest_qpn_set)                                                                \
    X(MAC_SET, mac_set)                                                                            \
    X(HOST_MAC_SET, host_mac_set)                                                                  \
    X(HOST_MAC_DEL, host_mac_del)

enum ipu_command_type {
    IPU_COMMAND_NONE = 0,
#define X(NAME, handler) IPU_COMMAND_##NAME,
    IPU_COMMANDS(X) IPU_GUEST_COMMANDS(X)
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

/* Each event: its enumerator, and the member of the union that holds its arguments; `data`: it has
 * data alone. */
#define IPU_EVENTS(X)                                                                              \
    X(MISS, next_hop)        /* no entry; data: the IP packet */                                   \
    X(USED, next_hop)        /* first use of a NOTIFY entry */                                     \
    X(UNREACHABLE, next_hop) /* dropped at an UNREACHABLE entry; data: the IP packet */            \
    X(TOO_BIG, too_big)      /* data: the IP packet */                                             \
    X(HOST, data)   /* IGMP, MLD or a DHCP request left the device; data: the IP packet */         \
    X(FRAME, frame) /* ARP or ND arrived; data: from the IPoIB header on */                        \
    X(FABRIC, fabric)                                                                              \
    X(DEVICE, device) /* it failed for good */                                                     \
    X(SYNC, sync)                                                                                  \
    X(RC_WANTED, rc_wanted)                                                                        \
    X(CONNECTION_BROKEN, connection) /* a send failed; packets go by datagram */                   \
    X(CONNECTION_GONE, connection)   /* the pump has forgotten it */                               \
    X(ROUTE_ASK, next_hop)           /* the destination; data: the IP packet */                    \
    X(WANTED, next_hop)              /* no entry for one of several hops; packets go by another */ \
    X(NEIGH_REFUSED, neigh_refused)  /* NEIGH_SET failed, the table is as it was */                \
    X(CONTROL_LIMITED, frame)        /* the first ARP or ND message refused in a second */         \
    X(DHCP_REPLY, data)              /* of DHCP or DHCPv6; data: the IP packet */                  \
    X(DROPPED, frame_dropped)        /* a peer's datagram, which is counted already */             \
    X(CONNECTION_DROPPED, connection_dropped) /* the same, of a connection */                      \
    X(LINK_PACKET, frame)           /* to an address that no guest has; data: the IP packet */     \
    X(SPOOFED, next_hop)            /* the source address, another guest's; data: the MAC */       \
    X(CONNECTING, next_hop)         /* data: the IP packet, too long without a connection */       \
    X(RESOLUTION_LIMITED, next_hop) /* the first in a second that may not be resolved */

/* The members; ext/python/pump.pyx decodes each of them. */
#define IPU_EVENT_MEMBERS(X)                                                                       \
    X(data)                                                                                        \
    X(next_hop)                                                                                    \
    X(too_big)                                                                                     \
    X(frame)                                                                                       \
    X(frame_dropped)                                                                               \
    X(connection)                                                                                  \
    X(connection_dropped)                                                                          \
    X(neigh_refused)                                                                               \
    X(rc_wanted)                                                                                   \
    X(fabric)                                                                                      \
    X(device)                                                                                      \
    X(sync)

enum ipu_event_type {
    IPU_EVENT_NONE = 0,
#define X(NAME, member) IPU_EVENT_##NAME,
    IPU_EVENTS(X)
#undef X
        IPU_EVENT_TYPES
};

enum ipu_event_member {
#define X(member) IPU_EVENT_OF_##member,
    IPU_EVENT_MEMBERS(X)
#undef X
};

/* By enum ipu_event_type. */
struct ipu_event_kind {
    const char *name;
    enum ipu_event_member member;
};

extern const struct ipu_event_kind ipu_event_kinds[IPU_EVENT_TYPES];

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

struct ipu_frame_dropped {
    struct ipu_frame_received frame;
    uint32_t counter; /* enum ipu_counter */
};

struct ipu_connection_dropped {
    struct ipu_connection_event connection;
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
        struct ipu_frame_dropped frame_dropped;
        struct ipu_connection_dropped connection_dropped;
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
