/* SPDX-License-Identifier: BSD-2-Clause */
#include <unistd.h>

#include "objects.h"

/*
 * The HCA's mutex, held for the length of a consumer's call. When a call gives the mutex back, it
 * serves the connections that have something to send, and wakes the consumers that sleep although
 * there is something for them now.
 */

void soft_lock_acquire(struct soft_hca *hca)
{
    pthread_mutex_lock(&hca->mutex);
}

static void wake(struct soft_channel *channel)
{
    uint64_t one = 1;

    channel->armed = false;
    channel->hca->channels_armed--;
    /* A counter of 1 cannot overflow: arm clears it before it is raised again. */
    if (!channel->signalled && write(channel->event_fd, &one, sizeof(one)) == sizeof(one))
        channel->signalled = true;
}

/*
 * Packets that are fetched but not handed on yet have left the socket, so threads that wait on the
 * socket must be woken for them, too.
 */
static void wake_sleepers(struct soft_hca *hca)
{
    bool pending = hca->udp != NULL && soft_udp_pending(hca->udp);
    struct soft_cq *cq;

    LIST_FOREACH(cq, &hca->cqs, entry) {
        if (cq->channel->armed && (soft_cq_count(cq) > 0 || (pending && cq->channel->watches)))
            wake(cq->channel);
    }
}

void soft_lock_release(struct soft_hca *hca)
{
    hca->service->serve(hca);
    if (hca->channels_armed > 0)
        wake_sleepers(hca);
    pthread_mutex_unlock(&hca->mutex);
}
