/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_C_QUEUE_H
#define IPU_C_QUEUE_H

#include <ipoibu/packet_device.h>

#include "device/queue.h"

/* The application's side of a queue, as two threads of an application in C call it. */
struct ipu_c_queue {
    struct ipoibu_packet_queue_v1 v1;
    struct ipu_queue *queue;
    bool sender_waits, receiver_waits; /* each belongs to one of the two threads */
};

/* Before any thread uses the queue, which lives longer. 0, or negative errno. */
int ipu_c_queue_init(struct ipu_c_queue *c_queue, struct ipu_queue *queue);

#endif
