/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_EPOLL_SET_H
#define IPU_VERBS_EPOLL_SET_H

/* File descriptors that a fabric waits for. Both functions return 0 or a negative errno. */
int ipu_epoll_set_unblock(int fd);
/* The epoll set is readable when `fd` is. */
int ipu_epoll_set_watch(int epoll_fd, int fd);

#endif
