/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "frame.h"
#include "mesh_state.h"

enum { PLACE_BITS = 8, PLACE_MASK = (1 << PLACE_BITS) - 1 };

_Static_assert(IPU_MESH_PEERS_MAX <= PLACE_MASK + 1, "a number holds the place");
_Static_assert((MESH_RECVS & (MESH_RECVS - 1)) == 0, "receives are found by masking");

struct mesh_peer *ipu_mesh_find(struct ipu_mesh *m, uint32_t id)
{
    uint32_t place = id & PLACE_MASK;
    if (place >= IPU_MESH_PEERS_MAX)
        return NULL;
    struct mesh_peer *p = &m->peers[place];
    return p->qp != NULL && p->id == id ? p : NULL;
}

void ipu_mesh_fail(struct ipu_mesh *m, struct mesh_peer *p)
{
    if (p->failed)
        return;
    p->failed = true;
    ipu_mesh_lose(m, p, false);
    eventfd_write(m->mail_fd, 1);
}

void ipu_mesh_top_up(struct ipu_mesh *m, struct mesh_peer *p)
{
    struct ibv_recv_wr wr[MESH_RECVS], *bad = NULL;
    struct ibv_sge sge[MESH_RECVS];
    uint32_t want = m->window + IPU_MESH_RESERVE - (p->recv_posted - p->recv_completed);
    if (p->failed)
        return;
    if (want > m->pool_count)
        want = m->pool_count;
    if (want == 0)
        return;
    for (uint32_t i = 0; i < want; i++) {
        uint32_t number = p->recv_posted + i;
        struct ipu_recv *recv = &p->recvs[number & (MESH_RECVS - 1)];
        *recv = m->pool[--m->pool_count];
        sge[i] = (struct ibv_sge){.addr = (uintptr_t)recv->addr + IPU_GRH_LEN,
                                  .length = recv->len - IPU_GRH_LEN,
                                  .lkey = ipu_mesh_lkey(m, recv->addr)};
        wr[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)p->id << 32 | number,
                                     .next = i + 1 < want ? &wr[i + 1] : NULL,
                                     .sg_list = &sge[i],
                                     .num_sge = 1};
    }
    int error = ibv_post_recv(p->qp, wr, &bad);
    uint32_t taken = error == 0 ? want : bad == NULL ? 0 : (uint32_t)(bad - wr);
    for (uint32_t i = taken; i < want; i++)
        m->pool[m->pool_count++] = p->recvs[(p->recv_posted + i) & (MESH_RECVS - 1)];
    p->recv_posted += taken;
    uint32_t again = taken < p->owed ? taken : p->owed;
    p->owed -= again;
    p->due += again;
    if (error != 0) {
        MESH_COUNT(m, rx_errors);
        ipu_mesh_fail(m, p);
    }
}

int64_t ipu_mesh_add(struct ipu_mesh *m, struct ibv_qp *qp)
{
    int64_t result = -EBUSY;
    if (qp->pd != m->pd || qp->send_cq != m->send_cq || qp->recv_cq != m->recv_cq)
        return -EINVAL;
    pthread_mutex_lock(&m->mutex);
    for (uint32_t i = 0; i < IPU_MESH_PEERS_MAX && !m->closed; i++) {
        struct mesh_peer *p = &m->peers[i];
        if (p->qp != NULL)
            continue;
        memset(p, 0, sizeof *p);
        m->generation = m->generation % 0x7fffff + 1; /* never 0, and an int64_t holds it */
        p->id = m->generation << PLACE_BITS | i;
        p->qp = qp;
        p->spent = m->window;
        ipu_mesh_top_up(m, p);
        result = p->id;
        if (p->failed || p->recv_posted < m->window + IPU_MESH_RESERVE) {
            result = p->failed ? -EIO : -EAGAIN;
            p->failed = true; /* the queue pair goes now; ipu_mesh_remove() would need its number */
            for (uint32_t k = 0; k < p->recv_posted; k++)
                m->pool[m->pool_count++] = p->recvs[k];
            p->qp = NULL;
        } else {
            MESH_COUNT(m, peers_added);
        }
        break;
    }
    pthread_mutex_unlock(&m->mutex);
    return result;
}

int ipu_mesh_establish(struct ipu_mesh *m, uint32_t id, const struct ipu_mesh_hello *hello)
{
    pthread_mutex_lock(&m->mutex);
    struct mesh_peer *p = ipu_mesh_find(m, id);
    if (p != NULL) {
        for (int i = 0; i < IPU_MESH_PEERS_MAX; i++) {
            if (memcmp(&m->peers[i].hello.gid, &hello->gid, sizeof hello->gid) == 0)
                m->peers[i].established = false; /* one connection to a peer */
        }
        p->hello = *hello;
        p->credit = hello->window;
        p->established = p->members_due = true;
        p->may_send |= hello->we_began; /* or the first message has come already */
        ipu_mesh_flush(m, p);
    }
    pthread_mutex_unlock(&m->mutex);
    return p != NULL ? 0 : -ENOENT;
}

void ipu_mesh_remove(struct ipu_mesh *m, uint32_t id)
{
    pthread_mutex_lock(&m->mutex);
    struct mesh_peer *p = ipu_mesh_find(m, id);
    if (p != NULL) {
        ipu_mesh_lose(m, p, true);
        while (p->recv_completed != p->recv_posted)
            m->pool[m->pool_count++] = p->recvs[p->recv_completed++ & (MESH_RECVS - 1)];
        p->established = false;
        p->qp = NULL;
        MESH_COUNT(m, peers_removed);
        for (int i = 0; i < IPU_MESH_PEERS_MAX; i++) {
            if (m->peers[i].qp != NULL)
                ipu_mesh_top_up(m, &m->peers[i]);
        }
    }
    pthread_mutex_unlock(&m->mutex);
}

void ipu_mesh_check(struct ipu_mesh *m, int64_t patience_ns)
{
    int64_t now_ns = ipu_mesh_now_ns();
    pthread_mutex_lock(&m->mutex);
    for (int i = 0; i < IPU_MESH_PEERS_MAX; i++) {
        struct mesh_peer *p = &m->peers[i];
        if (p->qp == NULL || p->failed || p->wait_head == p->wait_tail)
            continue;
        if (now_ns - p->waiting_since_ns < patience_ns)
            continue;
        MESH_COUNT(m, stalled);
        ipu_mesh_fail(m, p);
    }
    pthread_mutex_unlock(&m->mutex);
}

int ipu_mesh_tell(struct ipu_mesh *m, uint32_t id, const void *bytes, uint32_t len)
{
    if (len == 0 || len > IPU_MESH_NOTE_BYTES)
        return -EINVAL;
    int error = -ENOENT;
    pthread_mutex_lock(&m->mutex);
    struct mesh_peer *p = ipu_mesh_find(m, id);
    if (p != NULL && !p->failed && p->established) {
        uint8_t *body = ipu_mesh_control(m, p, MESH_NOTE, (uint16_t)len, len);
        error = body != NULL ? 0 : -EAGAIN;
        if (body != NULL) {
            memcpy(body, bytes, len);
            ipu_mesh_flush(m, p);
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return error;
}

int ipu_mesh_next(struct ipu_mesh *m, uint32_t *peer, void *note)
{
    int found = -EAGAIN;
    eventfd_t ignored;
    pthread_mutex_lock(&m->mutex);
    (void)eventfd_read(m->mail_fd, &ignored);
    if (m->note_head != m->note_tail) {
        const struct mesh_note *next = &m->notes[m->note_head++ % MESH_NOTES];
        *peer = next->peer;
        memcpy(note, next->bytes, next->len);
        found = (int)next->len;
    }
    for (int i = 0; i < IPU_MESH_PEERS_MAX && found < 0; i++) {
        struct mesh_peer *p = &m->peers[i];
        if (p->qp == NULL || !p->failed || p->told)
            continue;
        p->told = true;
        *peer = p->id;
        found = 0;
    }
    pthread_mutex_unlock(&m->mutex);
    return found;
}
