/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SLAB_H
#define IPU_SLAB_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Equal frames in one mapping, which the fabric registers as a whole. A frame's name is its index,
 * so the cookie of a send or receive is the index itself. The free frames form a stack: the frame
 * put back last is still in the cache and goes out first. Only one thread uses a slab.
 */
struct ipu_slab {
    uint8_t *base;           /* page aligned */
    size_t len;              /* bytes of the mapping */
    _Atomic uint32_t *users; /* of the mapping */
    uint32_t stride_bytes;
    uint32_t frames;
    uint32_t free_frames;
    uint32_t *stack; /* free indices; [free_frames - 1] is next */
#ifndef NDEBUG
    uint8_t *taken;
#endif
};

#define IPU_SLAB_NONE UINT32_MAX

/*
 * Rounds frame_bytes up to an odd number of 64-byte lines, so that the heads of the frames spread
 * over all sets of the cache. Returns 0, -EINVAL (no frames, or more than 4 GiB) or -ENOMEM.
 */
int ipu_slab_init(struct ipu_slab *slab, uint32_t frames, uint32_t frame_bytes);

/* Asks the kernel for huge pages, so that many frames miss the TLB less often. A huge page takes
 * memory for frames that nobody has used yet, so a slab begins without. Advice only: it copies
 * pages that are there, where the kernel can and nothing has pinned them. */
void ipu_slab_widen(const struct ipu_slab *slab);

/* Ends the mapping, even if some frames are still in use, unless another view shares it. Safe after
 * a failed init, and to repeat. */
void ipu_slab_free(struct ipu_slab *slab);

/* Makes another view of the mapping. The mapping lasts until some thread frees the last view. A
 * view gives frames' addresses; it neither takes frames nor puts them back. */
void ipu_slab_share(const struct ipu_slab *slab, struct ipu_slab *view);
void ipu_slab_unshare(struct ipu_slab *view);

/* Takes a free frame: returns its index, or IPU_SLAB_NONE. The frame still holds the data of its
 * last user. */
static inline uint32_t ipu_slab_get(struct ipu_slab *slab)
{
    if (slab->free_frames == 0)
        return IPU_SLAB_NONE;
    uint32_t index = slab->stack[--slab->free_frames];
#ifndef NDEBUG
    slab->taken[index] = 1;
#endif
    return index;
}

static inline void ipu_slab_put(struct ipu_slab *slab, uint32_t index)
{
    assert(index < slab->frames && slab->taken[index]);
#ifndef NDEBUG
    slab->taken[index] = 0;
#endif
    slab->stack[slab->free_frames++] = index;
}

static inline uint8_t *ipu_slab_at(const struct ipu_slab *slab, uint32_t index)
{
    assert(index < slab->frames);
    return slab->base + (size_t)index * slab->stride_bytes;
}

#endif
