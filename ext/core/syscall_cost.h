/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SYSCALL_COST_H
#define IPU_SYSCALL_COST_H

#include <stdint.h>

/* From here on they are dear: 0.1 us is usual, and a guest of User-mode Linux takes 10. */
#define IPU_SYSCALL_DEAR_NS 2000

/*
 * How long a system call takes on this machine, in ns: the quickest of a few, by one that does
 * nothing and does not offer the CPU to others, since somebody might take it up each time.
 */
uint64_t ipu_syscall_cost_ns(void);

#endif
