/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_STEPS_H
#define IPU_TESTS_STEPS_H

#include <stdint.h>

/* How many basic blocks the code that is built to count them has run: the cost of an operation,
 * whatever the machine does besides. Only of programs in COUNTED of the Makefile. */
extern uint64_t steps;

#endif
