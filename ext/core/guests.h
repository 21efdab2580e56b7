/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_GUESTS_H
#define IPU_GUESTS_H

#include "core/mac_table.h"

/*
 * The guests behind a TAP, and the hosts of the link as the guests see them. Belongs to the pump's
 * thread.
 */
enum {
    IPU_GUESTS_MAX = 16384, /* addresses */
    IPU_HOSTS_MAX = 16384,
    IPU_GUEST_QPNS_MAX = 1024,
};

struct ipu_guests {
    struct ipu_mac_table guests; /* IP address (IPv4 as v4-mapped) -> the guest that has it */
    struct ipu_mac_table hosts;  /* GID and queue pair -> the MAC that stands for the host */
    struct ipu_mac_table qpns;   /* the queue pair of a guest -> its MAC */
    struct ipu_mac_table macs;   /* a guest's MAC -> itself, with its queue pair */
    uint8_t own[IPU_MAC_LEN];    /* the source of packets of hosts that have no MAC */
};

/* Returns what ipu_mac_table_init() returns. */
int ipu_guests_init(struct ipu_guests *guests);
void ipu_guests_free(struct ipu_guests *guests);

/* Writes the MAC to which an IP packet goes: that of its group (RFC 1112 §6.4, RFC 2464 §7), of the
 * guest to whose queue pair it came, or of the guest that has its destination. False: no guest has
 * it. The caller has checked that the packet has a whole header without options. */
bool ipu_guests_destination(const struct ipu_guests *guests, uint32_t qpn, const uint8_t *ip,
                            uint8_t mac[IPU_MAC_LEN]);

/* Gives the guest a queue pair of its own, in place of one that it had; 0 or -ENOSPC. */
int ipu_guests_set_qpn(struct ipu_guests *guests, const uint8_t mac[IPU_MAC_LEN], uint32_t qpn);
void ipu_guests_delete_qpn(struct ipu_guests *guests, const uint8_t mac[IPU_MAC_LEN]);

/* Returns the guest's queue pair; 0: it shares the interface's. */
uint32_t ipu_guests_qpn(const struct ipu_guests *guests, const uint8_t mac[IPU_MAC_LEN]);

/* Returns whether the queue pair is a guest's. */
static inline bool ipu_guests_sends_as(const struct ipu_guests *guests, uint32_t qpn)
{
    static const struct in6_addr none;
    return guests->qpns.count > 0 && ipu_mac_table_find(&guests->qpns, &none, qpn) != NULL;
}

/* Returns the MAC from which guests receive the packets of a host. */
const uint8_t *ipu_guests_source(const struct ipu_guests *guests, const struct in6_addr *gid,
                                 uint32_t qpn);

#endif
