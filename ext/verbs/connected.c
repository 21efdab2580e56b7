/* SPDX-License-Identifier: BSD-2-Clause */
#include "connected.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "connected_state.h"
#include "state.h"

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

/* As many as the connection's queue and the completion queue that all share have room for. */
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
    return posted.taken > 0 ? posted.taken : -EIO; /* one in error takes what it then fails */
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
        n = ibv_poll_cq(all->send_cq, IPU_RC_SIGNAL, wc);
        for (int i = 0; i < n; i++) {
            struct ipu_verbs_connection *connection =
                (struct ipu_verbs_connection *)ipu_qpn_table_find(&all->known, wc[i].qp_num);
            if (connection == NULL)
                continue; /* it was given up */
            all->sending -= ipu_rc_queue_complete(&connection->queue, &wc[i]);
            if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
                IPU_VERBS_COUNT(v, flushed);
            else if (wc[i].status != IBV_WC_SUCCESS)
                IPU_VERBS_COUNT(v, tx_errors);
            list(all, connection);
        }
        if (n > 0)
            all->send_armed = false;
    } while (n == IPU_RC_SIGNAL);
    if (n < 0)
        ipu_verbs_queue_pair_fail(v); /* the device is gone */
}

static int connected_sent(void *self, struct ipu_connection_sent *sent, int max)
{
    struct ipu_verbs_connected *all = self;
    int n = 0;
    poll_sends(all);
    while (n < max && all->ended != NULL) {
        struct ipu_verbs_connection *connection = all->ended;
        struct ipu_rc_queue *queue = &connection->queue;
        sent[n].connection = &connection->connection;
        if (ipu_rc_queue_take(queue, &sent[n].cookie, &sent[n].failed)) {
            n++;
            continue;
        }
        connection->listed = false;
        all->ended = connection->next;
        if (all->ended == NULL)
            all->ended_tail = &all->ended;
    }
    return n;
}

/* ---- receives */

static int connected_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_verbs_connected *all = self;
    struct ipu_verbs *v = all->verbs;
    struct ibv_recv_wr wr[IPU_RC_BATCH], *bad = NULL;
    struct ibv_sge sge[IPU_RC_BATCH];
    if (n > (int)(all->recv_depth - all->recv_posted))
        n = (int)(all->recv_depth - all->recv_posted);
    if (n > IPU_RC_BATCH)
        n = IPU_RC_BATCH;
    if (n <= 0 || v->closed)
        return 0;
    for (int i = 0; i < n; i++) {
        sge[i] = (struct ibv_sge){.addr = (uintptr_t)recvs[i].addr,
                                  .length = recvs[i].len,
                                  .lkey = ipu_regions_lkey(&v->regions, recvs[i].addr)};
        wr[i] = (struct ibv_recv_wr){.wr_id = recvs[i].cookie,
                                     .next = i + 1 < n ? &wr[i + 1] : NULL,
                                     .sg_list = &sge[i],
                                     .num_sge = 1};
    }
    int error = ibv_post_srq_recv(all->srq, wr, &bad);
    int taken = error == 0 ? n : bad == NULL ? 0 : (int)(bad - wr);
    all->recv_posted += (uint32_t)taken;
    IPU_VERBS_COUNT(v, rx_doorbells);
    if (error != 0)
        IPU_VERBS_COUNT(v, rx_errors);
    return taken;
}

static void poll_receives(struct ipu_verbs_connected *all)
{
    if (all->wc_next < all->wc_count)
        return;
    all->wc_next = 0;
    all->wc_count = ibv_poll_cq(all->recv_cq, IPU_RC_BATCH, all->wc);
    if (all->wc_count > 0)
        all->recv_armed = false;
    if (all->wc_count < 0) {
        all->wc_count = 0;
        ipu_verbs_queue_pair_fail(all->verbs);
    }
}

static int connected_received(void *self, struct ipu_connection_received *done, int max)
{
    struct ipu_verbs_connected *all = self;
    int n = 0;
    poll_receives(all);
    for (; n < max && all->wc_next < all->wc_count; n++) {
        const struct ibv_wc *wc = &all->wc[all->wc_next++];
        all->recv_posted--;
        done[n] = (struct ipu_connection_received){
            .cookie = wc->wr_id,
            .connection = ipu_qpn_table_find(&all->known, wc->qp_num),
            .failed = true,
        };
        if (wc->status == IBV_WC_SUCCESS) {
            done[n].byte_len = wc->byte_len;
            done[n].failed = false;
        } else if (wc->status == IBV_WC_WR_FLUSH_ERR) {
            IPU_VERBS_COUNT(all->verbs, flushed);
        } else {
            IPU_VERBS_COUNT(all->verbs, rx_errors);
        }
    }
    return n;
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

static void read_events(struct ipu_verbs_connected *all)
{
    struct ibv_cq *cq;
    void *context;
    while (all->send_event || all->recv_event) {
        if (ibv_get_cq_event(all->channel, &cq, &context) != 0) {
            if (errno != EAGAIN && errno != EINTR)
                all->send_event = all->recv_event = false; /* the device is gone */
            return;
        }
        ibv_ack_cq_events(cq, 1);
        IPU_VERBS_COUNT(all->verbs, events);
        if (cq == all->send_cq)
            all->send_event = all->send_armed = false;
        else
            all->recv_event = all->recv_armed = false;
    }
}

bool ipu_verbs_connected_arm(struct ipu_verbs_connected *all)
{
    read_events(all);
    if (!all->recv_armed && ibv_req_notify_cq(all->recv_cq, 0) == 0) {
        all->recv_armed = all->recv_event = true;
        poll_receives(all);
    }
    if (all->sending > 0 && !all->send_armed && ibv_req_notify_cq(all->send_cq, 0) == 0) {
        all->send_armed = all->send_event = true;
        poll_sends(all);
    }
    return all->wc_next < all->wc_count || all->ended != NULL;
}

/* ---- life */

int ipu_verbs_connect(struct ipu_verbs *v, const struct ibv_qp *pattern)
{
    struct ibv_srq_attr srq;
    if (pattern->srq == NULL || pattern->send_cq->channel == NULL ||
        pattern->send_cq->channel != pattern->recv_cq->channel || v->connected != NULL)
        return -EINVAL;
    int error = ibv_query_srq(pattern->srq, &srq);
    if (error != 0)
        return -abs(error);
    struct ipu_verbs_connected *all = calloc(1, sizeof *all);
    if (all == NULL)
        return -ENOMEM;
    all->verbs = v;
    all->srq = pattern->srq;
    all->send_cq = pattern->send_cq;
    all->recv_cq = pattern->recv_cq;
    all->channel = pattern->send_cq->channel;
    all->ended_tail = &all->ended;
    all->send_room = (uint32_t)pattern->send_cq->cqe;
    all->recv_depth =
        srq.max_wr < (uint32_t)pattern->recv_cq->cqe ? srq.max_wr : (uint32_t)pattern->recv_cq->cqe;
    error = ipu_verbs_watch(v, all->channel->fd);
    if (error < 0) {
        free(all);
        return error;
    }
    v->connected = all;
    v->fabric.connected = &connected_ops;
    v->fabric.connected_self = all;
    return 0;
}

int ipu_verbs_connection_init(struct ipu_verbs_connection *connection, struct ibv_qp *qp)
{
    memset(connection, 0, sizeof *connection);
    connection->connection.qpn = qp->qp_num;
    return ipu_rc_queue_init(&connection->queue, qp);
}

void ipu_verbs_connection_free(struct ipu_verbs_connection *connection)
{
    ipu_rc_queue_free(&connection->queue);
}
