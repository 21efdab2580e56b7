/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SOFT_FABRIC_H
#define IPU_SOFT_FABRIC_H

#include "fabric/fabric.h"
#include "fabric/soft_connected.h"
#include "soft/hca.h"

/* A UD queue pair of the built-in HCA as a fabric. */
struct ipu_soft_fabric {
    struct ipu_fabric fabric;
    struct soft_hca *const *hca; /* *hca is NULL once the HCA and its handles were closed */
    struct soft_cq *send_cq;
    struct soft_cq *recv_cq;
    struct soft_qp *qp;
    uint32_t qkey;
    bool needs_lid;
    uint32_t sending; /* sends under way */
    bool armed;       /* armed, and not polled since */
    bool has_connections;
    struct ipu_soft_connected connected;
};

struct ipu_soft_fabric_config {
    uint32_t qkey;       /* the link's Q_Key: E6 */
    uint16_t pkey_index; /* in the HCA's table, which the caller fills */
    uint32_t send_depth;
    uint32_t recv_depth; /* a few buffers, which stay in the cache; bursts wait in the socket */
    bool needs_lid;      /* the fabric refuses a destination without a LID, as InfiniBand does */
    uint32_t connected_depth; /* receives that all connections share; 0: datagrams only */
    uint32_t source_qpn;      /* the queue pair that a TX queue sends as; 0: its own */
    uint32_t qpn;             /* the number that it gets if it is free; 0: any */
};

/* *hca outlives the fabric. Returns 0, or a negative errno with nothing left behind. */
int ipu_soft_fabric_init(struct ipu_soft_fabric *soft, struct soft_hca *const *hca,
                         const struct ipu_soft_fabric_config *config);

/* Ends the queue pair. The pump may still destroy address handles through ops, before and after the
 * HCA is closed. Safe to repeat. */
void ipu_soft_fabric_free(struct ipu_soft_fabric *soft);

#endif
