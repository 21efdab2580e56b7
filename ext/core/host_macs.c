/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/host_macs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash_table.h"

static bool is_live(const void *slot)
{
    return ((const struct ipu_host_mac *)slot)->key.qpn != 0;
}

static uint32_t slot_hash(const void *slot, const struct ipu_hash_seed *seed)
{
    return (uint32_t)ipu_hash_32(seed, &((const struct ipu_host_mac *)slot)->key);
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct ipu_host_mac), .is_live = is_live, .hash = slot_hash};

int ipu_host_macs_init(struct ipu_host_macs *macs, uint32_t max)
{
    uint32_t size = 8;
    *macs = (struct ipu_host_macs){.max = max};
    while (ipu_hash_table_is_crowded(max, size - 1))
        size *= 2;
    int error = ipu_hash_seed_init(&macs->seed, NULL);
    if (error < 0)
        return error;
    macs->slots = calloc(size, sizeof *macs->slots);
    macs->mask = size - 1;
    return macs->slots == NULL ? -ENOMEM : 0;
}

void ipu_host_macs_free(struct ipu_host_macs *macs)
{
    free(macs->slots);
    macs->slots = NULL;
}

/* Returns the slot of the host, or the empty one where it would be. */
static struct ipu_host_mac *slot_of(const struct ipu_host_macs *macs,
                                    const struct ipu_host_key *key)
{
    IPU_HASH_TABLE_PROBE(i, (uint32_t)ipu_hash_32(&macs->seed, key), macs->mask) {
        struct ipu_host_mac *slot = &macs->slots[i];
        if (!is_live(slot) || memcmp(&slot->key, key, sizeof *key) == 0)
            return slot;
    }
}

int ipu_host_macs_set(struct ipu_host_macs *macs, const struct in6_addr *gid, uint32_t qpn,
                      const uint8_t mac[IPU_MAC_LEN])
{
    const struct ipu_host_key key = {.gid = *gid, .qpn = qpn};
    if (qpn == 0)
        return -EINVAL;
    struct ipu_host_mac *slot = slot_of(macs, &key);
    if (!is_live(slot)) {
        if (macs->count == macs->max)
            return -ENOSPC;
        macs->count++;
        slot->key = key;
    }
    memcpy(slot->mac, mac, IPU_MAC_LEN);
    return 0;
}

void ipu_host_macs_delete(struct ipu_host_macs *macs, const struct in6_addr *gid, uint32_t qpn)
{
    const struct ipu_host_key key = {.gid = *gid, .qpn = qpn};
    struct ipu_host_mac *slot = slot_of(macs, &key);
    if (!is_live(slot))
        return;
    ipu_hash_table_delete(&layout, &macs->seed, macs->slots, macs->mask,
                          (uint32_t)(slot - macs->slots));
    macs->count--;
}

const uint8_t *ipu_host_macs_find(const struct ipu_host_macs *macs, const struct in6_addr *gid,
                                  uint32_t qpn)
{
    const struct ipu_host_key key = {.gid = *gid, .qpn = qpn};
    const struct ipu_host_mac *slot = slot_of(macs, &key);
    return is_live(slot) ? slot->mac : NULL;
}
