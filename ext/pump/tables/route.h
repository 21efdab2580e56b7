/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_ROUTE_H
#define IPU_ROUTE_H

#include <netinet/in.h>
#include <stdint.h>

#include "core/hash_table.h"
#include "pump/packets/flow_key.h"

enum ipu_route_kind {
    IPU_ROUTE_ON_LINK = 0,   /* the next hop is the destination */
    IPU_ROUTE_GATEWAY = 1,   /* the next hop is the gateway, of either family (RFC 5549 too) */
    IPU_ROUTE_BROADCAST = 2, /* a subnet's broadcast address: the next hop is 255.255.255.255 */
    IPU_ROUTE_UNREACHABLE = 3,
    IPU_ROUTE_MULTIPATH = 4, /* the next hop is one of several */
    IPU_ROUTE_ASK = 5,       /* the engine asks the kernel about each flow: route_answers.h */
};

/* 255.255.255.255, the next hop of a route of kind BROADCAST. */
extern const struct in6_addr ipu_route_broadcast;

/* A next hop of a multipath route. */
struct ipu_hop {
    struct in6_addr gateway; /* unless on_link */
    uint32_t weight;         /* 1 or more: its share of the flows */
    uint32_t on_link;        /* 1: the next hop is the destination */
};

enum { IPU_HOPS_MAX = 64 };

struct ipu_hops {
    uint32_t count;
    struct ipu_hop hop[];
};

/* Returns a copy, which the caller frees with free(3); NULL: *error is -EINVAL (count or weight) or
 * -ENOMEM. */
struct ipu_hops *ipu_hops_copy(const struct ipu_hop *hops, uint32_t count, int *error);

struct ipu_route {
    struct in6_addr prefix;
    union {
        struct in6_addr gateway; /* zero unless kind is GATEWAY */
        struct ipu_hops *hops;   /* MULTIPATH */
    };
    uint8_t length; /* of the prefix, 0 to 128 bits; IPv4's are 96 to 128 */
    uint8_t kind;
    uint8_t live;   /* 0: the slot is empty */
    uint8_t fields; /* ASK: enum ipu_route_field */
    uint8_t pad[4];
};

/*
 * The routes of one interface: one hash table for all prefix lengths and a set of the lengths in
 * use, which a look-up tries, longest first. All addresses are struct in6_addr, IPv4 as
 * ::ffff:a.b.c.d with 96 added to the prefix length, so 0.0.0.0/0 has length 96; an IPv6 route of
 * length < 96 never matches an IPv4 destination. The caller refuses IPv6 packets to a v4-mapped
 * destination. Only one thread uses a table.
 */
struct ipu_route_table {
    struct ipu_route *slots;
    uint32_t mask;
    uint32_t count;
    uint32_t max;
    uint32_t used[129];  /* routes of each length */
    uint64_t lengths[3]; /* bit i of word w: there are routes of length 64 w + i */
    struct ipu_hash_seed seed;
};

/* max is the cap in routes, 1 to 2^24. seed NULL: random. Returns 0, -EINVAL, -ENOMEM, or an error
 * of getrandom(2). */
int ipu_route_init(struct ipu_route_table *table, uint32_t max, const struct ipu_hash_seed *seed);
void ipu_route_free(struct ipu_route_table *table);

/* Inserts or replaces a route, and ignores bits of the prefix beyond the length. gateway may be
 * NULL unless kind is GATEWAY. Returns 0; -EINVAL: length, kind or gateway; -ENOSPC at the cap;
 * -ENOMEM.
 */
int ipu_route_set(struct ipu_route_table *table, const struct in6_addr *prefix, unsigned length,
                  enum ipu_route_kind kind, const struct in6_addr *gateway);

/* Does as ipu_route_set(), with kind MULTIPATH and `count` next hops, 1 to IPU_HOPS_MAX. */
int ipu_route_set_hops(struct ipu_route_table *table, const struct in6_addr *prefix,
                       unsigned length, const struct ipu_hop *hops, uint32_t count);

/* Sets a route of kind ASK, with a set of enum ipu_route_field, as ipu_route_set() does. */
int ipu_route_set_ask(struct ipu_route_table *table, const struct in6_addr *prefix, unsigned length,
                      uint32_t fields);

/* Returns 0, -ENOENT or -EINVAL. */
int ipu_route_delete(struct ipu_route_table *table, const struct in6_addr *prefix, unsigned length);

/*
 * Returns the kind of the longest match and its next hop; ON_LINK when nothing matches. Multicast
 * and 255.255.255.255 are always ON_LINK, whatever the routes say: a default gateway does not take
 * them. *next_hop is the destination itself from UNREACHABLE on. next_hop may be
 * destination.
 */
enum ipu_route_kind ipu_route_lookup(const struct ipu_route_table *table,
                                     const struct in6_addr *destination, struct in6_addr *next_hop);

/* Returns the longest match, valid until the table changes; NULL: there is none. */
const struct ipu_route *ipu_route_match(const struct ipu_route_table *table,
                                        const struct in6_addr *destination);

#endif
