/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_CONNECTED_H
#define IPU_VERBS_CONNECTED_H

#include "verbs/rc_queue.h"
#include "verbs/verbs.h"

/*
 * Connections of an RDMA device: RC queue pairs that belong to the caller (pyverbs), which also
 * changes their states. All of them have the same shared receive queue and completion queues, which
 * use one completion channel of their own. Only the pump's thread posts and polls.
 */
struct ipu_verbs_connection {
    struct ipu_connection connection; /* first: the pump's pointer is ours */
    struct ipu_rc_queue queue;
    struct ipu_verbs_connection *next; /* the next connection with ended sends to report */
    bool listed;
};

/*
 * `pattern` is any RC queue pair like those to come; the fabric does not keep it. The fabric has
 * its connected face from then on, until its end. Returns 0 or a negative errno.
 */
int ipu_verbs_connect(struct ipu_verbs *verbs, const struct ibv_qp *pattern);

/* Returns 0 or a negative errno. The caller destroys the queue pair before
 * ipu_verbs_connection_free(). */
int ipu_verbs_connection_init(struct ipu_verbs_connection *connection, struct ibv_qp *qp);
void ipu_verbs_connection_free(struct ipu_verbs_connection *connection);

#endif
