/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/relay.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <unistd.h>

#include "device/vnet.h"

enum { ROUND_FRAMES = 64 }; /* frames in one direction before the other has its turn */

static uint8_t frame[IPU_VNET_LEN + IPU_VNET_PACKET_MAX];

/* Returns the number of moved frames, or a negative errno. Like a wire, the relay drops a frame
 * that the target refuses. */
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

int ipu_relay_run(int first, int second)
{
    struct pollfd fds[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
    for (;;) {
        int forth = move(first, second);
        int back = forth < 0 ? forth : move(second, first);
        if (back < 0)
            return back;
        if (forth + back == 0 && poll(fds, 2, -1) < 0 && errno != EINTR)
            return -errno;
    }
}
