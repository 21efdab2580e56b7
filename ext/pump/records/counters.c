/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/records/counters.h"

#define NAME(name) #name,
#define LOAD(name) *values++ = atomic_load_explicit(&counters->name, memory_order_relaxed);

const char *const ipu_counters_names[IPU_COUNTERS_N] = {IPU_COUNTERS(NAME)};

void ipu_counters_read(const struct ipu_counters *counters, uint64_t values[IPU_COUNTERS_N])
{
    IPU_COUNTERS(LOAD)
}
