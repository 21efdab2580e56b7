/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/state.h"

int ipu_verbs_inbox_init(struct ipu_verbs *v)
{
    pthread_mutex_init(&v->inbox.mutex, NULL);
    STAILQ_INIT(&v->inbox.made);
    v->inbox.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return v->inbox.fd < 0 ? -errno : 0;
}

void ipu_verbs_inbox_free(struct ipu_verbs *v)
{
    if (v->inbox.fd >= 0)
        close(v->inbox.fd);
    pthread_mutex_destroy(&v->inbox.mutex);
}

void ipu_verbs_inbox_announce(struct ipu_verbs *v)
{
    if (!atomic_exchange(&v->inbox.any, true))
        eventfd_write(v->inbox.fd, 1);
}

void ipu_verbs_break(struct ipu_verbs *v)
{
    pthread_mutex_lock(&v->inbox.mutex);
    v->inbox.fail = true;
    ipu_verbs_inbox_announce(v);
    pthread_mutex_unlock(&v->inbox.mutex);
}

void ipu_verbs_rebind(struct ipu_verbs *v, const struct in6_addr *gid, uint8_t sgid_index)
{
    pthread_mutex_lock(&v->inbox.mutex);
    v->inbox.gid = *gid;
    v->inbox.sgid_index = sgid_index;
    v->inbox.rebind = true;
    ipu_verbs_inbox_announce(v);
    pthread_mutex_unlock(&v->inbox.mutex);
}

void ipu_verbs_inbox_read(struct ipu_verbs *v, struct ipu_verbs_handle_queue *made)
{
    struct ipu_verbs_inbox *inbox = &v->inbox;
    eventfd_t ignored;
    if (!atomic_load_explicit(&inbox->any, memory_order_relaxed))
        return;
    pthread_mutex_lock(&inbox->mutex);
    atomic_store(&inbox->any, false);
    (void)eventfd_read(inbox->fd, &ignored);
    STAILQ_CONCAT(made, &inbox->made);
    bool fail = inbox->fail;
    inbox->fail = false;
    if (inbox->rebind) {
        v->fabric.gid = inbox->gid;
        v->sgid_index = inbox->sgid_index;
        v->version++;
    }
    inbox->rebind = false;
    pthread_mutex_unlock(&inbox->mutex);
    if (fail)
        ipu_verbs_queue_pair_fail(v);
}
