/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_GUESTS_H
#define IPU_GUESTS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/hash.h"

/*
 * The guests behind a TAP, by IP address: the MAC to which packets of the link go, and which source
 * a guest may use. Belongs to the pump's thread.
 */
#define IPU_MAC_LEN    6u
#define IPU_GUESTS_MAX 16384u /* addresses behind a TAP; ETHERNET_GUESTS_MAX in limits.py */

struct ipu_guest {
    struct in6_addr ip; /* IPv4 as v4-mapped; :: in an empty slot */
    uint8_t mac[IPU_MAC_LEN];
    bool firm; /* no other guest may send from the address */
};

struct ipu_guests {
    struct ipu_guest *slots;
    uint32_t mask, count, max;
    struct ipu_hash_seed seed;
    uint8_t own[IPU_MAC_LEN]; /* the source of packets of hosts that have no MAC */
};

/* Makes room for `max` addresses. Returns 0, -ENOMEM or an error of getrandom(2). */
int ipu_guests_init(struct ipu_guests *guests, uint32_t max);
void ipu_guests_free(struct ipu_guests *guests);

/* Returns 0, -ENOSPC at the cap, or -EINVAL for the unspecified address. */
int ipu_guests_set(struct ipu_guests *guests, const struct in6_addr *ip,
                   const uint8_t mac[IPU_MAC_LEN], bool firm);
void ipu_guests_delete(struct ipu_guests *guests, const struct in6_addr *ip);

/* Returns the guest that has the address, or NULL. */
const struct ipu_guest *ipu_guests_find(const struct ipu_guests *guests, const struct in6_addr *ip);

/* Writes the MAC to which an IP packet goes: that of its group (RFC 1112 §6.4, RFC 2464 §7), or of
 * the guest that has its destination. False: no guest has it. The caller has checked that the
 * packet has a whole header without options. */
bool ipu_guests_destination(const struct ipu_guests *guests, const uint8_t *ip,
                            uint8_t mac[IPU_MAC_LEN]);

#endif
