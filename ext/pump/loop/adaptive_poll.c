/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/loop/adaptive_poll.h"

#include <stdbool.h>

enum {
    REQUEST_PACKETS = 8,
    REQUEST_BYTES = 16384,
    HITS_NEEDED = 2, /* replies in a row */
};

static bool is_request(const struct ipu_adaptive_poll_total *run)
{
    return run->tx_packets + run->rx_packets <= REQUEST_PACKETS && run->bytes <= REQUEST_BYTES;
}

static void add(struct ipu_adaptive_poll_total *run, const struct ipu_adaptive_poll_total *more)
{
    run->tx_packets += more->tx_packets;
    run->rx_packets += more->rx_packets;
    run->bytes += more->bytes;
}

/* Judges the packets since the last request: more of the request, its reply, or no reply in
 * time. */
static void judge(struct ipu_adaptive_poll *poll, struct ipu_adaptive_poll_total *moved, bool soon)
{
    unsigned int *hits = &poll->hits[poll->direction];
    bool other =
        (poll->direction == IPU_ADAPTIVE_POLL_OUT ? moved->rx_packets : moved->tx_packets) > 0;
    if (soon && !other)
        add(moved, &poll->request);
    else if (soon && is_request(moved))
        *hits += *hits < HITS_NEEDED;
    else
        *hits = 0;
}

uint64_t ipu_adaptive_poll_ns(struct ipu_adaptive_poll *poll, struct ipu_adaptive_poll_total now,
                              uint64_t now_ns)
{
    struct ipu_adaptive_poll_total moved = {
        .tx_packets = now.tx_packets - poll->last_total.tx_packets,
        .rx_packets = now.rx_packets - poll->last_total.rx_packets,
        .bytes = now.bytes - poll->last_total.bytes};
    uint64_t until_ns = poll->request_ns + IPU_ADAPTIVE_POLL_NS;
    if (moved.tx_packets + moved.rx_packets > 0) {
        /* The pump writes received packets before it reads the device, so sent packets came
         * last. */
        enum ipu_adaptive_poll_direction direction =
            moved.tx_packets > 0 ? IPU_ADAPTIVE_POLL_OUT : IPU_ADAPTIVE_POLL_IN;
        if (poll->direction != IPU_ADAPTIVE_POLL_NONE)
            judge(poll, &moved, now_ns < until_ns);
        poll->last_total = now;
        poll->request = moved;
        poll->direction = is_request(&moved) ? direction : IPU_ADAPTIVE_POLL_NONE;
        poll->request_ns = now_ns;
        until_ns = now_ns + IPU_ADAPTIVE_POLL_NS;
    }
    bool polls =
        poll->direction != IPU_ADAPTIVE_POLL_NONE && poll->hits[poll->direction] == HITS_NEEDED;
    return polls && now_ns < until_ns ? until_ns - now_ns : 0;
}
