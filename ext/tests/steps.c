/* SPDX-License-Identifier: BSD-2-Clause */
#include "steps.h"

uint64_t steps;

/* The compiler calls it at each basic block: -fsanitize-coverage=trace-pc. */
void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
    steps++;
}
