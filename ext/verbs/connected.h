/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_CONNECTED_H
#define IPU_VERBS_CONNECTED_H

#include <stdatomic.h>
#include <sys/queue.h>

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
    uint32_t psn;    /* behind the last message that the pump has seen; from connection_program() */
    uint32_t mtu;    /* of the path */
    uint64_t passed; /* it holds no receive before this number (receive_order.h) */
    atomic_bool programmed;
    struct ipu_verbs_connected *all;
    LIST_ENTRY(ipu_verbs_connection) others;
};

/*
 * `pattern` is any RC queue pair like those to come; the fabric does not keep it. The fabric has
 * its connected face from then on, until its end. With `loses` the device loses the receive of a
 * message that its queue pair did not finish, as rxe does. Returns 0 or a negative errno.
 */
int ipu_verbs_connect(struct ipu_verbs *verbs, const struct ibv_qp *pattern, bool loses);

/* Any one other thread calls these, in this order: of a queue pair that exists; before it goes to
 * RTR; after the pump's remove() and the queue pair's end, safe to repeat; and at last. The first
 * returns 0 or a negative errno. The fabric lives longer. */
int ipu_verbs_connection_init(struct ipu_verbs_connection *connection, struct ipu_verbs *verbs,
                              struct ibv_qp *qp);
void ipu_verbs_connection_program(struct ipu_verbs_connection *connection, uint32_t receive_psn,
                                  uint32_t path_mtu);
void ipu_verbs_connection_end(struct ipu_verbs_connection *connection);
void ipu_verbs_connection_free(struct ipu_verbs_connection *connection);

#endif
