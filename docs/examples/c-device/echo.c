/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A packet device that answers UDP, as port 7 does, in the data path's own thread: no packet waits
 * for a wake-up. Super-frames pass as they came: their vnet header says the same both ways.
 *
 * build.sh compiles it, and traffic.py runs it.
 */
#include <errno.h>
#include <ipoibu/packet_device.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    LENT_BYTES = 4 << 20,
    UDP = 17,
    PORT = 7,
    IPV4_BYTES = 20,
    IPV6_BYTES = 40,
};

struct echo {
    struct ipoibu_packet_device_v1 device;
    struct ipoibu_frames_v1 frames;
    uint32_t *spare; /* a stack of frames that we may fill */
    uint32_t spares;
    uint32_t *filled; /* a ring of frames to send */
    uint32_t *bytes;  /* how long each frame is */
    uint32_t head, tail;
    int fd;
    _Atomic uint64_t echoed;
};

static void swap(uint8_t *a, uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

/* Turns a packet to port 7 round. Sums stay right when both ends change places. */
static bool turn_round(uint8_t *ip, size_t len)
{
    bool is_ipv4 = len > IPV4_BYTES + 8 && ip[0] == 0x45 && ip[9] == UDP;
    bool is_ipv6 = len > IPV6_BYTES + 8 && ip[0] >> 4 == 6 && ip[6] == UDP;
    if (is_ipv4 && ((ip[6] & 0x3f) | ip[7]) != 0) /* a fragment */
        return false;
    uint8_t *udp = ip + (is_ipv4 ? IPV4_BYTES : IPV6_BYTES);
    if ((!is_ipv4 && !is_ipv6) || udp[2] != 0 || udp[3] != PORT)
        return false;
    if (is_ipv4 && (ip[16] >= 224 || ip[19] == 255)) /* nobody answers a group */
        return false;
    if (is_ipv6 && ip[24] == 0xff)
        return false;
    swap(ip + (is_ipv4 ? 12 : 8), ip + (is_ipv4 ? 16 : 24), is_ipv4 ? 4 : 16);
    swap(udp, udp + 2, 2);
    return true;
}

/* What waited to be sent is lost, as its frames are. */
static void echo_stop(void *self)
{
    struct echo *echo = self;
    free(echo->spare);
    free(echo->filled);
    free(echo->bytes);
    echo->spare = echo->filled = echo->bytes = NULL;
}

static int echo_start(void *self, const struct ipoibu_frames_v1 *frames)
{
    struct echo *echo = self;
    echo->spare = calloc(frames->count, sizeof *echo->spare);
    echo->filled = calloc(frames->count, sizeof *echo->filled);
    echo->bytes = calloc(frames->count, sizeof *echo->bytes);
    if (echo->spare == NULL || echo->filled == NULL || echo->bytes == NULL) {
        echo_stop(echo);
        return -ENOMEM;
    }
    echo->frames = *frames;
    echo->head = echo->tail = 0;
    for (echo->spares = 0; echo->spares < frames->count; echo->spares++)
        echo->spare[echo->spares] = echo->spares;
    return 0;
}

static uint8_t *frame_at(const struct echo *echo, uint32_t frame)
{
    return echo->frames.first + (size_t)frame * echo->frames.stride_bytes;
}

static int echo_write(void *self, const struct iovec *pieces, int count)
{
    struct echo *echo = self;
    if (echo->spares == 0)
        return -ENOBUFS;
    uint32_t frame = echo->spare[echo->spares - 1];
    uint8_t *at = frame_at(echo, frame);
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        memcpy(at + bytes, pieces[i].iov_base, pieces[i].iov_len);
        bytes += pieces[i].iov_len;
    }
    if (!turn_round(at + IPOIBU_VNET_BYTES, bytes - IPOIBU_VNET_BYTES))
        return 0;
    echo->spares--;
    echo->bytes[frame] = (uint32_t)bytes;
    echo->filled[echo->head++ % echo->frames.count] = frame;
    atomic_fetch_add_explicit(&echo->echoed, 1, memory_order_relaxed);
    return 0;
}

static ssize_t echo_give(void *self, uint32_t *frame)
{
    struct echo *echo = self;
    if (echo->tail == echo->head)
        return -EAGAIN;
    *frame = echo->filled[echo->tail++ % echo->frames.count];
    return (ssize_t)echo->bytes[*frame];
}

static void echo_ended(void *self, uint32_t frame)
{
    struct echo *echo = self;
    echo->spare[echo->spares++] = frame;
}

/* Only the data path's thread makes packets here, so nothing need wake it. */
static int echo_fd(void *self)
{
    return ((struct echo *)self)->fd;
}

static int echo_arm(void *self)
{
    struct echo *echo = self;
    return echo->tail != echo->head;
}

/* For traffic.py: the device, whose address goes into a capsule; NULL: no memory. */
struct echo *echo_create(void)
{
    struct echo *echo = calloc(1, sizeof *echo);
    if (echo == NULL)
        return NULL;
    echo->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    echo->device = (struct ipoibu_packet_device_v1){
        .self = echo,
        .offload = IPOIBU_OFFLOAD_UDP,
        .lent_bytes = LENT_BYTES,
        .start = echo_start,
        .stop = echo_stop,
        .give = echo_give,
        .ended = echo_ended,
        .write = echo_write,
        .fd = echo_fd,
        .arm = echo_arm,
    };
    return echo;
}

uint64_t echo_count(struct echo *echo)
{
    return atomic_load_explicit(&echo->echoed, memory_order_relaxed);
}

/* After the endpoint. */
void echo_destroy(struct echo *echo)
{
    close(echo->fd);
    free(echo);
}
