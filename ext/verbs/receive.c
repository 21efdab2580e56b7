/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "state.h"

int ipu_verbs_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_verbs *v = self;
    struct ibv_recv_wr wr[IPU_VERBS_BATCH];
    struct ibv_sge sge[IPU_VERBS_BATCH];
    if (v->broken)
        return -EIO;
    int room = (int)(v->recv_depth - v->recv_posted);
    if (n > room)
        n = room;
    if (n > IPU_VERBS_BATCH)
        n = IPU_VERBS_BATCH;
    if (n == 0)
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
    struct ibv_recv_wr *bad = NULL;
    int error = ibv_post_recv(v->qp, wr, &bad);
    int taken = error == 0 ? n : bad == NULL ? 0 : (int)(bad - wr);
    v->recv_posted += (uint32_t)taken;
    IPU_VERBS_COUNT(v, rx_doorbells);
    if (error != 0) {
        IPU_VERBS_COUNT(v, rx_errors);
        ipu_verbs_queue_pair_fail(v);
    }
    return taken;
}

void ipu_verbs_receive_poll(struct ipu_verbs *v)
{
    if (v->closed || v->wc_next < v->wc_count)
        return;
    v->wc_next = 0;
    v->wc_count = ibv_poll_cq(v->qp->recv_cq, IPU_VERBS_BATCH, v->wc);
    if (v->wc_count > 0)
        v->recv_armed = false;
    if (v->wc_count < 0) {
        v->wc_count = 0;
        ipu_verbs_queue_pair_fail(v);
    }
}

int ipu_verbs_received(void *self, struct ipu_received *done, int max)
{
    struct ipu_verbs *v = self;
    int n = 0;
    ipu_verbs_receive_poll(v);
    for (; n < max && v->wc_next < v->wc_count; n++) {
        const struct ibv_wc *wc = &v->wc[v->wc_next++];
        v->recv_posted--;
        /* The other fields mean nothing when it failed. */
        done[n] = (struct ipu_received){.cookie = wc->wr_id, .flags = IPU_RECEIVED_FAILED};
        if (wc->status == IBV_WC_SUCCESS) {
            done[n].byte_len = wc->byte_len;
            done[n].src_qpn = wc->src_qp;
            done[n].flags = wc->wc_flags & IBV_WC_GRH ? IPU_RECEIVED_GRH : 0; /* E4 */
            continue;
        }
        if (wc->status == IBV_WC_WR_FLUSH_ERR)
            IPU_VERBS_COUNT(v, flushed);
        else
            IPU_VERBS_COUNT(v, rx_errors);
        ipu_verbs_queue_pair_fail(v);
    }
    return n;
}
