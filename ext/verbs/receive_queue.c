/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/receive_queue.h"

struct ipu_receives_posted ipu_receive_queue_post(struct ipu_receive_queue *queue,
                                                  const struct ipu_regions *regions,
                                                  const struct ipu_recv *recvs, int n)
{
    struct ibv_recv_wr wr[IPU_RECEIVE_BATCH], *bad = NULL;
    struct ibv_sge sge[IPU_RECEIVE_BATCH];
    for (int i = 0; i < n; i++) {
        sge[i] = (struct ibv_sge){.addr = (uintptr_t)recvs[i].addr,
                                  .length = recvs[i].len,
                                  .lkey = ipu_regions_lkey(regions, recvs[i].addr)};
        wr[i] = (struct ibv_recv_wr){.wr_id = recvs[i].cookie,
                                     .next = i + 1 < n ? &wr[i + 1] : NULL,
                                     .sg_list = &sge[i],
                                     .num_sge = 1};
    }
    int error = queue->srq != NULL ? ibv_post_srq_recv(queue->srq, wr, &bad)
                                   : ibv_post_recv(queue->qp, wr, &bad);
    int taken = error == 0 ? n : bad == NULL ? 0 : (int)(bad - wr);
    queue->posted += (uint32_t)taken;
    return (struct ipu_receives_posted){.taken = taken, .refused = error != 0};
}
