/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/connected.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/connected_state.h"
#include "verbs/state.h"

enum { PSN_MASK = 0xffffff };

/* ---- sends */

static int connected_add(void *self, struct ipu_connection *connection)
{
    ipu_qpn_table_add(&((struct ipu_verbs_connected *)self)->known, connection);
    return 0;
}

static void connected_remove(void *self, struct ipu_connection *connection)
{
    ipu_qpn_table_remove(&((struct ipu_verbs_connected *)self)->known, connection);
}

/* Returns how many sends fit into the connection's queue and the completion queue that all
 * connections share. */
static int room(const struct ipu_verbs_connected *all, const struct ipu_verbs_connection *to, int n)
{
    uint32_t least = ipu_rc_queue_room(&to->queue);
    if (least > all->send_room - all->sending)
        least = all->send_room - all->sending;
    if (least > IPU_RC_BATCH)
        least = IPU_RC_BATCH;
    return (uint32_t)n < least ? n : (int)least;
}

static int connected_send(void *self, struct ipu_connection *connection,
                          const struct ipu_send *sends, int n)
{
    struct ipu_verbs_connected *all = self;
    struct ipu_verbs_connection *to = (struct ipu_verbs_connection *)connection;
    struct ipu_verbs *v = all->verbs;
    n = room(all, to, n);
    if (n == 0)
        return 0;
    struct ipu_rc_posted posted = ipu_rc_queue_post(&to->queue, &v->regions, sends, n);
    IPU_VERBS_COUNT(v, connected_doorbells);
    IPU_VERBS_ADD(v, connected_posted, (uint64_t)posted.taken);
    IPU_VERBS_ADD(v, tx_signalled, (uint64_t)posted.signalled);
    IPU_VERBS_ADD(v, tx_inline, (uint64_t)posted.inlined);
    all->sending += (uint32_t)posted.taken;
    if (!posted.refused)
        return n;
    IPU_VERBS_COUNT(v, tx_errors);
    return posted.taken > 0 ? posted.taken : -EIO; /* a failed QP takes sends and fails them */
}

static void list(struct ipu_verbs_connected *all, struct ipu_verbs_connection *connection)
{
    if (connection->listed)
        return;
    connection->listed = true;
    connection->next = NULL;
    *all->ended_tail = connection;
    all->ended_tail = &connection->next;
}

static void poll_sends(struct ipu_verbs_connected *all)
{
    struct ipu_verbs *v = all->verbs;
    struct ibv_wc wc[IPU_RC_SIGNAL];
    int n;
    if (all->sending == 0)
        return;
    do {
        n = ipu_completion_poll_sends(&all->completion, wc, IPU_RC_SIGNAL);
        for (int i = 0; i < n; i++) {
            struct ipu_verbs_connection *connection =
                (struct ipu_verbs_connection *)ipu_qpn_table_find(&all->known, wc[i].qp_num);
            if (connection == NULL)
                continue; /* the pump has removed this connection */
            all->sending -= ipu_rc_queue_complete(&connection->queue, &wc[i]);
            if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
                IPU_VERBS_COUNT(v, flushed);
            else if (wc[i].status != IBV_WC_SUCCESS)
                IPU_VERBS_COUNT(v, tx_errors);
            list(all, connection);
        }
    } while (n == IPU_RC_SIGNAL);
    if (n < 0)
        ipu_verbs_queue_pair_fail(v); /* the device is gone */
}

/* Once this has reported all sends of a connection, the connection is not listed, and the pump may
 * remove it. */
static int connected_sent(void *self, struct ipu_connection_sent *sent, int max)
{
    struct ipu_verbs_connected *all = self;
    struct ipu_verbs_connection *connection;
    int n = 0;
    poll_sends(all);
    while ((connection = all->ended) != NULL) {
        struct ipu_rc_queue *queue = &connection->queue;
        if (queue->returned == queue->completed) {
            connection->listed = false;
            all->ended = connection->next;
            if (all->ended == NULL)
                all->ended_tail = &all->ended;
            continue;
        }
        if (n == max)
            break;
        sent[n].connection = &connection->connection;
        ipu_rc_queue_take(queue, &sent[n].cookie, &sent[n].failed);
        n++;
    }
    return n;
}

/* ---- receives */

static int connected_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_verbs_connected *all = self;
    struct ipu_verbs *v = all->verbs;
    n = ipu_receive_queue_room(&all->receives, n);
    if (n <= 0 || v->closed)
        return 0;
    struct ipu_recv slots[IPU_RECEIVE_BATCH];
    for (int i = 0; i < n; i++) {
        slots[i] = recvs[i];
        slots[i].cookie = ipu_receive_order_put(&all->order, recvs[i].cookie);
    }
    struct ipu_receives_posted posted =
        ipu_receive_queue_post(&all->receives, &v->regions, slots, n);
    for (int i = posted.taken; i < n; i++)
        ipu_receive_order_withdraw(&all->order);
    IPU_VERBS_COUNT(v, rx_doorbells);
    if (posted.refused)
        IPU_VERBS_COUNT(v, rx_errors);
    return posted.taken;
}

static void poll_receives(struct ipu_verbs_connected *all)
{
    if (!ipu_completion_poll_receives(&all->completion))
        ipu_verbs_queue_pair_fail(all->verbs);
}

/* Returns whether the queue pair may hold a receive that the device took before now. Between two
 * messages it expects the PSN that follows the packets of those that we have seen. Before add() and
 * after remove() another thread may destroy it, so we do not ask it. */
static bool holds(struct ipu_verbs_connected *all, const struct ipu_verbs_connection *connection)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    bool is_known =
        ipu_qpn_table_find(&all->known, connection->connection.qpn) == &connection->connection;
    return !is_known || !atomic_load(&connection->programmed) ||
           ibv_query_qp(connection->queue.qp, &attr, IBV_QP_RQ_PSN, &init) != 0 ||
           attr.rq_psn != connection->psn;
}

/* Returns the number before which no queue pair holds a receive; when one holds the oldest receive,
 * any number that is not greater. */
static uint64_t find_floor(struct ipu_verbs_connected *all, uint64_t oldest)
{
    uint64_t floor = all->order.passed;
    struct ipu_verbs_connection *at;
    pthread_mutex_lock(&all->mutex);
    LIST_FOREACH(at, &all->existing, others) {
        if (at->passed <= oldest && !holds(all, at))
            at->passed = all->order.passed;
        if (at->passed < floor)
            floor = at->passed;
        if (floor <= oldest)
            break;
    }
    pthread_mutex_unlock(&all->mutex);
    return floor;
}

/* Gives back receives that the device has lost; returns their number. */
static int reclaim(struct ipu_verbs_connected *all, struct ipu_connection_received *done, int max)
{
    uint64_t oldest, cookie;
    int n = 0;
    if (!all->loses || max == 0 || !ipu_receive_order_look(&all->order, &oldest))
        return 0;
    uint64_t floor = find_floor(all, oldest);
    while (n < max && ipu_receive_order_reclaim(&all->order, floor, &cookie)) {
        done[n++] = (struct ipu_connection_received){.cookie = cookie, .failed = true};
        all->receives.posted--;
        IPU_VERBS_COUNT(all->verbs, rx_lost);
    }
    return n;
}

/* Notes that the connection has ended this receive, with this number, and begins no older one. */
static void pass(struct ipu_verbs_connection *connection, uint64_t number, const struct ibv_wc *wc)
{
    uint32_t packets = (wc->byte_len + connection->mtu - 1) / connection->mtu;
    connection->psn = (connection->psn + (packets > 0 ? packets : 1)) & PSN_MASK;
    connection->passed = number + 1;
}

static int connected_received(void *self, struct ipu_connection_received *done, int max)
{
    struct ipu_verbs_connected *all = self;
    struct ipu_completion *completion = &all->completion;
    int n = 0;
    poll_receives(all);
    for (; n < max && ipu_completion_has_received(completion); n++) {
        const struct ibv_wc *wc = &completion->wc[completion->wc_next++];
        all->receives.posted--;
        done[n] = (struct ipu_connection_received){
            .connection = ipu_qpn_table_find(&all->known, wc->qp_num),
            .failed = true,
        };
        uint64_t number = ipu_receive_order_end(&all->order, (uint32_t)wc->wr_id, &done[n].cookie);
        if (wc->status == IBV_WC_SUCCESS) {
            done[n].byte_len = wc->byte_len;
            done[n].failed = false;
            if (done[n].connection != NULL)
                pass((struct ipu_verbs_connection *)done[n].connection, number, wc);
        } else if (wc->status == IBV_WC_WR_FLUSH_ERR) {
            IPU_VERBS_COUNT(all->verbs, flushed);
        } else {
            IPU_VERBS_COUNT(all->verbs, rx_errors);
        }
    }
    return n + reclaim(all, done + n, max - n);
}

static const struct ipu_connected_ops connected_ops = {
    .add = connected_add,
    .remove = connected_remove,
    .send = connected_send,
    .post = connected_post,
    .sent = connected_sent,
    .received = connected_received,
};

/* ---- waiting */

bool ipu_verbs_connected_arm(struct ipu_verbs_connected *all, bool looks)
{
    /* If the device is gone, the next poll fails. */
    (void)ipu_completion_read(&all->completion, looks);
    if (ipu_completion_arm_receives(&all->completion))
        poll_receives(all);
    return ipu_completion_has_received(&all->completion) || all->ended != NULL;
}

bool ipu_verbs_connected_arm_sends(struct ipu_verbs_connected *all)
{
    if (all->sending > 0 && ipu_completion_arm_sends(&all->completion))
        poll_sends(all);
    return all->ended != NULL;
}

/* ---- life */

int ipu_verbs_connect(struct ipu_verbs *v, const struct ibv_qp *pattern, bool loses)
{
    struct ibv_srq_attr srq;
    if (pattern->srq == NULL || v->connected != NULL)
        return -EINVAL;
    int error = ibv_query_srq(pattern->srq, &srq);
    if (error != 0)
        return -abs(error);
    struct ipu_verbs_connected *all = calloc(1, sizeof *all);
    if (all == NULL)
        return -ENOMEM;
    all->verbs = v;
    all->receives.srq = pattern->srq;
    all->ended_tail = &all->ended;
    all->send_room = (uint32_t)pattern->send_cq->cqe;
    all->receives.depth =
        srq.max_wr < (uint32_t)pattern->recv_cq->cqe ? srq.max_wr : (uint32_t)pattern->recv_cq->cqe;
    all->loses = loses;
    LIST_INIT(&all->existing);
    pthread_mutex_init(&all->mutex, NULL);
    error = ipu_receive_order_init(&all->order, all->receives.depth);
    if (error == 0)
        error = ipu_completion_init(&all->completion, pattern, v->epoll_fd, &v->counters.events);
    if (error < 0) {
        ipu_verbs_connected_free(all);
        return error;
    }
    v->connected = all;
    v->fabric.connected = &connected_ops;
    v->fabric.connected_self = all;
    return 0;
}

void ipu_verbs_connected_free(struct ipu_verbs_connected *all)
{
    if (all == NULL)
        return;
    pthread_mutex_destroy(&all->mutex);
    ipu_receive_order_free(&all->order);
    free(all);
}

int ipu_verbs_connection_init(struct ipu_verbs_connection *connection, struct ipu_verbs *verbs,
                              struct ibv_qp *qp)
{
    struct ipu_verbs_connected *all = verbs->connected;
    memset(connection, 0, sizeof *connection);
    if (all == NULL)
        return -EINVAL;
    int error = ipu_rc_queue_init(&connection->queue, qp);
    if (error < 0)
        return error;
    connection->connection.qpn = qp->qp_num;
    connection->mtu = 1;
    connection->all = all;
    pthread_mutex_lock(&all->mutex);
    LIST_INSERT_HEAD(&all->existing, connection, others);
    pthread_mutex_unlock(&all->mutex);
    return 0;
}

void ipu_verbs_connection_program(struct ipu_verbs_connection *connection, uint32_t receive_psn,
                                  uint32_t path_mtu)
{
    connection->psn = receive_psn;
    connection->mtu = path_mtu;
    atomic_store(&connection->programmed, true);
}

void ipu_verbs_connection_end(struct ipu_verbs_connection *connection)
{
    struct ipu_verbs_connected *all = connection->all;
    if (all == NULL)
        return;
    connection->all = NULL;
    pthread_mutex_lock(&all->mutex);
    LIST_REMOVE(connection, others);
    pthread_mutex_unlock(&all->mutex);
}

void ipu_verbs_connection_free(struct ipu_verbs_connection *connection)
{
    ipu_verbs_connection_end(connection);
    ipu_rc_queue_free(&connection->queue);
}
