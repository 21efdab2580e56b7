/* SPDX-License-Identifier: BSD-2-Clause */
#include "ceiling.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "device/train.h"

enum {
    TURN_FRAMES = 16, /* in one direction before the other has its turn */
    WAKE_MS = 20,     /* while trains wait for their acknowledgement */
};

struct ceiling *ceiling_create(int tun, int udp, const struct in6_addr ends[2],
                               uint32_t packet_bytes)
{
    if (packet_bytes % 4 != 0 || packet_bytes > CEILING_PACKET_MAX ||
        (packet_bytes != 0 && packet_bytes < CEILING_PACKET_MIN))
        return NULL;
    struct ceiling *self = calloc(1, sizeof *self);
    if (self == NULL)
        return NULL;
    self->tun = tun;
    self->udp = udp;
    self->packet_bytes = packet_bytes;
    memcpy(self->ends, ends, sizeof self->ends);
    (packet_bytes == 0 ? ceiling_datagram_init : ceiling_connected_init)(self);
    return self;
}

static int send_turn(struct ceiling *self, uint64_t now_ns)
{
    for (int n = 0; n < TURN_FRAMES; n++) {
        int sent = self->packet_bytes != 0 ? ceiling_connected_send(self, now_ns)
                                           : ceiling_datagram_send(self);
        if (sent <= 0)
            return sent < 0 ? sent : n;
    }
    return TURN_FRAMES;
}

static int receive_turn(struct ceiling *self, uint64_t now_ns)
{
    for (int n = 0; n < TURN_FRAMES; n++) {
        ssize_t len = ipu_train_receive(self->udp, self->train, sizeof self->train, &self->each);
        if (len < 0)
            return len == -EAGAIN ? n : (int)len;
        self->train_bytes = (size_t)len;
        int error = self->packet_bytes != 0 ? ceiling_connected_take_untrusted(self, now_ns)
                                            : ceiling_datagram_take_untrusted(self);
        if (error < 0)
            return error;
    }
    return TURN_FRAMES;
}

int ceiling_step(struct ceiling *self, uint64_t now_ns)
{
    int sent = send_turn(self, now_ns);
    int received = sent < 0 ? sent : receive_turn(self, now_ns);
    int error = received < 0 || self->packet_bytes == 0 ? 0 : ceiling_resend_due(self, now_ns);
    if (received < 0 || error < 0)
        return received < 0 ? received : error;
    return sent + received;
}

/* With a full window the next thing to happen is an acknowledgement. */
static int wait_for_work(struct ceiling *self)
{
    bool is_connected = self->packet_bytes != 0;
    bool may_read = !is_connected || ceiling_has_room(self);
    bool waits = is_connected && self->waiting > 0;
    struct pollfd fds[2] = {{.fd = self->udp, .events = POLLIN},
                            {.fd = may_read ? self->tun : -1, .events = POLLIN}};
    return poll(fds, 2, waits ? WAKE_MS : -1) < 0 && errno != EINTR ? -errno : 0;
}

int ceiling_run(struct ceiling *self)
{
    for (;;) {
        int moved = ceiling_step(self, ipu_clock_ns());
        if (moved == 0)
            moved = wait_for_work(self);
        if (moved < 0)
            return moved;
    }
}
