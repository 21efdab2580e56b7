/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SOFT_FABRIC_H
#define IPU_SOFT_FABRIC_H

#include "fabric/fabric.h"
#include "fabric/soft_connected.h"
#include "soft/hca.h"

/* A UD queue pair of the built-in HCA as a fabric. */
struct ipu_soft_fabric {
    struct ipu_fabric fabric;
    struct soft_hca *const *hca; /* *hca is NULL once the HCA was closed, and its handles with it */
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
    uint32_t qkey;       /* the link's: E6 */
    uint16_t pkey_index; /* in the HCA's table, which the caller fills */
    uint32_t send_depth;
    uint32_t recv_depth;      /* bursts wait in the socket; a few buffers stay in the cache */
    bool needs_lid;           /* a destination without a LID goes nowhere, as on InfiniBand */
    uint32_t connected_depth; /* receives that all connections share; 0: datagrams only */
    uint32_t source_qpn;      /* of a TX queue: the queue pair that it sends as; 0: its own */
};

/* *hca outlives the fabric. 0, or negative errno with nothing left behind. */
int ipu_soft_fabric_init(struct ipu_soft_fabric *soft, struct soft_hca *const *hca,
                         const struct ipu_soft_fabric_config *config);

/* Ends the queue pair. The pump may still destroy address handles through ops, until the HCA is
 * closed and after. Safe to repeat. */
void ipu_soft_fabric_free(struct ipu_soft_fabric *soft);

#endif
