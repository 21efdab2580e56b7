/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "state.h"

enum { TODO_MAX = 256 }; /* each may take a second: more would not be worth the wait */

/* The mutex is held. */
static void announce(struct ipu_verbs *v)
{
    if (!atomic_exchange(&v->mail.any, true))
        eventfd_write(v->mail.fd, 1);
}

static void *run(void *arg)
{
    struct ipu_verbs *v = arg;
    struct ipu_verbs_maker *maker = &v->maker;
    pthread_mutex_lock(&v->mail.mutex);
    for (;;) {
        struct ipu_verbs_handle *handle = STAILQ_FIRST(&maker->todo);
        if (maker->stopping)
            break;
        if (handle == NULL) {
            pthread_cond_wait(&maker->work, &v->mail.mutex);
            continue;
        }
        STAILQ_REMOVE_HEAD(&maker->todo, queue);
        maker->todo_count--;
        pthread_mutex_unlock(&v->mail.mutex);
        errno = 0;
        handle->ah = ibv_create_ah(v->pd, &handle->attr);
        handle->error = errno;
        pthread_mutex_lock(&v->mail.mutex);
        STAILQ_INSERT_TAIL(&v->mail.made, handle, queue);
        announce(v);
    }
    pthread_mutex_unlock(&v->mail.mutex);
    return NULL;
}

/* The mutex is held. */
static bool start(struct ipu_verbs *v)
{
    sigset_t all, before;
    if (v->maker.started)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    v->maker.started = pthread_create(&v->maker.thread, NULL, run, v) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (v->maker.started)
        pthread_setname_np(v->maker.thread, "ipoibu-handles");
    return v->maker.started;
}

bool ipu_verbs_maker_put(struct ipu_verbs *v, struct ipu_verbs_handle *handle)
{
    struct ipu_verbs_maker *maker = &v->maker;
    bool taken = false;
    pthread_mutex_lock(&v->mail.mutex);
    if (maker->todo_count < TODO_MAX && start(v)) {
        handle->ah = NULL;
        STAILQ_INSERT_TAIL(&maker->todo, handle, queue);
        maker->todo_count++;
        pthread_cond_signal(&maker->work);
        taken = true;
    }
    pthread_mutex_unlock(&v->mail.mutex);
    return taken;
}

void ipu_verbs_maker_collect(struct ipu_verbs *v)
{
    struct ipu_verbs_handle_queue made = STAILQ_HEAD_INITIALIZER(made);
    struct ipu_verbs_mail *mail = &v->mail;
    eventfd_t ignored;
    if (!atomic_load_explicit(&mail->any, memory_order_relaxed))
        return;
    pthread_mutex_lock(&mail->mutex);
    atomic_store(&mail->any, false);
    (void)eventfd_read(mail->fd, &ignored);
    STAILQ_CONCAT(&made, &mail->made);
    bool fail = mail->fail;
    mail->fail = false;
    if (mail->rebind) {
        v->fabric.gid = mail->gid;
        v->sgid_index = mail->sgid_index;
        v->version++;
    }
    mail->rebind = false;
    pthread_mutex_unlock(&mail->mutex);

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
    pthread_mutex_lock(&v->mail.mutex);
    v->mail.fail = true;
    announce(v);
    pthread_mutex_unlock(&v->mail.mutex);
}

void ipu_verbs_rebind(struct ipu_verbs *v, const struct in6_addr *gid, uint8_t sgid_index)
{
    pthread_mutex_lock(&v->mail.mutex);
    v->mail.gid = *gid;
    v->mail.sgid_index = sgid_index;
    v->mail.rebind = true;
    announce(v);
    pthread_mutex_unlock(&v->mail.mutex);
}

int ipu_verbs_maker_init(struct ipu_verbs *v)
{
    pthread_mutex_init(&v->mail.mutex, NULL);
    pthread_cond_init(&v->maker.work, NULL);
    STAILQ_INIT(&v->maker.todo);
    STAILQ_INIT(&v->mail.made);
    v->mail.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return v->mail.fd < 0 ? -errno : 0;
}

void ipu_verbs_maker_free(struct ipu_verbs *v)
{
    pthread_mutex_lock(&v->mail.mutex);
    v->maker.stopping = true;
    pthread_cond_signal(&v->maker.work);
    pthread_mutex_unlock(&v->mail.mutex);
    if (v->maker.started)
        pthread_join(v->maker.thread, NULL);
    v->maker.started = false;
}
