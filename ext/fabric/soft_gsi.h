/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_SOFT_GSI_H
#define IPU_SOFT_GSI_H

#include <netinet/in.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "soft/hca.h"

/* The general services queue pair of the built-in HCA (QPN 1) as a mailbox for management
 * datagrams. An HCA has one, and one thread at a time may use it. */
#define IPU_SOFT_GSI_MAD_LEN 256u

enum {
    IPU_SOFT_GSI_DEPTH = 256,
    /* Any host can flood queue pair 1, and its reader is slow: it posts so many buffers at a time,
     * once in so many ms. The HCA drops datagrams without a buffer. */
    IPU_SOFT_GSI_REFILL = 16,
    IPU_SOFT_GSI_REFILL_MS = 16,
};

struct ipu_soft_gsi {
    struct soft_hca *const *hca;
    struct soft_cq *cq;
    struct soft_qp *qp;
    uint32_t sending;
    uint64_t sends; /* counts sends; modulo the depth it is the frame of the next one */
    uint32_t idle[IPU_SOFT_GSI_DEPTH]; /* buffers to be posted */
    uint32_t idle_count;
    uint64_t refilled_ns; /* when buffers were posted last */
    uint8_t (*in)[SOFT_GRH_BYTES + IPU_SOFT_GSI_MAD_LEN];
    uint8_t (*out)[IPU_SOFT_GSI_MAD_LEN];
};

struct ipu_soft_mad {
    struct in6_addr sgid;
    uint32_t src_qpn;
    uint16_t pkey; /* the entry of our table that admitted the datagram */
    uint8_t data[IPU_SOFT_GSI_MAD_LEN];
};

/* Returns 0, -EEXIST (another one is open), or the HCA's error. */
int ipu_soft_gsi_init(struct ipu_soft_gsi *gsi, struct soft_hca *const *hca);
void ipu_soft_gsi_free(struct ipu_soft_gsi *gsi);

/* Sends in the partition of `pkey`, with that entry of our table in the packet: the peer may be in
 * no other partition. Returns 0, -EAGAIN (too many sends are under way), -EINVAL (the destination
 * is no address) or -ENOENT (we are not in the partition). */
int ipu_soft_gsi_send(struct ipu_soft_gsi *gsi, const struct ipu_dest *dest, uint32_t qkey,
                      uint16_t pkey, const uint8_t mad[IPU_SOFT_GSI_MAD_LEN]);

/* Returns 1 and the next datagram in *mad, or 0 when there is none. It ignores datagrams of another
 * length. */
int ipu_soft_gsi_receive(struct ipu_soft_gsi *gsi, struct ipu_soft_mad *mad);

/* After a receive that found none: the ms until buffers are posted again, which another receive
 * does; -1: buffers are posted. */
int ipu_soft_gsi_wait_ms(const struct ipu_soft_gsi *gsi);

/* Once armed, the descriptor is readable when a datagram may be there. The caller arms it, and then
 * receives once more. */
int ipu_soft_gsi_fd(const struct ipu_soft_gsi *gsi);
void ipu_soft_gsi_arm(struct ipu_soft_gsi *gsi);

#endif
