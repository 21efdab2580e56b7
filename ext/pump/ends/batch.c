/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/ends/batch.h"

/*
 * The frames behind the sends in the batches and in the fabric. A frame is free again when the last
 * send that reads it has ended, or can no longer begin. One send for each segment reads a
 * super-frame, and so does cut() while segments are left.
 */

void ipu_batch_put_frame(struct ipu_pump *pump, uint32_t index)
{
    if (index >= pump->lent.frames) {
        ipu_slab_put(&pump->tx, index);
        return;
    }
    pump->lent.sending--;
    pump->device->ops->ended(pump->device->self, index);
}

void ipu_batch_release(struct ipu_pump *pump, uint64_t cookie)
{
    uint32_t index = (uint32_t)cookie & ((UINT32_C(1) << IPU_COOKIE_UNCUT_SHIFT) - 1);
    uint32_t head = (uint32_t)(cookie >> IPU_COOKIE_HEAD_SHIFT);
    if (head > 0) {
        ipu_slab_put(&pump->heads, head - 1);
        if (--pump->tx_users[index] > 0 || (pump->cut.segment.left > 0 && pump->cut.index == index))
            return;
    } else if (cookie >> IPU_COOKIE_UNCUT_SHIFT) {
        pump->uncut_packets -= pump->supers[index].cut.packets;
    }
    ipu_batch_put_frame(pump, index);
}

bool ipu_batch_names(const void *self, const struct ipu_ah *ah)
{
    const struct ipu_pump *pump = self;
    if (pump->cut.segment.left > 0 && pump->cut.ah == ah)
        return true;
    for (int i = 0; i < pump->pending; i++)
        if (pump->batch[i].ah == ah->handle)
            return true;
    return false;
}

void ipu_batch_abandon_cut(struct ipu_pump *pump, _Atomic uint64_t *counter)
{
    uint32_t left = pump->cut.segment.left;
    if (left == 0)
        return;
    ipu_counter_add(counter, left);
    pump->cut.segment.left = 0;
    if (pump->tx_users[pump->cut.index] == 0)
        ipu_batch_put_frame(pump, pump->cut.index);
}
