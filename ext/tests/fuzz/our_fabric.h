/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_FUZZ_OUR_FABRIC_H
#define IPU_TESTS_FUZZ_OUR_FABRIC_H

#include <stdbool.h>
#include <string.h>

#include "core/frame.h"
#include "fabric/memory.h"
#include "input.h"

/* The fabric that the input drives, over ports of the in-process fabric: each cookie comes back
 * once, and each receive is the fabric's or ours. Only one C file of a program includes this
 * header. */
enum { MTU = 256, RECVS = 16, RECV_LEN = IPU_GRH_LEN + MTU, OUR_RECVS = 2 * RECVS, COOKIES = 1024 };

static const struct in6_addr broadcast = {
    .s6_addr = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}};

static struct ipu_fabric *ours;
static uint8_t our_recv[OUR_RECVS][RECV_LEN];
static bool is_posted[OUR_RECVS];
static uint8_t message[MTU];
static uint32_t sent, came_back; /* cookies */
static bool is_out[COOKIES];

static inline void post_ours(void)
{
    for (uint32_t i = 0; i < OUR_RECVS; i++) {
        struct ipu_recv recv = {our_recv[i], RECV_LEN, i};
        if (!is_posted[i] && ours->ops->post(ours->self, &recv, 1) == 1)
            is_posted[i] = true;
    }
}

static inline void begin_ours(struct ipu_fabric *fabric)
{
    ours = fabric;
    memset(is_posted, 0, sizeof is_posted);
    memset(is_out, 0, sizeof is_out);
    sent = came_back = 0;
    MUST(ours->ops->memory(ours->self, our_recv, sizeof our_recv) == 0);
    MUST(ours->ops->memory(ours->self, message, sizeof message) == 0);
    post_ours();
}

/* Takes what has come to us; returns how many datagrams `done` has, the failed ones among them. */
static inline int receive_ours(struct ipu_received done[RECVS])
{
    int n = ours->ops->received(ours->self, done, RECVS);
    for (int i = 0; i < n; i++) {
        MUST(done[i].cookie < OUR_RECVS && is_posted[done[i].cookie]);
        is_posted[done[i].cookie] = false;
        if (done[i].flags & IPU_RECEIVED_FAILED)
            continue;
        MUST(done[i].byte_len <= RECV_LEN);
        (void)input_touch(our_recv[done[i].cookie], done[i].byte_len);
    }
    post_ours();
    return n;
}

static inline void reap(void)
{
    uint64_t cookies[16];
    int n = ours->ops->sent(ours->self, cookies, 16);
    for (int i = 0; i < n; i++) {
        MUST(cookies[i] < COOKIES && is_out[cookies[i]]);
        is_out[cookies[i]] = false;
        came_back++;
    }
}

/* Sends the message by another host's port. */
static inline void send_from(const struct ipu_fabric *from, const struct ipu_dest *dest, size_t len)
{
    uint64_t cookie;
    void *ah = from->ops->ah_create(from->self, dest);
    MUST(ah != NULL);
    struct ipu_send send = {.addr = message, .len = (uint32_t)len, .qpn = dest->qpn, .ah = ah};
    if (from->ops->send(from->self, &send, 1) == 1)
        MUST(from->ops->sent(from->self, &cookie, 1) == 1);
    from->ops->ah_destroy(from->self, ah);
}

static inline void recover_ours(void)
{
    for (int i = 0; i < 5 && ours->ops->recover(ours->self) != 0; i++)
        reap();
    post_ours();
}

#endif
