/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/frame.h"
#include "mesh/mesh_state.h"

/*
 * The cookie of a send is the pump's, whose upper bits are clear, or one of these with an index in
 * the lower bits: CAST for a message to a group, which ends when its last copy ends; CONTROL for a
 * control message.
 */
#define CAST    (1ull << 63)
#define CONTROL (1ull << 62)

/* ---- handles: a peer or a group */

void *mesh_handle_create(void *self, const struct ipu_dest *dest)
{
    (void)self;
    struct mesh_handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return NULL;
    handle->gid = dest->gid;
    handle->qpn = dest->qpn;
    handle->is_group = dest->gid.s6_addr[0] == 0xff;
    handle->version = UINT64_MAX;
    return handle;
}

void mesh_handle_destroy(void *self, void *ah)
{
    (void)self;
    free(ah);
}

static bool may_send_to(const struct ipu_mesh_peer *peer)
{
    return peer->named && peer->may_send && !peer->leaving && !peer->broken;
}

static struct ipu_mesh_peer *peer_of(struct ipu_mesh *m, struct mesh_handle *handle)
{
    if (handle->version == m->version)
        return handle->peer;
    struct ipu_mesh_peer *peer, *match = NULL;
    LIST_FOREACH(peer, &m->peers, all) {
        if (peer->named && !peer->leaving && peer->qpn == handle->qpn &&
            memcmp(&peer->gid, &handle->gid, sizeof peer->gid) == 0)
            match = peer;
    }
    handle->peer = match;
    handle->version = m->version;
    return match;
}

/* ---- ends */

static void lose(struct ipu_mesh *m, uint64_t cookie)
{
    m->lost[m->lost_count++] = cookie;
}

/* Ends one send of a message; returns whether the pump gets *cookie back now. */
static bool is_over(struct ipu_mesh *m, uint64_t *cookie)
{
    if (*cookie & CONTROL) {
        m->free_controls[m->free_control_count++] = (uint16_t)*cookie;
        return false;
    }
    if (!(*cookie & CAST))
        return true;
    uint16_t index = (uint16_t)*cookie;
    if (--m->casts[index].left > 0)
        return false;
    *cookie = m->casts[index].cookie;
    m->free_casts[m->free_cast_count++] = index;
    return true;
}

static void drop(struct ipu_mesh *m, uint64_t cookie)
{
    if (is_over(m, &cookie))
        lose(m, cookie);
}

/* ---- the chain */

static void flush(struct ipu_mesh *m)
{
    struct ipu_mesh_peer *to = m->to;
    int n = m->chained;
    m->chained = 0;
    m->to = NULL;
    if (n == 0)
        return;
    struct ipu_rc_posted posted = ipu_rc_queue_post(&to->queue, &m->regions, m->chain, n);
    MESH_COUNT(m, tx_doorbells);
    MESH_ADD_TO(m, tx_posted, (uint64_t)posted.taken);
    MESH_ADD_TO(m, tx_signalled, (uint64_t)posted.signalled);
    MESH_ADD_TO(m, tx_inline, (uint64_t)posted.inlined);
    m->sending += (uint32_t)posted.taken;
    for (int i = posted.taken; i < n; i++)
        drop(m, m->chain[i].cookie);
    if (posted.refused) {
        MESH_COUNT(m, tx_errors);
        mesh_peer_broke(m, to);
    }
}

static uint32_t chained_to(const struct ipu_mesh *m, const struct ipu_mesh_peer *peer)
{
    return m->to == peer ? (uint32_t)m->chained : 0;
}

static bool has_room(const struct ipu_mesh *m, const struct ipu_mesh_peer *peer, uint32_t kept)
{
    return ipu_rc_queue_room(&peer->queue) > chained_to(m, peer) + kept &&
           m->send_room > m->sending + (uint32_t)m->chained + kept;
}

static void chain(struct ipu_mesh *m, struct ipu_mesh_peer *peer, struct ipu_send send)
{
    if (m->to != peer || m->chained == MESH_BATCH)
        flush(m);
    m->to = peer;
    m->chain[m->chained++] = send;
}

/* Returns whether the message may go to the peer now; otherwise counts the reason. */
static bool admits(struct ipu_mesh *m, const struct ipu_mesh_peer *peer)
{
    if (peer->sent == peer->limit) {
        MESH_COUNT(m, tx_no_window);
        return false;
    }
    if (!has_room(m, peer, MESH_ROOM_KEPT)) {
        MESH_COUNT(m, tx_full);
        return false;
    }
    return true;
}

static void send_to_group(struct ipu_mesh *m, const struct mesh_handle *handle,
                          const struct ipu_send *send)
{
    if (m->free_cast_count == 0) {
        MESH_COUNT(m, tx_full);
        lose(m, send->cookie);
        return;
    }
    uint16_t index = m->free_casts[--m->free_cast_count];
    struct ipu_send copy = *send;
    struct ipu_mesh_peer *peer;
    bool anybody = false;
    copy.cookie = CAST | index;
    m->casts[index] =
        (struct mesh_cast){.cookie = send->cookie, .left = 1}; /* ours, until all have it */
    LIST_FOREACH(peer, &m->peers, all) {
        if (!may_send_to(peer) || !ipu_group_list_wants(&peer->groups, &handle->gid, &m->broadcast))
            continue;
        anybody = true;
        if (!admits(m, peer))
            continue;
        m->casts[index].left++;
        peer->sent++;
        MESH_COUNT(m, tx_copies);
        chain(m, peer, copy);
    }
    if (!anybody)
        MESH_COUNT(m, tx_no_peer);
    drop(m, copy.cookie);
}

int mesh_send(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_mesh *m = self;
    if (m->closed)
        return -EIO;
    int losable = (int)(MESH_LOST - m->lost_count);
    if (n > losable)
        n = losable;
    for (int i = 0; i < n; i++) {
        struct mesh_handle *handle = sends[i].ah;
        if (handle->is_group) {
            send_to_group(m, handle, &sends[i]);
            continue;
        }
        struct ipu_mesh_peer *peer = peer_of(m, handle);
        if (peer == NULL || !may_send_to(peer)) {
            MESH_COUNT(m, tx_no_peer);
            lose(m, sends[i].cookie);
        } else if (!admits(m, peer)) {
            lose(m, sends[i].cookie);
        } else {
            peer->sent++;
            chain(m, peer, sends[i]);
        }
    }
    flush(m);
    return n;
}

/* ---- control messages: copied, because their sender does not wait for the send to end */

static bool send_control(struct ipu_mesh *m, struct ipu_mesh_peer *peer, const void *message,
                         uint32_t len)
{
    if (m->free_control_count == 0 || !has_room(m, peer, 0) || m->closed)
        return false;
    uint16_t index = m->free_controls[--m->free_control_count];
    uint8_t *at = m->controls + (size_t)index * MESH_CONTROL_LEN;
    at[0] = IPU_MESH_TYPE >> 8;
    at[1] = IPU_MESH_TYPE & 0xff;
    at[2] = at[3] = 0;
    memcpy(at + IPU_ENCAP_LEN, message, len);
    flush(m);
    chain(m, peer,
          (struct ipu_send){.addr = at, .len = IPU_ENCAP_LEN + len, .cookie = CONTROL | index});
    flush(m);
    return true;
}

void mesh_send_waiting(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    struct mesh_command *command;
    while (may_send_to(peer) && peer->sent != peer->limit &&
           (command = STAILQ_FIRST(&peer->waiting)) != NULL) {
        if (!send_control(m, peer, command->bytes, command->len))
            return;
        peer->sent++;
        STAILQ_REMOVE_HEAD(&peer->waiting, queue);
        peer->waiting_count--;
        free(command);
    }
}

void mesh_send_window(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    uint32_t limit = peer->got;
    if (peer->receives.posted > IPU_MESH_SLACK)
        limit += peer->receives.posted - IPU_MESH_SLACK;
    if (!may_send_to(peer) || (int32_t)(limit - peer->granted) < IPU_MESH_WINDOW / 4)
        return;
    uint8_t message[8] = {
        IPU_MESH_CREDIT,
        0,
        0,
        0,
        (uint8_t)(limit >> 24),
        (uint8_t)(limit >> 16),
        (uint8_t)(limit >> 8),
        (uint8_t)limit,
    };
    if (!send_control(m, peer, message, sizeof message))
        return; /* the next message about the window carries the limit */
    peer->granted = limit;
    MESH_COUNT(m, windows_told);
}

/* ---- completions */

static void list(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    if (!peer->listed)
        STAILQ_INSERT_TAIL(&m->ended, peer, ended);
    peer->listed = true;
}

void mesh_send_end(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    m->sending -= (uint32_t)(peer->queue.posted - peer->queue.completed);
    peer->queue.completed = peer->queue.posted;
    list(m, peer);
}

void mesh_send_poll(struct ipu_mesh *m)
{
    struct ibv_wc wc[IPU_RC_SIGNAL];
    int n;
    do {
        n = ipu_completion_poll_sends(&m->completion, wc, IPU_RC_SIGNAL);
        for (int i = 0; i < n; i++) {
            struct ipu_mesh_peer *peer = mesh_peer_by_number(m, wc[i].qp_num);
            if (peer == NULL || wc[i].wr_id - peer->queue.completed - 1 >=
                                    peer->queue.posted - peer->queue.completed) {
                MESH_COUNT(m, stale);
                continue;
            }
            m->sending -= ipu_rc_queue_complete(&peer->queue, &wc[i]);
            if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
                MESH_COUNT(m, flushed);
            else if (wc[i].status != IBV_WC_SUCCESS)
                MESH_COUNT(m, tx_errors);
            if (wc[i].status != IBV_WC_SUCCESS)
                mesh_peer_broke(m, peer);
            list(m, peer);
        }
    } while (n == IPU_RC_SIGNAL);
}

int mesh_sent(struct ipu_mesh *m, uint64_t *cookies, int max)
{
    struct ipu_mesh_peer *peer;
    int n = 0;
    bool failed;
    mesh_send_poll(m);
    while (n < max && m->lost_count > 0)
        cookies[n++] = m->lost[--m->lost_count];
    while (n < max && (peer = STAILQ_FIRST(&m->ended)) != NULL) {
        if (ipu_rc_queue_take(&peer->queue, &cookies[n], &failed)) {
            n += is_over(m, &cookies[n]);
            continue;
        }
        STAILQ_REMOVE_HEAD(&m->ended, ended);
        peer->listed = false;
        mesh_send_waiting(m, peer);
        if (peer->forgotten)
            mesh_settle(m);
    }
    return n;
}
