/* SPDX-License-Identifier: BSD-2-Clause */
#include "rails/rails.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "rails/rails_state.h"

enum { PEERS_MAX = 1 << 12, FRAMES = RAILS_HELLOS + RAILS_STRANGERS };

/* ---- address handles */

static void *create_ah(void *self, const struct ipu_dest *dest)
{
    struct ipu_rails *r = self;
    const struct ipu_fabric *inner = r->rails[r->active].inner;
    struct rails_ah *ah = malloc(sizeof *ah);
    if (ah == NULL)
        return NULL;
    *ah = (struct rails_ah){.dest = *dest, .generation = r->generation - 1};
    ah->own[r->active] = inner->ops->ah_create(inner->self, dest);
    if (ah->own[r->active] != NULL) {
        const struct rails_address address = {.gid = dest->gid, .qpn = dest->qpn};
        rails_peer_hold(r, &address, 1);
        return ah;
    }
    int error = errno;
    free(ah);
    errno = error;
    return NULL;
}

static void destroy_ah(void *self, void *handle)
{
    struct ipu_rails *r = self;
    struct rails_ah *ah = handle;
    const struct rails_address address = {.gid = ah->dest.gid, .qpn = ah->dest.qpn};
    rails_peer_hold(r, &address, -1);
    RAILS_FOR_EACH(r, k)
        rails_drop_handle(r, k, &ah->own[k]);
    free(ah);
}

/* ---- waiting */

static int arm(void *self)
{
    struct ipu_rails *r = self;
    int waits = r->ended_count > 0;
    r->armed = true;
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        if (r->asleep >> k & 1)
            continue;
        bool is_ready = inner->ops->arm(inner->self) > 0;
        waits |= is_ready;
        if (!is_ready && k != r->active && !rails_is_busy(&r->rails[k]))
            r->asleep |= 1u << k;
        if (r->rails[k].waiting_count > 0 && inner->ops->arm_sends != NULL)
            waits |= inner->ops->arm_sends(inner->self) > 0;
    }
    return waits;
}

static int arm_sends(void *self)
{
    struct ipu_rails *r = self;
    int waits = 0;
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        if (inner->ops->arm_sends != NULL)
            waits |= inner->ops->arm_sends(inner->self) > 0;
    }
    return waits;
}

static int fd(void *self)
{
    return ((struct ipu_rails *)self)->epoll_fd;
}

static int64_t deadline_ns(void *self)
{
    struct ipu_rails *r = self;
    int64_t first = r->peers_max > 0 ? (int64_t)r->next_ns : INT64_MAX;
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        int64_t at =
            inner->ops->deadline_ns != NULL ? inner->ops->deadline_ns(inner->self) : INT64_MAX;
        first = at < first ? at : first;
    }
    return first;
}

static int memory(void *self, void *base, size_t len)
{
    struct ipu_rails *r = self;
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        int error = 0;
        if (!r->has_memory && r->peers_max > 0)
            error = inner->ops->memory(inner->self, r->hellos, FRAMES * RAILS_HELLO_BYTES);
        if (error == 0)
            error = inner->ops->memory(inner->self, base, len);
        if (error < 0)
            return error;
    }
    r->has_memory = true;
    return 0;
}

static int recover(void *self)
{
    struct ipu_rails *r = self;
    int failed = 0;
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        if (!r->rails[k].broken)
            continue;
        int error = inner->ops->recover != NULL ? inner->ops->recover(inner->self) : -EIO;
        r->rails[k].broken = error < 0;
        failed = error < 0 ? error : failed;
    }
    return failed;
}

/* ---- changes of the rails */

enum { WANTED_ACTIVE = 8, WANTED_COUNT = 16 };

/* Makes the active rail's address that of the wrapper. */
static void take_address(struct ipu_rails *r)
{
    const struct ipu_fabric *inner = r->rails[r->active].inner;
    r->fabric.gid = inner->gid;
    r->fabric.qpn = inner->qpn;
}

/* Takes what ipu_rails_set() has changed. */
static void follow(struct ipu_rails *r)
{
    eventfd_t wakes;
    if (atomic_load_explicit(&r->wanted, memory_order_acquire) == r->seen)
        return;
    /* The writer wakes us under the lock, too: no wake comes after the change that we take. */
    pthread_mutex_lock(&r->mutex);
    (void)eventfd_read(r->wake_fd, &wakes);
    uint64_t wanted = r->wanted;
    pthread_mutex_unlock(&r->mutex);
    r->seen = wanted;
    r->up = wanted & 0xff;
    r->active = wanted >> WANTED_ACTIVE & 0xff;
    r->asleep = 0;
    take_address(r);
    if (r->peers_max > 0)
        rails_hello_changed(r);
}

void ipu_rails_set(struct ipu_rails *r, uint32_t up, uint32_t active)
{
    if (active >= r->count || r->rails[active].inner == NULL)
        return;
    uint32_t present = 0;
    RAILS_FOR_EACH(r, k)
        present |= 1u << k;
    pthread_mutex_lock(&r->mutex);
    uint64_t changes = (r->wanted >> WANTED_COUNT) + 1;
    atomic_store_explicit(&r->wanted,
                          changes << WANTED_COUNT | active << WANTED_ACTIVE | (up & present),
                          memory_order_release);
    (void)eventfd_write(r->wake_fd, 1);
    pthread_mutex_unlock(&r->mutex);
}

/* ---- called by the pump */

static int transmit(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_rails *r = self;
    follow(r); /* a command that the control face queued later finds the rails as they are */
    return rails_send(r, sends, n);
}

static int reap(void *self, uint64_t *cookies, int max)
{
    struct ipu_rails *r = self;
    int n = rails_sent(r, cookies, max);
    take_address(r);
    return n;
}

static int receive(void *self, struct ipu_received *done, int max)
{
    struct ipu_rails *r = self;
    follow(r);
    if (r->peers_max > 0)
        rails_hello_tick(r);
    return rails_received(r, done, max);
}

static const struct ipu_fabric_ops rails_ops = {
    .memory = memory,
    .ah_create = create_ah,
    .ah_destroy = destroy_ah,
    .send = transmit,
    .post = rails_post,
    .sent = reap,
    .received = receive,
    .arm = arm,
    .fd = fd,
    .recover = recover,
    .deadline_ns = deadline_ns,
};

/* ---- life */

static uint32_t key_slots(uint32_t entries)
{
    uint32_t slots = 2;
    while (ipu_hash_table_is_crowded(entries, slots - 1))
        slots *= 2;
    return slots;
}

static void release(struct ipu_rails *r)
{
    for (uint32_t k = 0; k < r->count; k++)
        free(r->rails[k].refused);
    if (r->epoll_fd >= 0)
        close(r->epoll_fd);
    if (r->wake_fd >= 0)
        close(r->wake_fd);
    free(r->peers);
    free(r->keys);
    free(r->held);
    free(r->hellos);
    free(r->receives);
    free(r->free_receives);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

static int watch(const struct ipu_rails *r, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    return epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* The limits of the wrapper are those that all of its fabrics keep. */
static void join_limits(struct ipu_rails *r)
{
    struct ipu_fabric *fabric = &r->fabric;
    bool is_bounded = true, has_connections = true;
    uint32_t receives = 0;
    *fabric = (struct ipu_fabric){.ops = &r->ops,
                                  .self = r,
                                  .mtu = UINT32_MAX,
                                  .max_ah = 0,
                                  .pins_memory = true,
                                  .spreads_flows = true};
    r->ops = rails_ops;
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        fabric->mtu = inner->mtu < fabric->mtu ? inner->mtu : fabric->mtu;
        if (inner->max_ah > 0 && (fabric->max_ah == 0 || inner->max_ah < fabric->max_ah))
            fabric->max_ah = inner->max_ah;
        if (inner->min_recv > fabric->min_recv)
            fabric->min_recv = inner->min_recv;
        is_bounded &= inner->max_recv > 0;
        receives += inner->max_recv;
        fabric->one_piece |= inner->one_piece;
        has_connections &= inner->connected != NULL;
        if (inner->ops->arm_sends != NULL)
            r->ops.arm_sends = arm_sends;
    }
    if (has_connections) {
        fabric->connected = &rails_connected_ops;
        fabric->connected_self = r;
    }
    fabric->max_recv = is_bounded && receives < RAILS_RECEIVES ? receives : RAILS_RECEIVES;
    uint32_t own = r->peers_max > 0 ? r->peers_max + RAILS_STRANGERS : 0; /* one for each host */
    if (fabric->max_ah > 0)
        fabric->max_ah = fabric->max_ah > own ? fabric->max_ah - own : 1;
    take_address(r);
}

/* Returns 0 or a negative errno; the caller then releases what set_up() has made. */
static int set_up(struct ipu_rails *r)
{
    uint32_t receives = r->fabric.max_recv, peers = r->peers_max > 0 ? r->peers_max : 1;
    r->key_mask = key_slots(peers * IPU_RAILS_MAX) - 1;
    r->peers = calloc(peers, sizeof *r->peers);
    r->keys = calloc(r->key_mask + 1, sizeof *r->keys);
    r->held = calloc(RAILS_HELD, sizeof *r->held);
    r->hellos = calloc(FRAMES, RAILS_HELLO_BYTES);
    r->receives = calloc(receives, sizeof *r->receives);
    r->free_receives = calloc(receives, sizeof *r->free_receives);
    if (!r->peers || !r->keys || !r->held || !r->hellos || !r->receives || !r->free_receives)
        return -ENOMEM;
    for (; r->free_receive_count < receives; r->free_receive_count++)
        r->free_receives[r->free_receive_count] = r->free_receive_count;
    for (; r->free_hello_count < RAILS_HELLOS; r->free_hello_count++)
        r->free_hellos[r->free_hello_count] = (uint16_t)r->free_hello_count;
    for (; r->free_greeted_count < RAILS_STRANGERS; r->free_greeted_count++)
        r->free_greeted[r->free_greeted_count] = (uint16_t)r->free_greeted_count;
    for (uint32_t i = 0; i < r->peers_max; i++)
        TAILQ_INSERT_TAIL(&r->unused, &r->peers[i], order);
    r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->epoll_fd < 0 || r->wake_fd < 0)
        return -errno;
    int error = watch(r, r->wake_fd, IPU_RAILS_MAX);
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        r->rails[k].refused = calloc(receives, sizeof *r->rails[k].refused);
        if (r->rails[k].refused == NULL)
            return -ENOMEM;
        if (error == 0)
            error = watch(r, inner->ops->fd(inner->self), k);
    }
    struct ipu_hash_seed secret;
    if (error == 0)
        error = ipu_hash_seed_init(&r->seed, NULL);
    if (error == 0)
        error = ipu_hash_seed_init(&secret, NULL);
    if (error == 0)
        r->secret = (struct ipu_sip_key){{secret.word[0], secret.word[1]}};
    return error;
}

struct ipu_rails *ipu_rails_create(const struct ipu_rails_config *config)
{
    if (config->count == 0 || config->count > IPU_RAILS_MAX || config->peers_max > PEERS_MAX ||
        config->active >= config->count || config->inner[config->active] == NULL) {
        errno = EINVAL;
        return NULL;
    }
    struct ipu_rails *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->epoll_fd = r->wake_fd = -1;
    int error = -pthread_mutex_init(&r->mutex, NULL);
    if (error < 0) {
        free(r);
        errno = -error;
        return NULL;
    }
    TAILQ_INIT(&r->unused);
    TAILQ_INIT(&r->strangers);
    TAILQ_INIT(&r->known);
    r->count = config->count;
    r->active = config->active;
    r->peers_max = config->peers_max;
    r->broadcast = config->broadcast;
    r->clock_ns = config->clock_ns != NULL ? config->clock_ns : ipu_clock_ns;
    for (uint32_t k = 0; k < r->count; k++)
        r->rails[k].inner = config->inner[k];
    RAILS_FOR_EACH(r, k)
        r->up |= config->up & 1u << k;
    join_limits(r);
    error = set_up(r);
    if (error < 0) {
        release(r);
        errno = -error;
        return NULL;
    }
    return r;
}

void ipu_rails_destroy(struct ipu_rails *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->peers_max; i++)
        if (r->peers[i].live)
            rails_peer_remove(r, &r->peers[i]);
    RAILS_FOR_EACH(r, k)
        rails_drop_handle(r, k, &r->rails[k].broadcast);
    for (uint32_t i = 0; i < RAILS_STRANGERS; i++)
        if (r->greeted[i].ah != NULL)
            rails_greeted(r, i);
    release(r);
}

struct ipu_fabric *ipu_rails_fabric(struct ipu_rails *r)
{
    return &r->fabric;
}

uint32_t ipu_rails_peers(struct ipu_rails *r, struct ipu_rails_peer *peers, uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&r->mutex);
    for (uint32_t i = 0; i < r->peers_max && n < max; i++) {
        const struct rails_peer *peer = &r->peers[i];
        if (!peer->live)
            continue;
        const struct rails_address *at = &peer->at[peer->active];
        peers[n++] = (struct ipu_rails_peer){
            .gid = at->gid, .qpn = at->qpn, .usable = peer->usable, .reached = peer->reached};
    }
    pthread_mutex_unlock(&r->mutex);
    return n;
}

/* ---- counters */

const char *const ipu_rails_counter_names[] = {IPU_RAILS_COUNTERS(IPU_COUNTER_NAME)};
const char *const ipu_rails_traffic_names[] = {IPU_RAILS_TRAFFIC(IPU_COUNTER_NAME)};

void ipu_rails_counters(const struct ipu_rails *r, uint64_t values[IPU_RAILS_COUNTERS_N])
{
    ipu_counter_read(&r->counters, IPU_RAILS_COUNTERS_N, values);
}

void ipu_rails_traffic(const struct ipu_rails *r, uint32_t rail,
                       uint64_t values[IPU_RAILS_TRAFFIC_N])
{
    ipu_counter_read(&r->rails[rail].traffic, IPU_RAILS_TRAFFIC_N, values);
}
