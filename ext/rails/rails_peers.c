/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The peers: hosts with several rails. An address belongs to the peer that was heard from it, so no
 * host can claim the address of another one.
 */
#include <string.h>

#include "rails/rails_state.h"

#define SILENT_NS 1000000000u /* without a hello for so long, a rail does not reach the peer */

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

struct rails_peer *rails_peer_add(struct ipu_rails *r)
{
    for (uint32_t i = 0; i < r->peers_max; i++) {
        if (r->peers[i].live)
            continue;
        r->peers[i] = (struct rails_peer){.live = true};
        r->peer_count++;
        return &r->peers[i];
    }
    return NULL;
}

/* Forgets that the address is the peer's. */
static void disown(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail)
{
    peer->heard_ns[rail] = 0;
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
    *peer = (struct rails_peer){.live = false};
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
        peer->heard_ns[rail] = 0;
        return;
    }
    disown(r, peer, rail);
    rails_drop_handle(r, rail, &peer->ah[rail]);
    peer->at[rail] = *address;
}

void rails_peer_heard(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail)
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

bool rails_peer_review(struct ipu_rails *r, struct rails_peer *peer, uint64_t now_ns)
{
    uint32_t heard = 0;
    for (uint32_t k = 0; k < r->count; k++)
        if (peer->heard_ns[k] != 0 && now_ns - peer->heard_ns[k] < SILENT_NS)
            heard |= 1u << k;
    bool is_other = heard != peer->heard;
    peer->heard = heard;
    peer->usable = heard & peer->hears & r->up;
    return is_other;
}
