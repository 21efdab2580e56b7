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

static uint32_t events_of(const struct soft_channel *channel)
{
    if (!channel->watches)
        return 0;
    return EPOLLIN | (channel->hca->wants_writable ? EPOLLOUT : 0);
}

static void update(struct soft_channel *channel)
{
    struct epoll_event event = {.events = events_of(channel)};

    /* This cannot fail: both descriptors are ours, and the entry exists. */
    if (channel->hca->udp != NULL)
        (void)epoll_ctl(channel->epoll_fd, EPOLL_CTL_MOD, soft_udp_fd(channel->hca->udp), &event);
}

static int watch(struct soft_channel *channel, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events};

    return epoll_ctl(channel->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
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
    if (error == 0 && hca->udp != NULL)
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
        update(channel);
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
    if (hca->wants_writable)
        update(channel);
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

void soft_channel_want_writable(struct soft_hca *hca)
{
    struct soft_channel *channel;

    LIST_FOREACH(channel, &hca->channels, entry)
        update(channel);
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
