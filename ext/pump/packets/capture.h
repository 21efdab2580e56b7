/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_CAPTURE_H
#define IPU_CAPTURE_H

#include <stddef.h>

#include "core/ring.h"
#include "fabric/fabric.h"

/*
 * A tap: copies the first bytes of frames into a ring. The caller counts frames that find no room;
 * they never hold up the packet path.
 */
struct ipu_capture {
    struct ipu_ring *ring;
    uint32_t snap_len; /* bytes kept of GRH and frame together, at least a GRH; 0: off */
};

/* Captures a received frame: `grh` has 40 bytes as the device wrote them, or is NULL without a GRH.
 * Returns 0, or -ENOSPC when the ring is full. */
int ipu_capture_received(const struct ipu_capture *tap, const void *grh, const void *frame,
                         size_t len);

/* Captures a sent frame, with a GRH made of our GID and the destination. */
int ipu_capture_sent(const struct ipu_capture *tap, const struct in6_addr *our_gid,
                     const struct ipu_dest *dest, const struct ipu_send *send);

#endif
