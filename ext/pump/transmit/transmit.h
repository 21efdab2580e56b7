/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TRANSMIT_H
#define IPU_TRANSMIT_H

#include "pump/state/pump_state.h"

/* Each returns the amount of work done. */
int ipu_transmit_read(struct ipu_pump *pump, int max);
int ipu_transmit_reap(struct ipu_pump *pump);

/* Rings one doorbell for the pending sends. Sends that the fabric does not take stay pending, and
 * the pump does not read the device until they have gone: packets wait and overflow in the kernel's
 * queue.
 */
void ipu_transmit_flush(struct ipu_pump *pump);

/*
 * Queues a frame, from the encapsulation header on, for the next doorbell. The batch must have
 * room.
 */
void ipu_transmit_enqueue(struct ipu_pump *pump, uint32_t index, const struct ipu_ah *ah,
                          const uint8_t *frame, size_t len, uint32_t source_qpn);

/* Looks up the route of an IP packet, and sends it. Takes the frame when it returns true; otherwise
 * it has counted the packet, given it to the engine, or set `again`. If the packet is a
 * super-frame, there must be no other current one. */
bool ipu_transmit_forward(struct ipu_pump *pump, struct ipu_outbound *packet);

/* Does the same by the next hop that the caller has chosen. */
bool ipu_transmit_to(struct ipu_pump *pump, struct ipu_outbound *packet,
                     const struct in6_addr *next_hop);

#endif
