/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <signal.h>

#include "verbs/state.h"

enum { TODO_MAX = 256 }; /* each may take a second: more would not be worth the wait */

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
        ipu_verbs_inbox_announce(v);
    }
    pthread_mutex_unlock(&v->inbox.mutex);
    return NULL;
}

/* The caller holds the mutex. */
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

void ipu_verbs_ah_worker_init(struct ipu_verbs *v)
{
    pthread_cond_init(&v->ah_worker.work, NULL);
    STAILQ_INIT(&v->ah_worker.todo);
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
    pthread_cond_destroy(&v->ah_worker.work);
}
