/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_MAC_TABLE_H
#define IPU_MAC_TABLE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/hash.h"

/* MACs by an address and, for hosts of the link, the number of their queue pair. A table belongs to
 * one thread. */
#define IPU_MAC_LEN 6u

struct ipu_mac_key {
    struct in6_addr address;
    uint32_t qpn; /* 0 for an IP address */
    uint32_t pad[3];
};

struct ipu_mac_entry {
    struct ipu_mac_key key;
    uint8_t mac[IPU_MAC_LEN];
    bool firm;    /* of a guest: no other one may send from the address */
    bool live;    /* false in an empty slot */
    uint32_t qpn; /* of a guest that has a queue pair of its own */
};

struct ipu_mac_table {
    struct ipu_mac_entry *slots;
    uint32_t mask, count, max;
    struct ipu_hash_seed seed;
};

/* Makes room for `max` entries. Returns 0, -ENOMEM or an error of getrandom(2). */
int ipu_mac_table_init(struct ipu_mac_table *table, uint32_t max);
void ipu_mac_table_free(struct ipu_mac_table *table);

/* Returns 0, or -ENOSPC at the cap. */
int ipu_mac_table_set(struct ipu_mac_table *table, const struct in6_addr *address, uint32_t qpn,
                      const uint8_t mac[IPU_MAC_LEN], bool firm);
void ipu_mac_table_delete(struct ipu_mac_table *table, const struct in6_addr *address,
                          uint32_t qpn);

/* Notes the queue pair of the entry of an IP address, which must be there. */
void ipu_mac_table_note(struct ipu_mac_table *table, const struct in6_addr *address, uint32_t qpn);

/* Returns the entry, which stays until the table changes, or NULL. */
const struct ipu_mac_entry *ipu_mac_table_find(const struct ipu_mac_table *table,
                                               const struct in6_addr *address, uint32_t qpn);

#endif
