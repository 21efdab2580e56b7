/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/completion.h"

#include <errno.h>
#include <sys/epoll.h>

#include "core/counter.h"
#include "verbs/epoll_set.h"

int ipu_completion_init(struct ipu_completion *c, const struct ibv_qp *pattern, int epoll_fd,
                        _Atomic uint64_t *events)
{
    struct ibv_comp_channel *channel = pattern->recv_cq->channel;
    if (channel == NULL || channel != pattern->send_cq->channel)
        return -EINVAL;
    *c = (struct ipu_completion){
        .channel = channel,
        .send_cq = pattern->send_cq,
        .recv_cq = pattern->recv_cq,
        .events = events,
        .epoll_fd = epoll_fd,
    };
    int error = ipu_epoll_set_unblock(channel->fd);
    return error < 0 ? error : ipu_epoll_set_watch(epoll_fd, channel->fd);
}

/* Returns whether a completion was polled since the queue was armed: then its event is there, or
 * about to come. */
static bool is_due(const struct ipu_completion *c)
{
    return (c->send_event && !c->send_armed) || (c->recv_event && !c->recv_armed);
}

/* To read a channel without events wastes a system call. But an event that comes after we polled
 * its completion is not due any more, and wakes us without any work to do.
 */
bool ipu_completion_read(struct ipu_completion *c, bool looks)
{
    struct ibv_cq *cq;
    void *context;
    c->polled = false;
    while (is_due(c) || (looks && (c->send_event || c->recv_event))) {
        if (ibv_get_cq_event(c->channel, &cq, &context) != 0) {
            if (errno == EAGAIN || errno == EINTR)
                return true;
            /* A channel in error is always readable: it would only spin the pump. */
            (void)epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, c->channel->fd, NULL);
            c->send_event = c->recv_event = false;
            return false;
        }
        ibv_ack_cq_events(cq, 1);
        ipu_counter_add(c->events, 1);
        if (cq == c->send_cq)
            c->send_event = c->send_armed = false;
        else
            c->recv_event = c->recv_armed = false;
    }
    return true;
}

bool ipu_completion_arm_sends(struct ipu_completion *c)
{
    if (c->send_armed || ibv_req_notify_cq(c->send_cq, 0) != 0)
        return false;
    return c->send_armed = c->send_event = true;
}

bool ipu_completion_arm_receives(struct ipu_completion *c)
{
    if (c->recv_armed || ibv_req_notify_cq(c->recv_cq, 0) != 0)
        return false;
    return c->recv_armed = c->recv_event = true;
}

int ipu_completion_poll_sends(struct ipu_completion *c, struct ibv_wc *wc, int max)
{
    int n = ibv_poll_cq(c->send_cq, max, wc);
    if (n > 0) {
        c->send_armed = false;
        c->polled = true;
    }
    return n;
}

bool ipu_completion_poll_receives(struct ipu_completion *c)
{
    if (ipu_completion_has_received(c))
        return true;
    int n = ibv_poll_cq(c->recv_cq, IPU_COMPLETION_BATCH, c->wc);
    if (n > 0) {
        c->recv_armed = false;
        c->polled = true;
    }
    c->wc_next = 0;
    c->wc_count = n > 0 ? n : 0;
    return n >= 0;
}
