/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_QUEUE_H
#define IPU_QUEUE_H

#include <pthread.h>
#include <stdbool.h>

#include "core/ring.h"
#include "device/device.h"
#include "device/loan.h"

/*
 * The application as packet device: one ring in each direction, in order. A record names a frame of
 * the loan, whose packet stays in place, or holds an IP packet: a packet that the application sends
 * by ipu_queue_send(), or a packet that arrives while the application holds as many frames as it
 * may. The application has one producer thread and one consumer thread (which may be the same).
 *
 * Both threads may go on while pumps come and go. Each attach and detach begins another era: a
 * record has the era in which it was written, and whoever reads it passes over one of a former era,
 * whose frames are gone. The producer and the consumer each hold the loan of the era that they saw
 * last, so neither touches memory that a pump has given up.
 */
struct ipu_queue_side {
    struct ipu_loan *loan; /* NULL: no pump is attached */
    uint32_t era;
};

struct ipu_queue {
    struct ipu_ring to_pump;   /* the application produces, the pump consumes */
    struct ipu_ring from_pump; /* the pump produces, the application consumes */
    struct ipu_loan *loan;     /* the loan of the pump that attached last, else NULL */
    uint32_t given;            /* the pump has so many of its transmit frames */
    pthread_mutex_t lock;      /* of a change of `loan` and `era` */
    _Atomic uint32_t era;
    struct ipu_queue_side producer, consumer;
    _Atomic uint32_t room_wanted; /* the producer waits for free frames */
    int room_fd;                  /* an eventfd; -1: ipu_queue_open_room() has not made it */
    struct ipu_device device;
};

struct ipu_queue_record {
    uint32_t index; /* IPU_INDEX_NONE: the packet follows */
    uint32_t len;
    uint32_t era;
    const uint8_t *received; /* the packet, in a receive frame */
    uint8_t data[];
};

/* Ring sizes are in bytes, powers of two. Returns 0 or a negative errno. The struct needs 64-byte
 * alignment, as struct ipu_ring does.
 */
int ipu_queue_init(struct ipu_queue *queue, uint32_t to_pump_bytes, uint32_t from_pump_bytes);

/* Forgets the queued packets, after the end of the pump. Frames stay with the holders of the
 * loan. */
void ipu_queue_detach(struct ipu_queue *queue);

/* Frees the queue, after the end of the pump and of the application's threads. */
void ipu_queue_free(struct ipu_queue *queue);

/* Producer, consumer: the loan of the attached pump, or NULL. The caller has it until its next call
 * of the same function; whoever keeps frames for longer holds the loan. */
struct ipu_loan *ipu_queue_producer_loan(struct ipu_queue *queue);
struct ipu_loan *ipu_queue_consumer_loan(struct ipu_queue *queue);

/* Producer: false: the ring is full. After a batch the caller calls ipu_ring_wake(). A frame comes
 * from ipu_loan_reserve() of the loan that ipu_queue_producer_loan() gave last, and holds at most
 * packet_bytes of packet; from here on it belongs to the pump.
 */
bool ipu_queue_send(struct ipu_queue *queue, const void *packet, uint32_t len);
bool ipu_queue_send_frame(struct ipu_queue *queue, uint32_t index, uint32_t len);

/* Producer: makes `room_fd`, before any thread uses the queue. 0, or negative errno. */
int ipu_queue_open_room(struct ipu_queue *queue);

/* Producer: makes `room_fd` readable once a quarter of the transmit frames is free, the pump has
 * sent all, or another pump attaches. 1: a frame is free already, and nothing is armed. */
int ipu_queue_arm_room(struct ipu_queue *queue);
void ipu_queue_disarm_room(struct ipu_queue *queue);

/* Producer: returns room for a packet of len bytes in the ring, NULL: the ring is full. After the
 * commit the pump has it. */
uint8_t *ipu_queue_reserve(struct ipu_queue *queue, uint32_t len);
void ipu_queue_commit(struct ipu_queue *queue);

/* Consumer: returns the oldest packet, or NULL. A packet in the ring (index IPU_INDEX_NONE) stays
 * until ipu_ring_release(), which the consumer calls in any case; a packet in a frame of
 * `consumer.loan` stays until ipu_index_ring_push(&loan->returned, index) gives the frame back.
 */
const uint8_t *ipu_queue_peek(struct ipu_queue *queue, uint32_t *index, uint32_t *len);

#endif
