/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "objects.h"

/*
 * A further thread sends by a TX queue. Threads that shared one HCA would wait for its mutex and
 * its sockets, so a TX queue is an HCA of its own, with outlets of its own, and receives nothing.
 * Only the one socket on port 4791 receives: a TX queue's peers answer the queue pair that it names
 * as the source.
 *
 * A thread takes a TX queue's mutex before that of its HCA, for packets to our own GID.
 */

static int open_outlets(struct soft_hca *tx_queue, struct soft_hca *hca)
{
    struct soft_netdev_state state;
    struct soft_udp_config config = {
        .netdev = state.name,
        .ifindex = hca->attr.ifindex,
        .gid = hca->attr.gid,
        .sends_singly = hca->other_adapters,
    };
    int error;

    pthread_mutex_lock(&hca->group_mutex);
    error = soft_netdev_look(&hca->netdev, hca->attr.ifindex, &state); /* it may have a new name */
    pthread_mutex_unlock(&hca->group_mutex);
    return error == 0 ? soft_hca_open_udp(tx_queue, &config) : error;
}

int soft_hca_open_tx_queue(struct soft_hca *hca, uint16_t pkey, struct soft_hca **out)
{
    struct soft_hca *tx_queue;
    int error = soft_hca_create(&hca->attr, &tx_queue);

    if (error != 0)
        return error;
    tx_queue->main = hca;
    tx_queue->pkey[0] = pkey;
    if (hca->udp != NULL)
        error = open_outlets(tx_queue, hca);
    if (error != 0) {
        soft_hca_close(tx_queue);
        return error;
    }
    *out = tx_queue;
    return 0;
}
