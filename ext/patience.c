/* SPDX-License-Identifier: BSD-2-Clause */
#include "patience.h"

#include <stdbool.h>

enum {
    WORD_PACKETS = 8,
    WORD_BYTES = 16384,
    TRUSTED = 2, /* answers in a row */
};

static bool is_short(const struct ipu_patience_total *word)
{
    return word->tx_packets + word->rx_packets <= WORD_PACKETS && word->bytes <= WORD_BYTES;
}

static void add(struct ipu_patience_total *word, const struct ipu_patience_total *more)
{
    word->tx_packets += more->tx_packets;
    word->rx_packets += more->rx_packets;
    word->bytes += more->bytes;
}

/* What came after the last word: more of it, its answer, or nothing in time. */
static void judge(struct ipu_patience *patience, struct ipu_patience_total *heard, bool soon)
{
    unsigned int *trust = &patience->trust[patience->way];
    bool other = (patience->way == IPU_PATIENCE_OUT ? heard->rx_packets : heard->tx_packets) > 0;
    if (soon && !other)
        add(heard, &patience->word);
    else if (soon && is_short(heard))
        *trust += *trust < TRUSTED;
    else
        *trust = 0;
}

uint64_t ipu_patience_look_ns(struct ipu_patience *patience, struct ipu_patience_total now,
                              uint64_t now_ns)
{
    struct ipu_patience_total heard = {.tx_packets = now.tx_packets - patience->then.tx_packets,
                                       .rx_packets = now.rx_packets - patience->then.rx_packets,
                                       .bytes = now.bytes - patience->then.bytes};
    uint64_t until_ns = patience->said_ns + IPU_PATIENCE_NS;
    if (heard.tx_packets + heard.rx_packets > 0) {
        /* What was received is written before what the device has is read: sent was the last. */
        enum ipu_patience_way way = heard.tx_packets > 0 ? IPU_PATIENCE_OUT : IPU_PATIENCE_IN;
        if (patience->way != IPU_PATIENCE_NONE)
            judge(patience, &heard, now_ns < until_ns);
        patience->then = now;
        patience->word = heard;
        patience->way = is_short(&heard) ? way : IPU_PATIENCE_NONE;
        patience->said_ns = now_ns;
        until_ns = now_ns + IPU_PATIENCE_NS;
    }
    bool waits = patience->way != IPU_PATIENCE_NONE && patience->trust[patience->way] == TRUSTED;
    return waits && now_ns < until_ns ? until_ns - now_ns : 0;
}
