/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/frame.h"

enum { LENT_BYTES = 1 << 20 };

static uint32_t era_of(const struct ipu_queue *queue)
{
    return atomic_load_explicit(&queue->era, memory_order_acquire);
}

static struct ipu_queue_record *put(struct ipu_ring *ring, uint32_t era, uint32_t index,
                                    uint32_t len)
{
    uint32_t data_len = index == IPU_INDEX_NONE ? len : 0;
    struct ipu_queue_record *record = NULL;
    if (data_len <= ipu_ring_max_bytes(ring))
        record = ipu_ring_reserve(ring, (uint32_t)sizeof *record + data_len);
    if (record != NULL)
        *record = (struct ipu_queue_record){.index = index, .len = len, .era = era};
    return record;
}

static void commit(struct ipu_ring *ring, const struct ipu_queue_record *record)
{
    uint32_t data_len = record->index == IPU_INDEX_NONE ? record->len : 0;
    ipu_ring_commit(ring, (uint32_t)sizeof *record + data_len);
}

/* Returns the oldest record of this era, or NULL. */
static const struct ipu_queue_record *peek(struct ipu_ring *ring, uint32_t era)
{
    uint32_t record_len;
    const struct ipu_queue_record *record;
    while ((record = ipu_ring_peek(ring, &record_len)) != NULL && record->era != era)
        ipu_ring_release(ring);
    return record;
}

/* ---- the pump's side ------------------------------------------------------------------------- */

static void wake_producer(struct ipu_queue *queue)
{
    if (atomic_exchange(&queue->room_wanted, 0) != 0)
        (void)eventfd_write(queue->room_fd, 1);
}

/* Wakes a producer that waits for frames: for many of them, or for the last ones. */
static void offer_room(struct ipu_queue *queue)
{
    uint32_t free_frames = ipu_index_ring_count(&queue->loan->free);
    if (free_frames > 0 && (queue->given == 0 || free_frames >= queue->loan->tx_frames / 4))
        wake_producer(queue);
}

/* Returns the next packet for the pump, or NULL. */
static const struct ipu_queue_record *next_packet(struct ipu_queue *queue)
{
    const struct ipu_queue_record *record = peek(&queue->to_pump, era_of(queue));
    if (record != NULL)
        return record;
    ipu_ring_disarm(&queue->to_pump);
    /* A request that this load misses meets queue_arm(), or the load of the pump's next round. */
    if (atomic_load_explicit(&queue->room_wanted, memory_order_relaxed) != 0)
        offer_room(queue);
    return NULL;
}

static ssize_t queue_read(void *self, void *buf, size_t cap)
{
    struct ipu_queue *queue = self;
    const struct ipu_queue_record *record = next_packet(queue);
    if (record == NULL)
        return -EAGAIN;
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
    const struct ipu_queue_record *record = next_packet(queue);
    if (record == NULL)
        return -EAGAIN;
    if (record->index == IPU_INDEX_NONE)
        return 0;
    *index = record->index;
    ssize_t n = (ssize_t)(IPU_VNET_LEN + record->len);
    memset(ipu_slab_at(&queue->loan->tx, *index), 0, IPU_VNET_LEN);
    ipu_ring_release(&queue->to_pump);
    queue->given++;
    return n;
}

static void queue_ended(void *self, uint32_t index)
{
    struct ipu_queue *queue = self;
    queue->given--;
    ipu_index_ring_push(&queue->loan->free, index);
}

static int queue_write(void *self, const void *buf, size_t len)
{
    struct ipu_queue *queue = self;
    uint32_t ip_len = (uint32_t)(len - IPU_VNET_LEN);
    struct ipu_queue_record *record = put(&queue->from_pump, era_of(queue), IPU_INDEX_NONE, ip_len);
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
    struct ipu_queue_record *record =
        put(&queue->from_pump, era_of(queue), index, (uint32_t)ip_len);
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
    struct ipu_queue *queue = self;
    /* The change in place of a load orders this with the producer's request: one of us sees what
     * the other did before. */
    if (atomic_fetch_or(&queue->room_wanted, 0) != 0)
        offer_room(queue);
    return ipu_ring_arm(&queue->to_pump);
}

static int queue_fd(void *self)
{
    return ipu_ring_fd(&((struct ipu_queue *)self)->to_pump);
}

/* Begins another era; takes over the loan. */
static void begin_era(struct ipu_queue *queue, struct ipu_loan *loan)
{
    struct ipu_loan *before = queue->loan;
    pthread_mutex_lock(&queue->lock);
    queue->loan = loan;
    queue->given = 0;
    atomic_fetch_add_explicit(&queue->era, 1, memory_order_release);
    pthread_mutex_unlock(&queue->lock);
    ipu_loan_drop(before);
    wake_producer(queue);
}

static int queue_attach(void *self, const struct ipu_device_frames *frames)
{
    struct ipu_queue *queue = self;
    if (frames->rx->frames == 0)
        return -EINVAL;
    struct ipu_loan *loan = ipu_loan_create(frames);
    if (loan == NULL)
        return -ENOMEM;
    begin_era(queue, loan);
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

/* Has a thread of the application see the present era. */
static struct ipu_loan *follow(struct ipu_queue *queue, struct ipu_queue_side *side)
{
    if (era_of(queue) == side->era)
        return side->loan;
    struct ipu_loan *before = side->loan;
    pthread_mutex_lock(&queue->lock);
    side->loan = queue->loan;
    side->era = era_of(queue);
    if (side->loan != NULL)
        ipu_loan_hold(side->loan);
    pthread_mutex_unlock(&queue->lock);
    ipu_loan_drop(before);
    return side->loan;
}

struct ipu_loan *ipu_queue_producer_loan(struct ipu_queue *queue)
{
    return follow(queue, &queue->producer);
}

struct ipu_loan *ipu_queue_consumer_loan(struct ipu_queue *queue)
{
    return follow(queue, &queue->consumer);
}

uint8_t *ipu_queue_reserve(struct ipu_queue *queue, uint32_t len)
{
    struct ipu_queue_record *record = put(&queue->to_pump, era_of(queue), IPU_INDEX_NONE, len);
    return record != NULL ? record->data : NULL;
}

void ipu_queue_commit(struct ipu_queue *queue)
{
    ipu_ring_commit(&queue->to_pump, queue->to_pump.reserved_bytes);
}

bool ipu_queue_send(struct ipu_queue *queue, const void *packet, uint32_t len)
{
    uint8_t *room = ipu_queue_reserve(queue, len);
    if (room == NULL)
        return false;
    memcpy(room, packet, len);
    ipu_queue_commit(queue);
    return true;
}

bool ipu_queue_send_frame(struct ipu_queue *queue, uint32_t index, uint32_t len)
{
    struct ipu_queue_record *record = put(&queue->to_pump, queue->producer.era, index, len);
    if (record == NULL)
        return false;
    commit(&queue->to_pump, record);
    return true;
}

int ipu_queue_open_room(struct ipu_queue *queue)
{
    if (queue->room_fd < 0)
        queue->room_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return queue->room_fd < 0 ? -errno : 0;
}

int ipu_queue_arm_room(struct ipu_queue *queue)
{
    atomic_exchange(&queue->room_wanted, 1);
    const struct ipu_loan *loan = ipu_queue_producer_loan(queue);
    if (loan == NULL || (loan->spare_count == 0 && ipu_index_ring_count(&loan->free) == 0))
        return 0;
    ipu_queue_disarm_room(queue);
    return 1;
}

void ipu_queue_disarm_room(struct ipu_queue *queue)
{
    eventfd_t wakes;
    atomic_exchange(&queue->room_wanted, 0);
    (void)eventfd_read(queue->room_fd, &wakes);
}

const uint8_t *ipu_queue_peek(struct ipu_queue *queue, uint32_t *index, uint32_t *len)
{
    (void)ipu_queue_consumer_loan(queue);
    const struct ipu_queue_record *record = peek(&queue->from_pump, queue->consumer.era);
    if (record == NULL)
        return NULL;
    *index = record->index;
    *len = record->len;
    return record->index == IPU_INDEX_NONE ? record->data : record->received;
}

void ipu_queue_detach(struct ipu_queue *queue)
{
    begin_era(queue, NULL);
}

int ipu_queue_init(struct ipu_queue *queue, uint32_t to_pump_bytes, uint32_t from_pump_bytes)
{
    memset(queue, 0, sizeof *queue);
    queue->room_fd = -1;
    queue->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
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
    ipu_loan_drop(queue->producer.loan);
    ipu_loan_drop(queue->consumer.loan);
    queue->loan = queue->producer.loan = queue->consumer.loan = NULL;
    if (queue->room_fd >= 0)
        close(queue->room_fd);
    queue->room_fd = -1;
    ipu_ring_free(&queue->to_pump);
    ipu_ring_free(&queue->from_pump);
}
