/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FLOW_KEY_H
#define IPU_FLOW_KEY_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#include "core/hash.h"

/* The fields besides the destination that make flows different where the route is of kind ASK. */
enum ipu_route_field {
    IPU_ROUTE_FIELD_SOURCE = 1,
    IPU_ROUTE_FIELD_TOS = 2,
    IPU_ROUTE_FIELD_PORTS = 4, /* and the protocol */
    IPU_ROUTE_FIELDS = 7,
};

/* The fields that distinguish flows, in network order; IPv4 addresses as ::ffff:a.b.c.d. Zero
 * means unknown: a fragment has no ports, and no protocol, so that all fragments of a packet belong
 * to one flow. */
struct ipu_flow_key {
    struct in6_addr src, dst;
    uint8_t ports[4]; /* source, destination: of TCP, UDP, SCTP, UDP-Lite and DCCP */
    uint8_t protocol;
    uint8_t tos; /* type of service, or the traffic class */
    uint8_t pad[2];
};

/* Returns the key of a packet that ipu_classify_tx() accepted. */
struct ipu_flow_key ipu_flow_key_of(const uint8_t *ip, size_t len);

/* Clears the fields that `fields` (enum ipu_route_field) does not name; the destination stays. */
void ipu_flow_key_mask(struct ipu_flow_key *key, uint32_t fields);

/* Ignores the type of service, as the kernel's hash does: one flow keeps to one next hop. */
uint32_t ipu_flow_key_hash(const struct ipu_flow_key *key, const struct ipu_hash_seed *seed);

#endif
