/* SPDX-License-Identifier: BSD-2-Clause */
#include "mesh/mesh.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/frame.h"
#include "mesh/mesh_state.h"
#include "verbs/epoll_set.h"

const char *const ipu_mesh_counter_names[IPU_MESH_COUNTERS_N] = {
    IPU_MESH_COUNTERS(IPU_COUNTER_NAME)};

void ipu_mesh_counters(const struct ipu_mesh *m, uint64_t values[IPU_MESH_COUNTERS_N])
{
    ipu_counter_read(&m->counters, IPU_MESH_COUNTERS_N, values);
}

/* ---- waiting */

static int arm(void *self)
{
    struct ipu_mesh *m = self;
    if (m->closed)
        return 0;
    (void)ipu_completion_read(&m->completion, !m->completion.polled);
    if (ipu_completion_arm_receives(&m->completion))
        mesh_receive_poll(m);
    if (m->sending > 0 && ipu_completion_arm_sends(&m->completion))
        mesh_send_poll(m);
    return ipu_completion_has_received(&m->completion) || !STAILQ_EMPTY(&m->ended) ||
           m->lost_count > 0 || atomic_load(&m->has_commands);
}

static int descriptor(void *self)
{
    return ((struct ipu_mesh *)self)->epoll_fd;
}

static int memory(void *self, void *base, size_t len)
{
    struct ipu_mesh *m = self;
    return m->closed ? -ENOSPC : ipu_regions_add(&m->regions, m->pd, base, len);
}

/* The other thread's commands come first: what it says of peers counts for these polls. */
static int reap(void *self, uint64_t *cookies, int max)
{
    struct ipu_mesh *m = self;
    if (m->closed)
        return -EIO;
    mesh_commands_run(m);
    return mesh_sent(m, cookies, max);
}

static int receive(void *self, struct ipu_received *done, int max)
{
    struct ipu_mesh *m = self;
    mesh_commands_run(m);
    return mesh_received(m, done, max);
}

static const struct ipu_fabric_ops mesh_ops = {
    .memory = memory,
    .ah_create = mesh_handle_create,
    .ah_destroy = mesh_handle_destroy,
    .send = mesh_send,
    .post = mesh_post,
    .sent = reap,
    .received = receive,
    .arm = arm,
    .fd = descriptor,
};

/* ---- life */

static int allocate(struct ipu_mesh *m)
{
    m->slots = calloc(m->slot_count, sizeof *m->slots);
    m->stock = calloc(m->slot_count, sizeof *m->stock);
    m->controls = aligned_alloc(64, (size_t)MESH_CONTROLS * MESH_CONTROL_LEN);
    if (m->slots == NULL || m->stock == NULL || m->controls == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->slot_count; i++)
        m->slots[i].next = i + 1;
    for (uint16_t i = 0; i < MESH_CASTS; i++)
        m->free_casts[m->free_cast_count++] = i;
    for (uint16_t i = 0; i < MESH_CONTROLS; i++)
        m->free_controls[m->free_control_count++] = i;
    return ipu_regions_add(&m->regions, m->pd, m->controls,
                           (size_t)MESH_CONTROLS * MESH_CONTROL_LEN);
}

static int set_up(struct ipu_mesh *m, const struct ibv_qp *pattern)
{
    m->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    m->command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->epoll_fd < 0 || m->command_fd < 0 || m->event_fd < 0)
        return -errno;
    int error = ipu_completion_init(&m->completion, pattern, m->epoll_fd, &m->counters.events);
    if (error == 0)
        error = ipu_epoll_set_watch(m->epoll_fd, m->command_fd);
    return error < 0 ? error : allocate(m);
}

int ipu_mesh_create(const struct ipu_mesh_config *config, struct ipu_mesh **out)
{
    const struct ibv_qp *pattern = config->pattern;
    struct ipu_mesh *m = calloc(1, sizeof *m);
    if (m == NULL)
        return -ENOMEM;
    uint32_t receives = config->peers_max * (IPU_MESH_WINDOW + IPU_MESH_SLACK) + MESH_BATCH;
    m->fabric = (struct ipu_fabric){
        .ops = &mesh_ops,
        .self = m,
        .gid = config->gid,
        .qpn = config->qpn,
        .mtu = config->mtu,
        .min_recv = IPU_GRH_LEN + config->mtu,
        .pins_memory = true,
        .max_recv = receives,
    };
    m->pd = pattern->pd;
    m->send_room = (uint32_t)pattern->send_cq->cqe;
    m->slot_count = receives;
    m->broadcast = config->broadcast;
    m->epoll_fd = m->command_fd = m->event_fd = -1;
    LIST_INIT(&m->peers);
    STAILQ_INIT(&m->ended);
    STAILQ_INIT(&m->commands);
    STAILQ_INIT(&m->events);
    int error = -pthread_mutex_init(&m->mutex, NULL);
    if (error == 0)
        error = set_up(m, pattern);
    if (error < 0) {
        ipu_mesh_destroy(m);
        return error;
    }
    *out = m;
    return 0;
}

void ipu_mesh_free(struct ipu_mesh *m)
{
    m->closed = true;
    ipu_regions_close(&m->regions);
}

void ipu_mesh_destroy(struct ipu_mesh *m)
{
    struct ipu_mesh_peer *peer;
    ipu_mesh_free(m);
    while ((peer = LIST_FIRST(&m->peers)) != NULL) {
        LIST_REMOVE(peer, all);
        mesh_peer_free(peer);
    }
    mesh_commands_free(m);
    for (const int *fd = (int[]){m->epoll_fd, m->command_fd, m->event_fd, -2}; *fd != -2; fd++)
        if (*fd >= 0)
            close(*fd);
    pthread_mutex_destroy(&m->mutex);
    free(m->slots);
    free(m->stock);
    free(m->controls);
    free(m);
}

struct ipu_fabric *ipu_mesh_fabric(struct ipu_mesh *m)
{
    return &m->fabric;
}
