/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_PATIENCE_H
#define IPU_PATIENCE_H

#include <stdint.h>

/*
 * Whether an answer is worth looking for before a pump sleeps. A word is what goes one way until
 * something comes the other way: a few packets, else it is a stream, which nobody waits for. Where
 * the last words that way were answered soon, so will this one be, and sleeping and being woken
 * would take longer than the answer does. One answer that did not come, and the next words are
 * slept on until two of them are answered soon again.
 *
 * Of a pump's own thread; all zero to begin with.
 */
#define IPU_PATIENCE_NS 300000 /* that an answer may take: two threads of the peer woken up */

enum ipu_patience_way { IPU_PATIENCE_NONE, IPU_PATIENCE_OUT, IPU_PATIENCE_IN };

struct ipu_patience_total {
    uint64_t tx_packets, rx_packets;
    uint64_t bytes; /* of both */
};

struct ipu_patience {
    struct ipu_patience_total then; /* when the pump last ran dry */
    struct ipu_patience_total word; /* the last one, as far as it was heard */
    enum ipu_patience_way way;      /* of it; none: a stream */
    uint64_t said_ns;
    unsigned int trust[3]; /* by way: answers that came in time, without one that did not */
};

/* The pump has run dry, having moved so much in its life: for how many ns an answer is worth
 * looking for; 0: sleep. */
uint64_t ipu_patience_look_ns(struct ipu_patience *patience, struct ipu_patience_total now,
                              uint64_t now_ns);

#endif
