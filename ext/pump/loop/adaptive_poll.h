/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_ADAPTIVE_POLL_H
#define IPU_ADAPTIVE_POLL_H

#include <stdint.h>

/*
 * Decides whether to busy-poll before sleeping. A request is a run of packets in one direction that
 * ends when a packet arrives in the other; a run of more than a few packets is a stream, and the
 * pump does not poll for its acknowledgements. After two requests in one direction whose replies
 * came in time, the pump polls for the reply to the third, because sleep and wake-up would take
 * longer than the reply. After a reply that was late, two more have to come in time.
 *
 * Only one pump's thread uses it; it is all zero at first.
 */
#define IPU_ADAPTIVE_POLL_NS 300000 /* the time for a reply: the peer has to wake two threads */

enum ipu_adaptive_poll_direction {
    IPU_ADAPTIVE_POLL_NONE,
    IPU_ADAPTIVE_POLL_OUT,
    IPU_ADAPTIVE_POLL_IN
};

struct ipu_adaptive_poll_total {
    uint64_t tx_packets, rx_packets;
    uint64_t bytes; /* in both directions */
};

struct ipu_adaptive_poll {
    struct ipu_adaptive_poll_total last_total;  /* totals when the pump last had nothing to do */
    struct ipu_adaptive_poll_total request;     /* the packets of the last request so far */
    enum ipu_adaptive_poll_direction direction; /* of the request; none: a stream */
    uint64_t request_ns;
    unsigned int hits[3]; /* by direction: replies in time since the last late one */
};

/* Returns the time in ns for which an idle pump should poll; 0: sleep. `now` has the totals of the
 * packets that the pump has moved. */
uint64_t ipu_adaptive_poll_ns(struct ipu_adaptive_poll *poll, struct ipu_adaptive_poll_total now,
                              uint64_t now_ns);

#endif
