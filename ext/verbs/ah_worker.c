/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/state.h"

enum { TODO_MAX = 256 }; /* each may take a second: more would not be worth the wait */

/* The mutex is held. */
static void announce(struct ipu_verbs *v)
{
    if (!atomic_exchange(&v->inbox.any, true))
        eventfd_write(v->inbox.fd, 1);
}

static void *run(void *arg)
{
    struct ipu_verbs *v = arg;
    struct ipu_verbs_ah_worker *worker = &v->ah_worker;
    pthread_mutex_lock(&v->inbox.mutex);
    for (;;) {
        struct ipu_verbs_handle *handle = STAILQ_FIRST(&worker->todo);
        if (worker->stopping)
            break;
        if (handle == NULL) {
            pthread_cond_wait(&worker->work, &v->inbox.mutex);
            continue;
        }
        STAILQ_REMOVE_HEAD(&worker->todo, queue);
        worker->todo_count--;
        pthread_mutex_unlock(&v->inbox.mutex);
        errno = 0;
        handle->ah = ibv_create_ah(v->pd, &handle->attr);
        handle->error = errno;
        pthread_mutex_lock(&v->inbox.mutex);
        STAILQ_INSERT_TAIL(&v->inbox.made, handle, queue);
        announce(v);
    }
    pthread_mutex_unlock(&v->inbox.mutex);
    return NULL;
}

/* The mutex is held. */
static bool start(struct ipu_verbs *v)
{
    sigset_t all, before;
    if (v->ah_worker.started)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    v->ah_worker.started = pthread_create(&v->ah_worker.thread, NULL, run, v) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (v->ah_worker.started)
        pthread_setname_np(v->ah_worker.thread, "ipoibu-handles");
    return v->ah_worker.started;
}

bool ipu_verbs_ah_worker_put(struct ipu_verbs *v, struct ipu_verbs_handle *handle)
{
    struct ipu_verbs_ah_worker *worker = &v->ah_worker;
    bool taken = false;
    pthread_mutex_lock(&v->inbox.mutex);
    if (worker->todo_count < TODO_MAX && start(v)) {
        handle->ah = NULL;
        STAILQ_INSERT_TAIL(&worker->todo, handle, queue);
        worker->todo_count++;
        pthread_cond_signal(&worker->work);
        taken = true;
    }
    pthread_mutex_unlock(&v->inbox.mutex);
    return taken;
}

void ipu_verbs_ah_worker_collect(struct ipu_verbs *v)
{
    struct ipu_verbs_handle_queue made = STAILQ_HEAD_INITIALIZER(made);
    struct ipu_verbs_inbox *inbox = &v->inbox;
    eventfd_t ignored;
    if (!atomic_load_explicit(&inbox->any, memory_order_relaxed))
        return;
    pthread_mutex_lock(&inbox->mutex);
    atomic_store(&inbox->any, false);
    (void)eventfd_read(inbox->fd, &ignored);
    STAILQ_CONCAT(&made, &inbox->made);
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
    while (!STAILQ_EMPTY(&made)) {
        struct ipu_verbs_handle *handle = STAILQ_FIRST(&made);
        STAILQ_REMOVE_HEAD(&made, queue);
        ipu_verbs_handle_made(v, handle);
        ipu_verbs_handle_release(v, handle);
    }
}

void ipu_verbs_break(struct ipu_verbs *v)
{
    pthread_mutex_lock(&v->inbox.mutex);
    v->inbox.fail = true;
    announce(v);
    pthread_mutex_unlock(&v->inbox.mutex);
}

void ipu_verbs_rebind(struct ipu_verbs *v, const struct in6_addr *gid, uint8_t sgid_index)
{
    pthread_mutex_lock(&v->inbox.mutex);
    v->inbox.gid = *gid;
    v->inbox.sgid_index = sgid_index;
    v->inbox.rebind = true;
    announce(v);
    pthread_mutex_unlock(&v->inbox.mutex);
}

int ipu_verbs_ah_worker_init(struct ipu_verbs *v)
{
    pthread_mutex_init(&v->inbox.mutex, NULL);
    pthread_cond_init(&v->ah_worker.work, NULL);
    STAILQ_INIT(&v->ah_worker.todo);
    STAILQ_INIT(&v->inbox.made);
    v->inbox.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return v->inbox.fd < 0 ? -errno : 0;
}

void ipu_verbs_ah_worker_free(struct ipu_verbs *v)
{
    pthread_mutex_lock(&v->inbox.mutex);
    v->ah_worker.stopping = true;
    pthread_cond_signal(&v->ah_worker.work);
    pthread_mutex_unlock(&v->inbox.mutex);
    if (v->ah_worker.started)
        pthread_join(v->ah_worker.thread, NULL);
    v->ah_worker.started = false;
}
