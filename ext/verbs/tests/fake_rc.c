/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_rc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct fake_rc fake_rc;

static void ring(struct ibv_cq *cq)
{
    char which = cq == &fake_rc.send_cq ? 's' : 'r';
    bool *armed = cq == &fake_rc.send_cq ? &fake_rc.send_armed : &fake_rc.recv_armed;
    if (*armed)
        CHECK(write(fake_rc.channel_pipe[1], &which, 1) == 1);
    *armed = false;
}

static void end_send(const struct fake_rc_send *send, enum ibv_wc_status status)
{
    if (status == IBV_WC_SUCCESS && !(send->wr.send_flags & IBV_SEND_SIGNALED))
        return;
    CHECK(fake_rc.send_wc_count - fake_rc.send_wc_next < FAKE_RC_SENDS); /* or it overflows */
    fake_rc.send_wc[fake_rc.send_wc_count++] =
        (struct ibv_wc){.wr_id = send->wr.wr_id, .status = status, .qp_num = send->qp->qp_num};
    ring(&fake_rc.send_cq);
}

void fake_rc_complete(int n)
{
    for (int i = 0; i < n; i++) {
        CHECK(fake_rc.send_next < fake_rc.send_count);
        end_send(&fake_rc.sends[fake_rc.send_next++], IBV_WC_SUCCESS);
    }
}

void fake_rc_fail(struct ibv_qp *qp, enum ibv_wc_status status)
{
    int kept = fake_rc.send_next;
    for (int i = fake_rc.send_next; i < fake_rc.send_count; i++) {
        if (fake_rc.sends[i].qp != qp) {
            fake_rc.sends[kept++] = fake_rc.sends[i];
            continue;
        }
        end_send(&fake_rc.sends[i], status);
        status = IBV_WC_WR_FLUSH_ERR;
    }
    fake_rc.send_count = kept;
}

static void advance(const struct ibv_qp *qp, uint32_t packets)
{
    uint32_t *psn = &fake_rc.psn[qp - fake_rc.qp];
    *psn = (*psn + packets) & 0xffffff;
}

void fake_rc_begin(struct ibv_qp *qp)
{
    CHECK(fake_rc.recv_next < fake_rc.recv_count);
    fake_rc.recv_next++;
    advance(qp, 2);
}

void fake_rc_arrive(struct ibv_qp *qp, uint32_t byte_len, enum ibv_wc_status status)
{
    CHECK(fake_rc.recv_next < fake_rc.recv_count);
    advance(qp, byte_len == 0 ? 1 : (byte_len + FAKE_RC_MTU - 1) / FAKE_RC_MTU);
    fake_rc.recv_wc[fake_rc.recv_wc_count++] =
        (struct ibv_wc){.wr_id = fake_rc.recvs[fake_rc.recv_next++].wr_id,
                        .byte_len = byte_len,
                        .status = status,
                        .qp_num = qp->qp_num};
    ring(&fake_rc.recv_cq);
}

bool fake_rc_deliver(struct ibv_qp *qp, const void *bytes, uint32_t len)
{
    int at = fake_rc.recv_next;
    while (at < fake_rc.recv_count && fake_rc.recv_qp[at] != qp)
        at++;
    if (at == fake_rc.recv_count)
        return false;
    struct ibv_recv_wr wr = fake_rc.recvs[at];
    uint8_t *addr = fake_rc.recv_addr[at];
    for (; at > fake_rc.recv_next; at--) { /* the receives of other queue pairs stay in order */
        fake_rc.recvs[at] = fake_rc.recvs[at - 1];
        fake_rc.recv_qp[at] = fake_rc.recv_qp[at - 1];
        fake_rc.recv_addr[at] = fake_rc.recv_addr[at - 1];
    }
    fake_rc.recvs[at] = wr;
    fake_rc.recv_qp[at] = qp;
    fake_rc.recv_addr[at] = addr;
    memcpy(addr, bytes, len);
    fake_rc_arrive(qp, len, IBV_WC_SUCCESS);
    return true;
}

int fake_rc_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    fake_rc.doorbells++;
    for (int n = 0; wr != NULL; wr = wr->next, n++) {
        if (n == fake_rc.refuse_send_after) {
            *bad = wr;
            return EINVAL;
        }
        CHECK(fake_rc.send_count < FAKE_QUEUE && wr->num_sge <= 2);
        struct fake_rc_send *send = &fake_rc.sends[fake_rc.send_count++];
        *send = (struct fake_rc_send){.wr = *wr, .qp = qp};
        for (int i = 0; i < wr->num_sge; i++)
            send->sge[i] = wr->sg_list[i];
    }
    return 0;
}

int fake_rc_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)bad;
    for (; wr != NULL; wr = wr->next) {
        CHECK(fake_rc.recv_count < FAKE_QUEUE && wr->num_sge == 1);
        fake_rc.recv_qp[fake_rc.recv_count] = qp;
        fake_rc.recv_addr[fake_rc.recv_count] = (uint8_t *)(uintptr_t)wr->sg_list->addr;
        fake_rc.recvs[fake_rc.recv_count++] = *wr;
    }
    return 0;
}

int fake_rc_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    CHECK(srq == &fake_rc.srq);
    for (int n = 0; wr != NULL; wr = wr->next, n++) {
        if (n == fake_rc.refuse_recv_after) {
            *bad = wr;
            return ENOMEM;
        }
        CHECK(fake_rc.recv_count < FAKE_QUEUE);
        fake_rc.recvs[fake_rc.recv_count++] = *wr;
    }
    return 0;
}

int fake_rc_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
    bool send = cq == &fake_rc.send_cq;
    struct ibv_wc *queue = send ? fake_rc.send_wc : fake_rc.recv_wc;
    int *next = send ? &fake_rc.send_wc_next : &fake_rc.recv_wc_next;
    int count = send ? fake_rc.send_wc_count : fake_rc.recv_wc_count;
    int n = 0;
    while (n < max && *next < count)
        wc[n++] = queue[(*next)++];
    return n;
}

void fake_rc_notify(struct ibv_cq *cq)
{
    *(cq == &fake_rc.send_cq ? &fake_rc.send_armed : &fake_rc.recv_armed) = true;
}

int fake_rc_query_psn(const struct ibv_qp *qp, struct ibv_qp_attr *attr)
{
    fake_rc.asked[qp - fake_rc.qp]++;
    attr->rq_psn = fake_rc.psn[qp - fake_rc.qp];
    return 0;
}

/* ---- libibverbs */

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
    CHECK(srq == &fake_rc.srq);
    *attr = (struct ibv_srq_attr){.max_wr = FAKE_SRQ_DEPTH, .max_sge = 1};
    return 0;
}

/* ---- the test's side */

void fake_rc_open(struct ipu_fabric *fabric, bool loses)
{
    fake_rc = (struct fake_rc){.refuse_send_after = -1, .refuse_recv_after = -1};
    CHECK(pipe2(fake_rc.channel_pipe, O_CLOEXEC) == 0);
    fake_rc.channel.context = &fake.context;
    fake_rc.channel.fd = fake_rc.channel_pipe[0];
    fake_rc.send_cq = (struct ibv_cq){.context = &fake.context, .cqe = FAKE_RC_SENDS};
    fake_rc.recv_cq = (struct ibv_cq){.context = &fake.context, .cqe = FAKE_SRQ_DEPTH + 1};
    fake_rc.send_cq.channel = fake_rc.recv_cq.channel = &fake_rc.channel;
    fake_rc.srq.context = &fake.context;
    for (int i = 0; i < FAKE_RCS; i++) {
        fake_rc.qp[i] = (struct ibv_qp){.context = &fake.context,
                                        .pd = &fake.pd,
                                        .send_cq = &fake_rc.send_cq,
                                        .recv_cq = &fake_rc.recv_cq,
                                        .srq = &fake_rc.srq,
                                        .qp_num = 0x100u + (uint32_t)i * 256, /* one bucket */
                                        .qp_type = IBV_QPT_RC};
    }
    struct ipu_verbs_connection early;
    CHECK_EQ(ipu_verbs_connection_init(&early, fake_verbs, &fake_rc.qp[0]), -EINVAL);
    CHECK_EQ(ipu_verbs_connect(fake_verbs, &fake_rc.qp[0], loses), 0);
    CHECK_EQ(ipu_verbs_connect(fake_verbs, &fake_rc.qp[0], loses), -EINVAL); /* once */
    for (int i = 0; i < FAKE_RCS; i++) {
        struct ipu_verbs_connection *connection = &fake_rc.connection[i];
        CHECK_EQ(ipu_verbs_connection_init(connection, fake_verbs, &fake_rc.qp[i]), 0);
        ipu_verbs_connection_program(connection, FAKE_RC_PSN, FAKE_RC_MTU);
        fake_rc.psn[i] = FAKE_RC_PSN;
        CHECK_EQ(fabric->connected->add(fabric->connected_self, &connection->connection), 0);
    }
}

void fake_rc_close(void)
{
    for (int i = 0; i < FAKE_RCS; i++)
        ipu_verbs_connection_free(&fake_rc.connection[i]);
    close(fake_rc.channel_pipe[0]);
    if (fake_rc.channel_pipe[1] >= 0)
        close(fake_rc.channel_pipe[1]);
}
