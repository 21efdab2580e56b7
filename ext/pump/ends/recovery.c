/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/ends/recovery.h"

#include "core/clock.h"
#include "pump/ends/batch.h"
#include "pump/ends/event.h"

enum {
    RECOVER_MIN_MS = 10,
    RECOVER_MAX_MS = 2000,
};

#define NS_PER_MS 1000000

void ipu_recovery_broke(struct ipu_pump *pump)
{
    if (pump->broken)
        return;
    pump->broken = true;
    pump->recovery.wait_ms = RECOVER_MIN_MS;
    pump->recovery.at_ns = ipu_clock_ns() + RECOVER_MIN_MS * (uint64_t)NS_PER_MS;
    IPU_COUNT(pump, fabric_errors);
    for (int i = 0; i < pump->pending; i++) {
        IPU_ADD(pump, tx_fabric_error, ipu_batch_packets_of(&pump->batch[i]));
        ipu_batch_release(pump, pump->batch[i].cookie);
    }
    pump->pending = 0;
    pump->pending_packets = 0;
    ipu_batch_abandon_cut(pump, &pump->counters.tx_fabric_error);
    ipu_event_emit(pump, &(struct ipu_event){.type = IPU_EVENT_FABRIC, .fabric.working = 0}, NULL);
}

int ipu_recovery_try(struct ipu_pump *pump)
{
    if (!pump->broken || ipu_clock_ns() < pump->recovery.at_ns)
        return 0;
    if (pump->fabric->ops->recover != NULL && pump->fabric->ops->recover(pump->fabric->self) == 0) {
        pump->broken = false;
        IPU_COUNT(pump, fabric_recoveries);
        ipu_event_emit(pump, &(struct ipu_event){.type = IPU_EVENT_FABRIC, .fabric.working = 1},
                       NULL);
        return 1;
    }
    if (pump->recovery.wait_ms < RECOVER_MAX_MS)
        pump->recovery.wait_ms *= 2;
    pump->recovery.at_ns = ipu_clock_ns() + pump->recovery.wait_ms * (uint64_t)NS_PER_MS;
    return 0;
}
