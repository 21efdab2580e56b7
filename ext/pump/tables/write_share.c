/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/tables/write_share.h"

#include <string.h>

/* Returns the writes of the active sender that wrote least; 0: no sender is active. */
static uint32_t least_writes(const struct ipu_write_share *share)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < IPU_WRITE_SHARE_SENDERS; i++)
        if (share->units[i] >= IPU_WRITE_SHARE_LEAST && share->writes[i] < least)
            least = share->writes[i];
    return least == UINT32_MAX ? 0 : least;
}

static void begin_window(struct ipu_write_share *share)
{
    share->window = 0;
    memset(share->units, 0, sizeof share->units);
    memset(share->writes, 0, sizeof share->writes);
}

static void end_window(struct ipu_write_share *share)
{
    uint32_t least = least_writes(share);
    for (uint32_t i = 0; i < IPU_WRITE_SHARE_SENDERS; i++) {
        uint32_t others = share->window - share->units[i];
        uint32_t excess = share->units[i] > others ? share->units[i] - others : 0;
        share->allowed[i] = IPU_WRITE_SHARE_LEAST + (excess > least ? excess : least);
    }
    begin_window(share);
}

void ipu_write_share_count(struct ipu_write_share *share, uint32_t bytes)
{
    uint32_t units = bytes > IPU_WRITE_SHARE_UNIT ? bytes / IPU_WRITE_SHARE_UNIT : 1;
    if (share->window >= IPU_WRITE_SHARE_WINDOW)
        end_window(share);
    share->units[share->current] += units;
    share->window += units;
}

void ipu_write_share_end_round(struct ipu_write_share *share, uint32_t received, bool was_idle)
{
    if (share->disabled)
        return;
    if (was_idle) {
        share->backlog -=
            share->backlog < IPU_WRITE_SHARE_IDLE ? share->backlog : IPU_WRITE_SHARE_IDLE;
        share->saturated = share->saturated && share->backlog > 0;
        return;
    }
    share->backlog += received;
    if (share->backlog < IPU_WRITE_SHARE_BACKLOG)
        return;
    share->backlog = IPU_WRITE_SHARE_BACKLOG;
    if (share->saturated)
        return;
    share->saturated = true;
    begin_window(share);
    for (uint32_t i = 0; i < IPU_WRITE_SHARE_SENDERS; i++)
        share->allowed[i] = UINT32_MAX; /* no window has ended yet */
}
