/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RAILS_STATE_H
#define IPU_RAILS_STATE_H

#include <pthread.h>
#include <sys/queue.h>

#include "core/counter.h"
#include "core/hash_table.h"
#include "core/siphash.h"
#include "rails/rails.h"

/*
 * The inside of the rails, shared by its files, each of which calls only those before it:
 * rails_queue.c, rails_peers.c (their table), rails_send.c, rails_hello.c (what peers say),
 * rails_receive.c, rails_connected.c and rails.c (life, waiting, address handles). All of it is the
 * pump thread's. The mutex guards the peers against ipu_rails_peers().
 */
enum {
    RAILS_BATCH = 64,
    RAILS_WAITING = 128,     /* sends of one rail which its fabric has not taken yet */
    RAILS_ENDED = 2048,      /* cookies of sends that ended here */
    RAILS_RECEIVES = 4096,   /* posted receives, where the inner fabrics have no limit */
    RAILS_HELLOS = 64,       /* hellos under way to all and to peers, */
    RAILS_STRANGERS = 16,    /* and beside them to hosts that have not answered one */
    RAILS_HELLO_BYTES = 256, /* room for one */
    RAILS_HELD = 4096,       /* counts of the pump's handles, by the hash of their address */
    RAILS_DRY = 16,          /* a backup sleeps after so many empty polls */
    RAILS_WOKEN = 2,         /* wake-ups without work, after which we look at those that sleep, */
    RAILS_ROUNDS = 16,       /* polls of the others until we look at those that sleep */
};

struct rails_address {
    struct in6_addr gid;
    uint32_t qpn; /* 0: no such rail, or it is down */
};

/* What a hello brings along, and its answer returns: when it left, and the code of that time and of
 * the address to which it went. So only a host that receives there can answer. */
struct rails_token {
    uint64_t sent_ns; /* of the sender's clock; 0: no token */
    uint64_t code;
};

struct rails_peer {
    TAILQ_ENTRY(rails_peer) order; /* of r->unused if it is not live, else by its last use */
    bool live;
    bool was_used;    /* by the pump, since the last review */
    bool is_known;    /* in r->known: the pump has sent to it */
    uint64_t used_ns; /* the last review that found it so */
    uint32_t active;
    struct rails_address at[IPU_RAILS_MAX];
    void *ah[IPU_RAILS_MAX]; /* of our rail to the peer's rail; made with the first send */
    struct rails_token
        token[IPU_RAILS_MAX]; /* the last one of that rail at ours: our hello returns it */
    uint64_t answered_ns[IPU_RAILS_MAX]; /* when the hello left that it answered last; 0: none */
    uint32_t down;                       /* rails that carry no traffic, says the peer */
    uint32_t indexed; /* rails from whose address it has answered: we know it as the peer's */
    uint32_t reached; /* rails on which it has ever answered */
    uint32_t usable;
    uint64_t next_ns; /* of our next hello to it */
    uint64_t last_ns; /* of its last answer */
};

TAILQ_HEAD(rails_peers, rails_peer);

/* A hello under way to a host that is no peer. */
struct rails_stranger {
    uint32_t rail;
    void *ah;
};

/* An entry of the table of heard addresses. */
struct rails_key {
    struct rails_address address;
    uint16_t number; /* the peer's index, plus one; 0: an empty slot */
    uint16_t rail;
};

struct rails_rail {
    const struct ipu_fabric *inner; /* NULL: the device is absent */
    struct ipu_send waiting[RAILS_WAITING];
    uint32_t waiting_count;
    uint32_t *refused; /* receives that the inner fabric did not take yet */
    uint32_t refused_count;
    uint32_t posted; /* receives of ours, the refused ones included */
    void *broadcast; /* address handle; made with the first hello */
    bool broken;
    uint32_t under_way;        /* sends that the inner fabric has taken and not reported as ended */
    uint32_t connections;      /* in use by the pump */
    uint32_t connected_posted; /* receives of connections */
    uint32_t dry;              /* polls in a row that brought nothing */
    struct {
        IPU_RAILS_TRAFFIC(IPU_RAILS_FIELD)
    } traffic;
};

struct rails_receive {
    struct ipu_recv recv;
    uint32_t rail;
};

struct ipu_rails {
    struct ipu_fabric fabric;
    struct ipu_fabric_ops ops;
    struct rails_rail rails[IPU_RAILS_MAX];
    uint32_t count, active, up;
    uint32_t first; /* the rail that the next poll begins with */

    /* Rails that are armed, with nothing under way: we do not poll them before their descriptors
     * are readable, because a poll may cost a system call. Never the active one. */
    uint32_t asleep;
    bool armed;     /* the pump may have slept since the last poll */
    uint32_t woken; /* how often since, without anything from a rail that does not sleep */
    uint32_t rounds;
    struct ipu_dest broadcast;
    uint64_t (*clock_ns)(void);

    _Atomic uint64_t wanted; /* of ipu_rails_set(): how many, active, up */
    uint64_t seen;
    int epoll_fd, wake_fd;

    pthread_mutex_t mutex;
    struct rails_peer *peers;
    uint32_t peers_max, peer_count;
    struct rails_peers unused;    /* entries that are free */
    struct rails_peers strangers; /* peers to which the pump has not sent, oldest first, */
    struct rails_peers known;     /* and the others, those first that were used least lately */
    uint16_t *held;               /* the pump's handles: RAILS_HELD counts */
    struct rails_key *keys;
    uint32_t key_mask;
    struct ipu_hash_seed seed;
    uint32_t generation; /* changes with the table of addresses */
    uint64_t next_ns;    /* when the next hello may be due */
    uint64_t broadcast_ns;
    uint32_t broadcasts; /* since our rails changed, as far as they count */

    struct ipu_sip_key secret; /* of the codes in our hellos */
    uint8_t *hellos;           /* the frames, those to strangers last */
    uint16_t free_hellos[RAILS_HELLOS];
    uint32_t free_hello_count;
    struct rails_stranger greeted[RAILS_STRANGERS];
    uint16_t free_greeted[RAILS_STRANGERS];
    uint32_t free_greeted_count;
    bool has_memory;

    uint64_t ended[RAILS_ENDED];
    uint32_t ended_count;

    struct rails_receive *receives; /* a cookie of an inner fabric is an index */
    uint32_t *free_receives;
    uint32_t free_receive_count;

    struct {
        IPU_RAILS_COUNTERS(IPU_RAILS_FIELD)
    } counters;
};

#define RAILS_ADD(r, name, n) ipu_counter_add(&(r)->counters.name, (n))
#define RAILS_COUNT(r, name)  RAILS_ADD(r, name, 1)

/* An address handle of the pump: the destination, and the handles of the inner fabrics to it. */
struct rails_ah {
    struct ipu_dest dest;
    void *own[IPU_RAILS_MAX]; /* made with the first send by that rail */
    struct rails_peer *peer;  /* whose address it is, as of `generation`; or NULL */
    uint32_t generation;
};

#define RAILS_FOR_EACH(r, k)                                                                       \
    for (uint32_t k = 0; k < (r)->count; k++)                                                      \
        if ((r)->rails[k].inner != NULL)

/* Marks the cookie of a hello; the rest is the number of its frame. The pump's cookies have their
 * upper bits clear. */
#define RAILS_HELLO (1ull << 63)

#define RAILS_SILENT_NS 1250000000u  /* without an answer for so long, a rail reaches nobody */
#define RAILS_GONE_NS   10000000000u /* after so long a host is no peer any more, or unused */

/* rails_queue.c */
/* Puts a send into the rail's queue, if there is room. */
bool rails_queue(struct ipu_rails *r, uint32_t rail, const struct ipu_send *send);
void rails_flush(struct ipu_rails *r);
/* Ends a send: the pump gets its cookie, or the frame of a hello is free again. */
void rails_end(struct ipu_rails *r, uint64_t cookie);
int rails_sent(struct ipu_rails *r, uint64_t *cookies, int max);
/* Destroys a handle of an inner fabric, and ends the sends that name it and wait. */
void rails_drop_handle(struct ipu_rails *r, uint32_t rail, void **handle);
/* Marks a rail as broken, and ends its sends that wait. */
void rails_break(struct ipu_rails *r, uint32_t rail);
/* A hello to a host that is no peer has left, or never will. */
void rails_greeted(struct ipu_rails *r, uint32_t number);

/* rails_send.c */
int rails_send(struct ipu_rails *r, const struct ipu_send *sends, int n);
/* Returns the handle from our rail to the peer's, or NULL. */
void *rails_handle_of_peer(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail);

/* rails_connected.c */
extern const struct ipu_connected_ops rails_connected_ops;

/* Returns whether the pump waits for something of the rail: then it does not sleep. */
static inline bool rails_is_busy(const struct rails_rail *at)
{
    return at->under_way > 0 || at->connections > 0;
}

/* rails_receive.c */
int rails_post(void *self, const struct ipu_recv *recvs, int n);
int rails_received(struct ipu_rails *r, struct ipu_received *done, int max);

/* rails_hello.c: the messages, and their times. The caller holds no mutex.
 */
void rails_hello_tick(struct ipu_rails *r);
/* Tells every peer, and all other hosts, about a change of our rails. */
void rails_hello_changed(struct ipu_rails *r);
/* Takes a hello that arrived at a rail; buf begins with the GRH, if there is one. */
void rails_hello_untrusted(struct ipu_rails *r, uint32_t rail, const struct ipu_received *done,
                           const uint8_t *buf);

/* rails_peers.c; the caller of those that change a peer holds the mutex. */
/* Returns the rail of ours that has this address, or -1. */
int rails_own(const struct ipu_rails *r, const struct rails_address *source);
bool rails_is_address(const struct rails_address *a, const struct rails_address *b);
struct rails_peer *rails_peer_find(const struct ipu_rails *r, const struct rails_address *address);
/* Returns an entry for a peer with this address; NULL if there is none. Where the pump holds a
 * handle to the address, a peer to which it has not sent, or not for long, makes room. */
struct rails_peer *rails_peer_add(struct ipu_rails *r, const struct rails_address *address,
                                  uint64_t now_ns);
/* Notes that the pump has made (1) or destroyed (-1) a handle to this address. */
void rails_peer_hold(struct ipu_rails *r, const struct rails_address *address, int change);
void rails_peer_remove(struct ipu_rails *r, struct rails_peer *peer);
/* Sets one address of a peer; another one than before has not answered yet. */
void rails_peer_set(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail,
                    const struct rails_address *address);
/* Notes that the address is the peer's: it has answered there. */
void rails_peer_index(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail);
/* Decides by which rails flows go, and notes whether the pump has sent to the peer. */
void rails_peer_review(struct ipu_rails *r, struct rails_peer *peer, uint64_t now_ns);

#endif
