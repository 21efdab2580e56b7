/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_RC_QUEUE_H
#define IPU_VERBS_RC_QUEUE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "fabric/fabric.h"
#include "verbs/regions.h"

/*
 * The send queue of an RC queue pair. Each posted send gets the next number; a completion names the
 * number up to which all sends have ended, so an unsignalled send ends with the next signalled one.
 * returned <= completed <= posted <= returned + depth. Only one thread uses a queue.
 */
enum {
    IPU_RC_BATCH = 64,  /* work requests in one chain */
    IPU_RC_SIGNAL = 16, /* every 16th request of a chain, and its last one, have a completion */
};

struct ipu_rc_queue {
    struct ibv_qp *qp;
    uint64_t posted, completed, returned;
    uint64_t failed_from; /* the first send that failed; UINT64_MAX for none */
    uint64_t *cookies;
    uint32_t depth; /* a power of two */
    uint32_t max_inline;
};

struct ipu_rc_posted {
    int taken, signalled, inlined;
    bool refused; /* the device did not take all of them */
};

/* Returns 0 or a negative errno. The queue pair takes messages of two pieces. */
int ipu_rc_queue_init(struct ipu_rc_queue *queue, struct ibv_qp *qp);
void ipu_rc_queue_free(struct ipu_rc_queue *queue);

static inline uint32_t ipu_rc_queue_room(const struct ipu_rc_queue *queue)
{
    return queue->depth - (uint32_t)(queue->posted - queue->returned);
}

/* Posts n <= IPU_RC_BATCH messages, for which the queue has room, with one doorbell. */
struct ipu_rc_posted ipu_rc_queue_post(struct ipu_rc_queue *queue,
                                       const struct ipu_regions *regions,
                                       const struct ipu_send *sends, int n);

/* Takes a completion; returns how many sends have ended by it. */
static inline uint32_t ipu_rc_queue_complete(struct ipu_rc_queue *queue, const struct ibv_wc *wc)
{
    uint32_t ended = (uint32_t)(wc->wr_id - queue->completed);
    queue->completed = wc->wr_id;
    if (wc->status != IBV_WC_SUCCESS && queue->failed_from == UINT64_MAX)
        queue->failed_from = wc->wr_id - 1;
    return ended;
}

/* Takes the cookie of the next ended send, in order; false when there is none. */
static inline bool ipu_rc_queue_take(struct ipu_rc_queue *queue, uint64_t *cookie, bool *failed)
{
    if (queue->returned == queue->completed)
        return false;
    uint64_t number = queue->returned++;
    *cookie = queue->cookies[number & (queue->depth - 1)];
    *failed = number >= queue->failed_from;
    return true;
}

#endif
