/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_REFUSE_H
#define IPU_TESTS_REFUSE_H

#include <stdbool.h>

/*
 * Lets one call to an allocator or system call of the code under test fail: the one after n more
 * that succeed. A loop over n, until refuse_stop() says that nothing was refused, visits every one.
 */
void refuse_after(int n);

/* No more refusals. Whether there was one since refuse_after(). */
bool refuse_stop(void);

#endif
