/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/mac_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash_table.h"

static bool is_live(const void *slot)
{
    return ((const struct ipu_mac_entry *)slot)->live;
}

static uint32_t slot_hash(const void *slot, const struct ipu_hash_seed *seed)
{
    return (uint32_t)ipu_hash_32(seed, &((const struct ipu_mac_entry *)slot)->key);
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct ipu_mac_entry), .is_live = is_live, .hash = slot_hash};

int ipu_mac_table_init(struct ipu_mac_table *table, uint32_t max)
{
    uint32_t size = 8;
    *table = (struct ipu_mac_table){.max = max};
    while (ipu_hash_table_is_crowded(max, size - 1))
        size *= 2;
    int error = ipu_hash_seed_init(&table->seed, NULL);
    if (error < 0)
        return error;
    table->slots = calloc(size, sizeof *table->slots);
    table->mask = size - 1;
    return table->slots == NULL ? -ENOMEM : 0;
}

void ipu_mac_table_free(struct ipu_mac_table *table)
{
    free(table->slots);
    table->slots = NULL;
}

/* Returns the slot of the key, or the empty one where it would be. */
static struct ipu_mac_entry *slot_of(const struct ipu_mac_table *table,
                                     const struct ipu_mac_key *key)
{
    IPU_HASH_TABLE_PROBE(i, (uint32_t)ipu_hash_32(&table->seed, key), table->mask) {
        struct ipu_mac_entry *slot = &table->slots[i];
        if (!slot->live || memcmp(&slot->key, key, sizeof *key) == 0)
            return slot;
    }
}

int ipu_mac_table_set(struct ipu_mac_table *table, const struct in6_addr *address, uint32_t qpn,
                      const uint8_t mac[IPU_MAC_LEN], bool firm)
{
    const struct ipu_mac_key key = {.address = *address, .qpn = qpn};
    struct ipu_mac_entry *slot = slot_of(table, &key);
    if (!slot->live) {
        if (table->count == table->max)
            return -ENOSPC;
        table->count++;
        slot->key = key;
        slot->live = true;
    }
    memcpy(slot->mac, mac, IPU_MAC_LEN);
    slot->firm = firm;
    return 0;
}

void ipu_mac_table_note(struct ipu_mac_table *table, const struct in6_addr *address, uint32_t qpn)
{
    const struct ipu_mac_key key = {.address = *address};
    slot_of(table, &key)->qpn = qpn;
}

void ipu_mac_table_delete(struct ipu_mac_table *table, const struct in6_addr *address, uint32_t qpn)
{
    const struct ipu_mac_key key = {.address = *address, .qpn = qpn};
    struct ipu_mac_entry *slot = slot_of(table, &key);
    if (!slot->live)
        return;
    ipu_hash_table_delete(&layout, &table->seed, table->slots, table->mask,
                          (uint32_t)(slot - table->slots));
    table->count--;
}

const struct ipu_mac_entry *ipu_mac_table_find(const struct ipu_mac_table *table,
                                               const struct in6_addr *address, uint32_t qpn)
{
    const struct ipu_mac_key key = {.address = *address, .qpn = qpn};
    const struct ipu_mac_entry *slot = slot_of(table, &key);
    return slot->live ? slot : NULL;
}
