/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/train.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

int ipu_train_send(int udp, const void *train, size_t bytes, size_t each)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)train, .iov_len = bytes};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (bytes > each) {
        uint16_t segment = (uint16_t)each;
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof segment);
        memcpy(CMSG_DATA(c), &segment, sizeof segment);
    }
    return sendmsg(udp, &msg, 0) < 0 && errno == EBADF ? -EBADF : 0;
}

ssize_t ipu_train_receive(int udp, void *train, size_t size, size_t *each)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = train, .iov_len = size};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t len = recvmsg(udp, &msg, 0);
    if (len < 0) /* ECONNREFUSED: of an earlier send */
        return errno == EINTR || errno == ECONNREFUSED ? -EAGAIN : -errno;
    *each = (size_t)len;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
        int bytes;
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            memcpy(&bytes, CMSG_DATA(c), sizeof bytes);
            *each = (size_t)bytes;
        }
    }
    return len;
}
