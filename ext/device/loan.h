/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_LOAN_H
#define IPU_LOAN_H

#include <stdbool.h>

#include "core/index_ring.h"
#include "core/slab.h"
#include "device/device.h"

/*
 * Frames of a pump that an application uses in place. Some of the transmit frames are the
 * application's for the life of the pump: it fills one, sends it, and gets it back when the fabric
 * has sent it. Of the receive frames of each kind it may hold `held_max` at a time; the other
 * frames are enough for the fabric to go on, so the pump need not wake up when the application
 * gives a frame back.
 *
 * Counted references keep the memory (not the pump, not the fabric) while a user has a frame.
 * Transmit: the sending thread owns `spare` and calls reserve and cancel; the ring `free` goes from
 * the pump to it. Receive: the ring `returned` goes from the reading thread to the pump; the pump
 * owns `held`. Receive frames have one numbering (device.h).
 */
struct ipu_loan_rx {
    struct ipu_slab slab; /* a view of the frames, without a stack */
    uint32_t held, held_max;
};

struct ipu_loan {
    _Atomic uint32_t users;
    struct ipu_slab tx;    /* a view of the transmit frames */
    uint32_t tx_frames;    /* lent frames: the first ones of the slab */
    uint32_t packet_bytes; /* longest packet of a transmit frame */
    struct ipu_index_ring free;
    uint32_t *spare; /* frames reserved and then cancelled */
    uint32_t spare_count;

    struct ipu_loan_rx datagrams, connected;
    struct ipu_index_ring returned;
};

/* Takes the first frames of a fresh slab `tx`, and keeps the memory of all slabs. The loan starts
 * with one user. NULL: no memory. */
struct ipu_loan *ipu_loan_create(const struct ipu_device_frames *frames);
void ipu_loan_hold(struct ipu_loan *loan);
void ipu_loan_drop(struct ipu_loan *loan); /* NULL is fine */

/* Sender: takes a frame to fill, or IPU_INDEX_NONE when the pump is sending all of them. */
uint32_t ipu_loan_reserve(struct ipu_loan *loan);
void ipu_loan_cancel(struct ipu_loan *loan, uint32_t index);

/* Returns the address of the packet in a transmit frame. */
uint8_t *ipu_loan_tx_packet(const struct ipu_loan *loan, uint32_t index);

/* Pump: returns the part of the loan that the receive frame belongs to. */
struct ipu_loan_rx *ipu_loan_rx_of(struct ipu_loan *loan, uint32_t index);

#endif
