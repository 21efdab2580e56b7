/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FLOW_KEY_H
#define IPU_FLOW_KEY_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#include "core/hash.h"

/* The fields that distinguish flows, in network order; IPv4 addresses as ::ffff:a.b.c.d. Zero is
 * unknown: a fragment has no ports, and no protocol, so that all fragments of a packet belong to
 * one flow. */
struct ipu_flow_key {
    struct in6_addr src, dst;
    uint8_t ports[4]; /* source, destination: of TCP, UDP, SCTP, UDP-Lite and DCCP */
    uint8_t protocol;
    uint8_t tos; /* or the traffic class */
    uint8_t pad[2];
};

/* Returns the key of a packet that ipu_classify_tx() took. */
struct ipu_flow_key ipu_flow_key_of(const uint8_t *ip, size_t len);

/* Forgets what `fields` (enum ipu_route_field) does not have; the destination stays. */
void ipu_flow_key_mask(struct ipu_flow_key *key, uint32_t fields);

/* The type of service counts as little as in the kernel: one flow keeps to one next hop. */
uint32_t ipu_flow_key_hash(const struct ipu_flow_key *key, const struct ipu_hash_seed *seed);

#endif
