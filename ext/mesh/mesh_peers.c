/* SPDX-License-Identifier: BSD-2-Clause */
/* The mesh's peers: their table, and what the other thread hears of them. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "mesh/mesh_state.h"

struct ipu_mesh_peer *mesh_peer_by_number(struct ipu_mesh *m, uint32_t qp_num)
{
    struct ipu_mesh_peer *peer = m->bucket[qp_num % MESH_BUCKETS];
    while (peer != NULL && peer->qp_num != qp_num)
        peer = peer->chain;
    return peer;
}

struct ipu_mesh_peer *mesh_peer_by_id(struct ipu_mesh *m, uint64_t id)
{
    struct ipu_mesh_peer *peer;
    LIST_FOREACH(peer, &m->peers, all)
        if (peer->id == id)
            return peer;
    return NULL;
}

void mesh_peer_add(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    struct ipu_mesh_peer **bucket = &m->bucket[peer->qp_num % MESH_BUCKETS];
    peer->chain = *bucket;
    *bucket = peer;
    LIST_INSERT_HEAD(&m->peers, peer, all);
}

void mesh_peer_free(struct ipu_mesh_peer *peer)
{
    struct mesh_command *command;
    while ((command = STAILQ_FIRST(&peer->waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&peer->waiting, queue);
        free(command);
    }
    for (int type = 0; type <= IPU_MESH_GONE; type++)
        free(peer->turns[type]);
    ipu_rc_queue_free(&peer->queue);
    ipu_group_list_free(&peer->groups);
    free(peer);
}

static void unchain(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    struct ipu_mesh_peer **at = &m->bucket[peer->qp_num % MESH_BUCKETS];
    while (*at != peer)
        at = &(*at)->chain;
    *at = peer->chain;
    LIST_REMOVE(peer, all);
}

void mesh_settle(struct ipu_mesh *m)
{
    struct ipu_mesh_peer *peer, *next;
    for (peer = LIST_FIRST(&m->peers); peer != NULL; peer = next) {
        next = LIST_NEXT(peer, all);
        if (!peer->forgotten || peer->listed || peer->queue.posted != peer->queue.returned)
            continue;
        unchain(m, peer);
        m->version++;
        mesh_peer_free(peer);
    }
}

/* ---- events */

void mesh_peer_notify(struct ipu_mesh *m, struct ipu_mesh_peer *peer, enum ipu_mesh_event_type type,
                      const void *message, uint32_t len)
{
    struct mesh_event *event = peer->turns[type];
    bool is_full = false;
    peer->turns[type] = NULL;
    if (event == NULL)
        event = malloc(sizeof *event + len);
    if (event == NULL) { /* a message that is lost: break the connection, so it starts anew */
        mesh_peer_broke(m, peer);
        return;
    }
    event->id = peer->id;
    event->type = type;
    event->len = len;
    if (len > 0)
        memcpy(event->message, message, len);
    pthread_mutex_lock(&m->mutex);
    if (type == IPU_MESH_CONTROL && m->event_count >= MESH_EVENTS_MAX) {
        is_full = true; /* no room for this message: break the connection, so it starts anew */
    } else {
        STAILQ_INSERT_TAIL(&m->events, event, queue);
        m->event_count++;
        (void)eventfd_write(m->event_fd, 1);
    }
    pthread_mutex_unlock(&m->mutex);
    if (is_full) {
        free(event);
        mesh_peer_broke(m, peer);
    }
}

void mesh_peer_broke(struct ipu_mesh *m, struct ipu_mesh_peer *peer)
{
    if (peer->broken || peer->leaving)
        return;
    peer->broken = true;
    mesh_peer_notify(m, peer, IPU_MESH_BROKEN, NULL, 0);
}
