/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_REGIONS_H
#define IPU_VERBS_REGIONS_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* The memory that a fabric may send from and receive into. Only one thread uses it. */
enum { IPU_REGIONS = 8 };

struct ipu_regions {
    struct ibv_mr *mr[IPU_REGIONS];
    int count;
};

/* Returns 0 or a negative errno. */
int ipu_regions_add(struct ipu_regions *regions, struct ibv_pd *pd, void *base, size_t len);
/* Safe to repeat. */
void ipu_regions_close(struct ipu_regions *regions);
/* Returns the local key of the region that holds the address; without one 0, which devices
 * refuse. */
uint32_t ipu_regions_lkey(const struct ipu_regions *regions, const void *addr);

#endif
