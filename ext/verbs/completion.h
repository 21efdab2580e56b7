/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_COMPLETION_H
#define IPU_VERBS_COMPLETION_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * A completion queue of sends, one of receives, and the channel that the two have to themselves.
 * One thread.
 */
enum { IPU_COMPLETION_BATCH = 64 }; /* completions of receives polled at once */

struct ipu_completion {
    struct ibv_comp_channel *channel;
    struct ibv_cq *send_cq, *recv_cq;
    _Atomic uint64_t *events; /* counts the events read from the channel */
    int epoll_fd;
    bool send_armed, recv_armed;            /* asked for an event, and polled nothing since */
    bool send_event, recv_event;            /* asked for an event, and not read it yet */
    bool polled;                            /* we polled a completion since the last read */
    struct ibv_wc wc[IPU_COMPLETION_BATCH]; /* of receives; [wc_next, wc_count) are unreported */
    int wc_next, wc_count;
};

/* Takes the queues of a queue pair like `pattern`, which it does not keep. The epoll set waits for
 * the channel from here on. Returns 0 or a negative errno; -EINVAL when the queues do not share a
 * channel.
 */
int ipu_completion_init(struct ipu_completion *completion, const struct ibv_qp *pattern,
                        int epoll_fd, _Atomic uint64_t *events);

/* Reads the events that are due, and with `looks` also any others that have come. Returns false
 * when the device is gone; then the epoll set does not wait for the channel any more. The caller
 * sets `looks` when it has polled nothing, from this pair of queues or another.
 */
bool ipu_completion_read(struct ipu_completion *completion, bool looks);

/*
 * Requests an event. True when the request is new: the event reports only later completions, so the
 * caller polls once more for earlier ones.
 */
bool ipu_completion_arm_sends(struct ipu_completion *completion);
bool ipu_completion_arm_receives(struct ipu_completion *completion);

/* Polls completions of sends; returns their number, negative when the device is gone. */
int ipu_completion_poll_sends(struct ipu_completion *completion, struct ibv_wc *wc, int max);
/* Polls for receives unless some are left in `wc`; false when the device is gone. */
bool ipu_completion_poll_receives(struct ipu_completion *completion);

/* Returns whether there are polled receives that the pump has not got yet. */
static inline bool ipu_completion_has_received(const struct ipu_completion *completion)
{
    return completion->wc_next < completion->wc_count;
}

#endif
