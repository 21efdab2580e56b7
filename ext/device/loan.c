/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/loan.h"

#include <stdlib.h>
#include <string.h>

#include "core/frame.h"

static bool init_ring(struct ipu_index_ring *ring, uint32_t entries)
{
    uint32_t capacity = 1;
    while (capacity < entries)
        capacity *= 2;
    ring->mask = capacity - 1;
    ring->slot = calloc(capacity, sizeof *ring->slot);
    return ring->slot != NULL;
}

static void dispose(struct ipu_loan *loan)
{
    ipu_slab_unshare(&loan->tx);
    ipu_slab_unshare(&loan->datagrams.slab);
    ipu_slab_unshare(&loan->connected.slab);
    free(loan->free.slot);
    free(loan->returned.slot);
    free(loan->spare);
    free(loan);
}

static void share(const struct ipu_slab *slab, struct ipu_loan_rx *rx)
{
    if (slab->frames == 0)
        return;
    ipu_slab_share(slab, &rx->slab);
    rx->held_max = slab->frames / 2;
}

struct ipu_loan *ipu_loan_create(const struct ipu_device_frames *frames)
{
    struct ipu_loan *loan = aligned_alloc(_Alignof(struct ipu_loan), sizeof *loan);
    if (loan == NULL)
        return NULL;
    memset(loan, 0, sizeof *loan);
    atomic_init(&loan->users, 1);
    ipu_slab_share(frames->tx, &loan->tx);
    share(frames->rx, &loan->datagrams);
    share(frames->connected_rx, &loan->connected);
    loan->tx_frames = frames->lent;
    loan->packet_bytes = frames->packet_bytes;
    loan->spare = calloc(frames->lent, sizeof *loan->spare);
    if (loan->spare == NULL || !init_ring(&loan->free, frames->lent) ||
        !init_ring(&loan->returned, frames->rx->frames + frames->connected_rx->frames)) {
        dispose(loan);
        return NULL;
    }
    for (uint32_t i = 0; i < frames->lent; i++)
        ipu_index_ring_push(&loan->free, ipu_slab_get(frames->tx));
    return loan;
}

void ipu_loan_hold(struct ipu_loan *loan)
{
    atomic_fetch_add_explicit(&loan->users, 1, memory_order_relaxed);
}

void ipu_loan_drop(struct ipu_loan *loan)
{
    if (loan != NULL && atomic_fetch_sub_explicit(&loan->users, 1, memory_order_acq_rel) == 1)
        dispose(loan);
}

uint32_t ipu_loan_reserve(struct ipu_loan *loan)
{
    if (loan->spare_count > 0)
        return loan->spare[--loan->spare_count];
    return ipu_index_ring_pop(&loan->free);
}

void ipu_loan_cancel(struct ipu_loan *loan, uint32_t index)
{
    loan->spare[loan->spare_count++] = index;
}

uint8_t *ipu_loan_tx_packet(const struct ipu_loan *loan, uint32_t index)
{
    return ipu_slab_at(&loan->tx, index) + IPU_TX_IP;
}

struct ipu_loan_rx *ipu_loan_rx_of(struct ipu_loan *loan, uint32_t index)
{
    return index < loan->datagrams.slab.frames ? &loan->datagrams : &loan->connected;
}
