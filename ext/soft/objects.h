/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_OBJECTS_H
#define SOFT_OBJECTS_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "count.h"
#include "hca.h"
#include "membership.h"
#include "netdev.h"
#include "roce.h"
#include "udp.h"

/*
 * The objects behind the handles of hca.h; only the files of this directory and its tests use them.
 *
 * hca->mutex guards all fields here that change, with two exceptions: the counters are atomic, and
 * a thread that changes the tables of groups also holds hca->group_mutex, so that either mutex is
 * enough to read them. A thread takes group_mutex first. It exists because a join of an IPv6 group
 * waits for the kernel's configuration lock, and the packet path must not wait for that.
 */

#define SOFT_QP_BUCKETS    1024
#define SOFT_GROUP_BUCKETS 1024
#define SOFT_LENT_GRHS     128  /* of the packets fetched at once: two for each of 64 trains */
#define SOFT_MAX_MESSAGE   4096 /* the largest InfiniBand MTU */
#define SOFT_MAX_DATAGRAM  9144 /* the longest UD message: fits the longest usual frames, 9216 */

/* A consumer sleeps on a channel: channel.c. */
struct soft_channel {
    struct soft_hca *hca;
    LIST_ENTRY(soft_channel) entry;
    unsigned int users; /* completion queues */
    bool armed;
    bool signalled;  /* event_fd is readable */
    bool attended;   /* was armed before: its consumer comes back to poll */
    bool background; /* leaves the socket to other channels, if there are any */
    bool watches;    /* the socket, and the outlets that sends wait for */
    int event_fd;
    int epoll_fd;                 /* event_fd, the socket, and */
    unsigned int watched_outlets; /* these outlets, a bit each */
};

struct soft_cq {
    struct soft_hca *hca;
    struct soft_channel *channel;
    LIST_ENTRY(soft_cq) entry;
    struct soft_wc *ring; /* depth rounded up to a power of two */
    unsigned int depth;
    unsigned int mask;
    unsigned int head; /* the oldest; head and tail only grow */
    unsigned int tail;
    unsigned int users;      /* queues that complete into it */
    unsigned int lent;       /* its completions of lent packets that are not given back, */
    unsigned int lent_taken; /* and those of them that the consumer has polled */
};

struct soft_ah {
    struct soft_hca *hca;
    LIST_ENTRY(soft_ah) entry;
    unsigned int references; /* the caller's, and one for each send that waits */
    struct soft_udp_dest dest;
    bool local;          /* the GID is our own: packets never go to the wire */
    uint16_t seed_bytes; /* packet length of icrc_seed; 0: none yet */
    uint32_t icrc_seed;
};

struct soft_send_wqe {
    struct soft_send_wr wr;
    uint32_t bytes;
    uint32_t psn;   /* RC: of its first packet */
    uint8_t status; /* not success: it was invalid when posted, and completes in its turn */
    bool sent;      /* UD: it completes once all requests before it do */
    uint8_t left;   /* UD: how many of its packets have left, the first ones */
    uint8_t packets;
};

struct soft_send_queue {
    struct soft_send_wqe *ring;
    unsigned int max, mask, head, tail;
};

/* A separate struct, so that several QPs can share a queue. */
struct soft_recv_queue {
    struct soft_recv_wr *ring;
    unsigned int max, mask, head, tail;
};

TAILQ_HEAD(soft_rc_list, soft_rc);

struct soft_srq {
    struct soft_hca *hca;
    LIST_ENTRY(soft_srq) entry;
    struct soft_recv_queue rq;
    struct soft_rc_list receiving; /* connections amid a message of several packets, oldest first */
    unsigned int receiving_count;
    unsigned int users;
};

/* A received packet: its source, its headers and its payload. */
struct soft_packet {
    const struct soft_udp_packet *ip;
    bool stays; /* it lies there until the HCA fetches again */
    struct soft_roce roce;
    const uint8_t *payload;
    size_t payload_bytes;
};

/* The reason why a send queue waits. */
enum soft_stall {
    SOFT_STALL_NONE,   /* it does not wait: it is empty */
    SOFT_STALL_SOCKET, /* EAGAIN: for EPOLLOUT */
    SOFT_STALL_MEMORY, /* ENOBUFS: for a moment */
    SOFT_STALL_CQ,     /* for the consumer to poll */
};

/* The functions of a transport; the caller holds hca->mutex. */
struct soft_transport {
    /* Sends from the head of the send queue on, and completes the requests that are done. */
    enum soft_stall (*send)(struct soft_qp *qp);
    /* Takes a packet for this QP, which the caller has parsed, and whose ICRC is correct; the
     * transport's fields are unchecked. */
    void (*receive)(struct soft_qp *qp, const struct soft_packet *packet);
    /* Returns where `receive` would copy the payload of this packet, in one piece, or NULL. The
     * caller has parsed the packet, and its ICRC may be wrong: nothing may change. The caller may
     * write to that place, and then hands over a packet whose payload lies there. */
    uint8_t *(*place)(const struct soft_qp *qp, const struct soft_packet *packet);
};

extern const struct soft_transport soft_ud;
extern const struct soft_transport soft_rc;

/* The HCA's work for its connections; the caller holds hca->mutex. */
struct soft_service {
    /* Sends all due acknowledgements, and the packets that the connections in hca->work may
     * send. */
    void (*serve)(struct soft_hca *hca);
    void (*expire_timers)(struct soft_hca *hca);
};

extern const struct soft_service soft_rc_service;

struct soft_rc;

SLIST_HEAD(soft_number_list, soft_number);
LIST_HEAD(soft_number_bucket, soft_number);

struct soft_qp {
    struct soft_hca *hca;
    LIST_ENTRY(soft_qp) entry; /* in its bucket */
    TAILQ_ENTRY(soft_qp) stall_entry;
    enum soft_stall stall;
    unsigned int stalled_outlets; /* SOFT_STALL_SOCKET: it waits for these, a bit each */
    const struct soft_transport *transport;
    enum soft_qp_type type;
    uint32_t qpn;
    uint32_t source_qpn; /* the source QPN in its packets */
    uint32_t qkey;
    uint32_t psn; /* of the next packet */
    uint16_t pkey_index;
    bool lends;              /* UD: soft_qp_lend */
    unsigned int sent_early; /* UD: requests that have left, and others before them have not */
    unsigned int groups;     /* attached to */
    int64_t supply_left_ns;  /* how long the HCA may wait for its consumer to post, */
    int64_t supply_at_ns;    /* as of this time */
    struct soft_cq *send_cq;
    struct soft_cq *recv_cq;
    struct soft_send_queue sq;
    struct soft_recv_queue rq; /* empty and without a ring if the QP has an SRQ */
    struct soft_srq *srq;
    struct soft_rc *rc; /* NULL: UD */
    struct soft_number_list numbers;
};

/* A further number of a UD queue pair. */
struct soft_number {
    SLIST_ENTRY(soft_number) entry;     /* of the queue pair */
    LIST_ENTRY(soft_number) hash_entry; /* in its bucket */
    struct soft_qp *qp;
    uint32_t qpn;
};

struct soft_group {
    LIST_ENTRY(soft_group) entry;
    struct in6_addr gid;
    int membership; /* number that soft_membership_join gave */
    unsigned int qp_count;
    unsigned int qp_room;
    struct soft_qp **qp;
};

LIST_HEAD(soft_cq_list, soft_cq);
LIST_HEAD(soft_channel_list, soft_channel);
LIST_HEAD(soft_ah_list, soft_ah);
LIST_HEAD(soft_qp_list, soft_qp);
LIST_HEAD(soft_group_list, soft_group);
LIST_HEAD(soft_srq_list, soft_srq);
TAILQ_HEAD(soft_stall_list, soft_qp);

struct soft_hca {
    pthread_mutex_t mutex;
    pthread_mutex_t group_mutex;
    const struct soft_service *service;
    struct soft_hca_attr attr;
    struct soft_count count;
    struct soft_netdev netdev;
    struct soft_membership membership;
    struct soft_udp *udp; /* NULL: without a device; the HCA reaches only itself */
    uint32_t outlet_seed[SOFT_UDP_OUTLETS]; /* how the ports of the outlets change the ICRC */
    bool other_adapters;                    /* as in soft_hca_options */
    struct soft_hca
        *main; /* of a TX queue: the HCA that it sends for, and that receives; else NULL */

    uint16_t pkey[SOFT_MAX_PKEYS];
    unsigned int pkey_count;

    struct soft_cq_list cqs;
    struct soft_channel_list channels;
    unsigned int channels_armed;
    struct soft_ah_list ahs;
    unsigned int ah_count;
    struct soft_qp_list qps[SOFT_QP_BUCKETS];
    struct soft_number_bucket numbers[SOFT_QP_BUCKETS];
    unsigned int qp_count; /* the further numbers included */
    uint32_t next_qpn;
    struct soft_group_list groups[SOFT_GROUP_BUCKETS];
    unsigned int group_count;

    struct soft_stall_list stalled;
    unsigned int full_outlets; /* that stalled send queues wait for, a bit each */
    int64_t deadline_ns;
    struct soft_rc_list work; /* connections with a pending ACK or more to send */
    struct soft_rc_list timers;
    int64_t timer_ns; /* not later than the first timer */
    bool drained;     /* a shared receive queue has given its last buffer since the poll began */
    struct soft_qp *short_of; /* fetched packets wait for its consumer to post, */
    int64_t short_until_ns;   /* until this time at most */
    struct soft_srq_list srqs;
    unsigned int srq_count;
    /* Packets that consumers have borrowed: the memory that they were fetched into stays as it is.
     * Packets of one flow and length have one GRH. */
    unsigned int lent;
    int64_t lent_until_ns; /* then another consumer's poll fetches nevertheless; none: none tried */
    const struct soft_channel *poller; /* whose poll delivers packets now; NULL: nobody's */
    uint8_t grh[SOFT_LENT_GRHS][SOFT_ROCE_GRH_BYTES];
    unsigned int grh_count;
    bool grh_fits;    /* the last one is that of the packet at hand */
    uint32_t rx_seed; /* ICRC seed of the flow that the last packet off the wire belonged to */

    /* UD makes the packets of requests with a cut here, one behind the other, and sends them. */
    uint8_t stage[SOFT_CUT_BYTES];
    size_t staged_bytes;

    uint8_t loop[SOFT_ROCE_HEAD_MAX + SOFT_MAX_DATAGRAM + SOFT_ROCE_TAIL_MAX];
};

/* hca.c. Makes an HCA without a device, for tests without a network. */
int soft_hca_create(const struct soft_hca_attr *attr, struct soft_hca **out);
/* Opens hca->udp. */
int soft_hca_open_udp(struct soft_hca *hca, const struct soft_udp_config *config);

/* lock.c */
void soft_lock_acquire(struct soft_hca *hca);
void soft_lock_release(struct soft_hca *hca); /* serves the connections, and wakes sleepers */

/* cq.c */
void soft_cq_push(struct soft_cq *cq, const struct soft_wc *wc); /* needs room */
/* Pushes the completion of a packet that stays where it lies until the consumer's next poll. */
void soft_cq_push_lent(struct soft_cq *cq, const struct soft_wc *wc);
/* Takes the oldest request off the send queue, and completes it if its CQ has room. */
void soft_cq_end_send(struct soft_qp *qp, enum soft_wc_status status, bool signalled);

/* channel.c. The caller of all but create holds the HCA's mutex. */
int soft_channel_create(struct soft_hca *hca, struct soft_channel **out);
void soft_channel_release(struct soft_channel *channel); /* by one of its users */
/* hca->full_outlets has changed. Returns false if the consumers do not wake up when the outlets
 * have room: the kernel is short of memory. */
bool soft_channel_watch_outlets(struct soft_hca *hca);
void soft_channel_review(struct soft_hca *hca); /* hca->short_of has changed */

static inline unsigned int soft_cq_count(const struct soft_cq *cq)
{
    return cq->tail - cq->head;
}

static inline unsigned int soft_cq_room(const struct soft_cq *cq)
{
    return cq->depth - soft_cq_count(cq);
}

/* ah.c */
/* Returns false when the attributes are invalid. */
bool soft_ah_resolve(const struct soft_hca *hca, const struct soft_ah_attr *attr,
                     struct soft_udp_dest *out);
void soft_ah_release(struct soft_ah *ah);

static inline struct soft_qp_list *soft_qp_bucket(struct soft_hca *hca, uint32_t qpn)
{
    return &hca->qps[qpn % SOFT_QP_BUCKETS]; /* numbers are given in sequence: an even spread */
}

static inline struct soft_qp *soft_qp_find(struct soft_hca *hca, uint32_t qpn)
{
    struct soft_qp *qp = LIST_FIRST(soft_qp_bucket(hca, qpn));

    while (qp != NULL && qp->qpn != qpn)
        qp = LIST_NEXT(qp, entry);
    return qp;
}

/* Returns the queue pair of a further number, or NULL. */
static inline struct soft_qp *soft_qp_find_number(struct soft_hca *hca, uint32_t qpn)
{
    struct soft_number *number = LIST_FIRST(&hca->numbers[qpn % SOFT_QP_BUCKETS]);

    while (number != NULL && number->qpn != qpn)
        number = LIST_NEXT(number, hash_entry);
    return number != NULL ? number->qp : NULL;
}

/* rc.c; the QPs are RC QPs */
int soft_rc_create(struct soft_qp *qp);
void soft_rc_destroy(struct soft_qp *qp); /* flushes */
bool soft_rc_may_send(const struct soft_qp *qp, const struct soft_send_wr *wr);
bool soft_rc_may_receive(const struct soft_qp *qp);
void soft_rc_number(struct soft_qp *qp, struct soft_send_wqe *wqe);

/* srq.c */
/* Takes the next buffer; NULL when there is none. */
const struct soft_recv_wr *soft_srq_take(struct soft_srq *srq);

/* random.c */
uint32_t soft_random(void); /* never waits; the low 24 bits are good for QPNs and PSNs */

/* clock.c */
int64_t soft_clock_ns(void); /* CLOCK_MONOTONIC; a file of its own, so that tests can replace it */

/* mcast.c */
struct soft_group *soft_mcast_find(const struct soft_hca *hca, const struct in6_addr *gid);
void soft_mcast_detach_all(struct soft_qp *qp); /* takes the locks itself */

/* progress.c */
void soft_progress_send(struct soft_qp *qp);
void soft_progress_retry(struct soft_hca *hca);
void soft_progress_unstall(struct soft_qp *qp);
/* Receives until cq (may be NULL) holds `wanted` completions, at most one batch off the wire. */
int soft_progress_receive(struct soft_hca *hca, const struct soft_cq *cq, unsigned int wanted);
/* These report that the queue pair has filled its last buffer; and that it has new buffers, or has
 * ended. */
void soft_progress_run_short(struct soft_qp *qp);
/* Consumers have given so many borrowed packets back, or have ended. */
void soft_progress_unlend(struct soft_hca *hca, unsigned int packets);
void soft_progress_supply(const struct soft_qp *qp);
/* Delivers one packet; a trusted packet comes from the loopback, which has no ICRC. */
void soft_progress_take(struct soft_hca *hca, const struct soft_udp_packet *ip, bool trusted);

static inline uint8_t soft_outlet_of(uint32_t flow)
{
    return flow % SOFT_UDP_OUTLETS;
}

/* Returns the smallest power of two >= n; n <= 2^31. */
static inline unsigned int soft_round_up(unsigned int n)
{
    unsigned int size = 1;

    while (size < n)
        size *= 2;
    return size;
}

#endif
