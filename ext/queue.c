/* SPDX-License-Identifier: BSD-2-Clause */
#include "queue.h"

#include <errno.h>
#include <string.h>

#include "frame.h"

static ssize_t queue_read(void *self, void *buf, size_t cap)
{
    struct ipu_queue *queue = self;
    uint32_t len;
    const void *packet = ipu_ring_peek(&queue->to_pump, &len);
    if (packet == NULL) {
        ipu_ring_disarm(&queue->to_pump);
        return -EAGAIN;
    }
    ssize_t n = -EMSGSIZE;
    if (IPU_VNET_LEN + (size_t)len <= cap) {
        memset(buf, 0, IPU_VNET_LEN);
        memcpy((uint8_t *)buf + IPU_VNET_LEN, packet, len);
        n = (ssize_t)(IPU_VNET_LEN + len);
    }
    ipu_ring_release(&queue->to_pump);
    return n;
}

static int queue_write(void *self, const void *buf, size_t len)
{
    struct ipu_queue *queue = self;
    uint32_t ip_len = (uint32_t)(len - IPU_VNET_LEN);
    void *packet = ipu_ring_reserve(&queue->from_pump, ip_len);
    if (packet == NULL)
        return -ENOBUFS;
    memcpy(packet, (const uint8_t *)buf + IPU_VNET_LEN, ip_len);
    ipu_ring_commit(&queue->from_pump, ip_len);
    return 0;
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

static const struct ipu_device_ops queue_ops = {
    .read = queue_read,
    .write = queue_write,
    .flush = queue_flush,
    .arm = queue_arm,
    .fd = queue_fd,
};

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
    queue->device = (struct ipu_device){.ops = &queue_ops, .self = queue};
    return 0;
}

void ipu_queue_free(struct ipu_queue *queue)
{
    ipu_ring_free(&queue->to_pump);
    ipu_ring_free(&queue->from_pump);
}
