/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_NEIGH_H
#define IPU_NEIGH_H

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "core/hash_table.h"

struct ipu_ah;

/* The pump's action on a packet for a next hop; the values of NeighAction in
 * ipoibu/proto/effects.py. */
enum ipu_neigh_action {
    IPU_NEIGH_SEND = 0,
    IPU_NEIGH_NOTIFY = 1,
    IPU_NEIGH_HOLD = 2,
    IPU_NEIGH_UNREACHABLE = 3,
};

/* Two entries share a cache line. The caller may change only action, mtu and ah in place. */
struct ipu_neigh {
    struct in6_addr next_hop; /* IPv4 as ::ffff:a.b.c.d */
    struct ipu_ah *ah;        /* with one reference of the caller; NULL for HOLD and UNREACHABLE */
    uint32_t hash;
    uint16_t mtu; /* largest IP packet, bytes */
    uint8_t action;
    uint8_t live; /* 0: the slot is empty */
};

/* The next-hop table. It doubles up to the cap, all at once (ext/README.md has the cost). Only one
 * thread uses it.
 */
struct ipu_neigh_table {
    struct ipu_neigh *slots;
    uint32_t mask; /* slots - 1 */
    uint32_t count;
    uint32_t max;
    struct ipu_hash_seed seed;
};

/* max is the cap in entries, 1 to 2^24. seed NULL: random. Returns 0, -EINVAL, -ENOMEM, or an error
 * of getrandom(2). */
int ipu_neigh_init(struct ipu_neigh_table *table, uint32_t max, const struct ipu_hash_seed *seed);

/* Frees the table; the references to address handles stay with the caller. Safe to repeat. */
void ipu_neigh_free(struct ipu_neigh_table *table);

/* Returns the entry, valid until the next set or delete, or NULL. */
static inline struct ipu_neigh *ipu_neigh_find(const struct ipu_neigh_table *table,
                                               const struct in6_addr *next_hop)
{
    uint32_t hash = (uint32_t)ipu_hash_16(&table->seed, next_hop);
    IPU_HASH_TABLE_PROBE(i, hash, table->mask) {
        struct ipu_neigh *slot = &table->slots[i];
        if (!slot->live)
            return NULL;
        if (slot->hash == hash && memcmp(&slot->next_hop, next_hop, sizeof *next_hop) == 0)
            return slot;
    }
}

/* Inserts or replaces an entry. *former is the address handle of the replaced entry (NULL: none),
 * which the caller has to put. Returns 0; or, with nothing changed, -ENOSPC at the cap, -ENOMEM
 * when the table cannot grow, -EINVAL for an mtu above 65535 or an unknown action.
 */
int ipu_neigh_set(struct ipu_neigh_table *table, const struct in6_addr *next_hop, struct ipu_ah *ah,
                  enum ipu_neigh_action action, uint32_t mtu, struct ipu_ah **former);

/* Deletes an entry; returns 0 or -ENOENT. *former is as in ipu_neigh_set(). */
int ipu_neigh_delete(struct ipu_neigh_table *table, const struct in6_addr *next_hop,
                     struct ipu_ah **former);

#endif
