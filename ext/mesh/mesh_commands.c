/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the mesh's pump and the thread that makes its connections: two queues under one mutex. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "mesh/mesh_state.h"

/* ---- called on the other thread */

static struct mesh_command *command(int kind, uint64_t id, const void *bytes, size_t len)
{
    struct mesh_command *made = calloc(1, sizeof *made + len);
    if (made == NULL)
        return NULL;
    made->kind = kind;
    made->id = id;
    made->len = (uint32_t)len;
    if (len > 0)
        memcpy(made->bytes, bytes, len);
    return made;
}

static int put(struct ipu_mesh *m, struct mesh_command *made)
{
    if (made == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&m->mutex);
    STAILQ_INSERT_TAIL(&m->commands, made, queue);
    atomic_store(&m->has_commands, true);
    (void)eventfd_write(m->command_fd, 1); /* under the lock: never after the pump has read it */
    pthread_mutex_unlock(&m->mutex);
    return 0;
}

/* A turn in the life of a peer is told whether there is memory then or not: an untold end would
 * keep the peer's place for ever. */
static struct ipu_mesh_peer *new_peer(void)
{
    struct ipu_mesh_peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL)
        return NULL;
    STAILQ_INIT(&peer->waiting);
    for (const int *type = (int[]){IPU_MESH_READY, IPU_MESH_BROKEN, IPU_MESH_GONE, 0}; *type != 0;
         type++) {
        peer->turns[*type] = calloc(1, sizeof *peer->turns[*type]);
        if (peer->turns[*type] == NULL) {
            mesh_peer_free(peer);
            return NULL;
        }
    }
    return peer;
}

int ipu_mesh_add(struct ipu_mesh *m, uint64_t id, struct ibv_qp *qp)
{
    struct ipu_mesh_peer *peer = new_peer();
    struct mesh_command *made = command(MESH_ADD, id, NULL, 0);
    int error = peer == NULL || made == NULL ? -ENOMEM : ipu_rc_queue_init(&peer->queue, qp);
    if (error < 0) {
        if (peer != NULL)
            mesh_peer_free(peer);
        free(made);
        return error;
    }
    /* No other queue had these numbers, so we recognise a late completion of an older queue. */
    peer->queue.posted = peer->queue.completed = peer->queue.returned = id << 32;
    peer->id = id;
    peer->qp_num = qp->qp_num;
    peer->receives.qp = qp;
    peer->receives.depth = IPU_MESH_WINDOW + IPU_MESH_SLACK;
    peer->granted = IPU_MESH_WINDOW;
    made->peer = peer;
    return put(m, made);
}

int ipu_mesh_name(struct ipu_mesh *m, uint64_t id, const struct in6_addr *gid, uint32_t qpn,
                  uint32_t window, bool may_send)
{
    struct mesh_command *made = command(MESH_NAME, id, NULL, 0);
    if (made != NULL) {
        made->gid = *gid;
        made->qpn = qpn;
        made->window = window;
        made->flag = may_send;
    }
    return put(m, made);
}

int ipu_mesh_groups(struct ipu_mesh *m, uint64_t id, const struct in6_addr *mgids, int n)
{
    return put(m, command(MESH_SET_GROUPS, id, mgids, (size_t)n * sizeof *mgids));
}

int ipu_mesh_group(struct ipu_mesh *m, uint64_t id, const struct in6_addr *mgid, bool is_in)
{
    struct mesh_command *made = command(MESH_GROUP, id, NULL, 0);
    if (made != NULL) {
        made->gid = *mgid;
        made->flag = is_in;
    }
    return put(m, made);
}

int ipu_mesh_send_control(struct ipu_mesh *m, uint64_t id, const void *message, size_t len)
{
    return len > IPU_MESH_CONTROL_MAX ? -EMSGSIZE
                                      : put(m, command(MESH_SEND_CONTROL, id, message, len));
}

int ipu_mesh_remove(struct ipu_mesh *m, uint64_t id)
{
    return put(m, command(MESH_REMOVE, id, NULL, 0));
}

int ipu_mesh_forget(struct ipu_mesh *m, uint64_t id)
{
    return put(m, command(MESH_FORGET, id, NULL, 0));
}

bool ipu_mesh_next_event(struct ipu_mesh *m, struct ipu_mesh_event *event)
{
    pthread_mutex_lock(&m->mutex);
    struct mesh_event *next = STAILQ_FIRST(&m->events);
    if (next != NULL) {
        STAILQ_REMOVE_HEAD(&m->events, queue);
        m->event_count--;
    } else {
        eventfd_t unused;
        (void)eventfd_read(m->event_fd, &unused);
    }
    pthread_mutex_unlock(&m->mutex);
    if (next == NULL)
        return false;
    event->id = next->id;
    event->type = next->type;
    event->len = next->len;
    memcpy(event->message, next->message, next->len);
    free(next);
    return true;
}

int ipu_mesh_event_fd(const struct ipu_mesh *m)
{
    return m->event_fd;
}

/* ---- called on the pump's thread */

/* Runs the command; returns whether the caller may free it. */
static bool carry_out(struct ipu_mesh *m, struct ipu_mesh_peer *peer, struct mesh_command *made)
{
    switch (made->kind) {
    case MESH_ADD:
        break;
    case MESH_NAME:
        peer->gid = made->gid;
        peer->qpn = made->qpn;
        peer->limit = made->window;
        peer->may_send |= made->flag;
        peer->named = true;
        m->version++;
        break;
    case MESH_SET_GROUPS:
        ipu_group_list_restart(&peer->groups);
        for (uint32_t at = 0; at + sizeof(struct in6_addr) <= made->len;
             at += sizeof(struct in6_addr)) {
            struct in6_addr mgid;
            memcpy(&mgid, made->bytes + at, sizeof mgid);
            ipu_group_list_add(&peer->groups, &mgid);
        }
        break;
    case MESH_GROUP:
        if (made->flag)
            ipu_group_list_add(&peer->groups, &made->gid);
        else
            ipu_group_list_delete(&peer->groups, &made->gid);
        break;
    case MESH_SEND_CONTROL:
        if (peer->waiting_count == MESH_WAITING) {
            mesh_peer_broke(m, peer);
            break;
        }
        STAILQ_INSERT_TAIL(&peer->waiting, made, queue);
        peer->waiting_count++;
        return false;
    case MESH_REMOVE:
        if (!peer->leaving)
            mesh_peer_notify(m, peer, IPU_MESH_GONE, NULL, 0);
        peer->leaving = true;
        m->version++;
        break;
    case MESH_FORGET:
        peer->leaving = peer->forgotten = true;
        mesh_send_end(m, peer);
        mesh_receive_end(m, peer);
        break;
    }
    return true;
}

void mesh_commands_run(struct ipu_mesh *m)
{
    struct mesh_commands commands = STAILQ_HEAD_INITIALIZER(commands);
    struct mesh_command *made;
    eventfd_t unused;
    if (!atomic_load(&m->has_commands))
        return;
    pthread_mutex_lock(&m->mutex);
    atomic_store(&m->has_commands, false);
    (void)eventfd_read(m->command_fd, &unused);
    STAILQ_CONCAT(&commands, &m->commands);
    pthread_mutex_unlock(&m->mutex);
    while ((made = STAILQ_FIRST(&commands)) != NULL) {
        STAILQ_REMOVE_HEAD(&commands, queue);
        struct ipu_mesh_peer *peer = made->peer;
        if (peer == NULL) {
            peer = mesh_peer_by_id(m, made->id);
        } else {
            mesh_peer_add(m, peer);
            mesh_feed(m, peer);
        }
        if (peer == NULL || carry_out(m, peer, made))
            free(made);
        if (peer != NULL)
            mesh_send_waiting(m, peer);
    }
    mesh_settle(m);
}

void mesh_commands_free(struct ipu_mesh *m)
{
    struct mesh_command *made;
    struct mesh_event *event;
    while ((made = STAILQ_FIRST(&m->commands)) != NULL) {
        STAILQ_REMOVE_HEAD(&m->commands, queue);
        if (made->peer != NULL)
            mesh_peer_free(made->peer);
        free(made);
    }
    while ((event = STAILQ_FIRST(&m->events)) != NULL) {
        STAILQ_REMOVE_HEAD(&m->events, queue);
        free(event);
    }
}
