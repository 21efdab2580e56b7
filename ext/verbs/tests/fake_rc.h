/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_FAKE_RC_H
#define IPU_VERBS_FAKE_RC_H

#include "fake.h"
#include "verbs/connected.h"

/* Adds connections to the device of fake.h: RC queue pairs on shared queues. */
enum { FAKE_RCS = 3, FAKE_RC_DEPTH = 128, FAKE_RC_SENDS = 200, FAKE_SRQ_DEPTH = 64 };
enum { FAKE_RC_PSN = 0xfffff0, FAKE_RC_MTU = 1024 }; /* of each queue pair */

struct fake_rc_send {
    struct ibv_send_wr wr;
    struct ibv_sge sge[2];
    struct ibv_qp *qp;
};

struct fake_rc {
    struct ibv_comp_channel channel;
    int channel_pipe[2];
    struct ibv_cq send_cq, recv_cq;
    struct ibv_srq srq;
    struct ibv_qp qp[FAKE_RCS];
    struct ipu_verbs_connection connection[FAKE_RCS];

    struct fake_rc_send sends[FAKE_QUEUE]; /* posted and not completed: [send_next, send_count) */
    int send_next, send_count;
    int doorbells;
    int refuse_send_after; /* of one doorbell; -1: none */
    struct ibv_recv_wr recvs[FAKE_QUEUE];
    struct ibv_qp *recv_qp[FAKE_QUEUE]; /* its owner, if not the shared queue */
    uint8_t *recv_addr[FAKE_QUEUE];
    int recv_next, recv_count;
    int refuse_recv_after;
    struct ibv_wc send_wc[FAKE_QUEUE], recv_wc[FAKE_QUEUE];
    int send_wc_next, send_wc_count, recv_wc_next, recv_wc_count;
    bool send_armed, recv_armed;
    uint32_t psn[FAKE_RCS]; /* that a queue pair expects next */
    int asked[FAKE_RCS];    /* queries of it */
};

extern struct fake_rc fake_rc;

/* Gives the fabric connections, after fake_open(), and adds FAKE_RCS of them. */
void fake_rc_open(struct ipu_fabric *fabric, bool loses);
/* The test calls this before fake_close(). */
void fake_rc_close(void);

/* The first ends the n oldest sends of all connections; the second fails the next send of `qp` and
 * all behind it. */
void fake_rc_complete(int n);
void fake_rc_fail(struct ibv_qp *qp, enum ibv_wc_status status);
void fake_rc_arrive(struct ibv_qp *qp, uint32_t byte_len, enum ibv_wc_status status);
/* Delivers a message to the oldest receive of `qp`; false: it has none. */
bool fake_rc_deliver(struct ibv_qp *qp, const void *bytes, uint32_t len);
/* The first two packets of a message take a receive; nothing completes. */
void fake_rc_begin(struct ibv_qp *qp);

/* fake.c calls these for RC queue pairs. */
int fake_rc_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_rc_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_rc_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_rc_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc);
void fake_rc_notify(struct ibv_cq *cq);
int fake_rc_query_psn(const struct ibv_qp *qp, struct ibv_qp_attr *attr);

#endif
