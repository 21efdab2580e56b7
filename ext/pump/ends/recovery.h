/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RECOVERY_H
#define IPU_RECOVERY_H

#include "pump/state/pump_state.h"

/* Notes that the fabric returned an error; drops and counts the pending sends. */
void ipu_recovery_broke(struct ipu_pump *pump);

/* Tries to recover a broken fabric, with a wait that doubles; returns 1 when it just worked, and
 * the caller may post receives again. */
int ipu_recovery_try(struct ipu_pump *pump);

#endif
