/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "frame.h"
#include "mesh_state.h"

int ipu_mesh_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_mesh *m = self;
    pthread_mutex_lock(&m->mutex);
    int taken = 0;
    while (taken < n && m->pool_count < MESH_RECVS_MAX && !m->closed)
        m->pool[m->pool_count++] = recvs[taken++];
    for (int i = 0; i < IPU_MESH_PEERS_MAX; i++) {
        struct mesh_peer *p = &m->peers[i];
        if (p->qp == NULL)
            continue;
        ipu_mesh_top_up(m, p);
        ipu_mesh_flush(m, p); /* the grant */
    }
    pthread_mutex_unlock(&m->mutex);
    return taken;
}

static uint16_t half(const uint8_t *at)
{
    uint16_t word;
    memcpy(&word, at, sizeof word);
    return ntohs(word);
}

static void take_note(struct ipu_mesh *m, const struct mesh_peer *p, const uint8_t *bytes,
                      uint32_t len)
{
    if (m->note_tail - m->note_head >= MESH_NOTES) {
        MESH_COUNT(m, notes_lost);
        return;
    }
    struct mesh_note *note = &m->notes[m->note_tail++ % MESH_NOTES];
    note->peer = p->id;
    note->len = len;
    memcpy(note->bytes, bytes, len);
    eventfd_write(m->mail_fd, 1);
}

/* False: nobody sends such a thing. `len` is at least that of a header. */
static bool take_control_untrusted(struct ipu_mesh *m, struct mesh_peer *p, const uint8_t *at,
                                   uint32_t len)
{
    uint16_t operation = half(at + 4), count = half(at + 6);
    const uint8_t *body = at + MESH_HEADER;
    uint32_t body_len = len - MESH_HEADER;
    switch (operation) {
    case MESH_GRANT:
        if (body_len != 0 || count == 0 || p->credit + count > IPU_MESH_WINDOW_MAX)
            return false;
        p->credit += count;
        return true;
    case MESH_MEMBERS_ARE:
        if (count != MESH_ALL && (count > MESH_MEMBERS || body_len != count * 16u))
            return false;
        p->knows_members = true;
        p->wants_all = count == MESH_ALL;
        p->member_count = p->wants_all ? 0 : count;
        memcpy(p->members, body, p->member_count * sizeof p->members[0]);
        return true;
    case MESH_NOTE:
        if (count != body_len || body_len == 0 || body_len > IPU_MESH_NOTE_BYTES)
            return false;
        take_note(m, p, body, body_len);
        return true;
    default:
        return false;
    }
}

/* All-nodes and the broadcast group stand for whichever group it was: only that it was one counts
 * above (a broadcast ARP request, an echo). */
static const struct in6_addr any_group = {
    {{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, [13] = 0xff, [14] = 0xff, [15] = 0xff}}};

static void make_up_grh(const struct ipu_mesh *m, const struct mesh_peer *p, uint8_t *at,
                        uint32_t len)
{
    bool is_copy = half(at + IPU_GRH_LEN + 2) == MESH_GROUP_COPY;
    uint16_t payload = htons((uint16_t)len);
    memset(at, 0, 8);
    at[0] = 0x60;
    memcpy(at + 4, &payload, sizeof payload);
    at[6] = 0x1b; /* the next header is InfiniBand's */
    at[7] = 64;
    memcpy(at + 8, &p->hello.gid, 16);
    memcpy(at + 24, is_copy ? &any_group : &m->fabric.gid, 16);
    memset(at + IPU_GRH_LEN + 2, 0, 2); /* reserved again */
}

/* Whether the datagram is for the pump; if not, the receive is ours again. */
static bool take_untrusted(struct ipu_mesh *m, struct mesh_peer *p, const struct ipu_recv *recv,
                           uint32_t len, struct ipu_received *done)
{
    uint8_t *at = (uint8_t *)recv->addr + IPU_GRH_LEN;
    bool is_control = len >= MESH_HEADER && half(at) == MESH_TYPE;
    bool is_grant = is_control && half(at + 4) == MESH_GRANT;
    p->may_send = true;
    if (!is_grant) {
        if (p->spent == 0) {
            MESH_COUNT(m, rx_overrun);
            ipu_mesh_fail(m, p);
            return false;
        }
        p->spent--;
        p->owed++;
    }
    if (is_control || len < IPU_ENCAP_LEN) {
        MESH_COUNT(m, rx_control);
        if (!is_control || !take_control_untrusted(m, p, at, len)) {
            MESH_COUNT(m, rx_malformed);
            ipu_mesh_fail(m, p);
        }
        return false;
    }
    if (p->hello.window == 0)
        return false; /* faster than the word that it is connected: lost, as a datagram may be */
    MESH_COUNT(m, rx_messages);
    make_up_grh(m, p, recv->addr, len);
    *done = (struct ipu_received){.cookie = recv->cookie,
                                  .byte_len = IPU_GRH_LEN + len,
                                  .src_qpn = p->hello.qpn,
                                  .flags = IPU_RECEIVED_GRH};
    return true;
}

int ipu_mesh_received(void *self, struct ipu_received *done, int max)
{
    struct ipu_mesh *m = self;
    struct ibv_wc wc[MESH_BATCH];
    int found = 0;
    pthread_mutex_lock(&m->mutex);
    int n = m->closed ? 0 : ibv_poll_cq(m->recv_cq, max < MESH_BATCH ? max : MESH_BATCH, wc);
    for (int i = 0; i < n; i++) {
        struct mesh_peer *p = ipu_mesh_find(m, (uint32_t)(wc[i].wr_id >> 32));
        if (p == NULL || p->recv_completed == p->recv_posted)
            continue; /* it was removed, and its receives given back */
        struct ipu_recv recv = p->recvs[p->recv_completed++ & (MESH_RECVS - 1)];
        if (wc[i].status != IBV_WC_SUCCESS) {
            if (wc[i].status != IBV_WC_WR_FLUSH_ERR)
                MESH_COUNT(m, rx_errors);
            ipu_mesh_fail(m, p);
        } else if (!p->failed && take_untrusted(m, p, &recv, wc[i].byte_len, &done[found])) {
            found++;
            continue;
        }
        m->pool[m->pool_count++] = recv;
    }
    for (int i = 0; i < IPU_MESH_PEERS_MAX && n > 0; i++) {
        if (m->peers[i].qp != NULL) {
            ipu_mesh_top_up(m, &m->peers[i]);
            ipu_mesh_flush(m, &m->peers[i]);
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return found;
}
