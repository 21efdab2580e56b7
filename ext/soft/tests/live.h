/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_LIVE_H
#define SOFT_LIVE_H

#include "check.h"
#include "objects.h"

/* The live tests share two places, each a net device in a network namespace, and on each of them an
 * end: an HCA with one CQ, one QP, and a ring of receive buffers posted in order.
 */
#define QKEY       0x0b1bu
#define TIMEOUT_MS 10000

struct place {
    const char *netns, *netdev;
};

extern struct place place[2];

#define RING  4096
#define FRAME (40 + 4096)

struct end {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_qp *qp;
    struct soft_ah *peer; /* address handle to the other end */
    uint8_t (*frame)[FRAME];
};

void enter(const char *netns);
void leave(void);
int64_t now_ms(void);
struct soft_hca *open_at(int which);
struct in6_addr gid_of(const struct soft_hca *hca);
unsigned int mtu_of(const struct soft_hca *hca);
struct soft_ah *ah_to(struct soft_hca *hca, struct in6_addr gid);
struct soft_qp *qp_on(struct soft_hca *hca, struct soft_cq *cq, unsigned int depth);
void post(struct soft_qp *qp, uint64_t wr_id, void *buffer, uint32_t length);
struct end open_end(int which);
void close_end(struct end *e);
void open_both(struct end *a, struct end *b);
void close_both(struct end *a, struct end *b);
struct soft_send_wr message(struct soft_ah *ah, uint32_t qpn, const void *data, size_t length);
void send_to(struct end *from, struct soft_ah *ah, uint32_t qpn, const void *data, size_t length);
void await(struct soft_cq *cq, int n, struct soft_wc *wc);
uint64_t counter(struct soft_hca *hca, enum soft_counter which);
void await_counter(struct soft_hca *hca, enum soft_counter which, uint64_t value);
void exchange(struct end *a, struct end *b);
struct in6_addr group_number(int n);

/* Each ends with an entry of nulls. */
extern const struct test live_messages[], live_groups[], live_refusals[], live_waiting[],
    live_trouble[], live_rc[];

#endif
