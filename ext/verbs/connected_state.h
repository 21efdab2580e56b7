/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_CONNECTED_STATE_H
#define IPU_VERBS_CONNECTED_STATE_H

#include "fabric/qpn_table.h"
#include "verbs/connected.h"
#include "verbs/receive_order.h"
#include "verbs/state.h"

/* The queues that all connections of a fabric share. Unless a comment says otherwise, only the
 * pump's thread uses a field. */
struct ipu_verbs_connected {
    struct ipu_verbs *verbs;
    struct ipu_completion completion;
    struct ipu_receive_queue receives;
    struct ipu_receive_order order;
    bool loses;                                 /* the device loses receives: receive_order.h */
    pthread_mutex_t mutex;                      /* guards: */
    LIST_HEAD(, ipu_verbs_connection) existing; /* from their init() to their end() */
    struct ipu_qpn_table known;
    struct ipu_verbs_connection *ended, **ended_tail; /* connections with sends to report */
    uint32_t sending;   /* sends posted and not completed, on all connections: */
    uint32_t send_room; /* no more than the completion queue holds */
};

/* These ask for events of receives, and of sends, and return whether completions wait already.
 * `looks` is that of ipu_completion_read(). */
bool ipu_verbs_connected_arm(struct ipu_verbs_connected *all, bool looks);
bool ipu_verbs_connected_arm_sends(struct ipu_verbs_connected *all);

void ipu_verbs_connected_free(struct ipu_verbs_connected *all);

#endif
