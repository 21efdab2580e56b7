/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives on a unicast link: drops datagrams of hosts that are no peers, and writes the group of a
 * replicated message into its GRH. */
#include <string.h>

#include "core/frame.h"
#include "fabric/frame_group.h"
#include "unicast/unicast_state.h"

enum { GRH_SGID = 8, GRH_DGID = 24 };

/* Posts receives whose cookies are indices; returns how many the inner fabric took, or its error.
 */
static int lend(struct ipu_unicast *u, const uint32_t *indices, int n)
{
    struct ipu_recv recvs[UNICAST_BATCH];
    for (int i = 0; i < n; i++) {
        recvs[i] = u->receives[indices[i]];
        recvs[i].cookie = indices[i];
    }
    return n == 0 ? 0 : u->inner->ops->post(u->inner->self, recvs, n);
}

/* Posts the receives of dropped datagrams again. A broken queue pair refuses them until it has
 * recovered; the pump does not wait for them. */
static void post_refused(struct ipu_unicast *u)
{
    while (u->refused_count > 0) {
        int n = u->refused_count < UNICAST_BATCH ? (int)u->refused_count : UNICAST_BATCH;
        int taken = lend(u, &u->refused[u->refused_count - (uint32_t)n], n);
        if (taken <= 0)
            return;
        /* the inner fabric took the first receives of the last n */
        memmove(&u->refused[u->refused_count - (uint32_t)n],
                &u->refused[u->refused_count - (uint32_t)n + (uint32_t)taken],
                (size_t)(n - taken) * sizeof *u->refused);
        u->refused_count -= (uint32_t)taken;
    }
}

int unicast_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_unicast *u = self;
    uint32_t indices[UNICAST_BATCH];
    post_refused(u);
    if (n > UNICAST_BATCH)
        n = UNICAST_BATCH;
    if ((uint32_t)n > u->free_receive_count)
        n = (int)u->free_receive_count;
    for (int i = 0; i < n; i++) {
        indices[i] = u->free_receives[u->free_receive_count - 1 - (uint32_t)i];
        u->receives[indices[i]] = recvs[i];
    }
    int taken = lend(u, indices, n);
    if (taken > 0)
        u->free_receive_count -= (uint32_t)taken;
    return taken;
}

/* Returns whether the datagram is a peer's, and writes the group of a replicated message into its
 * GRH. */
static bool admit_untrusted(struct ipu_unicast *u, const struct ipu_received *done, uint8_t *buf)
{
    struct in6_addr sgid, mgid;
    if (!(done->flags & IPU_RECEIVED_GRH) || done->byte_len < IPU_GRH_LEN)
        return false;
    memcpy(&sgid, buf + GRH_SGID, sizeof sgid);
    if (unicast_peer_find(u, &sgid, done->src_qpn) == NULL)
        return false;
    if (done->byte_len >= IPU_RX_IP &&
        ipu_frame_group(buf + IPU_RX_ENCAP, done->byte_len - IPU_GRH_LEN, &u->broadcast, &mgid))
        memcpy(buf + GRH_DGID, &mgid, sizeof mgid);
    return true;
}

int unicast_received(void *self, struct ipu_received *done, int max)
{
    struct ipu_unicast *u = self;
    int n = u->inner->ops->received(u->inner->self, done, max), kept = 0;
    if (n <= 0)
        return n;
    pthread_mutex_lock(&u->mutex);
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)done[i].cookie;
        const struct ipu_recv *recv = &u->receives[index];
        if (!(done[i].flags & IPU_RECEIVED_FAILED) && !admit_untrusted(u, &done[i], recv->addr)) {
            UNICAST_COUNT(u, rx_stranger);
            u->refused[u->refused_count++] = index;
            continue;
        }
        done[i].cookie = recv->cookie;
        done[kept++] = done[i];
        u->free_receives[u->free_receive_count++] = index;
    }
    pthread_mutex_unlock(&u->mutex);
    post_refused(u);
    return kept;
}
