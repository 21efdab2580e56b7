/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_PUMP_H
#define IPU_PUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/ring.h"
#include "device/device.h"
#include "fabric/fabric.h"
#include "pump/records/counters.h"

/*
 * The pump moves packets between a packet device and a fabric, on a thread of its own that never
 * takes the GIL. It owns every table; the engine writes them through the command ring and gets
 * events through the event ring. Theory: ext/README.md.
 */
struct ipu_pump;

struct ipu_pump_config {
    struct ipu_fabric *fabric; /* both outlive the pump */
    struct ipu_device *device;
    uint32_t mtu;              /* largest IP packet by datagram, at most fabric->mtu - 4 */
    uint32_t device_mtu;       /* largest IP packet of the device; 0: mtu, or connected mode's */
    uint32_t tcp_packet_bytes; /* longest IP packet of TCP that the device is to make; 0: any */
    uint32_t tx_frames;        /* 0: the pump chooses */
    uint32_t rx_frames;        /* 0: it only sends */
    uint32_t connected_frames; /* receives that all connections share; 0: no connections */
    uint32_t frames_halved;    /* how often the pump halves its numbers of frames: less to pin */
    uint32_t neigh_max;
    uint32_t route_max;
    uint32_t route_answer_max;
    uint32_t ah_max;
    uint32_t resolution_parts; /* pumps that share the budgets of new resolutions; 0: one */
    uint32_t command_bytes;    /* ring sizes, powers of two */
    uint32_t event_bytes;
    uint32_t capture_bytes;
    uint32_t
        busy_poll_us; /* after the last packet the pump polls for this time before it sleeps, */
    bool adaptive;    /* or for the time that adaptive_poll.h chooses */
};

/* Returns 0, or a negative errno with nothing left behind. */
int ipu_pump_create(const struct ipu_pump_config *config, struct ipu_pump **out);

/* Ends the thread if it runs and frees everything; the rings go with it. */
void ipu_pump_destroy(struct ipu_pump *pump);

/* Starts the pump's thread; -EALREADY when it runs. After ipu_pump_stop the caller may start or
 * step the pump again. */
int ipu_pump_start(struct ipu_pump *pump);
void ipu_pump_stop(struct ipu_pump *pump);

/* Makes one round, with at most `max` packets in each direction, without sleep; returns the amount
 * of work done. Only while no thread runs. */
int ipu_pump_step(struct ipu_pump *pump, int max);

/* The caller produces into the ring of commands, and consumes from the other two rings. */
struct ipu_ring *ipu_pump_commands(struct ipu_pump *pump);
struct ipu_ring *ipu_pump_events(struct ipu_pump *pump);
struct ipu_ring *ipu_pump_captured(struct ipu_pump *pump);

/* Any thread may read them. */
const struct ipu_counters *ipu_pump_counters(const struct ipu_pump *pump);

#endif
