/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_HOST_MACS_H
#define IPU_HOST_MACS_H

#include <netinet/in.h>
#include <stdint.h>

#include "core/guests.h"
#include "core/hash.h"

/*
 * The MACs that stand for hosts of the link towards guests, by hardware address: GID and queue pair
 * number. Belongs to the pump's thread.
 */
#define IPU_HOST_MACS_MAX 16384u /* ETHERNET_NEIGHBOURS_MAX in limits.py */

struct ipu_host_key {
    struct in6_addr gid;
    uint32_t qpn; /* never 0 in a table: queue pair 0 sends no IP */
    uint32_t pad[3];
};

struct ipu_host_mac {
    struct ipu_host_key key;
    uint8_t mac[IPU_MAC_LEN];
};

struct ipu_host_macs {
    struct ipu_host_mac *slots;
    uint32_t mask, count, max;
    struct ipu_hash_seed seed;
};

/* Makes room for `max` hosts. Returns 0, -ENOMEM or an error of getrandom(2). */
int ipu_host_macs_init(struct ipu_host_macs *macs, uint32_t max);
void ipu_host_macs_free(struct ipu_host_macs *macs);

/* Returns 0, -ENOSPC at the cap, or -EINVAL for queue pair 0. */
int ipu_host_macs_set(struct ipu_host_macs *macs, const struct in6_addr *gid, uint32_t qpn,
                      const uint8_t mac[IPU_MAC_LEN]);
void ipu_host_macs_delete(struct ipu_host_macs *macs, const struct in6_addr *gid, uint32_t qpn);

/* Returns the MAC of the host, or NULL. */
const uint8_t *ipu_host_macs_find(const struct ipu_host_macs *macs, const struct in6_addr *gid,
                                  uint32_t qpn);

#endif
