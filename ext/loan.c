/* SPDX-License-Identifier: BSD-2-Clause */
#include "loan.h"

#include <stdlib.h>
#include <string.h>

#include "frame.h"

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
    ipu_slab_unshare(&loan->rx);
    free(loan->free.slot);
    free(loan->returned.slot);
    free(loan->spare);
    free(loan);
}

struct ipu_loan *ipu_loan_create(struct ipu_slab *tx, struct ipu_slab *rx, uint32_t tx_frames,
                                 uint32_t packet_bytes)
{
    struct ipu_loan *loan = aligned_alloc(_Alignof(struct ipu_loan), sizeof *loan);
    if (loan == NULL)
        return NULL;
    memset(loan, 0, sizeof *loan);
    atomic_init(&loan->users, 1);
    ipu_slab_share(tx, &loan->tx);
    ipu_slab_share(rx, &loan->rx);
    loan->tx_frames = tx_frames;
    loan->packet_bytes = packet_bytes;
    loan->held_max = rx->frames / 2;
    loan->spare = calloc(tx_frames, sizeof *loan->spare);
    if (loan->spare == NULL || !init_ring(&loan->free, tx_frames) ||
        !init_ring(&loan->returned, rx->frames)) {
        dispose(loan);
        return NULL;
    }
    for (uint32_t i = 0; i < tx_frames; i++)
        ipu_index_ring_push(&loan->free, ipu_slab_get(tx));
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

uint8_t *ipu_loan_rx_packet(const struct ipu_loan *loan, uint32_t index)
{
    return ipu_slab_at(&loan->rx, index) + IPU_RX_IP;
}
