/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE_BYTES    64u
#define MAX_SLAB_SIZE (UINT64_C(1) << 32)
#define COLLAPSE      25 /* MADV_COLLAPSE, which the headers of Debian 12 lack */

int ipu_slab_init(struct ipu_slab *slab, uint32_t frames, uint32_t frame_bytes)
{
    memset(slab, 0, sizeof *slab);
    if (frames == 0 || frame_bytes == 0 || frame_bytes > UINT32_MAX - 2 * LINE_BYTES)
        return -EINVAL;
    uint32_t lines = (frame_bytes + LINE_BYTES - 1) / LINE_BYTES;
    uint32_t stride_bytes = (lines | 1) * LINE_BYTES;
    uint64_t len = (uint64_t)frames * stride_bytes;
    if (len > MAX_SLAB_SIZE)
        return -EINVAL;

    slab->users = malloc(sizeof *slab->users);
    if (!slab->users)
        return -ENOMEM;
    atomic_init(slab->users, 1);
    slab->stack = malloc(frames * sizeof *slab->stack);
    if (!slab->stack)
        goto fail;
#ifndef NDEBUG
    slab->taken = calloc(frames, 1);
    if (!slab->taken)
        goto fail;
#endif
    void *base =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        goto fail;
    slab->base = base;
    slab->len = len;
    /* This is advice only: no copy-on-write of pinned pages after a fork. */
    (void)madvise(base, len, MADV_DONTFORK);

    slab->stride_bytes = stride_bytes;
    slab->frames = frames;
    slab->free_frames = frames;
    /* ipu_slab_get() hands out the first frames first. */
    for (uint32_t i = 0; i < frames; i++)
        slab->stack[i] = frames - 1 - i;
    return 0;

fail:
    ipu_slab_free(slab);
    return -ENOMEM;
}

void ipu_slab_widen(const struct ipu_slab *slab)
{
    if (slab->base == NULL)
        return;
    (void)madvise(slab->base, slab->len, MADV_HUGEPAGE);
    (void)madvise(slab->base, slab->len, COLLAPSE); /* Linux 6.1 */
}

void ipu_slab_free(struct ipu_slab *slab)
{
    free(slab->stack);
#ifndef NDEBUG
    free(slab->taken);
#endif
    ipu_slab_unshare(slab);
}

void ipu_slab_share(const struct ipu_slab *slab, struct ipu_slab *view)
{
    atomic_fetch_add_explicit(slab->users, 1, memory_order_relaxed);
    *view = (struct ipu_slab){.base = slab->base,
                              .len = slab->len,
                              .users = slab->users,
                              .stride_bytes = slab->stride_bytes,
                              .frames = slab->frames};
}

void ipu_slab_unshare(struct ipu_slab *view)
{
    if (view->users && atomic_fetch_sub_explicit(view->users, 1, memory_order_acq_rel) == 1) {
        if (view->base)
            (void)munmap(view->base, view->len);
        free(view->users);
    }
    memset(view, 0, sizeof *view);
}
