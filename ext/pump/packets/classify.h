/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_CLASSIFY_H
#define IPU_CLASSIFY_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first look at a packet, which decides where it goes. The functions read nothing beyond `len`,
 * and trust only the fields that they have checked.
 */
enum ipu_tx_class {
    IPU_TX_FORWARD,
    IPU_TX_HOST, /* to a group, and of a protocol that the engine follows: IGMP, MLD, a DHCP
                  * client's
                  */
    IPU_TX_ND,   /* neighbour solicitation or advertisement: the engine sends these, not the host */
    IPU_TX_MALFORMED,
};

struct ipu_flow {
    struct in6_addr dst; /* IPv4 as v4-mapped */
    uint16_t type;       /* encapsulation type, host order */
    bool group;          /* multicast or 255.255.255.255: no route applies */
};

enum ipu_tx_class ipu_classify_tx(const uint8_t *ip, size_t len, struct ipu_flow *flow);

enum ipu_rx_class {
    IPU_RX_DELIVER,
    IPU_RX_ENGINE,      /* ARP and neighbour discovery */
    IPU_RX_UNCONCERNED, /* a hello among hosts with several rails */
    IPU_RX_UNKNOWN_TYPE,
    IPU_RX_MALFORMED,
};

/* `frame` starts at the encapsulation header, `len` counts it and is at least IPU_ENCAP_LEN. */
enum ipu_rx_class ipu_classify_rx_untrusted(const uint8_t *frame, size_t len);

/* What an ICMPv6 message says to a host: admission.c asks it of those that the engine may get. */
enum ipu_icmp6_concern {
    IPU_ICMP6_ALL,     /* about its sender, to every host that gets it */
    IPU_ICMP6_ASKS,    /* about its sender, to its target */
    IPU_ICMP6_ANSWERS, /* about its target, to its destination */
};

/*
 * The ICMPv6 messages that the pump does not only forward: name, type, class of one that the host
 * sends (IPU_TX_HOST: if it goes to a group), class of one from the link, and its concern. All
 * others are packets like any. A message that the engine answers is one more line;
 * docs/understand/changing.md names what follows behind it.
 */
#define IPU_ICMP6(X)                                                                               \
    X(MLD_QUERY, 130, IPU_TX_HOST, IPU_RX_DELIVER, IPU_ICMP6_ALL) /* RFC 2710 §3 */               \
    X(MLD_REPORT, 131, IPU_TX_HOST, IPU_RX_DELIVER, IPU_ICMP6_ALL)                                 \
    X(MLD_DONE, 132, IPU_TX_HOST, IPU_RX_DELIVER, IPU_ICMP6_ALL)                                   \
    X(RS, 133, IPU_TX_FORWARD, IPU_RX_ENGINE, IPU_ICMP6_ALL) /* RFC 4861 §4 */                    \
    X(RA, 134, IPU_TX_FORWARD, IPU_RX_ENGINE, IPU_ICMP6_ALL)                                       \
    X(NS, 135, IPU_TX_ND, IPU_RX_ENGINE, IPU_ICMP6_ASKS)                                           \
    X(NA, 136, IPU_TX_ND, IPU_RX_ENGINE, IPU_ICMP6_ANSWERS)                                        \
    X(REDIRECT, 137, IPU_TX_FORWARD, IPU_RX_ENGINE, IPU_ICMP6_ALL)                                 \
    X(MLD2_REPORT, 143, IPU_TX_HOST, IPU_RX_DELIVER, IPU_ICMP6_ALL) /* RFC 3810 §5.2 */

struct ipu_icmp6_kind {
    uint8_t of_host; /* enum ipu_tx_class */
    uint8_t of_link; /* enum ipu_rx_class */
    uint8_t concern; /* enum ipu_icmp6_concern */
};

/* By type; what is not in the table is IPU_TX_FORWARD and IPU_RX_DELIVER. */
extern const struct ipu_icmp6_kind ipu_icmp6_kinds[UINT8_MAX + 1];

/* Returns whether a packet is ICMPv6 of a kind that the engine gets from the link: neighbour
 * discovery. */
bool ipu_classify_is_nd(const uint8_t *ip, size_t len);

/* The ports of a DHCP message as the first word of its UDP header, source first; RFC 2131 §4.1. */
enum ipu_dhcp_ports {
    IPU_DHCP_OF_CLIENT = 68 << 16 | 67,
    IPU_DHCP_OF_SERVER = 67 << 16 | 68,
};

/* Returns whether a packet is a whole DHCP message in one direction. No client or server sends IPv4
 * options, so one word decides about nearly all other packets. */
bool ipu_classify_is_dhcp(const uint8_t *ip, size_t len, enum ipu_dhcp_ports ports);

/* Returns whether a packet is a whole message of a DHCPv6 server to a client (RFC 8415 §7.2); one
 * behind extension headers goes to the local stack. */
bool ipu_classify_is_dhcp6_reply(const uint8_t *ip, size_t len);

/* Returns the v4-mapped form of an IPv4 address in network order. */
struct in6_addr ipu_classify_map4(const uint8_t v4[4]);

#endif
