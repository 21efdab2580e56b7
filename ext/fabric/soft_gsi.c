/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/soft_gsi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "fabric/soft_work.h"

enum { GRH_SGID = 8 };

#define REFILL_NS (IPU_SOFT_GSI_REFILL_MS * UINT64_C(1000000))

static int post(struct ipu_soft_gsi *gsi, uint32_t count)
{
    for (; count > 0 && gsi->idle_count > 0; count--) {
        uint32_t index = gsi->idle[--gsi->idle_count];
        struct soft_recv_wr wr = {
            .wr_id = index,
            .num_sge = 1,
            .sg = {{.addr = gsi->in[index], .length = sizeof gsi->in[index]}},
        };
        if (soft_qp_post_recv(gsi->qp, &wr, 1) != 1)
            return -ENOMEM;
    }
    return 0;
}

/* Posts as many buffers as the time since the last refill allows. */
static void refill(struct ipu_soft_gsi *gsi)
{
    uint64_t now_ns = ipu_clock_ns();
    uint64_t times = (now_ns - gsi->refilled_ns) / REFILL_NS;
    if (times == 0)
        return;
    gsi->refilled_ns = now_ns;
    post(gsi,
         times < IPU_SOFT_GSI_DEPTH ? (uint32_t)times * IPU_SOFT_GSI_REFILL : IPU_SOFT_GSI_DEPTH);
}

int ipu_soft_gsi_init(struct ipu_soft_gsi *gsi, struct soft_hca *const *hca)
{
    memset(gsi, 0, sizeof *gsi);
    gsi->hca = hca;
    gsi->in = calloc(IPU_SOFT_GSI_DEPTH, sizeof *gsi->in);
    gsi->out = calloc(IPU_SOFT_GSI_DEPTH, sizeof *gsi->out);
    int error = gsi->in != NULL && gsi->out != NULL ? 0 : -ENOMEM;
    if (error == 0)
        error = soft_cq_create(*hca, 2 * IPU_SOFT_GSI_DEPTH, &gsi->cq);
    if (error == 0) {
        struct soft_qp_attr attr = {
            .type = SOFT_QPT_GSI,
            .send_cq = gsi->cq,
            .recv_cq = gsi->cq,
            .max_send_wr = IPU_SOFT_GSI_DEPTH,
            .max_recv_wr = IPU_SOFT_GSI_DEPTH,
        };
        soft_cq_set_background(gsi->cq); /* an interface's thread fetches the packets */
        error = soft_qp_create(*hca, &attr, &gsi->qp);
    }
    while (gsi->idle_count < IPU_SOFT_GSI_DEPTH)
        gsi->idle[gsi->idle_count] = gsi->idle_count, gsi->idle_count++;
    gsi->refilled_ns = ipu_clock_ns();
    if (error == 0)
        error = post(gsi, IPU_SOFT_GSI_DEPTH);
    if (error < 0)
        ipu_soft_gsi_free(gsi);
    return error;
}

void ipu_soft_gsi_free(struct ipu_soft_gsi *gsi)
{
    if (gsi->qp != NULL)
        soft_qp_destroy(gsi->qp);
    if (gsi->cq != NULL)
        soft_cq_destroy(gsi->cq);
    free(gsi->in);
    free(gsi->out);
    memset(gsi, 0, sizeof *gsi);
}

int ipu_soft_gsi_send(struct ipu_soft_gsi *gsi, const struct ipu_dest *dest, uint32_t qkey,
                      uint16_t pkey, const uint8_t mad[IPU_SOFT_GSI_MAD_LEN])
{
    int pkey_index = soft_hca_find_pkey(*gsi->hca, pkey);
    if (pkey_index < 0)
        return pkey_index;
    if (gsi->sending == IPU_SOFT_GSI_DEPTH)
        return -EAGAIN; /* completions come with ipu_soft_gsi_receive() */
    struct soft_ah_attr attr = ipu_soft_work_path(dest);
    struct soft_ah *ah;
    int error = soft_ah_create(*gsi->hca, &attr, &ah);
    if (error < 0)
        return error;
    uint8_t *frame = gsi->out[gsi->sends % IPU_SOFT_GSI_DEPTH];
    memcpy(frame, mad, IPU_SOFT_GSI_MAD_LEN);
    struct soft_send_wr wr = {
        .ah = ah,
        .remote_qpn = dest->qpn,
        .remote_qkey = qkey,
        .pkey_index = (uint16_t)pkey_index,
        .flags = SOFT_SEND_SIGNALED,
        .num_sge = 1,
        .sg = {{.addr = frame, .length = IPU_SOFT_GSI_MAD_LEN}},
    };
    int taken = soft_qp_post_send(gsi->qp, &wr, 1);
    soft_ah_destroy(ah); /* the HCA still sends the posted datagram */
    if (taken != 1)
        return taken < 0 ? taken : -EAGAIN;
    gsi->sends++;
    gsi->sending++;
    return 0;
}

int ipu_soft_gsi_receive(struct ipu_soft_gsi *gsi, struct ipu_soft_mad *mad)
{
    struct soft_wc wc;
    if (gsi->idle_count > 0)
        refill(gsi);
    while (soft_cq_poll(gsi->cq, 1, &wc) == 1) {
        if (wc.opcode == SOFT_WC_SEND) {
            gsi->sending--;
            continue;
        }
        const uint8_t *frame = gsi->in[wc.wr_id];
        bool good = wc.status == SOFT_WC_SUCCESS && (wc.flags & SOFT_WC_GRH) &&
                    wc.byte_len == SOFT_GRH_BYTES + IPU_SOFT_GSI_MAD_LEN;
        if (good) {
            memcpy(&mad->sgid, frame + GRH_SGID, sizeof mad->sgid);
            mad->src_qpn = wc.src_qp;
            mad->pkey = soft_hca_pkey(*gsi->hca, wc.pkey_index);
            memcpy(mad->data, frame + SOFT_GRH_BYTES, IPU_SOFT_GSI_MAD_LEN);
        }
        gsi->idle[gsi->idle_count++] = (uint32_t)wc.wr_id;
        if (good)
            return 1;
    }
    return 0;
}

int ipu_soft_gsi_wait_ms(const struct ipu_soft_gsi *gsi)
{
    if (gsi->idle_count < IPU_SOFT_GSI_DEPTH)
        return -1;
    uint64_t waited_ns = ipu_clock_ns() - gsi->refilled_ns;
    return waited_ns < REFILL_NS ? IPU_SOFT_GSI_REFILL_MS - (int)(waited_ns / 1000000) : 0;
}

int ipu_soft_gsi_fd(const struct ipu_soft_gsi *gsi)
{
    return soft_cq_fd(gsi->cq);
}

void ipu_soft_gsi_arm(struct ipu_soft_gsi *gsi)
{
    soft_cq_arm(gsi->cq);
}
