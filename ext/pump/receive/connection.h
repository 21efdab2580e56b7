/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_CONNECTION_H
#define IPU_CONNECTION_H

#include "pump/state/pump_state.h"

int ipu_connection_init(struct ipu_pump *pump, uint32_t frames);
void ipu_connection_free(struct ipu_pump *pump);

int ipu_connection_add(struct ipu_pump *pump, const struct ipu_connection_add *add);
int ipu_connection_delete(struct ipu_pump *pump, uint64_t id);
int ipu_connection_set_tx_mode(struct ipu_pump *pump, const struct ipu_tx_mode_set *set);

/* Returns the connection by which a packet goes now, with its MTU; NULL: by datagram. In mode
 * UD_NOTIFY it emits IPU_EVENT_RC_WANTED. ah->connection is not NULL. */
struct ipu_connection *ipu_connection_of(struct ipu_pump *pump, struct ipu_ah *ah, uint32_t *mtu);

/* Returns whether the caller may queue one more message; otherwise it holds or drops the
 * message. */
bool ipu_connection_has_room(const struct ipu_pump *pump, const struct ipu_connection *connection);

/* Begins to wait for room, for so many ns at most; 0: drop. */
uint64_t ipu_connection_hold(struct ipu_pump *pump, struct ipu_connection *connection);

/* The pump goes to sleep: from now on the clock runs for a connection that it waits for. */
void ipu_connection_note_sleep(struct ipu_pump *pump);

/* Queues a message for the next doorbell. The connection must have room. */
void ipu_connection_enqueue(struct ipu_pump *pump, struct ipu_connection *connection,
                            const struct ipu_ah *ah, struct ipu_send send);

/* Rings the doorbell, after which no message is pending. */
void ipu_connection_flush(struct ipu_pump *pump);

/* Takes back a receive frame of the connections. */
static inline void ipu_connection_back(struct ipu_pump *pump, uint32_t index)
{
    pump->connected.idle[pump->connected.idle_count++] = index;
}

/* Reaps, receives, and releases connections; returns the amount of work done. */
int ipu_connection_poll(struct ipu_pump *pump, int max);

#endif
