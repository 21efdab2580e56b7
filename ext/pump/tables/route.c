/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/tables/route.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS   64u
#define MAX_ROUTES    (1u << 24)
#define IPV4_LENGTH   96u /* of ::ffff:0:0, which all IPv4 prefixes start with */
#define MAX_LENGTH    128u
#define IPV4_ANY_WORD UINT64_C(0x0000FFFF00000000) /* the second half of ::ffff:0.0.0.0 */

const struct in6_addr ipu_route_broadcast = {
    .s6_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}};

/* An address as two numbers, the first bit the highest. */
struct bits {
    uint64_t high, low;
};

static struct bits bits_of(const struct in6_addr *address)
{
    uint64_t half[2];
    memcpy(half, address, sizeof half);
    return (struct bits){be64toh(half[0]), be64toh(half[1])};
}

static struct in6_addr address_of(struct bits bits)
{
    struct in6_addr address;
    uint64_t half[2] = {htobe64(bits.high), htobe64(bits.low)};
    memcpy(&address, half, sizeof address);
    return address;
}

static struct bits cut(struct bits bits, unsigned length)
{
    if (length >= MAX_LENGTH)
        return bits;
    if (length > 64)
        return (struct bits){bits.high, bits.low & ~(UINT64_MAX >> (length - 64))};
    if (length == 64)
        return (struct bits){bits.high, 0};
    return (struct bits){bits.high & ~(UINT64_MAX >> length), 0};
}

static bool is_ipv4(struct bits bits)
{
    return bits.high == 0 && bits.low >> 32 == IPV4_ANY_WORD >> 32;
}

static bool is_multicast(struct bits bits)
{
    if (is_ipv4(bits)) {
        uint32_t ipv4 = (uint32_t)bits.low;
        return ipv4 >> 28 == 0xE || ipv4 == UINT32_MAX;
    }
    return bits.high >> 56 == 0xFF;
}

static uint32_t hash(const struct ipu_hash_seed *seed, const struct in6_addr *prefix,
                     unsigned length)
{
    return (uint32_t)ipu_hash_16(seed, prefix) + length * UINT32_C(0x9E3779B1);
}

static bool is_live(const void *slot)
{
    return ((const struct ipu_route *)slot)->live;
}

static uint32_t hash_of(const void *slot, const struct ipu_hash_seed *seed)
{
    const struct ipu_route *route = slot;
    return hash(seed, &route->prefix, route->length);
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct ipu_route), .is_live = is_live, .hash = hash_of};

static void *new_slots(uint32_t n)
{
    return calloc(n, sizeof(struct ipu_route));
}

int ipu_route_init(struct ipu_route_table *table, uint32_t max, const struct ipu_hash_seed *seed)
{
    memset(table, 0, sizeof *table);
    if (max == 0 || max > MAX_ROUTES)
        return -EINVAL;
    int error = ipu_hash_seed_init(&table->seed, seed);
    if (error)
        return error;
    table->slots = new_slots(FIRST_SLOTS);
    if (!table->slots)
        return -ENOMEM;
    table->mask = FIRST_SLOTS - 1;
    table->max = max;
    return 0;
}

static void free_hops(const struct ipu_route *route)
{
    if (route->live && route->kind == IPU_ROUTE_MULTIPATH)
        free(route->hops);
}

void ipu_route_free(struct ipu_route_table *table)
{
    for (uint32_t i = 0; table->slots != NULL && i <= table->mask; i++)
        free_hops(&table->slots[i]);
    free(table->slots);
    memset(table, 0, sizeof *table);
}

/* Returns the slot of the route, or the empty slot where it belongs. */
static struct ipu_route *slot_of(const struct ipu_route_table *table, const struct in6_addr *prefix,
                                 unsigned length)
{
    IPU_HASH_TABLE_PROBE(i, hash(&table->seed, prefix, length), table->mask) {
        struct ipu_route *slot = &table->slots[i];
        if (!slot->live)
            return slot;
        if (slot->length == length && memcmp(&slot->prefix, prefix, sizeof *prefix) == 0)
            return slot;
    }
}

static int grow(struct ipu_route_table *table)
{
    struct ipu_route *slots =
        ipu_hash_table_doubled(&layout, &table->seed, table->slots, &table->mask, new_slots);
    if (!slots)
        return -ENOMEM;
    table->slots = slots;
    return 0;
}

static bool valid_prefix(struct bits bits, unsigned length)
{
    /* ::ffff:0:0/96 holds IPv4; a shorter prefix inside of it is a mistake of the caller. */
    return length <= MAX_LENGTH && (!is_ipv4(bits) || length >= IPV4_LENGTH);
}

/* Returns the slot for a route with this prefix, of which `start` is the beginning; NULL: see
 * *error. */
static struct ipu_route *make_slot(struct ipu_route_table *table, const struct in6_addr *start,
                                   unsigned length, int *error)
{
    struct ipu_route *slot = slot_of(table, start, length);
    if (slot->live)
        return slot;
    *error = -ENOSPC;
    if (table->count == table->max)
        return NULL;
    *error = -ENOMEM;
    if (ipu_hash_table_is_crowded(table->count, table->mask)) {
        if (grow(table) != 0)
            return NULL;
        slot = slot_of(table, start, length);
    }
    table->count++;
    table->used[length]++;
    table->lengths[length / 64] |= UINT64_C(1) << (length % 64);
    return slot;
}

/* Inserts or replaces; takes over the hops of `route`, if it has any, when it returns 0. */
static int put(struct ipu_route_table *table, const struct in6_addr *prefix, unsigned length,
               struct ipu_route route)
{
    int error;
    struct bits bits = bits_of(prefix);
    if (!valid_prefix(bits, length))
        return -EINVAL;
    route.prefix = address_of(cut(bits, length));
    route.length = (uint8_t)length;
    route.live = 1;
    struct ipu_route *slot = make_slot(table, &route.prefix, length, &error);
    if (slot == NULL)
        return error;
    free_hops(slot);
    *slot = route;
    return 0;
}

int ipu_route_set(struct ipu_route_table *table, const struct in6_addr *prefix, unsigned length,
                  enum ipu_route_kind kind, const struct in6_addr *gateway)
{
    if ((uint32_t)kind > IPU_ROUTE_UNREACHABLE || (kind == IPU_ROUTE_GATEWAY && !gateway))
        return -EINVAL;
    struct ipu_route route = {.kind = (uint8_t)kind};
    if (kind == IPU_ROUTE_GATEWAY)
        route.gateway = *gateway;
    return put(table, prefix, length, route);
}

struct ipu_hops *ipu_hops_copy(const struct ipu_hop *hops, uint32_t count, int *error)
{
    *error = -EINVAL;
    if (count < 1 || count > IPU_HOPS_MAX)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (hops[i].weight < 1)
            return NULL;
    }
    *error = -ENOMEM;
    struct ipu_hops *copy = malloc(sizeof *copy + count * sizeof *hops);
    if (copy == NULL)
        return NULL;
    copy->count = count;
    memcpy(copy->hop, hops, count * sizeof *hops);
    return copy;
}

int ipu_route_set_hops(struct ipu_route_table *table, const struct in6_addr *prefix,
                       unsigned length, const struct ipu_hop *hops, uint32_t count)
{
    int error;
    struct ipu_hops *copy = ipu_hops_copy(hops, count, &error);
    if (copy == NULL)
        return error;
    error =
        put(table, prefix, length, (struct ipu_route){.kind = IPU_ROUTE_MULTIPATH, .hops = copy});
    if (error < 0)
        free(copy);
    return error;
}

int ipu_route_set_ask(struct ipu_route_table *table, const struct in6_addr *prefix, unsigned length,
                      uint32_t fields)
{
    if (fields > IPU_ROUTE_FIELDS)
        return -EINVAL;
    return put(table, prefix, length,
               (struct ipu_route){.kind = IPU_ROUTE_ASK, .fields = (uint8_t)fields});
}

int ipu_route_delete(struct ipu_route_table *table, const struct in6_addr *prefix, unsigned length)
{
    struct bits bits = bits_of(prefix);
    if (!valid_prefix(bits, length))
        return -EINVAL;
    struct in6_addr start = address_of(cut(bits, length));
    struct ipu_route *slot = slot_of(table, &start, length);
    if (!slot->live)
        return -ENOENT;
    free_hops(slot);
    ipu_hash_table_delete(&layout, &table->seed, table->slots, table->mask,
                          (uint32_t)(slot - table->slots));
    table->count--;
    if (--table->used[length] == 0)
        table->lengths[length / 64] &= ~(UINT64_C(1) << (length % 64));
    return 0;
}

/* Inlined into the look-up of every packet. */
IPU_HASH_TABLE_INLINE const struct ipu_route *longest_match(const struct ipu_route_table *table,
                                                            struct bits bits)
{
    uint64_t lengths[3];
    memcpy(lengths, table->lengths, sizeof lengths);
    if (is_ipv4(bits)) {
        lengths[0] = 0;
        lengths[1] &= UINT64_MAX << (IPV4_LENGTH - 64);
    }
    for (unsigned word = 3; word-- > 0;) {
        while (lengths[word] != 0) {
            unsigned bit = 63u - (unsigned)__builtin_clzll(lengths[word]);
            lengths[word] ^= UINT64_C(1) << bit;
            unsigned length = 64 * word + bit;
            struct in6_addr prefix = address_of(cut(bits, length));
            const struct ipu_route *route = slot_of(table, &prefix, length);
            if (route->live)
                return route;
        }
    }
    return NULL;
}

enum ipu_route_kind ipu_route_lookup(const struct ipu_route_table *table,
                                     const struct in6_addr *destination, struct in6_addr *next_hop)
{
    struct bits bits = bits_of(destination);
    *next_hop = *destination;
    if (is_multicast(bits))
        return IPU_ROUTE_ON_LINK;
    const struct ipu_route *route = longest_match(table, bits);
    if (!route)
        return IPU_ROUTE_ON_LINK;
    if (route->kind == IPU_ROUTE_GATEWAY)
        *next_hop = route->gateway;
    else if (route->kind == IPU_ROUTE_BROADCAST)
        *next_hop = ipu_route_broadcast;
    return (enum ipu_route_kind)route->kind;
}

const struct ipu_route *ipu_route_match(const struct ipu_route_table *table,
                                        const struct in6_addr *destination)
{
    return longest_match(table, bits_of(destination));
}
