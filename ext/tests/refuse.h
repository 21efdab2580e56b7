/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_REFUSE_H
#define IPU_TESTS_REFUSE_H

#include <stdbool.h>

/*
 * Makes one call to an allocator or system call of the code under test fail: the call after n more
 * that succeed. A loop over n, until refuse_stop() returns false, visits every call.
 */
void refuse_after(int n);

/* Ends refusals; returns whether there was a refusal since refuse_after(). */
bool refuse_stop(void);

#endif
