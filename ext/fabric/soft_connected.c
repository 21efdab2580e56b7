/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/soft_connected.h"
#include "fabric/soft_work.h"

#include <errno.h>
#include <string.h>

enum {
    BATCH = 64,
    SEND_CQ_DEPTH = 4096, /* when the queue is full, completions wait, and none is lost */
};

static int connected_add(void *self, struct ipu_connection *connection)
{
    ipu_qpn_table_add(&((struct ipu_soft_connected *)self)->known, connection);
    return 0;
}

static void connected_remove(void *self, struct ipu_connection *connection)
{
    ipu_qpn_table_remove(&((struct ipu_soft_connected *)self)->known, connection);
}

static int connected_send(void *self, struct ipu_connection *connection,
                          const struct ipu_send *sends, int n)
{
    (void)self;
    struct soft_send_wr wr[BATCH];
    if (n > BATCH)
        n = BATCH;
    for (int i = 0; i < n; i++) {
        wr[i] = (struct soft_send_wr){.wr_id = sends[i].cookie, .flags = SOFT_SEND_SIGNALED};
        ipu_soft_work_gather(&wr[i], &sends[i]);
    }
    return soft_qp_post_send(((struct ipu_soft_connection *)connection)->qp, wr, n);
}

static int connected_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_soft_connected *all = self;
    struct soft_recv_wr wr[BATCH];
    if (n > BATCH)
        n = BATCH;
    ipu_soft_work_receives(wr, recvs, n);
    return soft_srq_post_recv(all->srq, wr, n);
}

static int connected_sent(void *self, struct ipu_connection_sent *sent, int max)
{
    struct ipu_soft_connected *all = self;
    struct soft_wc wc[BATCH];
    int n = soft_cq_take(all->send_cq, max < BATCH ? max : BATCH, wc);
    for (int i = 0; i < n; i++)
        sent[i] = (struct ipu_connection_sent){
            .cookie = wc[i].wr_id,
            .connection = ipu_qpn_table_find(&all->known, wc[i].qp_num),
            .failed = wc[i].status != SOFT_WC_SUCCESS,
        };
    return n;
}

static int connected_received(void *self, struct ipu_connection_received *done, int max)
{
    struct ipu_soft_connected *all = self;
    struct soft_wc wc[BATCH];
    int n = soft_cq_take(all->recv_cq, max < BATCH ? max : BATCH, wc);
    for (int i = 0; i < n; i++)
        done[i] = (struct ipu_connection_received){
            .cookie = wc[i].wr_id,
            .connection = ipu_qpn_table_find(&all->known, wc[i].qp_num),
            .byte_len = wc[i].byte_len,
            .failed = wc[i].status != SOFT_WC_SUCCESS,
        };
    return n;
}

const struct ipu_connected_ops ipu_soft_connected_ops = {
    .add = connected_add,
    .remove = connected_remove,
    .send = connected_send,
    .post = connected_post,
    .sent = connected_sent,
    .received = connected_received,
};

int ipu_soft_connected_init(struct ipu_soft_connected *all, struct soft_cq *beside,
                            struct soft_hca *const *hca, uint32_t recv_depth)
{
    memset(all, 0, sizeof *all);
    all->hca = hca;
    int error = soft_srq_create(*hca, recv_depth, &all->srq);
    if (error == 0)
        error = soft_cq_create_beside(beside, SEND_CQ_DEPTH, &all->send_cq);
    if (error == 0)
        error = soft_cq_create_beside(beside, recv_depth, &all->recv_cq);
    if (error < 0)
        ipu_soft_connected_free(all);
    return error;
}

void ipu_soft_connected_free(struct ipu_soft_connected *all)
{
    if (all->send_cq != NULL)
        soft_cq_destroy(all->send_cq);
    if (all->recv_cq != NULL)
        soft_cq_destroy(all->recv_cq);
    if (all->srq != NULL)
        soft_srq_destroy(all->srq);
    memset(all, 0, sizeof *all);
}

int ipu_soft_connection_open(struct ipu_soft_connected *all, struct ipu_soft_connection *connection,
                             uint16_t pkey_index)
{
    struct soft_qp_attr attr = {
        .type = SOFT_QPT_RC,
        .send_cq = all->send_cq,
        .recv_cq = all->recv_cq,
        .max_send_wr = IPU_SOFT_CONNECTED_SENDS,
        .max_recv_wr = 1,
        .pkey_index = pkey_index,
        .srq = all->srq,
    };
    memset(connection, 0, sizeof *connection);
    int error = soft_qp_create(*all->hca, &attr, &connection->qp);
    if (error == 0)
        error = soft_qp_modify(connection->qp, SOFT_QPS_INIT, NULL);
    if (error < 0) {
        ipu_soft_connection_close(connection);
        return error;
    }
    connection->connection.qpn = soft_qp_qpn(connection->qp);
    return 0;
}

int ipu_soft_connection_program(struct ipu_soft_connection *connection,
                                const struct soft_rc_attr *attr)
{
    int error = soft_qp_modify(connection->qp, SOFT_QPS_RTR, attr);
    return error < 0 ? error : soft_qp_modify(connection->qp, SOFT_QPS_RTS, attr);
}

void ipu_soft_connection_stop(struct ipu_soft_connection *connection)
{
    if (connection->qp != NULL)
        soft_qp_modify(connection->qp, SOFT_QPS_ERR, NULL);
}

void ipu_soft_connection_close(struct ipu_soft_connection *connection)
{
    if (connection->qp != NULL)
        soft_qp_destroy(connection->qp);
    connection->qp = NULL;
}
