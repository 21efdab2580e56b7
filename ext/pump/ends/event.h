/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_EVENT_H
#define IPU_EVENT_H

#include "pump/state/pump_state.h"

/* Emits an event to the engine; false: the ring is full. */
bool ipu_event_emit(struct ipu_pump *pump, const struct ipu_event *event, const void *data);

/* Returns whether one more event that any peer can cause may go up in this second. */
bool ipu_event_spend(struct ipu_budget *budget);

/* Counts a captured frame, or its drop. */
void ipu_event_capture(struct ipu_pump *pump, int error);

#endif
