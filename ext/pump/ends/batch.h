/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_BATCH_H
#define IPU_BATCH_H

#include "pump/state/pump_state.h"

/* A cookie is the index of the frame, with a bit for a super-frame that the fabric cuts; above it,
 * for a segment, 1 + the index of its headers. */
enum { IPU_COOKIE_UNCUT_SHIFT = 31, IPU_COOKIE_HEAD_SHIFT };

/* Returns how many packets leave by a send. */
static inline uint32_t ipu_batch_packets_of(const struct ipu_send *send)
{
    return send->cut != NULL ? send->cut->packets : 1;
}

/* Puts a frame of `tx` back, which is free again. */
void ipu_batch_put_frame(struct ipu_pump *pump, uint32_t index);

/* Releases the frames of a send that has ended or can no longer begin. */
void ipu_batch_release(struct ipu_pump *pump, uint64_t cookie);

/* Returns whether the batch or the current super-frame names the address handle, which must then
 * stay. */
bool ipu_batch_names(const void *pump, const struct ipu_ah *ah);

/* Drops and counts the segments that are left of the current super-frame. */
void ipu_batch_abandon_cut(struct ipu_pump *pump, _Atomic uint64_t *counter);

#endif
