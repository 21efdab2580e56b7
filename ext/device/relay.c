/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/relay.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <unistd.h>

#include "device/vnet.h"

enum { ROUND_FRAMES = 64 }; /* frames in one direction before the other has its turn */

static uint8_t frame[IPU_VNET_LEN + IPU_VNET_PACKET_MAX];

/* Like a wire, the relay drops a frame that the target refuses. */
static int move(int from, int to)
{
    for (int n = 0; n < ROUND_FRAMES; n++) {
        ssize_t len = read(from, frame, sizeof frame);
        if (len < 0)
            return errno == EAGAIN || errno == EINTR ? n : -errno;
        if (write(to, frame, (size_t)len) < 0 && errno == EBADFD)
            return -errno;
    }
    return ROUND_FRAMES;
}

int ipu_relay_take_turns(int first, int second, ipu_relay_move *forth, ipu_relay_move *back)
{
    struct pollfd fds[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
    for (;;) {
        int sent = forth(first, second);
        int received = sent < 0 ? sent : back(second, first);
        if (received < 0)
            return received;
        if (sent + received == 0 && poll(fds, 2, -1) < 0 && errno != EINTR)
            return -errno;
    }
}

int ipu_relay_run(int first, int second)
{
    return ipu_relay_take_turns(first, second, move, move);
}
