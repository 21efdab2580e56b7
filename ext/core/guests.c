/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/guests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash_table.h"
#include "core/ip_header.h"

static bool is_live(const void *slot)
{
    return !IN6_IS_ADDR_UNSPECIFIED(&((const struct ipu_guest *)slot)->ip);
}

static uint32_t hash_of(const struct in6_addr *ip, const struct ipu_hash_seed *seed)
{
    return (uint32_t)ipu_hash_16(seed, ip);
}

static uint32_t slot_hash(const void *slot, const struct ipu_hash_seed *seed)
{
    return hash_of(&((const struct ipu_guest *)slot)->ip, seed);
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct ipu_guest), .is_live = is_live, .hash = slot_hash};

int ipu_guests_init(struct ipu_guests *guests, uint32_t max)
{
    uint32_t size = 8;
    *guests = (struct ipu_guests){.max = max};
    while (ipu_hash_table_is_crowded(max, size - 1))
        size *= 2;
    int error = ipu_hash_seed_init(&guests->seed, NULL);
    if (error < 0)
        return error;
    guests->slots = calloc(size, sizeof *guests->slots);
    guests->mask = size - 1;
    return guests->slots == NULL ? -ENOMEM : 0;
}

void ipu_guests_free(struct ipu_guests *guests)
{
    free(guests->slots);
    guests->slots = NULL;
}

/* Returns the slot of the address, or the empty one where it would be. */
static struct ipu_guest *slot_of(const struct ipu_guests *guests, const struct in6_addr *ip)
{
    IPU_HASH_TABLE_PROBE(i, hash_of(ip, &guests->seed), guests->mask) {
        struct ipu_guest *slot = &guests->slots[i];
        if (!is_live(slot) || memcmp(&slot->ip, ip, sizeof *ip) == 0)
            return slot;
    }
}

int ipu_guests_set(struct ipu_guests *guests, const struct in6_addr *ip,
                   const uint8_t mac[IPU_MAC_LEN], bool firm)
{
    if (IN6_IS_ADDR_UNSPECIFIED(ip))
        return -EINVAL;
    struct ipu_guest *slot = slot_of(guests, ip);
    if (!is_live(slot)) {
        if (guests->count == guests->max)
            return -ENOSPC;
        guests->count++;
        slot->ip = *ip;
    }
    memcpy(slot->mac, mac, IPU_MAC_LEN);
    slot->firm = firm;
    return 0;
}

void ipu_guests_delete(struct ipu_guests *guests, const struct in6_addr *ip)
{
    struct ipu_guest *slot = slot_of(guests, ip);
    if (!is_live(slot))
        return;
    ipu_hash_table_delete(&layout, &guests->seed, guests->slots, guests->mask,
                          (uint32_t)(slot - guests->slots));
    guests->count--;
}

const struct ipu_guest *ipu_guests_find(const struct ipu_guests *guests, const struct in6_addr *ip)
{
    const struct ipu_guest *slot = slot_of(guests, ip);
    return is_live(slot) ? slot : NULL;
}

bool ipu_guests_destination(const struct ipu_guests *guests, const uint8_t *ip,
                            uint8_t mac[IPU_MAC_LEN])
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (ipu_ip_is_v4(ip)) {
        const uint8_t *to = ip + 16;
        if ((to[0] & to[1] & to[2] & to[3]) == 0xff) {
            memset(mac, 0xff, IPU_MAC_LEN);
            return true;
        }
        if ((to[0] & 0xf0) == 0xe0) {
            const uint8_t group[IPU_MAC_LEN] = {0x01, 0x00, 0x5e, to[1] & 0x7f, to[2], to[3]};
            memcpy(mac, group, IPU_MAC_LEN);
            return true;
        }
        memcpy(address.s6_addr + 12, to, 4);
    } else {
        if (ip[24] == 0xff) {
            mac[0] = mac[1] = 0x33;
            memcpy(mac + 2, ip + 36, 4);
            return true;
        }
        memcpy(&address, ip + 24, sizeof address);
    }
    const struct ipu_guest *guest = ipu_guests_find(guests, &address);
    if (guest != NULL)
        memcpy(mac, guest->mac, IPU_MAC_LEN);
    return guest != NULL;
}
