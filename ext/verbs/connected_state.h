/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_CONNECTED_STATE_H
#define IPU_VERBS_CONNECTED_STATE_H

#include "fabric/qpn_table.h"
#include "verbs/connected.h"
#include "verbs/state.h"

/* What all connections of a fabric share; the pump thread's. */
struct ipu_verbs_connected {
    struct ipu_verbs *verbs;
    struct ipu_completion completion;
    struct ipu_receive_queue receives;
    struct ipu_qpn_table known;
    struct ipu_verbs_connection *ended, **ended_tail; /* with sends to report, oldest first */
    uint32_t sending;   /* posted and not completed, on all connections: */
    uint32_t send_room; /* no more than the completion queue holds */
};

/* Ask for events of receives, and of sends; whether something waits already. `looks`: as of
 * ipu_completion_read(). */
bool ipu_verbs_connected_arm(struct ipu_verbs_connected *all, bool looks);
bool ipu_verbs_connected_arm_sends(struct ipu_verbs_connected *all);

#endif
