/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_RECEIVE_ORDER_H
#define IPU_VERBS_RECEIVE_ORDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * The receives of a shared queue, in the order of posting, which is the order in which rxe takes
 * them. Each gets the next number, and a slot: the work request's wr_id. One thread.
 *
 * When a queue pair of rxe fails within a message, the receive that the message took never
 * completes in newer kernels (6.12, not yet 6.1: drivers/infiniband/sw/rxe/rxe_resp.c,
 * flush_recv_queue()). Other devices flush it. A queue pair fills one receive at a time. So a
 * receive that the device has passed is lost when each queue pair that exists has completed a later
 * one, or is between two messages.
 */
enum { IPU_RECEIVE_ORDER_LAG = 4 }; /* queues full of later receives that end before we look */

struct ipu_receive_slot {
    uint64_t cookie, number;
    TAILQ_ENTRY(ipu_receive_slot) queue; /* posted, or free */
};

TAILQ_HEAD(ipu_receive_slots, ipu_receive_slot);

struct ipu_receive_order {
    struct ipu_receive_slot *slots;
    struct ipu_receive_slots posted, idle;
    uint64_t next;      /* the number of the next receive */
    uint64_t passed;    /* the device has taken all receives before this number */
    uint32_t lag, seen; /* receives that ended since the last look for lost ones, up to the lag */
};

/* Returns 0 or -ENOMEM. */
int ipu_receive_order_init(struct ipu_receive_order *order, uint32_t depth);
void ipu_receive_order_free(struct ipu_receive_order *order);

/* Gives the next number to a receive, of at most `depth`; returns its slot. */
uint32_t ipu_receive_order_put(struct ipu_receive_order *order, uint64_t cookie);
/* Takes the newest receive back, which the device has refused. */
void ipu_receive_order_withdraw(struct ipu_receive_order *order);
/* Ends the receive in this slot; returns its number. */
uint64_t ipu_receive_order_end(struct ipu_receive_order *order, uint32_t slot, uint64_t *cookie);

/* Returns whether the oldest receive, whose number is then in *oldest, is late, and was not looked
 * at for as long. */
bool ipu_receive_order_look(struct ipu_receive_order *order, uint64_t *oldest);

/* Ends the oldest receive when its number is less than `floor`, a number that the device has
 * passed; else returns false. */
bool ipu_receive_order_reclaim(struct ipu_receive_order *order, uint64_t floor, uint64_t *cookie);

#endif
