/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "verbs/state.h"

/* Work requests that become one chain. The sends get their numbers here, before the device has
 * them: post() takes back the numbers of sends that the device refuses.
 */
struct chain {
    struct ibv_send_wr wr[IPU_VERBS_BATCH];
    struct ibv_sge sge[IPU_VERBS_BATCH][2];
    int n;
};

static bool has_room(const struct ipu_verbs *v, const struct chain *chain)
{
    return chain->n < IPU_VERBS_BATCH && v->posted - v->returned < v->send_depth;
}

static struct ibv_sge piece(const struct ipu_verbs *v, const void *addr, uint32_t len)
{
    return (struct ibv_sge){
        .addr = (uintptr_t)addr, .length = len, .lkey = ipu_regions_lkey(&v->regions, addr)};
}

static void add(struct ipu_verbs *v, struct chain *chain, const struct ipu_send *send)
{
    const struct ipu_verbs_handle *handle = send->ah;
    int i = chain->n++;
    v->cookies[v->posted++ & v->cookie_mask] = send->cookie;
    int pieces = 0;
    if (send->head_len > 0)
        chain->sge[i][pieces++] = piece(v, send->head, send->head_len);
    if (send->len > 0)
        chain->sge[i][pieces++] = piece(v, send->addr, send->len);
    chain->wr[i] = (struct ibv_send_wr){
        .wr_id = v->posted,
        .next = &chain->wr[i + 1],
        .sg_list = chain->sge[i],
        .num_sge = pieces,
        .opcode = IBV_WR_SEND,
        .send_flags = send->head_len + send->len <= v->max_inline ? IBV_SEND_INLINE : 0,
        .wr.ud = {.ah = handle->ah, .remote_qpn = send->qpn, .remote_qkey = v->qkey},
    };
    if (chain->n % IPU_VERBS_SIGNAL == 0)
        chain->wr[i].send_flags |= IBV_SEND_SIGNALED;
}

static void lose(struct ipu_verbs *v, uint64_t cookie)
{
    v->lost[v->lost_count++] = cookie;
}

/* Posts the chain with one doorbell. The last request that the device took must be signalled, or
 * the sends would never come back. */
static void post(struct ipu_verbs *v, struct chain *chain)
{
    struct ibv_send_wr *bad = NULL;
    if (chain->n == 0)
        return;
    chain->wr[chain->n - 1].next = NULL;
    chain->wr[chain->n - 1].send_flags |= IBV_SEND_SIGNALED;
    int error = ibv_post_send(v->qp, chain->wr, &bad);
    int taken = error == 0 ? chain->n : bad == NULL ? 0 : (int)(bad - chain->wr);
    IPU_VERBS_COUNT(v, tx_doorbells);
    IPU_VERBS_ADD(v, tx_posted, (uint64_t)taken);
    uint64_t signalled = 0, inlined = 0;
    for (int i = 0; i < taken; i++) {
        signalled += (chain->wr[i].send_flags & IBV_SEND_SIGNALED) != 0;
        inlined += (chain->wr[i].send_flags & IBV_SEND_INLINE) != 0;
    }
    IPU_VERBS_ADD(v, tx_signalled, signalled);
    IPU_VERBS_ADD(v, tx_inline, inlined);
    if (error != 0) {
        for (uint64_t n = v->posted - (uint64_t)(chain->n - taken); n < v->posted; n++)
            lose(v, v->cookies[n & v->cookie_mask]);
        v->posted -= (uint64_t)(chain->n - taken);
        IPU_VERBS_COUNT(v, tx_errors);
        ipu_verbs_queue_pair_fail(v);
    }
    chain->n = 0;
}

static void park(struct ipu_verbs *v, const struct ipu_send *send, struct ipu_verbs_handle *handle)
{
    v->parked[v->parked_count++] = (struct ipu_verbs_parked){.send = *send, .handle = handle};
    handle->parked++;
    IPU_VERBS_COUNT(v, tx_waited);
}

void ipu_verbs_send_parked(struct ipu_verbs *v)
{
    struct chain chain;
    struct ipu_verbs_handle *empty[IPU_VERBS_PARKED];
    uint32_t kept = 0, emptied = 0;
    chain.n = 0;
    for (uint32_t i = 0; i < v->parked_count; i++) {
        struct ipu_verbs_parked *parked = &v->parked[i];
        struct ipu_verbs_handle *handle = parked->handle;
        if (!v->broken && (handle->state == IPU_VERBS_MAKING ||
                           (handle->state == IPU_VERBS_READY && !has_room(v, &chain)))) {
            v->parked[kept++] = *parked;
            continue;
        }
        handle->parked--;
        if (handle->state == IPU_VERBS_READY && !v->broken) {
            add(v, &chain, &parked->send);
        } else {
            IPU_VERBS_COUNT(v, tx_no_handle);
            lose(v, parked->send.cookie);
        }
        if (handle->parked == 0)
            empty[emptied++] = handle;
    }
    v->parked_count = kept;
    post(v, &chain);
    for (uint32_t i = 0; i < emptied; i++)
        ipu_verbs_handle_release(v, empty[i]);
}

/* Returns whether we took the send: into the chain, to wait, or to be lost. */
static bool take(struct ipu_verbs *v, struct chain *chain, const struct ipu_send *send)
{
    struct ipu_verbs_handle *handle = send->ah;
    if (send->head_len + send->len > v->fabric.mtu) {
        IPU_VERBS_COUNT(v, tx_too_big);
        lose(v, send->cookie);
    } else if (handle->parked == 0 && ipu_verbs_handle_ready(v, handle)) {
        if (!has_room(v, chain))
            return false;
        add(v, chain, send);
    } else if (handle->state != IPU_VERBS_FAILED && v->parked_count < IPU_VERBS_PARKED) {
        park(v, send, handle); /* behind the sends that wait already */
    } else {
        IPU_VERBS_COUNT(v, tx_no_handle);
        lose(v, send->cookie);
    }
    return true;
}

int ipu_verbs_send(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_verbs *v = self;
    struct chain chain;
    if (v->broken)
        return -EIO;
    /* Every send that we take may get lost, and then needs a place in `lost`. */
    int losable = (int)(IPU_VERBS_LOST - v->lost_count - v->parked_count);
    if (n > losable)
        n = losable;
    int taken = 0;
    chain.n = 0;
    while (taken < n && take(v, &chain, &sends[taken]))
        taken++;
    post(v, &chain);
    return taken;
}

void ipu_verbs_send_poll(struct ipu_verbs *v)
{
    struct ibv_wc wc[IPU_VERBS_SIGNAL];
    int n;
    if (v->completed == v->posted)
        return;
    do {
        n = ipu_completion_poll_sends(&v->completion, wc, IPU_VERBS_SIGNAL);
        for (int i = 0; i < n; i++) {
            v->completed = wc[i].wr_id;
            if (wc[i].status == IBV_WC_SUCCESS)
                continue;
            if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
                IPU_VERBS_COUNT(v, flushed);
            else
                IPU_VERBS_COUNT(v, tx_errors);
            ipu_verbs_queue_pair_fail(v);
        }
    } while (n == IPU_VERBS_SIGNAL);
    if (n < 0)
        ipu_verbs_queue_pair_fail(v);
}

int ipu_verbs_sent(void *self, uint64_t *cookies, int max)
{
    struct ipu_verbs *v = self;
    int n = 0;
    if (v->closed)
        return -EIO;
    ipu_verbs_handle_collect(v);
    ipu_verbs_send_poll(v);
    ipu_verbs_handle_reap(v);
    if (v->parked_count > 0)
        ipu_verbs_send_parked(v);
    while (n < max && v->returned < v->completed)
        cookies[n++] = v->cookies[v->returned++ & v->cookie_mask];
    while (n < max && v->lost_count > 0)
        cookies[n++] = v->lost[--v->lost_count];
    if (n == 0 && v->broken) {
        v->reported = true;
        return -EIO;
    }
    return n;
}
