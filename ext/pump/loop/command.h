/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_COMMAND_H
#define IPU_COMMAND_H

#include "pump/state/pump_state.h"

/* Runs at most max commands, whatever the batch holds and even with a current super-frame. */
int ipu_command_run(struct ipu_pump *pump, int max);

#endif
