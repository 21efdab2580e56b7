/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/epoll_set.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>

int ipu_epoll_set_unblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

int ipu_epoll_set_watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}
