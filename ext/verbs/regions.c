/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/regions.h"

#include <errno.h>

int ipu_regions_add(struct ipu_regions *regions, struct ibv_pd *pd, void *base, size_t len)
{
    if (regions->count == IPU_REGIONS)
        return -ENOSPC;
    errno = 0;
    struct ibv_mr *mr = ibv_reg_mr(pd, base, len, IBV_ACCESS_LOCAL_WRITE);
    if (mr == NULL)
        return errno != 0 ? -errno : -EIO;
    regions->mr[regions->count++] = mr;
    return 0;
}

void ipu_regions_close(struct ipu_regions *regions)
{
    for (int i = 0; i < regions->count; i++)
        ibv_dereg_mr(regions->mr[i]);
    regions->count = 0;
}

uint32_t ipu_regions_lkey(const struct ipu_regions *regions, const void *addr)
{
    for (int i = 0; i < regions->count; i++) {
        const struct ibv_mr *mr = regions->mr[i];
        if ((uintptr_t)addr - (uintptr_t)mr->addr < mr->length)
            return mr->lkey;
    }
    return 0;
}
