/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "objects.h"

/*
 * How a sleeper is woken. epoll_fd holds two descriptors: the UDP socket, so that a packet wakes
 * the consumer with no help of ours (it then makes the progress itself, in poll), and event_fd, for
 * completions that the progress of another thread, or of a poll of another CQ, has put here.
 */

static int watch(struct soft_cq *cq, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};

    return epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int open_descriptors(struct soft_cq *cq)
{
    const struct soft_hca *hca = cq->hca;
    int error = 0;

    cq->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (cq->event_fd < 0)
        return -errno;
    cq->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (cq->epoll_fd < 0) {
        error = -errno;
        close(cq->event_fd);
        return error;
    }
    error = watch(cq, cq->event_fd, EPOLLIN);
    if (error == 0 && hca->udp != NULL)
        error = watch(cq, soft_udp_fd(hca->udp), EPOLLIN);
    if (error != 0) {
        close(cq->epoll_fd);
        close(cq->event_fd);
    }
    return error;
}

int soft_cq_create(struct soft_hca *hca, unsigned int depth, struct soft_cq **out)
{
    struct soft_cq *cq;
    int error;

    if (depth < 1 || depth > SOFT_MAX_CQE)
        return -EINVAL;
    cq = calloc(1, sizeof(*cq));
    if (cq == NULL)
        return -ENOMEM;
    cq->hca = hca;
    cq->depth = depth;
    cq->mask = soft_round_up(depth) - 1;
    cq->ring = calloc(cq->mask + 1, sizeof(*cq->ring));
    error = cq->ring == NULL ? -ENOMEM : open_descriptors(cq);
    if (error != 0) {
        free(cq->ring);
        free(cq);
        return error;
    }
    soft_progress_lock(hca);
    LIST_INSERT_HEAD(&hca->cqs, cq, entry);
    if (hca->wants_writable)
        soft_cq_want_writable(cq, true);
    soft_progress_unlock(hca);
    *out = cq;
    return 0;
}

int soft_cq_destroy(struct soft_cq *cq)
{
    struct soft_hca *hca = cq->hca;

    soft_progress_lock(hca);
    if (cq->users > 0) {
        soft_progress_unlock(hca);
        return -EBUSY;
    }
    LIST_REMOVE(cq, entry);
    hca->cqs_armed -= cq->armed;
    soft_progress_unlock(hca);
    close(cq->epoll_fd);
    close(cq->event_fd);
    free(cq->ring);
    free(cq);
    return 0;
}

void soft_cq_push(struct soft_cq *cq, const struct soft_wc *wc)
{
    cq->ring[cq->tail++ & cq->mask] = *wc;
}

static int take(struct soft_cq *cq, int n, struct soft_wc *wc)
{
    int taken = 0;

    while (taken < n && cq->head != cq->tail)
        wc[taken++] = cq->ring[cq->head++ & cq->mask];
    return taken;
}

int soft_cq_poll(struct soft_cq *cq, int n, struct soft_wc *wc)
{
    struct soft_hca *hca = cq->hca;
    int taken;

    soft_progress_lock(hca);
    taken = take(cq, n, wc);
    soft_progress_retry(hca);
    if (taken < n) {
        soft_progress_receive(hca, cq, (unsigned int)(n - taken));
        taken += take(cq, n - taken, wc + taken);
    }
    soft_progress_unlock(hca);
    return taken;
}

void soft_cq_wake(struct soft_cq *cq)
{
    uint64_t one = 1;

    if (cq->armed) {
        cq->armed = false;
        cq->hca->cqs_armed--;
    }
    /* A counter of 1 cannot overflow: arm clears it before it is raised again. */
    if (!cq->signalled && write(cq->event_fd, &one, sizeof(one)) == sizeof(one))
        cq->signalled = true;
}

void soft_cq_arm(struct soft_cq *cq)
{
    struct soft_hca *hca = cq->hca;
    uint64_t ignored;

    soft_progress_lock(hca);
    if (cq->signalled && read(cq->event_fd, &ignored, sizeof(ignored)) == sizeof(ignored))
        cq->signalled = false;
    if (!cq->armed) {
        cq->armed = true;
        hca->cqs_armed++;
    }
    soft_progress_unlock(hca); /* wakes at once when there is something */
}

void soft_cq_disarm(struct soft_cq *cq)
{
    struct soft_hca *hca = cq->hca;

    pthread_mutex_lock(&hca->mutex);
    hca->cqs_armed -= cq->armed;
    cq->armed = false;
    pthread_mutex_unlock(&hca->mutex);
}

void soft_cq_want_writable(struct soft_cq *cq, bool wanted)
{
    int fd = soft_udp_fd(cq->hca->udp);
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.fd = fd};

    /* Cannot fail: both descriptors are ours, and the entry is there. */
    (void)epoll_ctl(cq->epoll_fd, EPOLL_CTL_MOD, fd, &event);
}

int soft_cq_fd(const struct soft_cq *cq)
{
    return cq->epoll_fd;
}
