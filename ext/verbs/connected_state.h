/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_CONNECTED_STATE_H
#define IPU_VERBS_CONNECTED_STATE_H

#include "connected.h"
#include "qpn_table.h"
#include "state.h"

/* What all connections of a fabric share; the pump thread's. */
struct ipu_verbs_connected {
    struct ipu_verbs *verbs;
    struct ibv_srq *srq;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_comp_channel *channel;
    struct ipu_qpn_table known;
    struct ipu_verbs_connection *ended, **ended_tail; /* with sends to tell of, the first first */
    uint32_t sending;   /* posted and not completed, on all connections: */
    uint32_t send_room; /* no more than the completion queue holds */
    uint32_t recv_depth, recv_posted;
    struct ibv_wc wc[IPU_RC_BATCH]; /* [wc_next, wc_count) are received and not told */
    int wc_next, wc_count;
    bool send_armed, recv_armed; /* as in struct ipu_verbs */
    bool send_event, recv_event;
};

/* Ask for events; whether something waits already. */
bool ipu_verbs_connected_arm(struct ipu_verbs_connected *all);

#endif
