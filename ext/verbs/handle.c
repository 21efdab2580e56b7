/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/frame.h"
#include "verbs/state.h"

#define RETRY_NS 1000000000 /* the kernel's limit for one address resolution */

/* Retires the verbs handle: no send names it from now on. */
static void retire(struct ipu_verbs *v, struct ibv_ah *ah)
{
    struct ipu_verbs_retired *retired = NULL;
    if (ah == NULL)
        return;
    IPU_VERBS_COUNT(v, handles_destroyed);
    if (v->completed != v->posted)
        retired = malloc(sizeof *retired);
    if (retired == NULL) {
        ibv_destroy_ah(ah);
        return;
    }
    *retired = (struct ipu_verbs_retired){.ah = ah, .after = v->posted};
    STAILQ_INSERT_TAIL(&v->retired, retired, queue);
}

static void reap_until(struct ipu_verbs *v, uint64_t completed)
{
    struct ipu_verbs_retired *retired = STAILQ_FIRST(&v->retired);
    while (retired != NULL && retired->after <= completed) {
        STAILQ_REMOVE_HEAD(&v->retired, queue);
        ibv_destroy_ah(retired->ah);
        free(retired);
        retired = STAILQ_FIRST(&v->retired);
    }
}

void ipu_verbs_handle_reap(struct ipu_verbs *v)
{
    reap_until(v, v->completed);
}

void ipu_verbs_handle_release(struct ipu_verbs *v, struct ipu_verbs_handle *handle)
{
    if (!handle->abandoned || handle->state == IPU_VERBS_MAKING || handle->parked > 0)
        return;
    retire(v, handle->ah);
    LIST_REMOVE(handle, all);
    free(handle);
}

static void made(struct ipu_verbs *v, struct ipu_verbs_handle *handle)
{
    if (handle->ah != NULL) {
        handle->state = IPU_VERBS_READY;
        IPU_VERBS_COUNT(v, handles_created);
    } else {
        handle->state = IPU_VERBS_FAILED;
        handle->retry_at_ns = (int64_t)ipu_clock_ns() + RETRY_NS;
        IPU_VERBS_COUNT(v, handles_failed);
    }
}

static void make(struct ipu_verbs *v, struct ipu_verbs_handle *handle)
{
    handle->version = v->version;
    handle->attr.grh.sgid_index = v->sgid_index;
    if (v->resolves && !IN6_IS_ADDR_MULTICAST(handle->attr.grh.dgid.raw)) {
        handle->state = ipu_verbs_ah_worker_put(v, handle) ? IPU_VERBS_MAKING : IPU_VERBS_ABSENT;
        return;
    }
    errno = 0;
    handle->ah = ibv_create_ah(v->pd, &handle->attr);
    handle->error = errno;
    made(v, handle);
}

bool ipu_verbs_handle_ready(struct ipu_verbs *v, struct ipu_verbs_handle *handle)
{
    if (handle->state == IPU_VERBS_READY && handle->version != v->version) {
        retire(v, handle->ah);
        handle->ah = NULL;
        handle->state = IPU_VERBS_ABSENT;
    }
    if (handle->state == IPU_VERBS_ABSENT ||
        (handle->state == IPU_VERBS_FAILED && (int64_t)ipu_clock_ns() >= handle->retry_at_ns))
        make(v, handle);
    return handle->state == IPU_VERBS_READY;
}

void ipu_verbs_handle_collect(struct ipu_verbs *v)
{
    struct ipu_verbs_handle_queue queue = STAILQ_HEAD_INITIALIZER(queue);
    ipu_verbs_inbox_read(v, &queue);
    while (!STAILQ_EMPTY(&queue)) {
        struct ipu_verbs_handle *handle = STAILQ_FIRST(&queue);
        STAILQ_REMOVE_HEAD(&queue, queue);
        made(v, handle);
        ipu_verbs_handle_release(v, handle);
    }
}

/* Only a unicast datagram within an InfiniBand subnet goes without a GRH (E4, B6). */
static bool needs_grh(const struct ipu_dest *dest)
{
    return dest->dlid == 0 || dest->hop_limit > 1 || IN6_IS_ADDR_MULTICAST(&dest->gid);
}

void *ipu_verbs_handle_create(void *self, const struct ipu_dest *dest)
{
    struct ipu_verbs *v = self;
    if (v->closed) {
        errno = EIO;
        return NULL;
    }
    struct ipu_verbs_handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        return NULL;
    handle->attr = (struct ibv_ah_attr){
        .grh = {.flow_label = dest->flow_label,
                .hop_limit = dest->hop_limit,
                .traffic_class = dest->traffic_class},
        .dlid = dest->dlid,
        .sl = dest->sl,
        .static_rate = dest->static_rate,
        .is_global = needs_grh(dest),
        .port_num = v->port,
    };
    memcpy(handle->attr.grh.dgid.raw, &dest->gid, sizeof dest->gid);
    make(v, handle);
    /* A handle that fails at once shows that the device has no more, or that the address is
     * impossible. */
    if (handle->state == IPU_VERBS_FAILED) {
        errno = handle->error != 0 ? handle->error : EIO;
        free(handle);
        return NULL;
    }
    LIST_INSERT_HEAD(&v->handles, handle, all);
    return handle;
}

void ipu_verbs_handle_destroy(void *self, void *ah)
{
    struct ipu_verbs_handle *handle = ah;
    handle->abandoned = true;
    ipu_verbs_handle_release(self, handle);
}

void ipu_verbs_handle_close(struct ipu_verbs *v)
{
    struct ipu_verbs_handle *handle;
    reap_until(v, UINT64_MAX);
    LIST_FOREACH(handle, &v->handles, all) {
        if (handle->ah != NULL) {
            IPU_VERBS_COUNT(v, handles_destroyed);
            ibv_destroy_ah(handle->ah);
        }
        handle->ah = NULL;
        handle->state = IPU_VERBS_ABSENT;
        handle->parked = 0;
    }
}

void ipu_verbs_handle_free(struct ipu_verbs *v)
{
    struct ipu_verbs_handle *handle;
    while ((handle = LIST_FIRST(&v->handles)) != NULL) {
        LIST_REMOVE(handle, all);
        free(handle);
    }
}
