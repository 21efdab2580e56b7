/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_FAULTS_WORLD_H
#define IPU_TESTS_FAULTS_WORLD_H

#include <poll.h>
#include <stdbool.h>
#include <time.h>

#include "check.h"
#include "core/clock.h"
#include "core/random.h"
#include "fabric/faults.h"
#include "fabric/memory.h"

/*
 * A sender behind faults and a plain receiver on one switch. Datagrams carry their number, then a
 * pattern that follows from it.
 */
#define NS_PER_S INT64_C(1000000000)

enum { MTU = 256, LEN = 64, SENDS = 64, RECVS = 1024, RECV_LEN = 40 + MTU };

struct connection {
    struct ipu_memory_switch *sw;
    struct ipu_memory_port *from_port, *to_port;
    struct ipu_faults *faults;
    struct ipu_fabric *from, *to;
    void *ah;
    uint32_t sent;       /* taken by the fabric under test */
    uint32_t cookies;    /* given back */
    uint32_t arrived[2]; /* whole, and damaged */
    uint8_t send_buffer[SENDS][LEN];
    uint8_t recv_buffer[RECVS][RECV_LEN];
};

static struct connection wire;

static inline void fill(uint8_t *data, uint32_t number)
{
    uint64_t state = number;
    memcpy(data, &number, 4);
    for (int i = 4; i < LEN; i++)
        data[i] = (uint8_t)ipu_random_next(&state);
}

static inline struct ipu_memory_config port_config(uint8_t number, uint32_t depth)
{
    return (struct ipu_memory_config){.gid = {.s6_addr = {0xFE, 0x80, [15] = number}},
                                      .qpn = 100u + number,
                                      .mtu = MTU,
                                      .queue_depth = depth};
}

static inline void post(uint32_t slot)
{
    struct ipu_recv recv = {wire.recv_buffer[slot], RECV_LEN, slot};
    CHECK_EQ(wire.to->ops->post(wire.to->self, &recv, 1), 1);
}

static inline void open_link(struct ipu_faults_config config, uint32_t pool_frames, uint64_t seed,
                             uint32_t depth)
{
    memset(&wire, 0, sizeof wire);
    wire.sw = ipu_memory_switch_create(1);
    CHECK(wire.sw);
    struct ipu_memory_config a = port_config(1, depth), b = port_config(2, RECVS);
    wire.from_port = ipu_memory_port_create(wire.sw, &a);
    wire.to_port = ipu_memory_port_create(wire.sw, &b);
    CHECK(wire.from_port && wire.to_port);
    wire.faults =
        ipu_faults_create(ipu_memory_port_fabric(wire.from_port), &config, pool_frames, seed);
    CHECK(wire.faults);
    wire.from = ipu_faults_fabric(wire.faults);
    wire.to = ipu_memory_port_fabric(wire.to_port);
    CHECK_EQ(wire.from->ops->memory(wire.from->self, wire.send_buffer, sizeof wire.send_buffer), 0);
    CHECK_EQ(wire.to->ops->memory(wire.to->self, wire.recv_buffer, sizeof wire.recv_buffer), 0);
    for (uint32_t slot = 0; slot < RECVS; slot++)
        post(slot);
    struct ipu_dest dest = {.gid = wire.to->gid, .qpn = wire.to->qpn};
    wire.ah = wire.from->ops->ah_create(wire.from->self, &dest);
    CHECK(wire.ah);
}

static inline void close_link(void)
{
    wire.from->ops->ah_destroy(wire.from->self, wire.ah);
    ipu_faults_destroy(wire.faults);
    ipu_memory_port_destroy(wire.from_port);
    ipu_memory_port_destroy(wire.to_port);
    ipu_memory_switch_destroy(wire.sw);
}

/* Sends n datagrams, up to SENDS; returns how many the fabric took. It spoils the buffers at once,
 * because the fabric has copied them. */
static inline int send_batch(int n)
{
    struct ipu_send sends[SENDS];
    for (int i = 0; i < n; i++) {
        fill(wire.send_buffer[i], wire.sent + (uint32_t)i);
        uint32_t head_len = i % 2 ? 8 : 0; /* every other one in two pieces */
        sends[i] = (struct ipu_send){.head = wire.send_buffer[i],
                                     .head_len = head_len,
                                     .addr = wire.send_buffer[i] + head_len,
                                     .len = LEN - head_len,
                                     .qpn = wire.to->qpn,
                                     .ah = wire.ah,
                                     .cookie = wire.sent + (uint32_t)i};
    }
    int taken = wire.from->ops->send(wire.from->self, sends, n);
    memset(wire.send_buffer, 0xDD, sizeof wire.send_buffer);
    if (taken > 0)
        wire.sent += (uint32_t)taken;
    return taken;
}

/* Cookies come back in order, each once. */
static inline void reap(void)
{
    uint64_t cookies[32];
    int n;
    while ((n = wire.from->ops->sent(wire.from->self, cookies, 32)) > 0) {
        for (int i = 0; i < n; i++)
            CHECK_EQ(cookies[i], wire.cookies++);
    }
    CHECK_EQ(n, 0);
}

/* Receives up to max datagrams and returns their numbers; it only counts damaged ones. */
static inline uint32_t receive(uint32_t *numbers, uint32_t max)
{
    uint32_t n = 0;
    struct ipu_received received;
    while (n < max && wire.to->ops->received(wire.to->self, &received, 1) == 1) {
        uint8_t expected[LEN];
        const uint8_t *data = wire.recv_buffer[received.cookie] + 40;
        CHECK_EQ(received.byte_len, 40 + LEN);
        memcpy(&numbers[n], data, 4);
        fill(expected, numbers[n]);
        bool damaged = memcmp(data, expected, LEN) != 0;
        wire.arrived[damaged]++;
        n += !damaged;
        post((uint32_t)received.cookie);
    }
    return n;
}

static inline int arm(void)
{
    return wire.from->ops->arm(wire.from->self);
}

/* Sleeps as a pump does: until the descriptor is readable or the deadline has come. */
static inline void sleep_until_work(void)
{
    struct pollfd fd = {.fd = wire.from->ops->fd(wire.from->self), .events = POLLIN};
    int64_t deadline_ns = wire.from->ops->deadline_ns(wire.from->self);
    int64_t left_ns = deadline_ns - (int64_t)ipu_clock_ns();
    left_ns = left_ns > 0 ? left_ns : 0;
    struct timespec left = {left_ns / NS_PER_S, left_ns % NS_PER_S};
    CHECK(ppoll(&fd, 1, deadline_ns == INT64_MAX ? NULL : &left, NULL) >= 0);
}

static inline int64_t deadline_ns(void)
{
    return wire.from->ops->deadline_ns(wire.from->self);
}

/* Serves the sender until the inner fabric took n copies. */
static inline void run_until_sent(uint64_t n)
{
    while (ipu_faults_counters(wire.faults)->sent < n) {
        if (arm() == 0)
            sleep_until_work();
        reap();
    }
}

/* Sends n, one batch after the other, and checks that the rest of the books balance. */
static inline void send_and_receive(uint32_t n)
{
    uint32_t numbers[RECVS];
    while (wire.sent < n) {
        int batch = n - wire.sent < SENDS ? (int)(n - wire.sent) : SENDS;
        CHECK(send_batch(batch) >= 0);
        reap();
        (void)receive(numbers, RECVS);
    }
    CHECK_EQ(wire.cookies, n);
}

#endif
