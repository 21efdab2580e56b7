/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "verbs/state.h"

int ipu_verbs_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_verbs *v = self;
    if (v->broken)
        return -EIO;
    n = ipu_receive_queue_room(&v->receives, n);
    if (n == 0)
        return 0;
    struct ipu_receives_posted posted = ipu_receive_queue_post(&v->receives, &v->regions, recvs, n);
    IPU_VERBS_COUNT(v, rx_doorbells);
    if (posted.refused) {
        IPU_VERBS_COUNT(v, rx_errors);
        ipu_verbs_queue_pair_fail(v);
    }
    return posted.taken;
}

void ipu_verbs_receive_poll(struct ipu_verbs *v)
{
    if (!v->closed && !ipu_completion_poll_receives(&v->completion))
        ipu_verbs_queue_pair_fail(v);
}

int ipu_verbs_received(void *self, struct ipu_received *done, int max)
{
    struct ipu_verbs *v = self;
    struct ipu_completion *completion = &v->completion;
    int n = 0;
    ipu_verbs_receive_poll(v);
    for (; n < max && ipu_completion_has_received(completion); n++) {
        const struct ibv_wc *wc = &completion->wc[completion->wc_next++];
        v->receives.posted--;
        /* The other fields of a failed completion mean nothing. */
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
