/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TUN_QUEUES_H
#define IPU_TUN_QUEUES_H

#include <stddef.h>
#include <stdint.h>

#include "core/hash.h"
#include "core/limits.h"

/*
 * The queues of a TUN (IFF_MULTI_QUEUE; one without it), for the one pump that receives. It reads
 * the first; what it writes goes to the queue of the packet's flow, because the kernel sends a flow
 * by the queue that the flow's packets were last written to (tun_flow_update): flows spread over
 * the queues, and stay where they are.
 */
struct ipu_tun_queues {
    struct ipu_hash_seed seed;
    uint32_t count;
    int fds[IPU_TX_QUEUES_MAX];
};

/* 0, -EINVAL (not 1 to IPU_TX_QUEUES_MAX queues), or getrandom(2)'s. */
int ipu_tun_queues_init(struct ipu_tun_queues *tun, const int *fds, uint32_t count);

/*
 * The queue of an IP packet of which len bytes are here: the same for both directions of a flow.
 * Ports separate TCP and UDP flows. A fragment, or a packet of another protocol, goes by its
 * addresses alone, with all such packets between the two hosts. Any other data goes to the first
 * queue.
 */
uint32_t ipu_tun_queues_choose(const struct ipu_tun_queues *tun, const uint8_t *ip, size_t len);

/* The descriptor that [vnet][IP packet] is written to. Of a merged frame, which is of one flow, the
 * first piece will do: the headers are in it (coalesce.h). */
int ipu_tun_queues_fd(const struct ipu_tun_queues *tun, const uint8_t *frame, size_t len);

#endif
