/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/frame.h"
#include "verbs/connected_state.h"
#include "verbs/epoll_set.h"
#include "verbs/state.h"

const char *const ipu_verbs_counter_names[IPU_VERBS_COUNTERS_N] = {
    IPU_VERBS_COUNTERS(IPU_COUNTER_NAME)};

void ipu_verbs_counters(const struct ipu_verbs *v, uint64_t values[IPU_VERBS_COUNTERS_N])
{
    ipu_counter_read(&v->counters, IPU_VERBS_COUNTERS_N, values);
}

/* ---- memory */

static int memory(void *self, void *base, size_t len)
{
    struct ipu_verbs *v = self;
    return v->closed ? -ENOSPC : ipu_regions_add(&v->regions, v->pd, base, len);
}

/* ---- waiting */

static bool something_waits(const struct ipu_verbs *v)
{
    return ipu_completion_has_received(&v->completion) || v->returned < v->completed ||
           v->lost_count > 0 || (v->broken && !v->reported) || atomic_load(&v->inbox.any);
}

static int arm(void *self)
{
    struct ipu_verbs *v = self;
    if (v->closed)
        return 0;
    bool looks =
        !v->completion.polled && (v->connected == NULL || !v->connected->completion.polled);
    if (!ipu_completion_read(&v->completion, looks))
        ipu_verbs_queue_pair_fail(v);
    if (ipu_completion_arm_receives(&v->completion))
        ipu_verbs_receive_poll(v);
    bool connected_waits = v->connected != NULL && ipu_verbs_connected_arm(v->connected, looks);
    return connected_waits || something_waits(v);
}

/* We do not arm an empty send queue: sends mostly end within ibv_post_send(). */
static int arm_sends(void *self)
{
    struct ipu_verbs *v = self;
    if (v->closed)
        return 0;
    if (v->completed != v->posted && ipu_completion_arm_sends(&v->completion))
        ipu_verbs_send_poll(v);
    bool connected_waits = v->connected != NULL && ipu_verbs_connected_arm_sends(v->connected);
    return connected_waits || something_waits(v);
}

static int descriptor(void *self)
{
    return ((struct ipu_verbs *)self)->epoll_fd;
}

static const struct ipu_fabric_ops verbs_ops = {
    .memory = memory,
    .ah_create = ipu_verbs_handle_create,
    .ah_destroy = ipu_verbs_handle_destroy,
    .send = ipu_verbs_send,
    .post = ipu_verbs_post,
    .sent = ipu_verbs_sent,
    .received = ipu_verbs_received,
    .arm = arm,
    .arm_sends = arm_sends,
    .fd = descriptor,
    .recover = ipu_verbs_queue_pair_recover,
};

/* ---- asynchronous events of the device */

/* Breaks the fabric of a failed queue pair: ours, or a TX queue's. */
static void fail(struct ipu_verbs *v, const struct ibv_qp *qp)
{
    if (qp == v->qp)
        ipu_verbs_break(v);
    for (uint32_t i = 0; i < v->fabric.tx_qpn_count; i++)
        if (v->tx_queues[i] != NULL && v->tx_queues[i]->qp == qp)
            ipu_verbs_break(v->tx_queues[i]);
}

static unsigned int meaning(struct ipu_verbs *v, const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_PORT_ERR:
        return event->element.port_num == v->port ? IPU_VERBS_PORT_DOWN : 0;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
        return event->element.port_num == v->port ? IPU_VERBS_PORT_CHANGED : 0;
    case IBV_EVENT_PKEY_CHANGE:
        return event->element.port_num == v->port ? IPU_VERBS_PKEYS_CHANGED : 0;
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
        return event->element.port_num == v->port ? IPU_VERBS_SUBNET_CHANGED : 0;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_REQ_ERR:
        fail(v, event->element.qp);
        return 0;
    case IBV_EVENT_DEVICE_FATAL:
        return IPU_VERBS_FATAL;
    default:
        return 0;
    }
}

unsigned int ipu_verbs_events(struct ipu_verbs *v)
{
    struct ibv_async_event event;
    unsigned int seen = 0;
    while (!v->closed && v->owns_events && ibv_get_async_event(v->qp->context, &event) == 0) {
        seen |= meaning(v, &event);
        ibv_ack_async_event(&event);
    }
    return seen;
}

/* ---- life */

/* Reads the limits: the device may have given longer queues than we asked for, and less inline
 * room. */
static int ask_limits(struct ipu_verbs *v)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    memset(&init, 0, sizeof init);
    int error = ibv_query_qp(v->qp, &attr, IBV_QP_CAP, &init);
    if (error != 0)
        return -abs(error);
    v->send_depth = init.cap.max_send_wr;
    v->receives.qp = v->qp;
    v->receives.depth = init.cap.max_recv_wr;
    v->max_inline = init.cap.max_inline_data;
    v->fabric.one_piece = init.cap.max_send_sge < 2;
    uint64_t room = 1;
    while (room < v->send_depth)
        room *= 2;
    v->cookie_mask = room - 1;
    v->cookies = calloc(room, sizeof *v->cookies);
    return v->cookies == NULL ? -ENOMEM : 0;
}

static int set_up(struct ipu_verbs *v)
{
    v->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (v->epoll_fd < 0)
        return -errno;
    int error = ipu_completion_init(&v->completion, v->qp, v->epoll_fd, &v->counters.events);
    if (error == 0 && v->owns_events)
        error = ipu_epoll_set_unblock(v->qp->context->async_fd);
    if (error == 0)
        error = ipu_epoll_set_watch(v->epoll_fd, v->inbox.fd);
    if (error == 0)
        error = ask_limits(v);
    return error < 0 ? error : ipu_verbs_queue_pair_raise(v);
}

/* Makes a TX queue: its datagrams count as the leader's, and all share the device's handles in
 * equal parts. */
static int follow(struct ipu_verbs *v, struct ipu_verbs *leader)
{
    int error = ipu_fabric_add_tx_queue(&leader->fabric, v->fabric.qpn);
    if (error < 0)
        return error;
    leader->tx_queues[leader->fabric.tx_qpn_count - 1] = v;
    leader->fabric.max_ah = v->fabric.max_ah;
    v->leader = leader;
    return 0;
}

static void leave(struct ipu_verbs *v)
{
    if (v->leader == NULL)
        return;
    for (uint32_t i = 0; i < v->leader->fabric.tx_qpn_count; i++)
        if (v->leader->tx_queues[i] == v)
            v->leader->tx_queues[i] = NULL;
    v->leader = NULL;
}

int ipu_verbs_create(const struct ipu_verbs_config *config, struct ipu_verbs **out)
{
    struct ipu_verbs *v = calloc(1, sizeof *v);
    if (v == NULL)
        return -ENOMEM;
    v->fabric = (struct ipu_fabric){
        .ops = &verbs_ops,
        .self = v,
        .gid = config->gid,
        .qpn = config->qp->qp_num,
        .mtu = config->mtu,
        .max_ah = config->max_ah,
        .min_recv = IPU_GRH_LEN + config->mtu, /* E4; rxe fails the queue pair otherwise */
        .pins_memory = true,
    };
    v->qp = config->qp;
    v->pd = config->qp->pd;
    v->qkey = config->qkey;
    v->pkey_index = config->pkey_index;
    v->port = config->port;
    v->sgid_index = config->sgid_index;
    v->resolves = config->resolves;
    v->owns_events = config->owns_events;
    v->epoll_fd = -1;
    LIST_INIT(&v->handles);
    STAILQ_INIT(&v->retired);
    ipu_verbs_ah_worker_init(v);
    int error = ipu_verbs_inbox_init(v);
    if (error == 0)
        error = set_up(v);
    if (error == 0 && config->leader != NULL)
        error = follow(v, config->leader);
    if (error < 0) {
        ipu_verbs_destroy(v);
        return error;
    }
    *out = v;
    return 0;
}

void ipu_verbs_free(struct ipu_verbs *v)
{
    if (v->closed)
        return;
    v->closed = v->broken = true;
    leave(v);
    ipu_verbs_ah_worker_free(v);
    ipu_verbs_handle_collect(v);
    v->parked_count = 0;
    ipu_verbs_handle_close(v);
    ipu_regions_close(&v->regions);
}

void ipu_verbs_destroy(struct ipu_verbs *v)
{
    ipu_verbs_free(v);
    ipu_verbs_handle_free(v);
    if (v->epoll_fd >= 0)
        close(v->epoll_fd);
    ipu_verbs_inbox_free(v);
    ipu_verbs_connected_free(v->connected);
    free(v->cookies);
    free(v);
}

struct ipu_fabric *ipu_verbs_fabric(struct ipu_verbs *v)
{
    return &v->fabric;
}
