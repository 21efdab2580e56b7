/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_QUEUE_H
#define IPU_QUEUE_H

#include "device.h"
#include "ring.h"

/*
 * The application as packet device: one ring each way, a record is an IP packet. The application's
 * side is one producer thread and one consumer thread (which may be the same).
 */
struct ipu_queue {
    struct ipu_ring to_pump;   /* the application produces, the pump consumes */
    struct ipu_ring from_pump; /* the other way */
    struct ipu_device device;
};

/* Ring sizes in bytes, powers of two. 0, or negative errno. 64-byte alignment, as struct ipu_ring.
 */
int ipu_queue_init(struct ipu_queue *queue, uint32_t to_pump_bytes, uint32_t from_pump_bytes);

/* The pump is done with it. */
void ipu_queue_free(struct ipu_queue *queue);

#endif
