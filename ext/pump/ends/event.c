/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/ends/event.h"

#include <string.h>

#include "core/clock.h"

/* The most events a second of each kind that a peer or application can cause at will. */
enum { EVENTS_PER_S = 100 };

const struct ipu_event_kind ipu_event_kinds[IPU_EVENT_TYPES] = {
#define X(NAME, member) [IPU_EVENT_##NAME] = {#NAME, IPU_EVENT_OF_##member},
    IPU_EVENTS(X)
#undef X
};

bool ipu_event_spend(struct ipu_budget *budget)
{
    uint64_t second = ipu_clock_coarse_ms() / 1000;
    if (budget->second != second)
        *budget = (struct ipu_budget){.second = second, .left = EVENTS_PER_S};
    return budget->left > 0 && budget->left-- > 0;
}

bool ipu_event_emit(struct ipu_pump *pump, const struct ipu_event *event, const void *data)
{
    struct ipu_event *record =
        ipu_ring_reserve(&pump->events, (uint32_t)sizeof *event + event->len);
    if (record == NULL)
        return false;
    *record = *event;
    if (event->len > 0)
        memcpy(record + 1, data, event->len);
    ipu_ring_commit(&pump->events, (uint32_t)sizeof *event + event->len);
    IPU_COUNT(pump, events);
    return true;
}

void ipu_event_capture(struct ipu_pump *pump, int error)
{
    if (error < 0)
        IPU_COUNT(pump, capture_dropped);
    else
        IPU_COUNT(pump, capture_packets);
}
