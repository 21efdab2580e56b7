/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SYSCALL_COST_H
#define IPU_SYSCALL_COST_H

#include <stdint.h>

/* We call system calls slow from this time on: 0.1 us is usual, and a guest of User-mode Linux
 * takes 10. */
#define IPU_SYSCALL_DEAR_NS 2000

/* Returns the time of a system call on this machine, in ns: the shortest of a few. The call does
 * nothing. It does not yield the CPU, because another thread might take the CPU each time.
 */
uint64_t ipu_syscall_cost_ns(void);

#endif
