/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_FUZZ_PUMP_WORLD_H
#define IPU_FUZZ_PUMP_WORLD_H

#include "input.h"
#include "pump/loop/pump.h"
#include "pump/records/pump_abi.h"

/*
 * A pump between a fabric and a packet device that the fuzzer plays. The fabric keeps what the pump
 * posts and sends until an action fills or ends it. The device checks what the kernel would get.
 */
enum {
    WORLD_MTU = 2044,
    WORLD_DEVICE_MTU = 65520,
    WORLD_CONNECTIONS = 3,
    WORLD_MACS = 4,          /* of guests and of hosts: 02:00:00:00:00:00 to :03 */
    WORLD_GUEST_QPN = 0x200, /* and as many that follow */
    WORLD_HOPS = 4, /* neighbours 10.0.0.1 to .4 and fd00::1 to ::4; the last has no entry */
};

struct world_faults {
    int error;    /* the result of the next send, post or receive of the fabric; 0: it works */
    int take;     /* datagrams or messages that a send takes; -1: all */
    int device;   /* the result of the next read of the device; 0: it works */
    bool queues;  /* the device queues writes */
    bool is_full; /* the device has no room */
    bool holds;   /* sends do not end */
    bool fails;   /* messages end with an error */
};

struct world {
    struct ipu_pump *pump;
    struct world_faults faults;
};

extern struct world world;

/* Opens the world: `offload` has the device's IPU_DEVICE_* bits, `one_piece` is the fabric's;
 * `ethernet`: the device has guests; `cuts`: the fabric cuts super-frames. */
void world_open(uint32_t offload, bool one_piece, bool ethernet, bool cuts);
void world_close(void);

/* Puts a datagram [GRH 40][frame] into the oldest posted receive; loses it if none is posted. */
void world_datagram(const uint8_t *bytes, size_t len, uint32_t flags, uint32_t src_qpn,
                    uint32_t qpn);

/* Puts a message of connection `which` into a shared receive. */
void world_message(uint32_t which, const uint8_t *bytes, size_t len);

/* Gives the device a frame for the pump: [vnet 16][IP], of guests [Ethernet 14][vnet 16][IP]. */
void world_frame(const uint8_t *bytes, size_t len);

/* Runs a command, or counts it as lost when the ring is full. */
void world_command(const struct ipu_command *command, const void *data, uint32_t len);

/* Returns whether the pump has all frames back that it sends from, once nothing is under way. */
bool world_is_whole(void);

/* Steps the pump until it has nothing to do, and discards its events. */
void world_step(void);

/* The destination of neighbour `i`, and its address; v6: its IPv6 address. */
struct ipu_dest world_dest(uint32_t i);
struct in6_addr world_hop(uint32_t i, bool v6);

/* The connection, for CONNECTION_ADD; its id is `which` + 1. */
struct ipu_connection *world_connection(uint32_t which);

#endif
