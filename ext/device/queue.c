/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue.h"

#include <errno.h>
#include <string.h>

#include "core/frame.h"

enum { LENT_BYTES = 1 << 20 };

static struct ipu_queue_record *put(struct ipu_ring *ring, uint32_t index, uint32_t len)
{
    uint32_t data_len = index == IPU_INDEX_NONE ? len : 0;
    struct ipu_queue_record *record = NULL;
    if (data_len <= ipu_ring_max_bytes(ring))
        record = ipu_ring_reserve(ring, (uint32_t)sizeof *record + data_len);
    if (record != NULL)
        *record = (struct ipu_queue_record){.index = index, .len = len};
    return record;
}

static void commit(struct ipu_ring *ring, const struct ipu_queue_record *record)
{
    uint32_t data_len = record->index == IPU_INDEX_NONE ? record->len : 0;
    ipu_ring_commit(ring, (uint32_t)sizeof *record + data_len);
}

/* ---- the pump's side ------------------------------------------------------------------------- */

static ssize_t queue_read(void *self, void *buf, size_t cap)
{
    struct ipu_queue *queue = self;
    uint32_t record_len;
    const struct ipu_queue_record *record = ipu_ring_peek(&queue->to_pump, &record_len);
    if (record == NULL) {
        ipu_ring_disarm(&queue->to_pump);
        return -EAGAIN;
    }
    ssize_t n = -EMSGSIZE;
    if (IPU_VNET_LEN + (size_t)record->len <= cap) {
        memset(buf, 0, IPU_VNET_LEN);
        memcpy((uint8_t *)buf + IPU_VNET_LEN, record->data, record->len);
        n = (ssize_t)(IPU_VNET_LEN + record->len);
    }
    ipu_ring_release(&queue->to_pump);
    return n;
}

static ssize_t queue_give(void *self, uint32_t *index)
{
    struct ipu_queue *queue = self;
    uint32_t record_len;
    const struct ipu_queue_record *record = ipu_ring_peek(&queue->to_pump, &record_len);
    if (record == NULL) {
        ipu_ring_disarm(&queue->to_pump);
        return -EAGAIN;
    }
    if (record->index == IPU_INDEX_NONE)
        return 0;
    *index = record->index;
    ssize_t n = (ssize_t)(IPU_VNET_LEN + record->len);
    memset(ipu_slab_at(&queue->loan->tx, *index), 0, IPU_VNET_LEN);
    ipu_ring_release(&queue->to_pump);
    return n;
}

static void queue_ended(void *self, uint32_t index)
{
    ipu_index_ring_push(&((struct ipu_queue *)self)->loan->free, index);
}

static int queue_write(void *self, const void *buf, size_t len)
{
    struct ipu_queue *queue = self;
    uint32_t ip_len = (uint32_t)(len - IPU_VNET_LEN);
    struct ipu_queue_record *record = put(&queue->from_pump, IPU_INDEX_NONE, ip_len);
    if (record == NULL)
        return -ENOBUFS;
    memcpy(record->data, (const uint8_t *)buf + IPU_VNET_LEN, ip_len);
    commit(&queue->from_pump, record);
    return 0;
}

static int queue_take(void *self, uint32_t index, const uint8_t *ip, size_t ip_len)
{
    struct ipu_queue *queue = self;
    struct ipu_loan_rx *rx = ipu_loan_rx_of(queue->loan, index);
    if (rx->held == rx->held_max)
        return -ENOBUFS;
    struct ipu_queue_record *record = put(&queue->from_pump, index, (uint32_t)ip_len);
    if (record == NULL)
        return -ENOBUFS;
    record->received = ip;
    rx->held++;
    commit(&queue->from_pump, record);
    return 0;
}

static uint32_t queue_back(void *self)
{
    struct ipu_loan *loan = ((struct ipu_queue *)self)->loan;
    uint32_t index = ipu_index_ring_pop(&loan->returned);
    if (index != IPU_INDEX_NONE)
        ipu_loan_rx_of(loan, index)->held--;
    return index;
}

static void queue_flush(void *self)
{
    ipu_ring_wake(&((struct ipu_queue *)self)->from_pump);
}

static int queue_arm(void *self)
{
    return ipu_ring_arm(&((struct ipu_queue *)self)->to_pump);
}

static int queue_fd(void *self)
{
    return ipu_ring_fd(&((struct ipu_queue *)self)->to_pump);
}

static void drain(struct ipu_ring *ring)
{
    uint32_t len;
    while (ipu_ring_peek(ring, &len) != NULL)
        ipu_ring_release(ring);
}

static int queue_attach(void *self, const struct ipu_device_frames *frames)
{
    struct ipu_queue *queue = self;
    if (frames->rx->frames == 0)
        return -EINVAL;
    struct ipu_loan *loan = ipu_loan_create(frames);
    if (loan == NULL)
        return -ENOMEM;
    ipu_queue_detach(queue);
    queue->loan = loan;
    return 0;
}

static const struct ipu_device_ops queue_ops = {
    .read = queue_read,
    .write = queue_write,
    .flush = queue_flush,
    .arm = queue_arm,
    .fd = queue_fd,
    .attach = queue_attach,
    .give = queue_give,
    .ended = queue_ended,
    .take = queue_take,
    .back = queue_back,
};

/* ---- the application's side ------------------------------------------------------------------ */

bool ipu_queue_send(struct ipu_queue *queue, const void *packet, uint32_t len)
{
    struct ipu_queue_record *record = put(&queue->to_pump, IPU_INDEX_NONE, len);
    if (record == NULL)
        return false;
    memcpy(record->data, packet, len);
    commit(&queue->to_pump, record);
    return true;
}

bool ipu_queue_send_frame(struct ipu_queue *queue, uint32_t index, uint32_t len)
{
    struct ipu_queue_record *record = put(&queue->to_pump, index, len);
    if (record == NULL)
        return false;
    commit(&queue->to_pump, record);
    return true;
}

const uint8_t *ipu_queue_peek(struct ipu_queue *queue, uint32_t *index, uint32_t *len)
{
    uint32_t record_len;
    const struct ipu_queue_record *record = ipu_ring_peek(&queue->from_pump, &record_len);
    if (record == NULL)
        return NULL;
    *index = record->index;
    *len = record->len;
    return record->index == IPU_INDEX_NONE ? record->data : record->received;
}

void ipu_queue_detach(struct ipu_queue *queue)
{
    drain(&queue->to_pump); /* records may name frames of the former pump */
    drain(&queue->from_pump);
    ipu_loan_drop(queue->loan);
    queue->loan = NULL;
}

int ipu_queue_init(struct ipu_queue *queue, uint32_t to_pump_bytes, uint32_t from_pump_bytes)
{
    memset(queue, 0, sizeof *queue);
    int error = ipu_ring_init(&queue->to_pump, to_pump_bytes);
    if (error == 0)
        error = ipu_ring_init(&queue->from_pump, from_pump_bytes);
    if (error < 0) {
        ipu_queue_free(queue);
        return error;
    }
    queue->device = (struct ipu_device){.ops = &queue_ops, .self = queue, .lent_bytes = LENT_BYTES};
    return 0;
}

void ipu_queue_free(struct ipu_queue *queue)
{
    ipu_loan_drop(queue->loan);
    queue->loan = NULL;
    ipu_ring_free(&queue->to_pump);
    ipu_ring_free(&queue->from_pump);
}
