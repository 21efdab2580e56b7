/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/records/counters.h"

#include "core/counter.h"

const char *const ipu_counters_names[IPU_COUNTERS_N] = {IPU_COUNTERS(IPU_COUNTER_NAME)};

void ipu_counters_read(const struct ipu_counters *counters, uint64_t values[IPU_COUNTERS_N])
{
    ipu_counter_read(counters, IPU_COUNTERS_N, values);
}
