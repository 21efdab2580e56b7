/* SPDX-License-Identifier: BSD-2-Clause */
#include <unistd.h>

#include "objects.h"

/*
 * The HCA's mutex. A consumer's call holds it from begin to end. When the call releases the mutex,
 * it serves the connections that have packets to send, and wakes the sleeping consumers that have
 * completions now.
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
    /* A counter of 1 cannot overflow: arm clears it before we write again. */
    if (!channel->signalled && write(channel->event_fd, &one, sizeof(one)) == sizeof(one))
        channel->signalled = true;
}

/* Fetched packets that no call has delivered yet have left the socket, so we must also wake the
 * threads that wait on the socket for them.
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
