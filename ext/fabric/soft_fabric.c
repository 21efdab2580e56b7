/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/soft_fabric.h"
#include "fabric/soft_work.h"

#include <errno.h>
#include <string.h>

enum { BATCH = 64 };

/* Does nothing: the HCA lives in this process and reads and writes its memory directly. */
static int soft_memory(void *self, void *base, size_t len)
{
    (void)self;
    (void)base;
    (void)len;
    return 0;
}

static void *soft_create_ah(void *self, const struct ipu_dest *dest)
{
    struct ipu_soft_fabric *soft = self;
    struct soft_ah_attr attr = ipu_soft_work_path(dest);
    struct soft_ah *ah;
    if (soft->needs_lid && dest->dlid == 0) { /* the engine has not resolved an SA path */
        errno = EHOSTUNREACH;
        return NULL;
    }
    int error = soft_ah_create(*soft->hca, &attr, &ah);
    if (error < 0) {
        errno = -error;
        return NULL;
    }
    return ah;
}

static void soft_destroy_ah(void *self, void *ah)
{
    if (*((struct ipu_soft_fabric *)self)->hca != NULL)
        soft_ah_destroy(ah);
}

static int soft_send(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_soft_fabric *soft = self;
    struct soft_send_wr wr[BATCH];
    if (n > BATCH)
        n = BATCH;
    for (int i = 0; i < n; i++) {
        wr[i] = (struct soft_send_wr){
            .wr_id = sends[i].cookie,
            .ah = sends[i].ah,
            .remote_qpn = sends[i].qpn,
            .remote_qkey = soft->qkey,
            .flags = SOFT_SEND_SIGNALED,
            .flow = sends[i].flow,
            .source_qpn = sends[i].source_qpn,
        };
        ipu_soft_work_gather(&wr[i], &sends[i]);
    }
    int taken = soft_qp_post_send(soft->qp, wr, n);
    if (taken > 0)
        soft->sending += (uint32_t)taken;
    return taken;
}

static int soft_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_soft_fabric *soft = self;
    struct soft_recv_wr wr[BATCH];
    if (n > BATCH)
        n = BATCH;
    ipu_soft_work_receives(wr, recvs, n);
    return soft_qp_post_recv(soft->qp, wr, n);
}

static void stay_awake(struct ipu_soft_fabric *soft)
{
    if (!soft->armed)
        return;
    soft->armed = false;
    soft_cq_disarm(soft->recv_cq);
}

static int soft_sent(void *self, uint64_t *cookies, int max)
{
    struct ipu_soft_fabric *soft = self;
    struct soft_wc wc[BATCH];
    if (soft->sending == 0)
        return 0;
    stay_awake(soft);
    /* Each poll for received datagrams tries waiting sends again. */
    int n = soft_cq_take(soft->send_cq, max < BATCH ? max : BATCH, wc);
    for (int i = 0; i < n; i++)
        cookies[i] = wc[i].wr_id;
    soft->sending -= (uint32_t)n;
    return n;
}

static int soft_received(void *self, struct ipu_received *done, int max)
{
    struct ipu_soft_fabric *soft = self;
    struct soft_wc wc[BATCH];
    stay_awake(soft);
    int n = soft_cq_poll(soft->recv_cq, max < BATCH ? max : BATCH, wc);
    for (int i = 0; i < n; i++)
        done[i] = (struct ipu_received){
            .cookie = wc[i].wr_id,
            .byte_len = wc[i].byte_len,
            .src_qpn = wc[i].src_qp,
            .qpn = wc[i].qp_num,
            .flags = (wc[i].flags & SOFT_WC_GRH ? IPU_RECEIVED_GRH : 0) |
                     (wc[i].status != SOFT_WC_SUCCESS ? IPU_RECEIVED_FAILED : 0) |
                     (wc[i].flags & SOFT_WC_LENT ? IPU_RECEIVED_LENT : 0),
            .lent = wc[i].lent,
            .lent_grh = wc[i].lent_grh,
        };
    return n;
}

static void soft_lend(void *self)
{
    soft_qp_lend(((struct ipu_soft_fabric *)self)->qp);
}

static int soft_arm(void *self)
{
    struct ipu_soft_fabric *soft = self;
    /* Arms all queues; the descriptor is readable at once when a queue has a completion. */
    soft_cq_arm(soft->recv_cq);
    soft->armed = true;
    return 0;
}

static int soft_fd(void *self)
{
    return soft_cq_fd(((struct ipu_soft_fabric *)self)->recv_cq);
}

static int64_t soft_deadline_ns(void *self)
{
    return soft_hca_deadline_ns(*((struct ipu_soft_fabric *)self)->hca);
}

static const struct ipu_fabric_ops soft_ops = {
    .memory = soft_memory,
    .ah_create = soft_create_ah,
    .ah_destroy = soft_destroy_ah,
    .send = soft_send,
    .post = soft_post,
    .sent = soft_sent,
    .received = soft_received,
    .arm = soft_arm,
    .fd = soft_fd,
    .lend = soft_lend,
    .deadline_ns = soft_deadline_ns,
};

static int set_up(struct ipu_soft_fabric *soft, const struct ipu_soft_fabric_config *config)
{
    int error = soft_cq_create(*soft->hca, config->recv_depth, &soft->recv_cq);
    if (error == 0)
        error = soft_cq_create_beside(soft->recv_cq, config->send_depth, &soft->send_cq);
    if (error < 0)
        return error;
    struct soft_qp_attr attr = {
        .type = SOFT_QPT_UD,
        .send_cq = soft->send_cq,
        .recv_cq = soft->recv_cq,
        .max_send_wr = config->send_depth,
        .max_recv_wr = config->recv_depth,
        .qkey = config->qkey,
        .pkey_index = config->pkey_index,
        .source_qpn = config->source_qpn,
        .qpn = config->qpn,
    };
    error = soft_qp_create(*soft->hca, &attr, &soft->qp);
    if (error < 0)
        return error;
    if (config->connected_depth == 0)
        return 0;
    error = ipu_soft_connected_init(&soft->connected, soft->recv_cq, soft->hca,
                                    config->connected_depth);
    soft->has_connections = error == 0;
    return error;
}

int ipu_soft_fabric_init(struct ipu_soft_fabric *soft, struct soft_hca *const *hca,
                         const struct ipu_soft_fabric_config *config)
{
    *soft =
        (struct ipu_soft_fabric){.hca = hca, .qkey = config->qkey, .needs_lid = config->needs_lid};
    int error = set_up(soft, config);
    if (error < 0) {
        ipu_soft_fabric_free(soft);
        return error;
    }
    struct soft_hca_attr attr;
    soft_hca_query(*hca, &attr);
    soft->fabric = (struct ipu_fabric){
        .ops = &soft_ops,
        .self = soft,
        .gid = attr.gid,
        .qpn = config->source_qpn != 0 ? config->source_qpn : soft_qp_qpn(soft->qp),
        .mtu = attr.datagram_bytes,
        .max_recv = config->recv_depth,
        .spreads_flows = true,
        .cuts = true,
        .shares_epoll = true,
    };
    if (soft->has_connections) {
        soft->fabric.connected = &ipu_soft_connected_ops;
        soft->fabric.connected_self = &soft->connected;
    }
    return 0;
}

void ipu_soft_fabric_free(struct ipu_soft_fabric *soft)
{
    if (soft->has_connections)
        ipu_soft_connected_free(&soft->connected);
    soft->has_connections = false;
    if (soft->qp != NULL)
        soft_qp_destroy(soft->qp);
    if (soft->send_cq != NULL)
        soft_cq_destroy(soft->send_cq);
    if (soft->recv_cq != NULL)
        soft_cq_destroy(soft->recv_cq);
    soft->qp = NULL;
    soft->send_cq = soft->recv_cq = NULL;
}
