/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/c_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the sending thread ---------------------------------------------------------------------- */

static int c_reserve(void *self, struct ipoibu_packet_v1 *packets, int max)
{
    struct ipu_c_queue *c_queue = self;
    if (c_queue->sender_waits)
        ipu_queue_disarm_room(c_queue->queue);
    c_queue->sender_waits = false;
    struct ipu_loan *loan = ipu_queue_producer_loan(c_queue->queue);
    if (loan == NULL)
        return -ENETDOWN;
    int n = 0;
    for (; n < max; n++) {
        uint32_t index = ipu_loan_reserve(loan);
        if (index == IPU_INDEX_NONE)
            break;
        packets[n] = (struct ipoibu_packet_v1){.data = ipu_loan_tx_packet(loan, index),
                                               .bytes = loan->packet_bytes,
                                               .frame = index,
                                               .memory = loan};
        ipu_loan_hold(loan);
    }
    return n;
}

static void give_up(struct ipoibu_packet_v1 *packet)
{
    ipu_loan_cancel(packet->memory, packet->frame);
    ipu_loan_drop(packet->memory);
    memset(packet, 0, sizeof *packet);
}

static void c_cancel(void *self, struct ipoibu_packet_v1 *packets, int count)
{
    (void)self;
    for (int i = 0; i < count; i++)
        give_up(&packets[i]);
}

/* A frame of a former pump goes as a copy. */
static bool queue_packet(struct ipu_queue *queue, struct ipoibu_packet_v1 *packet)
{
    struct ipu_loan *loan = packet->memory;
    bool is_own = loan == queue->producer.loan;
    bool is_queued = packet->bytes > 0 && packet->bytes <= loan->packet_bytes &&
                     (is_own ? ipu_queue_send_frame(queue, packet->frame, packet->bytes)
                             : ipu_queue_send(queue, packet->data, packet->bytes));
    if (is_own && is_queued) {
        ipu_loan_drop(loan);
        memset(packet, 0, sizeof *packet);
    } else {
        give_up(packet);
    }
    return is_queued;
}

static int c_send(void *self, struct ipoibu_packet_v1 *packets, int count)
{
    struct ipu_queue *queue = ((struct ipu_c_queue *)self)->queue;
    int queued = 0;
    (void)ipu_queue_producer_loan(queue);
    for (int i = 0; i < count; i++)
        queued += queue_packet(queue, &packets[i]);
    ipu_ring_wake(&queue->to_pump);
    return queued;
}

static int c_await_frames(void *self)
{
    struct ipu_c_queue *c_queue = self;
    int ready = ipu_queue_arm_room(c_queue->queue);
    c_queue->sender_waits = ready == 0;
    return ready;
}

/* ---- the receiving thread -------------------------------------------------------------------- */

/* A packet in the ring would keep the pump from the ring's memory. */
static bool copy(struct ipoibu_packet_v1 *packet)
{
    uint8_t *data = malloc(packet->bytes);
    if (data == NULL)
        return false;
    memcpy(data, packet->data, packet->bytes);
    packet->data = data;
    return true;
}

static int c_receive(void *self, struct ipoibu_packet_v1 *packets, int max)
{
    struct ipu_c_queue *c_queue = self;
    struct ipu_queue *queue = c_queue->queue;
    if (c_queue->receiver_waits)
        ipu_ring_disarm(&queue->from_pump);
    c_queue->receiver_waits = false;
    int n = 0;
    while (n < max) {
        struct ipoibu_packet_v1 *packet = &packets[n];
        uint32_t len, index;
        const uint8_t *data = ipu_queue_peek(queue, &index, &len);
        if (data == NULL)
            break;
        *packet = (struct ipoibu_packet_v1){
            .data = (uint8_t *)(uintptr_t)data, .bytes = len, .frame = index};
        if (index != IPU_INDEX_NONE) {
            packet->memory = queue->consumer.loan;
            ipu_loan_hold(queue->consumer.loan);
        } else if (!copy(packet)) {
            break;
        }
        ipu_ring_release(&queue->from_pump);
        n++;
    }
    return n;
}

static void c_release(void *self, struct ipoibu_packet_v1 *packets, int count)
{
    (void)self;
    for (int i = 0; i < count; i++) {
        struct ipoibu_packet_v1 *packet = &packets[i];
        struct ipu_loan *loan = packet->memory;
        if (loan != NULL) {
            ipu_index_ring_push(&loan->returned, packet->frame);
            ipu_loan_drop(loan);
        } else {
            free(packet->data);
        }
        memset(packet, 0, sizeof *packet);
    }
}

static int c_await_packets(void *self)
{
    struct ipu_c_queue *c_queue = self;
    int ready = ipu_ring_arm(&c_queue->queue->from_pump);
    c_queue->receiver_waits = ready == 0;
    return ready;
}

int ipu_c_queue_init(struct ipu_c_queue *c_queue, struct ipu_queue *queue)
{
    int error = ipu_queue_open_room(queue);
    if (error < 0)
        return error;
    *c_queue = (struct ipu_c_queue){
        .v1 = {.self = c_queue,
               .send_fd = queue->room_fd,
               .receive_fd = ipu_ring_fd(&queue->from_pump),
               .reserve = c_reserve,
               .send = c_send,
               .cancel = c_cancel,
               .await_frames = c_await_frames,
               .receive = c_receive,
               .release = c_release,
               .await_packets = c_await_packets},
        .queue = queue,
    };
    return 0;
}
