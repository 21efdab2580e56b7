/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SOFT_WORK_H
#define IPU_SOFT_WORK_H

#include "fabric/fabric.h"
#include "soft/hca.h"

/* What the contract of a fabric says, in the structures of the built-in HCA. */

static inline struct soft_ah_attr ipu_soft_work_path(const struct ipu_dest *dest)
{
    return (struct soft_ah_attr){
        .dgid = dest->gid,
        .flow_label = dest->flow_label,
        .traffic_class = dest->traffic_class,
        .hop_limit = dest->hop_limit,
    };
}

static inline struct soft_sge ipu_soft_work_piece(const void *addr, uint32_t len)
{
    return (struct soft_sge){.addr = (void *)(uintptr_t)addr, .length = len};
}

/* Sets the data of the message; the caller sets its destination. */
static inline void ipu_soft_work_gather(struct soft_send_wr *wr, const struct ipu_send *send)
{
    const struct ipu_cut *cut = send->cut;
    if (cut != NULL) {
        wr->flags |= SOFT_SEND_CUT;
        wr->cut = (struct soft_cut){
            .packets = cut->packets,
            .bytes = send->head_len + (cut->packets > 1 ? cut->size_bytes : send->len),
            .last_bytes = send->head_len + send->len - (cut->packets - 1) * cut->size_bytes,
            .make = cut->make,
            .context = cut->context,
        };
        return;
    }
    if (send->head_len > 0)
        wr->sg[wr->num_sge++] = ipu_soft_work_piece(send->head, send->head_len);
    if (send->len > 0)
        wr->sg[wr->num_sge++] = ipu_soft_work_piece(send->addr, send->len);
}

static inline void ipu_soft_work_receives(struct soft_recv_wr *wr, const struct ipu_recv *recvs,
                                          int n)
{
    for (int i = 0; i < n; i++)
        wr[i] = (struct soft_recv_wr){
            .wr_id = recvs[i].cookie,
            .num_sge = 1,
            .sg = {ipu_soft_work_piece(recvs[i].addr, recvs[i].len)},
        };
}

#endif
