/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/tunnel.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/ip_header.h"
#include "device/relay.h"
#include "device/train.h"
#include "device/vnet.h"

enum { TURN_FRAMES = 16 }; /* frames in one direction before the other has its turn */

static uint8_t buffer[IPU_VNET_LEN + IPU_VNET_PACKET_MAX];

/* Like a wire, each direction drops a refused frame. */

static int send_turn(int tun, int udp)
{
    for (int n = 0; n < TURN_FRAMES; n++) {
        ssize_t len = read(tun, buffer, sizeof buffer);
        if (len < 0)
            return errno == EAGAIN || errno == EINTR ? n : -errno;
        if (send(udp, buffer, (size_t)len, 0) < 0 && errno == EBADF)
            return -errno;
    }
    return TURN_FRAMES;
}

/* Returns the bytes of the frame at `frame` with its vnet header; 0 without a whole frame. */
static size_t frame_bytes(const uint8_t *frame, size_t left)
{
    const uint8_t *ip = frame + IPU_VNET_LEN;
    if (left < IPU_VNET_LEN + IPU_IPV4_HEADER)
        return 0;
    size_t packet = ipu_ip_is_v4(ip) ? ipu_ip_get16(ip + IPU_IPV4_LEN)
                                     : IPU_IPV6_HEADER + (size_t)ipu_ip_get16(ip + IPU_IPV6_LEN);
    return IPU_VNET_LEN + packet <= left ? IPU_VNET_LEN + packet : 0;
}

/* GRO may have joined the trains of several frames: each frame begins with a datagram. */
static int write_train(int tun, size_t len, size_t datagram)
{
    int frames = 0;
    for (size_t at = 0, frame; at < len; at += (frame + datagram - 1) / datagram * datagram) {
        frame = frame_bytes(buffer + at, len - at);
        if (frame == 0)
            break;
        if (write(tun, buffer + at, frame) < 0 && errno == EBADFD)
            return -errno;
        frames++;
    }
    return frames;
}

static int receive_turn(int udp, int tun)
{
    int frames = 0;
    while (frames < TURN_FRAMES) {
        size_t datagram;
        ssize_t len = ipu_train_receive(udp, buffer, sizeof buffer, &datagram);
        if (len < 0)
            return len == -EAGAIN ? frames : (int)len;
        int written = len == 0 ? 0 : write_train(tun, (size_t)len, datagram);
        if (written < 0)
            return written;
        frames += written > 0 ? written : 1;
    }
    return frames;
}

int ipu_tunnel_run(int tun, int udp, int segment_bytes)
{
    int on = 1;
    if (setsockopt(udp, SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes) < 0 ||
        setsockopt(udp, SOL_UDP, UDP_GRO, &on, sizeof on) < 0)
        return -errno;
    return ipu_relay_take_turns(tun, udp, send_turn, receive_turn);
}
