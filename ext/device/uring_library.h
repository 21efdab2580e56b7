/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_URING_LIBRARY_H
#define IPU_URING_LIBRARY_H

#include <stdbool.h>

/*
 * liburing, which is loaded at run time: a machine without it makes a system call for each packet
 * of a TUN. Most of liburing is inline functions of its header; these are the others that we call.
 */

/* Why liburing is not there, in a line; NULL if it is. */
const char *ipu_uring_missing(void);

#ifdef IPU_HAVE_URING
#include <liburing.h>

struct ipu_uring_library {
    __typeof__(&io_uring_queue_init) queue_init;
    __typeof__(&io_uring_queue_exit) queue_exit;
    __typeof__(&io_uring_submit) submit;
    __typeof__(&io_uring_submit_and_wait) submit_and_wait;
    __typeof__(&io_uring_wait_cqe_timeout) wait_cqe_timeout;
};

/* Valid unless `ipu_uring_missing`. */
extern struct ipu_uring_library ipu_uring;
#endif

#endif
