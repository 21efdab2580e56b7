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
 * (states), send.c, receive.c, handle.c, ah_worker.c and inbox.c. Unless a comment says otherwise,
 * only the pump's thread uses a field.
 */
enum {
    IPU_VERBS_BATCH = 64,  /* work requests in one chain */
    IPU_VERBS_SIGNAL = 16, /* every 16th request of a chain, and its last one, have a completion */
    IPU_VERBS_LOST = 256,  /* sends that ended without a work request, not yet reported */
    IPU_VERBS_PARKED = 64, /* sends that wait for their handle; fewer than the pump's frames */
};

/*
 * An address handle as the pump holds it. The verbs object behind it comes later, where the device
 * takes time to make it, and a new one replaces it when the port's address changes.
 */
enum ipu_verbs_handle_state {
    IPU_VERBS_ABSENT, /* the next use makes the verbs handle */
    IPU_VERBS_MAKING, /* the worker has it: attr, ah and error are its own */
    IPU_VERBS_READY,
    IPU_VERBS_FAILED, /* sends are lost; the next try is at retry_at_ns */
};

struct ipu_verbs_handle {
    struct ibv_ah *ah;
    enum ipu_verbs_handle_state state;
    bool abandoned;   /* the pump destroyed it while the worker or a send had it */
    uint32_t parked;  /* sends that wait for it */
    uint32_t version; /* of the port's address */
    int error;        /* errno of the failure */
    int64_t retry_at_ns;
    struct ibv_ah_attr attr;
    LIST_ENTRY(ipu_verbs_handle) all;
    STAILQ_ENTRY(ipu_verbs_handle) queue; /* in the worker's list: to do, or done */
};

STAILQ_HEAD(ipu_verbs_handle_queue, ipu_verbs_handle);

/* A verbs handle that no new send uses. We keep it until the last send that names it has ended: rxe
 * looks a handle up when it sends, and fails the queue pair when there is none.
 */
struct ipu_verbs_retired {
    struct ibv_ah *ah;
    uint64_t after; /* the number of sends posted by then */
    STAILQ_ENTRY(ipu_verbs_retired) queue;
};

STAILQ_HEAD(ipu_verbs_retired_queue, ipu_verbs_retired);

/*
 * Makes address handles on a thread of its own, one after the other: on RoCE the kernel first
 * resolves the destination's MAC, which takes up to a second when no host answers.
 */
struct ipu_verbs_ah_worker {
    pthread_t thread;
    pthread_cond_t work;
    struct ipu_verbs_handle_queue todo;
    uint32_t todo_count;
    bool started;
    bool stopping;
};

/* Requests and results of other threads for the pump's. The descriptor is readable while `any` is
 * true. */
struct ipu_verbs_inbox {
    pthread_mutex_t mutex; /* guards the inbox and the worker's queue */
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

    /* Each posted send gets the next number; a completion names the number up to which all sends
     * have ended, so an unsignalled send ends with the next signalled one. returned <= completed <=
     * posted <= returned + send_depth.
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

    /* Only the control thread uses these. */
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

/* The pump's thread writes the counters, and any thread reads them. */
#define IPU_VERBS_ADD(v, name, n) ipu_counter_add(&(v)->counters.name, (n))
#define IPU_VERBS_COUNT(v, name)  IPU_VERBS_ADD(v, name, 1)

/* queue_pair.c: `raise` takes it from RESET to RTS, `fail` to ERROR, where all posted work
 * completes. */
int ipu_verbs_queue_pair_raise(struct ipu_verbs *v);
void ipu_verbs_queue_pair_fail(struct ipu_verbs *v);
int ipu_verbs_queue_pair_recover(void *self);

/* send.c */
int ipu_verbs_send(void *self, const struct ipu_send *sends, int n);
int ipu_verbs_sent(void *self, uint64_t *cookies, int max);
void ipu_verbs_send_poll(struct ipu_verbs *v);
/* Posts or gives up the sends whose handles are made or have failed meanwhile. */
void ipu_verbs_send_parked(struct ipu_verbs *v);

/* receive.c */
int ipu_verbs_post(void *self, const struct ipu_recv *recvs, int n);
int ipu_verbs_received(void *self, struct ipu_received *done, int max);
void ipu_verbs_receive_poll(struct ipu_verbs *v);

/* handle.c */
void *ipu_verbs_handle_create(void *self, const struct ipu_dest *dest);
void ipu_verbs_handle_destroy(void *self, void *ah);
/* Returns, before a send, whether the handle is ready; if not, makes it, or has the worker make
 * it. */
bool ipu_verbs_handle_ready(struct ipu_verbs *v, struct ipu_verbs_handle *handle);
/* Reads the inbox, and takes the handles that the worker made. */
void ipu_verbs_handle_collect(struct ipu_verbs *v);
/* Frees an abandoned handle, after its last parked send has gone. */
void ipu_verbs_handle_release(struct ipu_verbs *v, struct ipu_verbs_handle *handle);
/* Destroys the retired handles that no send needs any more. */
void ipu_verbs_handle_reap(struct ipu_verbs *v);
/* These end all verbs objects; and the handles, too. */
void ipu_verbs_handle_close(struct ipu_verbs *v);
void ipu_verbs_handle_free(struct ipu_verbs *v);

/* ah_worker.c: the thread starts with its first work. */
void ipu_verbs_ah_worker_init(struct ipu_verbs *v);
void ipu_verbs_ah_worker_free(struct ipu_verbs *v);
/* Returns false when too many handles wait for the worker already. */
bool ipu_verbs_ah_worker_put(struct ipu_verbs *v, struct ipu_verbs_handle *handle);

/* inbox.c */
int ipu_verbs_inbox_init(struct ipu_verbs *v);
void ipu_verbs_inbox_free(struct ipu_verbs *v);
/* Makes the inbox's descriptor readable. The caller holds the mutex. */
void ipu_verbs_inbox_announce(struct ipu_verbs *v);
/* Fails the queue pair or rebinds the port as other threads asked; appends the handles to *made. */
void ipu_verbs_inbox_read(struct ipu_verbs *v, struct ipu_verbs_handle_queue *made);

#endif
