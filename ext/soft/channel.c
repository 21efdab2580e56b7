/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "objects.h"

/*
 * A channel wakes one sleeping consumer, which may have any number of completion queues. epoll_fd
 * holds two descriptors: the UDP socket, so that a packet wakes the consumer without our help (the
 * consumer then makes the progress itself, in poll), and event_fd, for completions that the
 * progress of another thread has put into its queues.
 *
 * A channel in the background does not watch the socket while another consumer does that will come
 * back to poll: a consumer that has armed its channel before. Otherwise each packet would wake all
 * consumers, and they would contend for the mutex only to find that the packet is not theirs. No
 * channel watches the socket while packets wait for the buffers of a consumer (progress.c).
 */

static int watch(struct soft_channel *channel, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};

    return epoll_ctl(channel->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* Returns whether the HCA has a socket that receives. */
static bool receives(const struct soft_hca *hca)
{
    return hca->udp != NULL && soft_udp_fd(hca->udp) >= 0;
}

static void watch_socket(struct soft_channel *channel)
{
    struct epoll_event event = {.events = channel->watches ? EPOLLIN : 0};

    /* This cannot fail: both descriptors are ours, and the entry exists. */
    if (receives(channel->hca))
        (void)epoll_ctl(channel->epoll_fd, EPOLL_CTL_MOD, soft_udp_fd(channel->hca->udp), &event);
}

/* Waits for EPOLLOUT of the full outlets, and of no others. Returns false if it cannot. */
static bool watch_outlets(struct soft_channel *channel)
{
    const struct soft_udp *udp = channel->hca->udp;
    unsigned int wanted = channel->watches ? channel->hca->full_outlets : 0;

    for (unsigned int outlet = 0; outlet < SOFT_UDP_OUTLETS; outlet++) {
        unsigned int bit = 1u << outlet;

        if (((wanted ^ channel->watched_outlets) & bit) == 0)
            continue;
        if ((wanted & bit) == 0)
            (void)epoll_ctl(channel->epoll_fd, EPOLL_CTL_DEL, soft_udp_outlet_fd(udp, outlet),
                            NULL);
        else if (watch(channel, soft_udp_outlet_fd(udp, outlet), EPOLLOUT) != 0)
            return false;
        channel->watched_outlets ^= bit;
    }
    return true;
}

static int open_descriptors(struct soft_channel *channel)
{
    const struct soft_hca *hca = channel->hca;
    int error = 0;

    channel->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (channel->event_fd < 0)
        return -errno;
    channel->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (channel->epoll_fd < 0) {
        error = -errno;
        close(channel->event_fd);
        return error;
    }
    error = watch(channel, channel->event_fd, EPOLLIN);
    if (error == 0 && receives(hca))
        error = watch(channel, soft_udp_fd(hca->udp), EPOLLIN);
    if (error != 0) {
        close(channel->epoll_fd);
        close(channel->event_fd);
    }
    return error;
}

/* Decides which channels watch the socket, after a channel came or went, or short_of changed. */
void soft_channel_review(struct soft_hca *hca)
{
    struct soft_channel *channel;
    bool attended = false;

    LIST_FOREACH(channel, &hca->channels, entry)
        attended |= channel->attended && !channel->background;
    LIST_FOREACH(channel, &hca->channels, entry) {
        bool watches = hca->short_of == NULL && !(channel->background && attended);

        if (watches == channel->watches)
            continue;
        channel->watches = watches;
        watch_socket(channel);
        if (!watch_outlets(channel))
            hca->deadline_ns = soft_clock_ns();
    }
}

int soft_channel_create(struct soft_hca *hca, struct soft_channel **out)
{
    struct soft_channel *channel = calloc(1, sizeof(*channel));
    int error;

    if (channel == NULL)
        return -ENOMEM;
    channel->hca = hca;
    channel->watches = true;
    channel->users = 1;
    error = open_descriptors(channel);
    if (error != 0) {
        free(channel);
        return error;
    }
    soft_lock_acquire(hca);
    LIST_INSERT_HEAD(&hca->channels, channel, entry);
    if (!watch_outlets(channel))
        hca->deadline_ns = soft_clock_ns();
    soft_lock_release(hca);
    *out = channel;
    return 0;
}

void soft_channel_release(struct soft_channel *channel)
{
    struct soft_hca *hca = channel->hca;

    if (--channel->users > 0)
        return;
    LIST_REMOVE(channel, entry);
    hca->channels_armed -= channel->armed;
    soft_channel_review(hca);
    close(channel->epoll_fd);
    close(channel->event_fd);
    free(channel);
}

bool soft_channel_watch_outlets(struct soft_hca *hca)
{
    struct soft_channel *channel;
    bool watched = true;

    LIST_FOREACH(channel, &hca->channels, entry)
        watched &= watch_outlets(channel);
    return watched;
}

void soft_cq_arm(struct soft_cq *cq)
{
    struct soft_channel *channel = cq->channel;
    struct soft_hca *hca = cq->hca;
    uint64_t ignored;

    soft_lock_acquire(hca);
    if (channel->signalled && read(channel->event_fd, &ignored, sizeof(ignored)) == sizeof(ignored))
        channel->signalled = false;
    if (!channel->armed) {
        channel->armed = true;
        hca->channels_armed++;
    }
    if (!channel->attended) {
        channel->attended = true;
        soft_channel_review(hca);
    }
    soft_lock_release(hca); /* wakes the consumer at once when a completion is there */
}

void soft_cq_disarm(struct soft_cq *cq)
{
    struct soft_hca *hca = cq->hca;

    pthread_mutex_lock(&hca->mutex);
    hca->channels_armed -= cq->channel->armed;
    cq->channel->armed = false;
    pthread_mutex_unlock(&hca->mutex);
}

void soft_cq_set_background(struct soft_cq *cq)
{
    soft_lock_acquire(cq->hca);
    cq->channel->background = true;
    soft_channel_review(cq->hca);
    soft_lock_release(cq->hca);
}

int soft_cq_fd(const struct soft_cq *cq)
{
    return cq->channel->epoll_fd;
}
