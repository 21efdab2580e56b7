/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SOFT_CONNECTED_H
#define IPU_SOFT_CONNECTED_H

#include "fabric/fabric.h"
#include "fabric/qpn_table.h"
#include "soft/hca.h"

/*
 * Connections of the built-in HCA: RC queue pairs that receive from one shared queue. The control
 * face calls open, program, stop and close, from any one thread; the pump calls the rest.
 */
enum { IPU_SOFT_CONNECTED_SENDS = 128 }; /* sends of one connection */

struct ipu_soft_connection {
    struct ipu_connection connection; /* first: a pointer to it is a pointer to this */
    struct soft_qp *qp;
};

struct ipu_soft_connected {
    struct soft_hca *const *hca;
    struct soft_srq *srq;
    struct soft_cq *send_cq;
    struct soft_cq *recv_cq;
    struct ipu_qpn_table known; /* the connections that the pump knows */
};

extern const struct ipu_connected_ops ipu_soft_connected_ops; /* self: struct ipu_soft_connected */

/* recv_depth is that of the shared queue. Completions wake the thread that sleeps on `beside`, and
 * polls of `beside` fetch them, too. Returns 0, or a negative errno with nothing left behind. */
int ipu_soft_connected_init(struct ipu_soft_connected *all, struct soft_cq *beside,
                            struct soft_hca *const *hca, uint32_t recv_depth);

/* The caller closes all connections first. Safe to repeat. */
void ipu_soft_connected_free(struct ipu_soft_connected *all);

/* Opens a queue pair in INIT; its number is the connection's `qpn`. */
int ipu_soft_connection_open(struct ipu_soft_connected *all, struct ipu_soft_connection *connection,
                             uint16_t pkey_index);

/* Moves the queue pair to RTR and RTS. */
int ipu_soft_connection_program(struct ipu_soft_connection *connection,
                                const struct soft_rc_attr *attr);

/* Moves the queue pair to the error state: posted work fails, and no more messages arrive. */
void ipu_soft_connection_stop(struct ipu_soft_connection *connection);

/* Destroys the queue pair, which the pump must not use any more. Safe to repeat. */
void ipu_soft_connection_close(struct ipu_soft_connection *connection);

#endif
