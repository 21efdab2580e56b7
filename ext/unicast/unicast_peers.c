/* SPDX-License-Identifier: BSD-2-Clause */
/* The peers of a unicast link: their addresses and their groups. */
#include <errno.h>
#include <string.h>

#include "unicast/unicast_state.h"

static bool key_is_live(const void *slot)
{
    return ((const struct unicast_key *)slot)->number != 0;
}

static uint32_t hash_of(const struct in6_addr *gid, uint32_t qpn, const struct ipu_hash_seed *seed)
{
    return (uint32_t)ipu_hash_fold(ipu_hash_16(seed, gid) ^ qpn, seed->word[3]);
}

static uint32_t key_hash(const void *slot, const struct ipu_hash_seed *seed)
{
    const struct unicast_key *key = slot;
    return hash_of(&key->gid, key->qpn, seed);
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct unicast_key), .is_live = key_is_live, .hash = key_hash};

/* Returns the slot of this address, or the empty slot where it would be. */
static struct unicast_key *key_at(const struct ipu_unicast *u, const struct in6_addr *gid,
                                  uint32_t qpn)
{
    IPU_HASH_TABLE_PROBE(i, hash_of(gid, qpn, &u->seed), u->key_mask) {
        struct unicast_key *key = &u->keys[i];
        if (key->number == 0 || (key->qpn == qpn && memcmp(&key->gid, gid, sizeof *gid) == 0))
            return key;
    }
}

const struct unicast_peer *unicast_peer_find(const struct ipu_unicast *u,
                                             const struct in6_addr *gid, uint32_t qpn)
{
    const struct unicast_key *key = key_at(u, gid, qpn);
    return key->number == 0 ? NULL : &u->peers[key->number - 1];
}

static struct unicast_peer *peer_by_id(struct ipu_unicast *u, uint64_t id)
{
    for (uint32_t i = 0; i < u->peers_end; i++)
        if (u->peers[i].state == UNICAST_PRESENT && u->peers[i].id == id)
            return &u->peers[i];
    return NULL;
}

static struct unicast_peer *free_peer(struct ipu_unicast *u)
{
    for (uint32_t i = 0; i < u->peers_end; i++)
        if (u->peers[i].state == UNICAST_FREE)
            return &u->peers[i];
    return u->peers_end < u->peers_max ? &u->peers[u->peers_end++] : NULL;
}

static int add(struct ipu_unicast *u, uint64_t id, const struct in6_addr *gid, uint32_t qpn)
{
    struct unicast_key *key = key_at(u, gid, qpn);
    if (key->number != 0 || peer_by_id(u, id) != NULL)
        return -EEXIST;
    struct unicast_peer *peer = free_peer(u);
    if (peer == NULL)
        return -ENOSPC;
    *peer = (struct unicast_peer){.state = UNICAST_PRESENT, .id = id, .gid = *gid, .qpn = qpn};
    *key = (struct unicast_key){.gid = *gid, .qpn = qpn, .number = (uint32_t)(peer - u->peers) + 1};
    return 0;
}

int ipu_unicast_add(struct ipu_unicast *u, uint64_t id, const struct in6_addr *gid, uint32_t qpn)
{
    pthread_mutex_lock(&u->mutex);
    int error = add(u, id, gid, qpn);
    pthread_mutex_unlock(&u->mutex);
    return error;
}

void ipu_unicast_remove(struct ipu_unicast *u, uint64_t id)
{
    pthread_mutex_lock(&u->mutex);
    struct unicast_peer *peer = peer_by_id(u, id);
    if (peer != NULL) {
        struct unicast_key *key = key_at(u, &peer->gid, peer->qpn);
        ipu_hash_table_delete(&layout, &u->seed, u->keys, u->key_mask, (uint32_t)(key - u->keys));
        ipu_group_list_free(&peer->groups);
        peer->state = peer->ah == NULL ? UNICAST_FREE : UNICAST_LEAVING;
        u->has_leaving |= peer->ah != NULL;
    }
    pthread_mutex_unlock(&u->mutex);
}

void ipu_unicast_groups(struct ipu_unicast *u, uint64_t id, const struct in6_addr *mgids, int n)
{
    pthread_mutex_lock(&u->mutex);
    struct unicast_peer *peer = peer_by_id(u, id);
    if (peer != NULL) {
        ipu_group_list_restart(&peer->groups);
        for (int i = 0; i < n; i++)
            ipu_group_list_add(&peer->groups, &mgids[i]);
    }
    pthread_mutex_unlock(&u->mutex);
}

void ipu_unicast_group(struct ipu_unicast *u, uint64_t id, const struct in6_addr *mgid, bool is_in)
{
    pthread_mutex_lock(&u->mutex);
    struct unicast_peer *peer = peer_by_id(u, id);
    if (peer != NULL && is_in)
        ipu_group_list_add(&peer->groups, mgid);
    else if (peer != NULL)
        ipu_group_list_delete(&peer->groups, mgid);
    pthread_mutex_unlock(&u->mutex);
}

bool ipu_unicast_is_peer(struct ipu_unicast *u, const struct in6_addr *gid, uint32_t qpn)
{
    pthread_mutex_lock(&u->mutex);
    bool is_peer = unicast_peer_find(u, gid, qpn) != NULL;
    pthread_mutex_unlock(&u->mutex);
    return is_peer;
}

void unicast_peers_settle(struct ipu_unicast *u)
{
    if (!u->has_leaving)
        return;
    u->has_leaving = false;
    for (uint32_t i = 0; i < u->peers_end; i++) {
        if (u->peers[i].state != UNICAST_LEAVING)
            continue;
        u->inner->ops->ah_destroy(u->inner->self, u->peers[i].ah);
        u->peers[i] = (struct unicast_peer){.state = UNICAST_FREE};
    }
}
