/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "fabric/frame_group.h"
#include "mesh/mesh_state.h"

/* ---- receives */

int mesh_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_mesh *m = self;
    struct ipu_mesh_peer *peer;
    int taken = 0;
    if (m->closed)
        return -EIO;
    while (taken < n && m->stock_count < m->slot_count)
        m->stock[m->stock_count++] = recvs[taken++];
    LIST_FOREACH(peer, &m->peers, all)
        mesh_feed(m, peer);
    return taken;
}

static void free_slot(struct ipu_mesh *m, uint32_t slot)
{
    m->slots[slot].owner = NULL;
    m->slots[slot].next = m->free_slot;
    m->free_slot = slot;
}

static void restock(struct ipu_mesh *m, const struct ipu_recv *recv)
{
    m->stock[m->stock_count++] = *recv;
}

/* The stock and the slots have room for all receives of the pump: m->slot_count. */
static void lend(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    struct ipu_recv recvs[IPU_RECEIVE_BATCH];
    int n = 0, room = ipu_receive_queue_room(&peer->receives, IPU_RECEIVE_BATCH);
    for (; n < room && m->stock_count > 0; n++) {
        const struct ipu_recv *recv = &m->stock[--m->stock_count];
        uint32_t slot = m->free_slot;
        m->free_slot = m->slots[slot].next;
        m->slots[slot].recv = *recv;
        m->slots[slot].owner = peer;
        m->slots[slot].generation++;
        recvs[n] = (struct ipu_recv){.addr = (uint8_t *)recv->addr + IPU_GRH_LEN,
                                     .len = recv->len - IPU_GRH_LEN,
                                     .cookie = (uint64_t)m->slots[slot].generation << 32 | slot};
    }
    if (n == 0)
        return;
    struct ipu_receives_posted posted =
        ipu_receive_queue_post(&peer->receives, &m->regions, recvs, n);
    MESH_COUNT(m, rx_doorbells);
    for (int i = posted.taken; i < n; i++) {
        uint32_t slot = (uint32_t)recvs[i].cookie;
        restock(m, &m->slots[slot].recv);
        free_slot(m, slot);
    }
    if (posted.refused) {
        MESH_COUNT(m, rx_errors);
        mesh_peer_broke(m, peer);
    } else if (!peer->ready && peer->receives.posted == peer->receives.depth) {
        peer->ready = true;
        mesh_peer_notify(m, peer, IPU_MESH_READY, NULL, 0);
    }
}

void mesh_feed(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    if (peer->leaving || peer->broken || m->closed)
        return;
    lend(m, peer);
    mesh_send_window(m, peer); /* even if lend() posted nothing: the last window may wait */
}

void mesh_receive_end(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    for (uint32_t slot = 0; peer->receives.posted > 0 && slot < m->slot_count; slot++)
        if (m->slots[slot].owner == peer) {
            restock(m, &m->slots[slot].recv);
            free_slot(m, slot);
            peer->receives.posted--;
        }
}

/* ---- received messages */

static void make_grh(const struct ipu_mesh *m, const struct ipu_mesh_peer *peer, uint8_t *grh,
                     uint32_t len)
{
    struct in6_addr dgid; /* the wire carries no GRH */
    if (!ipu_frame_group(grh + IPU_GRH_LEN, len, &m->broadcast, &dgid))
        dgid = m->fabric.gid;
    memset(grh, 0, 8);
    grh[0] = 0x60;
    grh[4] = (uint8_t)(len >> 8);
    grh[5] = (uint8_t)len;
    grh[6] = 0x1b; /* InfiniBand's next header */
    grh[7] = 1;
    memcpy(grh + 8, &peer->gid, 16);
    memcpy(grh + 24, &dgid, 16);
}

static void control_untrusted(struct ipu_mesh *m, struct ipu_mesh_peer *peer,
                              const uint8_t *message, uint32_t len)
{
    if (len < 1 || len > IPU_MESH_CONTROL_MAX) {
        MESH_COUNT(m, rx_bad_control);
        peer->got++;
        return;
    }
    if (message[0] != IPU_MESH_CREDIT) {
        MESH_COUNT(m, rx_control);
        peer->got++;
        mesh_peer_notify(m, peer, IPU_MESH_CONTROL, message, len);
        return;
    }
    if (len < 8) {
        MESH_COUNT(m, rx_bad_control);
        return;
    }
    uint32_t limit = ipu_ip_get32(message + 4);
    uint32_t more = limit - peer->sent; /* the limit never shrinks; at most one window is open */
    if ((int32_t)(limit - peer->limit) <= 0 || more > IPU_MESH_WINDOW) {
        MESH_COUNT(m, rx_bad_control);
        return;
    }
    peer->limit = limit;
    MESH_COUNT(m, windows_heard);
    mesh_send_waiting(m, peer);
}

void mesh_receive_poll(struct ipu_mesh *m)
{
    if (!m->closed)
        (void)ipu_completion_poll_receives(&m->completion);
}

/* Returns whether the completion holds a frame for the pump; if not, returns its receive to the
 * stock, unless it is stale. */
static bool take(struct ipu_mesh *m, const struct ibv_wc *wc, struct ipu_received *done)
{
    uint32_t slot = (uint32_t)wc->wr_id;
    struct ipu_mesh_peer *peer = mesh_peer_by_number(m, wc->qp_num);
    const struct ipu_recv recv = m->slots[slot].recv;
    uint8_t *frame = (uint8_t *)recv.addr + IPU_GRH_LEN;
    if (peer == NULL || m->slots[slot].owner != peer ||
        m->slots[slot].generation != (uint32_t)(wc->wr_id >> 32)) {
        MESH_COUNT(m, stale);
        return false;
    }
    free_slot(m, slot);
    peer->receives.posted--;
    if (wc->status != IBV_WC_SUCCESS) {
        restock(m, &recv);
        if (wc->status == IBV_WC_WR_FLUSH_ERR)
            MESH_COUNT(m, flushed);
        else
            MESH_COUNT(m, rx_errors);
        mesh_peer_broke(m, peer);
        return false;
    }
    peer->may_send = true; /* the side that accepted the connection sends second (MPA) */
    uint32_t type = wc->byte_len >= 2 ? ipu_ip_get16(frame) : 0;
    if (wc->byte_len >= IPU_ENCAP_LEN && type == IPU_MESH_TYPE) {
        control_untrusted(m, peer, frame + IPU_ENCAP_LEN, wc->byte_len - IPU_ENCAP_LEN);
        restock(m, &recv);
        return false;
    }
    peer->got++;
    if (wc->byte_len < IPU_ENCAP_LEN || !peer->named || peer->leaving) {
        if (wc->byte_len < IPU_ENCAP_LEN)
            MESH_COUNT(m, rx_runt);
        else
            MESH_COUNT(m, rx_early);
        restock(m, &recv);
        return false;
    }
    make_grh(m, peer, recv.addr, wc->byte_len);
    *done = (struct ipu_received){.cookie = recv.cookie,
                                  .byte_len = IPU_GRH_LEN + wc->byte_len,
                                  .src_qpn = peer->qpn,
                                  .flags = IPU_RECEIVED_GRH};
    return true;
}

int mesh_received(struct ipu_mesh *m, struct ipu_received *done, int max)
{
    struct ipu_mesh_peer *peer;
    struct ipu_completion *completion = &m->completion;
    int n = 0;
    bool is_idle = true;
    mesh_receive_poll(m);
    for (; n < max && ipu_completion_has_received(completion); is_idle = false)
        n += take(m, &completion->wc[completion->wc_next++], &done[n]);
    if (is_idle)
        return 0;
    LIST_FOREACH(peer, &m->peers, all) {
        mesh_feed(m, peer);
        mesh_send_waiting(m, peer);
    }
    return n;
}
