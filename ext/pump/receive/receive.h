/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RECEIVE_H
#define IPU_RECEIVE_H

#include "pump/state/pump_state.h"

void ipu_receive_init(struct ipu_pump *pump);
int ipu_receive_poll(struct ipu_pump *pump, int max);

/* Posts idle receive frames to the fabric, in batches as far as it takes them. */
void ipu_receive_post(struct ipu_pump *pump);

/* Writes a frame to the device, and counts it once the write has ended. Returns 0,
 * IPU_DEVICE_QUEUED (the frame must stay until ipu_receive_flush()), or a negative errno. */
int ipu_receive_write(struct ipu_pump *pump, const struct iovec *iov, int n,
                      struct ipu_delivery delivery);

/* Writes [vnet 16][IP] to the device, as above, with a vnet header of its own. */
void ipu_receive_deliver(struct ipu_pump *pump, uint8_t *vnet, size_t ip_len);

/* Gives a frame to the device or the engine, from the encapsulation header on, with IPU_VNET_LEN -
 * IPU_ENCAP_LEN bytes of room in front. The frame must stay until ipu_receive_flush(). grh is NULL
 * if there is none. */
void ipu_receive_frame_untrusted(struct ipu_pump *pump, uint8_t *frame, size_t len,
                                 const uint8_t *grh, uint32_t src_qpn);

/* Counts a peer's message that we drop, and reports it to the engine, which knows the peer. grh is
 * NULL where there is none; a message of a connection has neither GRH nor src_qpn. */
void ipu_receive_drop(struct ipu_pump *pump, enum ipu_counter counter, const uint8_t *grh,
                      uint32_t src_qpn);

/* Counts a frame of the engine's that the device took, or refused with a negative errno. */
void ipu_receive_written(struct ipu_pump *pump, int error, size_t bytes);

/* Ends a batch of writes to the device. */
void ipu_receive_flush(struct ipu_pump *pump);

/* Returns where a frame came from, for an event. */
struct ipu_frame_received ipu_receive_origin(const uint8_t *grh, uint32_t src_qpn);

/* Returns whether a packet of the link goes to the device: see `receive` of struct ipu_host_side.
 */
static inline bool ipu_host_receive(struct ipu_pump *pump, uint8_t *ip, size_t ip_len,
                                    const uint8_t *grh, uint32_t src_qpn)
{
    return pump->host->receive == NULL || pump->host->receive(pump, ip, ip_len, grh, src_qpn);
}

#endif
