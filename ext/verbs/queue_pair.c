/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "verbs/state.h"

static int modify(struct ipu_verbs *v, struct ibv_qp_attr attr, int mask)
{
    int error = ibv_modify_qp(v->qp, &attr, mask | IBV_QP_STATE);
    return error != 0 ? -abs(error) : 0;
}

int ipu_verbs_queue_pair_raise(struct ipu_verbs *v)
{
    int error = modify(v,
                       (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
                                            .pkey_index = v->pkey_index,
                                            .port_num = v->port,
                                            .qkey = v->qkey},
                       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    if (error == 0)
        error = modify(v, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR}, 0);
    if (error == 0)
        error = modify(v, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS}, IBV_QP_SQ_PSN);
    return error;
}

void ipu_verbs_queue_pair_fail(struct ipu_verbs *v)
{
    if (v->broken)
        return;
    v->broken = true;
    v->reported = false;
    /* A failed UD send leaves the receive side working (state SQE), but recovery needs both sides
     * empty. The device refuses the change if the queue pair is in ERROR already, or the device is
     * gone: that does no harm. */
    (void)modify(v, (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, 0);
}

int ipu_verbs_queue_pair_recover(void *self)
{
    struct ipu_verbs *v = self;
    if (v->closed)
        return -EIO;
    if (!v->broken)
        return 0;
    if (v->returned != v->posted || v->receives.posted > 0 ||
        ipu_completion_has_received(&v->completion))
        return -EBUSY;
    int error = modify(v, (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, 0);
    if (error == 0)
        error = ipu_verbs_queue_pair_raise(v);
    if (error < 0)
        return error;
    v->broken = v->reported = false;
    IPU_VERBS_COUNT(v, recoveries);
    return 0;
}
