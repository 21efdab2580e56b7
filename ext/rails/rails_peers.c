/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The peers: hosts with several rails. An address belongs to the peer that has answered from it, so
 * no host can claim the address of another one. When all entries are in use, a host that the pump
 * knows gets in: a peer to which the pump does not send makes room, the oldest first. Strangers get
 * no entry then.
 */
#include <string.h>

#include "rails/rails_state.h"

static bool key_is_live(const void *slot)
{
    return ((const struct rails_key *)slot)->number != 0;
}

static uint32_t hash_of(const struct rails_address *address, const struct ipu_hash_seed *seed)
{
    return (uint32_t)ipu_hash_fold(ipu_hash_16(seed, &address->gid) ^ address->qpn, seed->word[3]);
}

static uint32_t key_hash(const void *slot, const struct ipu_hash_seed *seed)
{
    return hash_of(&((const struct rails_key *)slot)->address, seed);
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct rails_key), .is_live = key_is_live, .hash = key_hash};

bool rails_is_address(const struct rails_address *a, const struct rails_address *b)
{
    return a->qpn == b->qpn && memcmp(&a->gid, &b->gid, sizeof a->gid) == 0;
}

int rails_own(const struct ipu_rails *r, const struct rails_address *source)
{
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        if (inner->qpn == source->qpn && memcmp(&inner->gid, &source->gid, sizeof source->gid) == 0)
            return (int)k;
    }
    return -1;
}

/* Returns the slot of this address, or the empty slot where it would be. */
static struct rails_key *key_at(const struct ipu_rails *r, const struct rails_address *address)
{
    IPU_HASH_TABLE_PROBE(i, hash_of(address, &r->seed), r->key_mask) {
        struct rails_key *key = &r->keys[i];
        if (key->number == 0 || rails_is_address(&key->address, address))
            return key;
    }
}

struct rails_peer *rails_peer_find(const struct ipu_rails *r, const struct rails_address *address)
{
    if (r->peer_count == 0)
        return NULL;
    const struct rails_key *key = key_at(r, address);
    return key->number == 0 ? NULL : &r->peers[key->number - 1];
}

/* Returns a peer that makes room, or NULL. One that was used since its review stays for now. */
static struct rails_peer *find_evicted(struct ipu_rails *r, uint64_t now_ns)
{
    struct rails_peer *found = TAILQ_FIRST(&r->strangers);
    if (found == NULL)
        found = TAILQ_FIRST(&r->known);
    if (found == NULL || found->was_used ||
        (found->is_known && now_ns - found->used_ns < RAILS_GONE_NS))
        return NULL;
    return found;
}

static uint16_t *held_at(const struct ipu_rails *r, const struct rails_address *address)
{
    return &r->held[hash_of(address, &r->seed) % RAILS_HELD];
}

void rails_peer_hold(struct ipu_rails *r, const struct rails_address *address, int change)
{
    uint16_t *count = held_at(r, address);
    *count = (uint16_t)(*count + change);
}

struct rails_peer *rails_peer_add(struct ipu_rails *r, const struct rails_address *address,
                                  uint64_t now_ns)
{
    if (TAILQ_EMPTY(&r->unused)) {
        struct rails_peer *evicted = *held_at(r, address) > 0 ? find_evicted(r, now_ns) : NULL;
        if (evicted == NULL)
            return NULL;
        RAILS_COUNT(r, peers_evicted);
        rails_peer_remove(r, evicted);
    }
    struct rails_peer *peer = TAILQ_FIRST(&r->unused);
    TAILQ_REMOVE(&r->unused, peer, order);
    *peer = (struct rails_peer){.live = true};
    TAILQ_INSERT_TAIL(&r->strangers, peer, order);
    r->peer_count++;
    return peer;
}

/* Forgets that the address is the peer's. */
static void disown(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail)
{
    peer->answered_ns[rail] = 0;
    peer->token[rail] = (struct rails_token){.sent_ns = 0};
    if (!(peer->indexed >> rail & 1))
        return;
    struct rails_key *key = key_at(r, &peer->at[rail]);
    ipu_hash_table_delete(&layout, &r->seed, r->keys, r->key_mask, (uint32_t)(key - r->keys));
    peer->indexed &= ~(1u << rail);
    r->generation++;
}

void rails_peer_remove(struct ipu_rails *r, struct rails_peer *peer)
{
    for (uint32_t k = 0; k < IPU_RAILS_MAX; k++) {
        disown(r, peer, k);
        rails_drop_handle(r, k, &peer->ah[k]);
    }
    TAILQ_REMOVE(peer->is_known ? &r->known : &r->strangers, peer, order);
    *peer = (struct rails_peer){.live = false};
    TAILQ_INSERT_TAIL(&r->unused, peer, order);
    r->peer_count--;
}

void rails_peer_set(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail,
                    const struct rails_address *address)
{
    peer->down &= ~(1u << rail);
    if (rails_is_address(&peer->at[rail], address))
        return;
    if (address->qpn == 0) { /* its address leads to the peer still, by other rails */
        peer->down |= 1u << rail;
        peer->answered_ns[rail] = 0;
        return;
    }
    disown(r, peer, rail);
    rails_drop_handle(r, rail, &peer->ah[rail]);
    peer->at[rail] = *address;
}

void rails_peer_index(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail)
{
    const struct rails_address *address = &peer->at[rail];
    if (peer->indexed >> rail & 1)
        return;
    struct rails_key *key = key_at(r, address);
    if (key->number != 0) { /* a host has begun anew, with the same address */
        struct rails_peer *former = &r->peers[key->number - 1];
        uint32_t at = key->rail;
        disown(r, former, at);
        rails_drop_handle(r, at, &former->ah[at]);
        former->at[at] = (struct rails_address){.qpn = 0};
        key = key_at(r, address);
    }
    *key = (struct rails_key){
        .address = *address, .number = (uint16_t)(peer - r->peers + 1), .rail = (uint16_t)rail};
    peer->indexed |= 1u << rail;
    r->generation++;
}

void rails_peer_review(struct ipu_rails *r, struct rails_peer *peer, uint64_t now_ns)
{
    uint32_t answers = 0;
    for (uint32_t k = 0; k < r->count; k++)
        if (peer->answered_ns[k] != 0 && now_ns - peer->answered_ns[k] < RAILS_SILENT_NS)
            answers |= 1u << k;
    peer->usable = answers & r->up & ~peer->down;
    if (!peer->was_used)
        return;
    TAILQ_REMOVE(peer->is_known ? &r->known : &r->strangers, peer, order);
    TAILQ_INSERT_TAIL(&r->known, peer, order);
    peer->is_known = true;
    peer->was_used = false;
    peer->used_ns = now_ns;
}
