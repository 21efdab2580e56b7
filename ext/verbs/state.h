/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_STATE_H
#define IPU_VERBS_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "core/counter.h"
#include "verbs/completion.h"
#include "verbs/receive_queue.h"
#include "verbs/regions.h"
#include "verbs/verbs.h"

/*
 * The inside of the verbs fabric, shared by its files: fabric.c (life, waiting), queue_pair.c
 * (states), send.c, receive.c, handle.c, ah_worker.c and inbox.c. Unless it says otherwise, all of
 * it is the pump thread's.
 */
enum {
    IPU_VERBS_BATCH = 64,  /* work requests in one chain */
    IPU_VERBS_SIGNAL = 16, /* every so many of a chain, and its last one, have a completion */
    IPU_VERBS_LOST = 256,  /* sends that ended without a work request, not yet given back */
    IPU_VERBS_PARKED = 64, /* sends that wait for their handle; not all of the pump's frames */
};

/*
 * An address handle as the pump holds it. The verbs object behind it comes later, where making it
 * takes time, and is replaced when the port's address changes.
 */
enum ipu_verbs_handle_state {
    IPU_VERBS_ABSENT, /* to be made at the next use */
    IPU_VERBS_MAKING, /* the worker has it: attr, ah and error are its own */
    IPU_VERBS_READY,
    IPU_VERBS_FAILED, /* what is sent is lost; tried again at retry_at_ns */
};

struct ipu_verbs_handle {
    struct ibv_ah *ah;
    enum ipu_verbs_handle_state state;
    bool abandoned;   /* by the pump, while the worker or a send had it */
    uint32_t parked;  /* sends that wait for it */
    uint32_t version; /* of the port's address */
    int error;        /* why making it failed: errno */
    int64_t retry_at_ns;
    struct ibv_ah_attr attr;
    LIST_ENTRY(ipu_verbs_handle) all;
    STAILQ_ENTRY(ipu_verbs_handle) queue; /* of the worker: to do, or done */
};

STAILQ_HEAD(ipu_verbs_handle_queue, ipu_verbs_handle);

/*
 * A verbs handle that nothing is sent with any more, kept until the last send that did has ended:
 * rxe looks a handle up when it sends, and fails the queue pair when there is none.
 */
struct ipu_verbs_retired {
    struct ibv_ah *ah;
    uint64_t after; /* the number of sends posted by then */
    STAILQ_ENTRY(ipu_verbs_retired) queue;
};

STAILQ_HEAD(ipu_verbs_retired_queue, ipu_verbs_retired);

/*
 * Makes address handles on a thread of its own, one after the other: on RoCE the kernel resolves
 * the destination's MAC first, which takes up to a second where nobody answers.
 */
struct ipu_verbs_ah_worker {
    pthread_t thread;
    pthread_cond_t work;
    struct ipu_verbs_handle_queue todo;
    uint32_t todo_count;
    bool started;
    bool stopping;
};

/* What other threads have for the pump's. The descriptor is readable while `any` is true. */
struct ipu_verbs_inbox {
    pthread_mutex_t mutex; /* of this and of the worker's queue */
    struct ipu_verbs_handle_queue made;
    bool fail;   /* break the queue pair */
    bool rebind; /* the port's address is now: */
    struct in6_addr gid;
    uint8_t sgid_index;
    atomic_bool any;
    int fd;
};

struct ipu_verbs_parked {
    struct ipu_send send;
    struct ipu_verbs_handle *handle;
};

struct ipu_verbs {
    struct ipu_fabric fabric;
    struct ibv_qp *qp;
    struct ibv_pd *pd;
    uint32_t qkey;
    uint16_t pkey_index;
    uint8_t port;
    uint8_t sgid_index;
    bool resolves;
    bool owns_events;
    bool closed;

    struct ipu_regions regions;

    /*
     * Sends are numbered as they are posted; a completion names the number up to which all have
     * ended, so an unsignalled one comes back with the next signalled one behind it.
     * returned <= completed <= posted <= returned + send_depth.
     */
    uint64_t *cookies; /* of send number n at n & cookie_mask */
    uint64_t cookie_mask;
    uint64_t posted, completed, returned;
    uint32_t send_depth;
    uint32_t max_inline;
    uint64_t lost[IPU_VERBS_LOST];
    uint32_t lost_count;
    struct ipu_verbs_parked parked[IPU_VERBS_PARKED];
    uint32_t parked_count;

    struct ipu_receive_queue receives;

    bool broken, reported; /* reported: sent() has returned -EIO for the failure */

    struct ipu_completion completion;
    int epoll_fd; /* over the completion channels and the inbox */

    struct ipu_verbs_connected *connected; /* NULL: datagrams only */

    /* The control thread's. */
    struct ipu_verbs *leader; /* of a TX queue; else NULL */
    struct ipu_verbs *tx_queues[IPU_TX_QUEUES_MAX - 1];

    LIST_HEAD(, ipu_verbs_handle) handles;
    struct ipu_verbs_retired_queue retired;
    struct ipu_verbs_ah_worker ah_worker;
    struct ipu_verbs_inbox inbox;
    uint32_t version; /* of the port's address */

    struct {
        IPU_VERBS_COUNTERS(IPU_VERBS_COUNTERS_FIELD)
    } counters;
};

/* The pump's thread writes, any thread reads. */
#define IPU_VERBS_ADD(v, name, n) ipu_counter_add(&(v)->counters.name, (n))
#define IPU_VERBS_COUNT(v, name)  IPU_VERBS_ADD(v, name, 1)

/* queue_pair.c: from RESET to RTS; to ERROR, where everything posted comes back. */
int ipu_verbs_queue_pair_raise(struct ipu_verbs *v);
void ipu_verbs_queue_pair_fail(struct ipu_verbs *v);
int ipu_verbs_queue_pair_recover(void *self);

/* send.c */
int ipu_verbs_send(void *self, const struct ipu_send *sends, int n);
int ipu_verbs_sent(void *self, uint64_t *cookies, int max);
void ipu_verbs_send_poll(struct ipu_verbs *v);
/* Post or give up what waited for handles, as far as they are there. */
void ipu_verbs_send_parked(struct ipu_verbs *v);

/* receive.c */
int ipu_verbs_post(void *self, const struct ipu_recv *recvs, int n);
int ipu_verbs_received(void *self, struct ipu_received *done, int max);
void ipu_verbs_receive_poll(struct ipu_verbs *v);

/* handle.c */
void *ipu_verbs_handle_create(void *self, const struct ipu_dest *dest);
void ipu_verbs_handle_destroy(void *self, void *ah);
/* Before a send: whether it is there; if not, it is made, or about to be. */
bool ipu_verbs_handle_ready(struct ipu_verbs *v, struct ipu_verbs_handle *handle);
/* Reads the inbox, and takes the handles that the worker made. */
void ipu_verbs_handle_collect(struct ipu_verbs *v);
/* After its last parked send has gone. */
void ipu_verbs_handle_release(struct ipu_verbs *v, struct ipu_verbs_handle *handle);
/* End the retired ones that no send needs any more. */
void ipu_verbs_handle_reap(struct ipu_verbs *v);
/* End the verbs objects, all; end the handles, too. */
void ipu_verbs_handle_close(struct ipu_verbs *v);
void ipu_verbs_handle_free(struct ipu_verbs *v);

/* ah_worker.c: the thread starts with its first work. */
void ipu_verbs_ah_worker_init(struct ipu_verbs *v);
void ipu_verbs_ah_worker_free(struct ipu_verbs *v);
/* False when too much is to be done already. */
bool ipu_verbs_ah_worker_put(struct ipu_verbs *v, struct ipu_verbs_handle *handle);

/* inbox.c */
int ipu_verbs_inbox_init(struct ipu_verbs *v);
void ipu_verbs_inbox_free(struct ipu_verbs *v);
/* Something is in it now. The mutex is held. */
void ipu_verbs_inbox_announce(struct ipu_verbs *v);
/* Fails the queue pair or rebinds the port as demanded; appends the handles to *made. */
void ipu_verbs_inbox_read(struct ipu_verbs *v, struct ipu_verbs_handle_queue *made);

#endif
