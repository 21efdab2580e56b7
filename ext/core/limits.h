/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_LIMITS_H
#define IPU_LIMITS_H

/* The most TX queues of one interface; each has a pump of its own. */
enum { IPU_TX_QUEUES_MAX = 16 };

#endif
