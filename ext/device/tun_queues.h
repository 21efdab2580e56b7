/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TUN_QUEUES_H
#define IPU_TUN_QUEUES_H

#include <stddef.h>
#include <stdint.h>

#include "core/hash.h"
#include "core/limits.h"

/*
 * The queues of a TUN (IFF_MULTI_QUEUE; one without it), for the one pump that receives. The pump
 * reads the first queue and writes a packet to the queue of its flow, because the kernel sends a
 * flow by the queue that the flow's packets were last written to (tun_flow_update). So flows spread
 * over the queues, and each stays on its queue.
 */
struct ipu_tun_queues {
    struct ipu_hash_seed seed;
    uint32_t count;
    int fds[IPU_TX_QUEUES_MAX];
};

/* Returns 0, -EINVAL (not 1 to IPU_TX_QUEUES_MAX queues), or an error of getrandom(2). */
int ipu_tun_queues_init(struct ipu_tun_queues *tun, const int *fds, uint32_t count);

/* Returns the queue of an IP packet whose first len bytes are at ip: the same for both directions
 * of a flow. Ports separate TCP and UDP flows. For a fragment, or a packet of another protocol, the
 * addresses alone decide, so all such packets between two hosts share a queue. Any other data goes
 * to the first queue.
 */
uint32_t ipu_tun_queues_choose(const struct ipu_tun_queues *tun, const uint8_t *ip, size_t len);

/* Returns the descriptor to write [vnet][IP packet] to. A merged frame belongs to one flow, and its
 * first piece contains the headers (coalesce.h), so that piece is enough. */
int ipu_tun_queues_fd(const struct ipu_tun_queues *tun, const uint8_t *frame, size_t len);

#endif
