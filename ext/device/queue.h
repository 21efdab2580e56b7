/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_QUEUE_H
#define IPU_QUEUE_H

#include <stdbool.h>

#include "core/ring.h"
#include "device/device.h"
#include "device/loan.h"

/*
 * The application as packet device: one ring in each direction, in order. A record names a frame of
 * the loan, which is not copied, or holds an IP packet: one that the application sends by
 * ipu_queue_send(), or one that arrives while the application holds as many frames as it may. The
 * application's side is one producer thread and one consumer thread (which may be the same).
 */
struct ipu_queue {
    struct ipu_ring to_pump;   /* the application produces, the pump consumes */
    struct ipu_ring from_pump; /* the other way */
    struct ipu_loan *loan;     /* of the pump that attached last, else NULL */
    struct ipu_device device;
};

struct ipu_queue_record {
    uint32_t index; /* IPU_INDEX_NONE: the packet follows */
    uint32_t len;
    const uint8_t *received; /* the packet, in a receive frame */
    uint8_t data[];
};

/* Ring sizes in bytes, powers of two. 0, or negative errno. 64-byte alignment, as struct ipu_ring.
 */
int ipu_queue_init(struct ipu_queue *queue, uint32_t to_pump_bytes, uint32_t from_pump_bytes);

/* The pump has ended: forgets what is queued. Frames stay with the holders of the loan. */
void ipu_queue_detach(struct ipu_queue *queue);

/* The pump has ended. */
void ipu_queue_free(struct ipu_queue *queue);

/*
 * Producer: false: the ring is full. After a batch call ipu_ring_wake(). A frame is one of
 * ipu_loan_reserve(), with at most packet_bytes of packet; from here on it is the pump's.
 */
bool ipu_queue_send(struct ipu_queue *queue, const void *packet, uint32_t len);
bool ipu_queue_send_frame(struct ipu_queue *queue, uint32_t index, uint32_t len);

/*
 * Consumer: the oldest packet, or NULL. A packet in the ring (index IPU_INDEX_NONE) stays until
 * ipu_ring_release(), which follows in any case; a packet in a frame stays until
 * ipu_index_ring_push(&loan->returned, index) gives the frame back.
 */
const uint8_t *ipu_queue_peek(struct ipu_queue *queue, uint32_t *index, uint32_t *len);

#endif
