/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "unicast/unicast_state.h"

enum { PEERS_MAX = 1 << 16 };

/* ---- address handles: a group, or one of the inner fabric */

static void *create_ah(void *self, const struct ipu_dest *dest)
{
    const struct ipu_fabric *inner = ((struct ipu_unicast *)self)->inner;
    if (dest->gid.s6_addr[0] != 0xff)
        return inner->ops->ah_create(inner->self, dest);
    struct unicast_group *group = malloc(sizeof *group);
    if (group == NULL)
        return NULL;
    group->mgid = dest->gid;
    return (void *)((uintptr_t)group + 1);
}

static void destroy_ah(void *self, void *ah)
{
    const struct ipu_fabric *inner = ((struct ipu_unicast *)self)->inner;
    struct unicast_group *group = unicast_group_of(ah);
    if (group == NULL)
        inner->ops->ah_destroy(inner->self, ah);
    else
        free(group);
}

/* ---- waiting */

static int arm(void *self)
{
    struct ipu_unicast *u = self;
    const struct ipu_fabric *inner = u->inner;
    if (u->ended_count > 0)
        return 1;
    int waits = inner->ops->arm(inner->self);
    if (u->copies_under_way > 0 && inner->ops->arm_sends != NULL)
        waits |= inner->ops->arm_sends(inner->self); /* further copies follow them */
    return waits;
}

static int arm_sends(void *self)
{
    const struct ipu_fabric *inner = ((struct ipu_unicast *)self)->inner;
    return inner->ops->arm_sends(inner->self);
}

static int fd(void *self)
{
    const struct ipu_fabric *inner = ((struct ipu_unicast *)self)->inner;
    return inner->ops->fd(inner->self);
}

static int64_t deadline_ns(void *self)
{
    const struct ipu_fabric *inner = ((struct ipu_unicast *)self)->inner;
    return inner->ops->deadline_ns == NULL ? INT64_MAX : inner->ops->deadline_ns(inner->self);
}

static int memory(void *self, void *base, size_t len)
{
    const struct ipu_fabric *inner = ((struct ipu_unicast *)self)->inner;
    return inner->ops->memory(inner->self, base, len);
}

static int recover(void *self)
{
    const struct ipu_fabric *inner = ((struct ipu_unicast *)self)->inner;
    return inner->ops->recover(inner->self);
}

#define OPS(arm_sends_or_null, recover_or_null)                                                    \
    {                                                                                              \
        .memory = memory, .ah_create = create_ah, .ah_destroy = destroy_ah, .send = unicast_send,  \
        .post = unicast_post, .sent = unicast_sent, .received = unicast_received, .arm = arm,      \
        .arm_sends = (arm_sends_or_null), .fd = fd, .recover = (recover_or_null),                  \
        .deadline_ns = deadline_ns,                                                                \
    }

/* The first index says whether the inner fabric arms sends apart, the second whether it can break.
 */
static const struct ipu_fabric_ops ops[2][2] = {{OPS(NULL, NULL), OPS(NULL, recover)},
                                                {OPS(arm_sends, NULL), OPS(arm_sends, recover)}};

/* ---- life */

static uint32_t key_slots(uint32_t peers)
{
    uint32_t slots = 2;
    while (ipu_hash_table_is_crowded(peers, slots - 1))
        slots *= 2;
    return slots;
}

static void release(struct ipu_unicast *u)
{
    free(u->peers);
    free(u->keys);
    free(u->receives);
    free(u->free_receives);
    free(u->refused);
    pthread_mutex_destroy(&u->mutex);
    free(u);
}

/* Returns 0 or a negative errno; the caller then releases what set_up() has made. */
static int set_up(struct ipu_unicast *u)
{
    uint32_t receives = u->inner->max_recv > 0 ? u->inner->max_recv : UNICAST_RECEIVES;
    u->key_mask = key_slots(u->peers_max) - 1;
    u->peers = calloc(u->peers_max, sizeof *u->peers);
    u->keys = calloc(u->key_mask + 1, sizeof *u->keys);
    u->receives = calloc(receives, sizeof *u->receives);
    u->free_receives = calloc(receives, sizeof *u->free_receives);
    u->refused = calloc(receives, sizeof *u->refused);
    if (!u->peers || !u->keys || !u->receives || !u->free_receives || !u->refused)
        return -ENOMEM;
    for (; u->free_receive_count < receives; u->free_receive_count++)
        u->free_receives[u->free_receive_count] = u->free_receive_count;
    for (; u->free_cast_count < UNICAST_CASTS; u->free_cast_count++)
        u->free_casts[u->free_cast_count] = (uint16_t)u->free_cast_count;
    return ipu_hash_seed_init(&u->seed, NULL);
}

struct ipu_unicast *ipu_unicast_create(const struct ipu_fabric *inner,
                                       const struct ipu_unicast_config *config)
{
    if (config->peers_max == 0 || config->peers_max > PEERS_MAX) {
        errno = EINVAL;
        return NULL;
    }
    struct ipu_unicast *u = calloc(1, sizeof *u);
    if (u == NULL)
        return NULL;
    int error = -pthread_mutex_init(&u->mutex, NULL);
    if (error < 0) {
        free(u);
        errno = -error;
        return NULL;
    }
    u->inner = inner;
    u->broadcast = config->broadcast;
    u->peers_max = config->peers_max;
    u->hop_limit = config->hop_limit;
    u->fabric = *inner;
    u->fabric.ops = &ops[inner->ops->arm_sends != NULL][inner->ops->recover != NULL];
    u->fabric.self = u;
    if (inner->max_ah > 0) /* each peer needs one for itself */
        u->fabric.max_ah =
            inner->max_ah > config->peers_max ? inner->max_ah - config->peers_max : 1;
    error = set_up(u);
    if (error < 0) {
        release(u);
        errno = -error;
        return NULL;
    }
    return u;
}

void ipu_unicast_destroy(struct ipu_unicast *u)
{
    if (u == NULL)
        return;
    for (uint32_t i = 0; i < u->peers_end; i++) {
        ipu_group_list_free(&u->peers[i].groups);
        if (u->peers[i].ah != NULL)
            u->inner->ops->ah_destroy(u->inner->self, u->peers[i].ah);
    }
    release(u);
}

struct ipu_fabric *ipu_unicast_fabric(struct ipu_unicast *u)
{
    return &u->fabric;
}

/* ---- counters */

const char *const ipu_unicast_counter_names[] = {IPU_UNICAST_COUNTERS(IPU_COUNTER_NAME)};

void ipu_unicast_counters(const struct ipu_unicast *u, uint64_t values[IPU_UNICAST_COUNTERS_N])
{
    ipu_counter_read(&u->counters, IPU_UNICAST_COUNTERS_N, values);
}
