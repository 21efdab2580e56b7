/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "frame.h"
#include "mesh_state.h"

static const uint16_t carried[] = {IPU_TYPE_IPV4, IPU_TYPE_ARP, IPU_TYPE_IPV6};
enum { CARRIED = sizeof carried / sizeof *carried };

/* ---- frames */

static void release(struct ipu_mesh *m, uint16_t index)
{
    struct mesh_frame *frame = &m->frames[index];
    if (--frame->refs > 0)
        return;
    if (frame->slot == MESH_NONE) {
        m->ended[m->ended_count++] = index;
        return;
    }
    m->free_slots[m->free_slot_count++] = frame->slot;
    m->free_frames[m->free_frame_count++] = index;
}

void ipu_mesh_lose(struct ipu_mesh *m, struct mesh_peer *p, bool posted)
{
    while (p->wait_head != p->wait_tail)
        release(m, p->waiting[p->wait_head++ % MESH_WAITING]);
    while (posted && p->completed != p->posted)
        release(m, p->sent[p->completed++ & (MESH_DEPTH - 1)]);
    if (m->ended_count > 0)
        ipu_mesh_wake(m);
}

static void enqueue(struct mesh_peer *p, struct mesh_frame *frame, uint16_t index)
{
    if (p->wait_head == p->wait_tail)
        p->waiting_since_ns = ipu_mesh_now_ns();
    p->waiting[p->wait_tail++ % MESH_WAITING] = index;
    frame->refs++;
}

static uint8_t *slot_at(const struct ipu_mesh *m, uint16_t slot)
{
    return m->slots + (size_t)slot * MESH_SLOT_BYTES;
}

/* The frame of a control message, with its header. */
static int make_control(struct ipu_mesh *m, enum mesh_operation operation, uint16_t count,
                        uint32_t len)
{
    if (m->free_slot_count == 0 || m->free_frame_count == 0)
        return -1;
    uint16_t index = m->free_frames[--m->free_frame_count];
    uint16_t slot = m->free_slots[--m->free_slot_count];
    uint8_t *at = slot_at(m, slot);
    uint16_t header[4] = {htons(MESH_TYPE), 0, htons((uint16_t)operation), htons(count)};
    memcpy(at, header, sizeof header);
    m->frames[index] = (struct mesh_frame){.slot = slot, .len = MESH_HEADER + len, .pieces = 1};
    m->frames[index].sge[0] = (struct ibv_sge){
        .addr = (uintptr_t)at, .length = MESH_HEADER + len, .lkey = m->slots_mr->lkey};
    return index;
}

uint8_t *ipu_mesh_control(struct ipu_mesh *m, struct mesh_peer *p, enum mesh_operation operation,
                          uint16_t count, uint32_t len)
{
    if (p->wait_tail - p->wait_head >= MESH_WAITING)
        return NULL;
    int index = make_control(m, operation, count, len);
    if (index < 0)
        return NULL;
    enqueue(p, &m->frames[index], (uint16_t)index);
    return slot_at(m, m->frames[index].slot) + MESH_HEADER;
}

/* ---- posting */

struct chain {
    int n;
    struct ibv_send_wr wr[MESH_DEPTH];
};

static bool has_room(const struct mesh_peer *p, const struct chain *chain)
{
    return p->posted - p->completed + (uint32_t)chain->n < MESH_DEPTH;
}

static void add(struct ipu_mesh *m, struct mesh_peer *p, struct chain *chain, uint16_t index)
{
    struct mesh_frame *frame = &m->frames[index];
    uint32_t number = p->posted + (uint32_t)chain->n;
    p->sent[number & (MESH_DEPTH - 1)] = index;
    chain->wr[chain->n] = (struct ibv_send_wr){.wr_id = (uint64_t)p->id << 32 | number,
                                               .sg_list = frame->sge,
                                               .num_sge = frame->pieces,
                                               .opcode = IBV_WR_SEND,
                                               .send_flags = IBV_SEND_SIGNALED};
    if (chain->n > 0)
        chain->wr[chain->n - 1].next = &chain->wr[chain->n];
    chain->n++;
    if (frame->is_copy)
        MESH_COUNT(m, tx_copies);
}

static void add_grant(struct ipu_mesh *m, struct mesh_peer *p, struct chain *chain)
{
    int index = make_control(m, MESH_GRANT, (uint16_t)p->due, 0);
    if (index < 0)
        return; /* with the next one */
    m->frames[index].refs = 1;
    p->spent += p->due;
    p->due = 0;
    add(m, p, chain, (uint16_t)index);
    MESH_COUNT(m, grants);
}

/* Whole, each time: nobody needs to know what was told before. */
static void add_members(struct ipu_mesh *m, struct mesh_peer *p, struct chain *chain)
{
    bool all = m->groups_untold > 0;
    uint32_t count = all ? 0 : m->group_count, len = count * sizeof m->groups[0];
    int index = make_control(m, MESH_MEMBERS_ARE, all ? MESH_ALL : (uint16_t)count, len);
    if (index < 0)
        return;
    memcpy(slot_at(m, m->frames[index].slot) + MESH_HEADER, m->groups, len);
    m->frames[index].refs = 1;
    p->members_due = false;
    p->credit--;
    add(m, p, chain, (uint16_t)index);
}

void ipu_mesh_flush(struct ipu_mesh *m, struct mesh_peer *p)
{
    struct ibv_send_wr *bad = NULL;
    struct chain chain;
    chain.n = 0;
    if (p->failed || p->qp == NULL || !p->may_send || p->hello.window == 0)
        return;
    if (p->due >= (m->window + 1) / 2 && has_room(p, &chain))
        add_grant(m, p, &chain);
    if (p->members_due && p->credit > 0 && has_room(p, &chain))
        add_members(m, p, &chain);
    while (p->wait_head != p->wait_tail && p->credit > 0 && has_room(p, &chain)) {
        add(m, p, &chain, p->waiting[p->wait_head++ % MESH_WAITING]);
        p->credit--;
        p->waiting_since_ns = ipu_mesh_now_ns();
    }
    if (chain.n == 0)
        return;
    int error = ibv_post_send(p->qp, chain.wr, &bad);
    int taken = error == 0 ? chain.n : bad == NULL ? 0 : (int)(bad - chain.wr);
    for (int i = taken; i < chain.n; i++)
        release(m, p->sent[(p->posted + (uint32_t)i) & (MESH_DEPTH - 1)]);
    p->posted += (uint32_t)taken;
    MESH_ADD(m, tx_messages, (uint64_t)taken);
    if (error != 0) {
        MESH_COUNT(m, tx_errors);
        ipu_mesh_fail(m, p);
    }
}

/* ---- what the pump sends */

static void piece(struct ipu_mesh *m, struct mesh_frame *frame, const void *addr, uint32_t len)
{
    if (len > 0)
        frame->sge[frame->pieces++] = (struct ibv_sge){
            .addr = (uintptr_t)addr, .length = len, .lkey = ipu_mesh_lkey(m, addr)};
}

/*
 * A copy for a group differs from the frame in its header alone, which lies ready for each type;
 * the frame's own is left as it is.
 */
static void mark_as_copy(struct ipu_mesh *m, struct mesh_frame *frame, const uint8_t *first)
{
    uint16_t type;
    memcpy(&type, first, sizeof type);
    for (int i = 0; i < CARRIED; i++) {
        if (ntohs(type) != carried[i] || frame->sge[0].length < IPU_ENCAP_LEN)
            continue;
        uint8_t *header = m->slots + (size_t)MESH_SLOTS * MESH_SLOT_BYTES + i * IPU_ENCAP_LEN;
        uint16_t words[2] = {type, htons(MESH_GROUP_COPY)};
        memcpy(header, words, sizeof words);
        bool rest = frame->sge[0].length > IPU_ENCAP_LEN;
        memmove(&frame->sge[1], &frame->sge[rest ? 0 : 1],
                (rest ? frame->pieces : frame->pieces - 1u) * sizeof frame->sge[0]);
        if (rest) {
            frame->sge[1].addr += IPU_ENCAP_LEN;
            frame->sge[1].length -= IPU_ENCAP_LEN;
            frame->pieces++;
        }
        frame->sge[0] = (struct ibv_sge){
            .addr = (uintptr_t)header, .length = IPU_ENCAP_LEN, .lkey = m->slots_mr->lkey};
        frame->is_copy = true;
    }
}

static bool belongs(const struct mesh_peer *p, const struct in6_addr *mgid)
{
    if (!p->knows_members || p->wants_all)
        return true;
    for (uint32_t i = 0; i < p->member_count; i++) {
        if (memcmp(&p->members[i], mgid, sizeof *mgid) == 0)
            return true;
    }
    return false;
}

static void offer(struct ipu_mesh *m, struct mesh_peer *p, uint16_t index)
{
    struct mesh_frame *frame = &m->frames[index];
    if (frame->len > p->hello.mtu)
        MESH_COUNT(m, tx_too_big);
    else if (p->wait_tail - p->wait_head >= MESH_WAITING_MAX)
        MESH_COUNT(m, tx_overflow);
    else
        enqueue(p, frame, index);
}

static void take(struct ipu_mesh *m, const struct ipu_send *send)
{
    const struct in6_addr *gid = send->ah;
    bool is_group = gid->s6_addr[0] == 0xff, found = false;
    uint16_t index = m->free_frames[--m->free_frame_count];
    struct mesh_frame *frame = &m->frames[index];
    *frame = (struct mesh_frame){.cookie = send->cookie, .refs = 1, .slot = MESH_NONE};
    frame->len = send->head_len + send->len;
    piece(m, frame, send->head, send->head_len);
    piece(m, frame, send->addr, send->len);
    if (is_group)
        mark_as_copy(m, frame, send->head_len > 0 ? send->head : send->addr);
    for (int i = 0; i < IPU_MESH_PEERS_MAX; i++) {
        struct mesh_peer *p = &m->peers[i];
        if (p->qp == NULL || !p->established || p->failed)
            continue;
        if (is_group ? !belongs(p, gid) : memcmp(&p->hello.gid, gid, sizeof *gid) != 0)
            continue;
        found = true;
        offer(m, p, index);
    }
    if (!found && !is_group)
        MESH_COUNT(m, tx_no_peer);
    release(m, index); /* our own: those of the peers stay */
}

int ipu_mesh_send(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_mesh *m = self;
    pthread_mutex_lock(&m->mutex);
    int taken = 0;
    while (taken < n && m->free_frame_count > MESH_SLOTS)
        take(m, &sends[taken++]);
    for (int i = 0; i < IPU_MESH_PEERS_MAX; i++) {
        if (m->peers[i].qp != NULL && m->peers[i].wait_head != m->peers[i].wait_tail)
            ipu_mesh_flush(m, &m->peers[i]);
    }
    pthread_mutex_unlock(&m->mutex);
    return taken;
}

static void poll_sends(struct ipu_mesh *m)
{
    struct ibv_wc wc[MESH_BATCH];
    int n;
    do {
        n = ibv_poll_cq(m->send_cq, MESH_BATCH, wc);
        for (int i = 0; i < n; i++) {
            struct mesh_peer *p = ipu_mesh_find(m, (uint32_t)(wc[i].wr_id >> 32));
            if (p == NULL)
                continue; /* it was removed, and its frames given back */
            while (p->completed != (uint32_t)wc[i].wr_id + 1 && p->completed != p->posted)
                release(m, p->sent[p->completed++ & (MESH_DEPTH - 1)]);
            if (wc[i].status != IBV_WC_SUCCESS) {
                if (wc[i].status != IBV_WC_WR_FLUSH_ERR)
                    MESH_COUNT(m, tx_errors);
                ipu_mesh_fail(m, p);
            }
            ipu_mesh_flush(m, p);
        }
    } while (n == MESH_BATCH);
}

int ipu_mesh_sent(void *self, uint64_t *cookies, int max)
{
    struct ipu_mesh *m = self;
    int n = 0;
    pthread_mutex_lock(&m->mutex);
    if (!m->closed)
        poll_sends(m);
    while (n < max && m->ended_count > 0) {
        uint16_t index = m->ended[--m->ended_count];
        cookies[n++] = m->frames[index].cookie;
        m->free_frames[m->free_frame_count++] = index;
    }
    pthread_mutex_unlock(&m->mutex);
    return n;
}
