/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_FAKE_H
#define IPU_VERBS_FAKE_H

#include <pthread.h>
#include <stdbool.h>

#include "core/frame.h"
#include "tests/check.h"
#include "verbs/verbs.h"

/*
 * libibverbs and one device, as far as the verbs fabric uses them, played by the test: posted work
 * stays in a queue until the test completes it. Only one device exists at a time.
 */
enum { FAKE_QUEUE = 1536, FAKE_ASKED = 16, FAKE_MTU = 2048, FAKE_SEND_DEPTH = 128 };

struct fake_send {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
};

struct fake {
    struct ibv_device device;
    struct ibv_context context;
    struct ibv_pd pd;
    struct ibv_comp_channel channel;
    int channel_pipe[2]; /* a byte for an event: which queue */
    int async_pipe[2];
    struct ibv_cq send_cq, recv_cq;
    struct ibv_qp qp;

    struct fake_send sends[FAKE_QUEUE]; /* posted and not completed: [send_next, send_count) */
    int send_next, send_count;
    int doorbells;
    int refuse_send_after; /* of one doorbell; -1: none */
    struct ibv_recv_wr recvs[FAKE_QUEUE];
    struct ibv_sge recv_sges[FAKE_QUEUE];
    int recv_next, recv_count;
    int refuse_recv_after;

    struct ibv_wc send_wc[FAKE_QUEUE], recv_wc[FAKE_QUEUE];
    int send_wc_next, send_wc_count, recv_wc_next, recv_wc_count;
    bool poll_fails;
    bool send_armed, recv_armed;
    int notify_calls;
    int unacked; /* events read and not acknowledged */

    int states[FAKE_ASKED]; /* that the queue pair was put into */
    struct ibv_qp_attr init_attr;
    int state_count;
    int refuse_state; /* -1: none */

    int regions; /* registered now */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int handles;       /* that exist now */
    int made;          /* in all */
    bool hold_handles; /* ibv_create_ah() waits */
    int handle_error;  /* ibv_create_ah() fails with this errno */
    struct ibv_ah_attr last_attr;
    struct ibv_async_event async[FAKE_ASKED];
    int async_count;
};

extern struct fake fake;
extern int64_t fake_now_ns; /* the time that clock_gettime() returns */

/* Makes a fresh device, and a fabric on it; fake_close() ends both and checks that nothing is
 * left. */
struct ipu_fabric *fake_open(bool resolves);
void fake_close(void);
extern struct ipu_verbs *fake_verbs;

/* These end the first n posted sends. A failed send breaks the queue pair, as on a device. */
void fake_complete_sends(int n);
void fake_fail_send(enum ibv_wc_status status);
void fake_arrive(uint32_t byte_len, uint32_t src_qp, unsigned int flags);
void fake_fail_recv(enum ibv_wc_status status);

void fake_hold_handles(bool hold);
void fake_say(enum ibv_event_type type, uint8_t port); /* an asynchronous event */
bool fake_readable(int fd);                            /* within 5 s, if it ever is */

/* A counter of fake_verbs, by its name. */
uint64_t fake_counter(const char *name);

/* A destination, by the last byte of its GID; multicast from 0x80. */
struct ipu_dest fake_dest(uint8_t number);

/* Posts n sends of len bytes to the handle, with cookies from `first` on. */
int fake_send(struct ipu_fabric *fabric, void *ah, uint64_t first, int n, uint32_t len);

#endif
