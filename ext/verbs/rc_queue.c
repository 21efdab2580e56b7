/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/rc_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ipu_rc_queue_init(struct ipu_rc_queue *queue, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    memset(queue, 0, sizeof *queue);
    memset(&init, 0, sizeof init);
    int error = ibv_query_qp(qp, &attr, IBV_QP_CAP, &init);
    if (error != 0)
        return -abs(error);
    if (init.cap.max_send_wr == 0 || init.cap.max_send_sge < 2)
        return -EINVAL;
    queue->depth = 1;
    while (queue->depth * 2 <= init.cap.max_send_wr)
        queue->depth *= 2;
    queue->cookies = calloc(queue->depth, sizeof *queue->cookies);
    if (queue->cookies == NULL)
        return -ENOMEM;
    queue->qp = qp;
    queue->max_inline = init.cap.max_inline_data;
    queue->failed_from = UINT64_MAX;
    return 0;
}

void ipu_rc_queue_free(struct ipu_rc_queue *queue)
{
    free(queue->cookies);
    queue->cookies = NULL;
}

static int pieces_of(const struct ipu_regions *regions, const struct ipu_send *send,
                     struct ibv_sge *sge)
{
    int n = 0;
    if (send->head_len > 0)
        sge[n++] = (struct ibv_sge){.addr = (uintptr_t)send->head,
                                    .length = send->head_len,
                                    .lkey = ipu_regions_lkey(regions, send->head)};
    if (send->len > 0)
        sge[n++] = (struct ibv_sge){.addr = (uintptr_t)send->addr,
                                    .length = send->len,
                                    .lkey = ipu_regions_lkey(regions, send->addr)};
    return n;
}

struct ipu_rc_posted ipu_rc_queue_post(struct ipu_rc_queue *queue,
                                       const struct ipu_regions *regions,
                                       const struct ipu_send *sends, int n)
{
    struct ipu_rc_posted posted = {0};
    struct ibv_send_wr wr[IPU_RC_BATCH], *bad = NULL;
    struct ibv_sge sge[IPU_RC_BATCH][2];
    for (int i = 0; i < n; i++) {
        bool is_last = i == n - 1, is_signalled = is_last || (i + 1) % IPU_RC_SIGNAL == 0;
        bool is_inline = sends[i].head_len + sends[i].len <= queue->max_inline;
        uint64_t number = queue->posted + (uint64_t)i;
        queue->cookies[number & (queue->depth - 1)] = sends[i].cookie;
        wr[i] = (struct ibv_send_wr){
            .wr_id = number + 1,
            .next = is_last ? NULL : &wr[i + 1],
            .sg_list = sge[i],
            .num_sge = pieces_of(regions, &sends[i], sge[i]),
            .opcode = IBV_WR_SEND,
            .send_flags =
                (is_signalled ? IBV_SEND_SIGNALED : 0) | (is_inline ? IBV_SEND_INLINE : 0),
        };
        posted.signalled += is_signalled;
        posted.inlined += is_inline;
    }
    int error = n == 0 ? 0 : ibv_post_send(queue->qp, wr, &bad);
    posted.taken = error == 0 ? n : bad == NULL ? 0 : (int)(bad - wr);
    posted.refused = error != 0;
    queue->posted += (uint64_t)posted.taken;
    return posted;
}
