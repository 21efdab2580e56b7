/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_UNICAST_STATE_H
#define IPU_UNICAST_STATE_H

#include <pthread.h>

#include "core/counter.h"
#include "core/hash_table.h"
#include "fabric/group_list.h"
#include "unicast/unicast.h"

/*
 * The inside of a unicast link, shared by its files: unicast.c (life, waiting, address handles),
 * unicast_peers.c, unicast_send.c and unicast_receive.c. The mutex guards the peers and their
 * table; the rest is the pump thread's, which alone calls the inner fabric.
 */
enum {
    UNICAST_BATCH = 64,
    UNICAST_COPIES = 64,     /* copies under way, so that other messages find room in the queue */
    UNICAST_CASTS = 256,     /* messages to groups that are not over */
    UNICAST_ENDED = 512,     /* cookies of messages that are over, sent or not */
    UNICAST_RECEIVES = 4096, /* posted receives, where the inner fabric has no limit */
};

struct unicast_peer {
    enum { UNICAST_FREE, UNICAST_PRESENT, UNICAST_LEAVING } state;
    uint64_t id;
    struct in6_addr gid;
    uint32_t qpn;
    void *ah; /* of the inner fabric; made with the first copy */
    struct ipu_group_list groups;
};

/* An entry of the table of present peers. */
struct unicast_key {
    struct in6_addr gid;
    uint32_t qpn;
    uint32_t number; /* the peer's index, plus one; 0: an empty slot */
};

/* A message to a group, from the first copy to the end of the last. */
struct unicast_cast {
    struct ipu_send send;
    struct in6_addr mgid;
    uint32_t next_peer;
    uint32_t under_way;
    bool is_posted; /* no further copies follow */
    bool has_members;
};

struct ipu_unicast {
    struct ipu_fabric fabric;
    const struct ipu_fabric *inner;
    struct in6_addr broadcast;
    uint8_t hop_limit;

    pthread_mutex_t mutex;
    struct unicast_peer *peers;
    uint32_t peers_max, peers_end; /* the peers at peers_end and above are free */
    bool has_leaving;
    struct unicast_key *keys;
    uint32_t key_mask;
    struct ipu_hash_seed seed;

    struct unicast_cast casts[UNICAST_CASTS];
    uint16_t free_casts[UNICAST_CASTS];
    uint32_t free_cast_count;
    uint16_t waiting[UNICAST_CASTS]; /* a ring of casts with copies to post */
    uint32_t waiting_first, waiting_end;
    uint32_t copies_under_way;
    uint64_t ended[UNICAST_ENDED];
    uint32_t ended_count;

    struct ipu_recv *receives; /* posted receives; a cookie of the inner fabric is an index */
    uint32_t *free_receives;
    uint32_t free_receive_count;
    uint32_t *refused; /* receives that the inner fabric did not take back yet */
    uint32_t refused_count;

    struct {
        IPU_UNICAST_COUNTERS(IPU_UNICAST_COUNTERS_FIELD)
    } counters;
};

#define UNICAST_ADD(u, name, n) ipu_counter_add(&(u)->counters.name, (n))
#define UNICAST_COUNT(u, name)  UNICAST_ADD(u, name, 1)

/* An address handle is the inner fabric's, or a group's, which has its lowest bit set. */
struct unicast_group {
    struct in6_addr mgid;
};

static inline struct unicast_group *unicast_group_of(void *ah)
{
    return (uintptr_t)ah & 1 ? (struct unicast_group *)((uintptr_t)ah - 1) : NULL;
}

/* unicast_peers.c; the caller holds the mutex. */
const struct unicast_peer *unicast_peer_find(const struct ipu_unicast *unicast,
                                             const struct in6_addr *gid, uint32_t qpn);
/* Destroys the address handles of peers that left; called by the pump's thread. */
void unicast_peers_settle(struct ipu_unicast *unicast);

/* unicast_send.c */
int unicast_send(void *self, const struct ipu_send *sends, int n);
int unicast_sent(void *self, uint64_t *cookies, int max);

/* unicast_receive.c */
int unicast_post(void *self, const struct ipu_recv *recvs, int n);
int unicast_received(void *self, struct ipu_received *done, int max);

#endif
