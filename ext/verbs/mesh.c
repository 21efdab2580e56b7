/* SPDX-License-Identifier: BSD-2-Clause */
#include "mesh.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"
#include "mesh_state.h"

#define NS_PER_S 1000000000
enum { SLOTS_BYTES = MESH_SLOTS * MESH_SLOT_BYTES + 64 };

const char *const ipu_mesh_counter_names[IPU_MESH_COUNTERS_N] = {
#define NAME(name) #name,
    IPU_MESH_COUNTERS(NAME)
#undef NAME
};

void ipu_mesh_counters(const struct ipu_mesh *m, uint64_t values[IPU_MESH_COUNTERS_N])
{
    int i = 0;
#define READ(name) values[i++] = atomic_load_explicit(&m->counters.name, memory_order_relaxed);
    IPU_MESH_COUNTERS(READ)
#undef READ
}

int64_t ipu_mesh_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* ---- memory and handles */

static int memory(void *self, void *base, size_t len)
{
    struct ipu_mesh *m = self;
    int error = -ENOSPC;
    pthread_mutex_lock(&m->mutex);
    if (!m->closed && m->region_count < MESH_REGIONS) {
        errno = 0;
        struct ibv_mr *mr = ibv_reg_mr(m->pd, base, len, IBV_ACCESS_LOCAL_WRITE);
        error = mr != NULL ? 0 : errno != 0 ? -errno : -EIO;
        if (mr != NULL)
            m->regions[m->region_count++] = mr;
    }
    pthread_mutex_unlock(&m->mutex);
    return error;
}

uint32_t ipu_mesh_lkey(const struct ipu_mesh *m, const void *addr)
{
    for (int i = 0; i < m->region_count; i++) {
        const struct ibv_mr *mr = m->regions[i];
        if ((uintptr_t)addr - (uintptr_t)mr->addr < mr->length)
            return mr->lkey;
    }
    return 0; /* the device refuses it */
}

/* A handle is the GID: who has it is looked up with every send. The queue pair's number is not
 * looked at, so a station that was restarted is reached before its neighbours have heard of it. */
static void *create_handle(void *self, const struct ipu_dest *dest)
{
    (void)self;
    struct in6_addr *gid = malloc(sizeof *gid);
    if (gid != NULL)
        *gid = dest->gid;
    return gid;
}

static void destroy_handle(void *self, void *ah)
{
    (void)self;
    free(ah);
}

/* ---- waiting */

void ipu_mesh_wake(struct ipu_mesh *m)
{
    eventfd_write(m->wake_fd, 1);
}

static void read_events(struct ipu_mesh *m)
{
    struct ibv_cq *cq;
    void *context;
    eventfd_t ignored;
    (void)eventfd_read(m->wake_fd, &ignored);
    while ((m->armed[0] || m->armed[1]) && ibv_get_cq_event(m->channel, &cq, &context) == 0) {
        ibv_ack_cq_events(cq, 1);
        m->armed[cq == m->recv_cq] = false;
    }
}

/* What came before the queue was armed makes no event: then there is another look. */
static int arm(void *self)
{
    struct ipu_mesh *m = self;
    struct ibv_cq *queues[2] = {m->send_cq, m->recv_cq};
    bool again = false;
    pthread_mutex_lock(&m->mutex);
    if (!m->closed) {
        read_events(m);
        for (int i = 0; i < 2; i++) {
            if (!m->armed[i] && ibv_req_notify_cq(queues[i], 0) == 0)
                m->armed[i] = again = true;
        }
    }
    again |= m->ended_count > 0;
    pthread_mutex_unlock(&m->mutex);
    return again;
}

static int descriptor(void *self)
{
    return ((struct ipu_mesh *)self)->epoll_fd;
}

static const struct ipu_fabric_ops mesh_ops = {
    .memory = memory,
    .ah_create = create_handle,
    .ah_destroy = destroy_handle,
    .send = ipu_mesh_send,
    .post = ipu_mesh_post,
    .sent = ipu_mesh_sent,
    .received = ipu_mesh_received,
    .arm = arm,
    .fd = descriptor,
};

/* ---- groups */

static void tell_members(struct ipu_mesh *m)
{
    for (int i = 0; i < IPU_MESH_PEERS_MAX; i++) {
        m->peers[i].members_due = true;
        ipu_mesh_flush(m, &m->peers[i]);
    }
}

int ipu_mesh_attach(struct ipu_mesh *m, const struct in6_addr *mgid)
{
    pthread_mutex_lock(&m->mutex);
    if (m->group_count < MESH_MEMBERS)
        m->groups[m->group_count++] = *mgid;
    else
        m->groups_untold++;
    tell_members(m);
    pthread_mutex_unlock(&m->mutex);
    return 0;
}

void ipu_mesh_detach(struct ipu_mesh *m, const struct in6_addr *mgid)
{
    pthread_mutex_lock(&m->mutex);
    uint32_t i = 0;
    while (i < m->group_count && memcmp(&m->groups[i], mgid, sizeof *mgid) != 0)
        i++;
    if (i < m->group_count)
        m->groups[i] = m->groups[--m->group_count];
    else if (m->groups_untold > 0)
        m->groups_untold--;
    tell_members(m);
    pthread_mutex_unlock(&m->mutex);
}

/* ---- life */

static int watch(const struct ipu_mesh *m, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(m->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int set_up(struct ipu_mesh *m)
{
    m->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->mail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->epoll_fd < 0 || m->wake_fd < 0 || m->mail_fd < 0)
        return -errno;
    int flags = fcntl(m->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(m->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    int error = watch(m, m->channel->fd);
    if (error == 0)
        error = watch(m, m->wake_fd);
    if (error < 0)
        return error;
    m->slots = calloc(1, SLOTS_BYTES);
    if (m->slots == NULL)
        return -ENOMEM;
    errno = 0;
    m->slots_mr = ibv_reg_mr(m->pd, m->slots, SLOTS_BYTES, IBV_ACCESS_LOCAL_WRITE);
    return m->slots_mr != NULL ? 0 : errno != 0 ? -errno : -EIO;
}

int ipu_mesh_create(const struct ipu_mesh_config *config, struct ipu_mesh **out)
{
    const struct ibv_qp *pattern = config->pattern;
    if (config->window == 0 || config->window > IPU_MESH_WINDOW_MAX || config->mtu > 65535 ||
        pattern->send_cq->channel == NULL || pattern->send_cq->channel != pattern->recv_cq->channel)
        return -EINVAL;
    struct ipu_mesh *m = calloc(1, sizeof *m);
    if (m == NULL)
        return -ENOMEM;
    m->fabric = (struct ipu_fabric){
        .ops = &mesh_ops,
        .self = m,
        .gid = config->gid,
        .qpn = config->qpn,
        .mtu = config->mtu,
        .min_recv = IPU_GRH_LEN + (config->mtu > MESH_SLOT_BYTES ? config->mtu : MESH_SLOT_BYTES),
        .max_recv = IPU_MESH_PEERS_MAX * (config->window + IPU_MESH_RESERVE),
    };
    m->pd = pattern->pd;
    m->send_cq = pattern->send_cq;
    m->recv_cq = pattern->recv_cq;
    m->channel = pattern->send_cq->channel;
    m->window = config->window;
    m->epoll_fd = m->wake_fd = m->mail_fd = -1;
    for (uint16_t i = 0; i < MESH_FRAMES; i++)
        m->free_frames[m->free_frame_count++] = i;
    for (uint16_t i = 0; i < MESH_SLOTS; i++)
        m->free_slots[m->free_slot_count++] = i;
    pthread_mutex_init(&m->mutex, NULL);
    int error = set_up(m);
    if (error < 0) {
        ipu_mesh_destroy(m);
        return error;
    }
    *out = m;
    return 0;
}

void ipu_mesh_free(struct ipu_mesh *m)
{
    pthread_mutex_lock(&m->mutex);
    if (!m->closed) {
        m->closed = true;
        for (int i = 0; i < m->region_count; i++)
            ibv_dereg_mr(m->regions[i]);
        m->region_count = 0;
        if (m->slots_mr != NULL)
            ibv_dereg_mr(m->slots_mr);
        m->slots_mr = NULL;
    }
    pthread_mutex_unlock(&m->mutex);
}

void ipu_mesh_destroy(struct ipu_mesh *m)
{
    ipu_mesh_free(m);
    for (int i = 0; i < 3; i++) {
        int fd = (int[]){m->epoll_fd, m->wake_fd, m->mail_fd}[i];
        if (fd >= 0)
            close(fd);
    }
    pthread_mutex_destroy(&m->mutex);
    free(m->slots);
    free(m);
}

struct ipu_fabric *ipu_mesh_fabric(struct ipu_mesh *m)
{
    return &m->fabric;
}

int ipu_mesh_fd(const struct ipu_mesh *m)
{
    return m->mail_fd;
}
