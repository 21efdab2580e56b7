/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CEILING_H
#define CEILING_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/frame.h"
#include "pump/packets/coalesce.h"
#include "soft/icrc.h"
#include "soft/roce.h"

/*
 * The least that IPoIB over RoCEv2 can cost: a forwarder of one thread for one peer and IPv4,
 * between a TUN and a UDP socket, from the functions of ipoibu that cut, merge and sum up. It does
 * what the protocol demands of every packet, and nothing else: no tables, queues, counters or
 * commands.
 *
 *   datagram    A train of UDP_SEGMENT carries one frame, cut into packets of IP with all
 * checksums, each behind BTH, DETH and the encapsulation header, with an ICRC. The receiver checks
 *               each ICRC, merges the packets of a train, and writes the TUN once.
 *   connected   A frame is one message of reliable connection, and a frame as long as the MTU fills
 * a train. The receiver checks each ICRC, acknowledges each train and writes the TUN once. The
 * sender keeps trains until then, 1 MiB of them, and resends them.
 */
enum {
    CEILING_MTU = 2044,          /* of datagram mode */
    CEILING_PACKET_MIN = 1024,   /* payload of a packet in connected mode, */
    CEILING_PACKET_MAX = 16384,  /* a multiple of 4 */
    CEILING_TRAIN_BYTES = 65507, /* of an IPv4 datagram */
    CEILING_TRAIN_PACKETS = 64,  /* UDP_MAX_SEGMENTS of older kernels */
    CEILING_WINDOW = 1 << 20,    /* bytes that wait for their acknowledgement */
    CEILING_KEPT = 1024,         /* trains that do */
    CEILING_PIECES = 1 + 65,     /* of the longest message of the shortest packets */
    CEILING_SEEDS = 16,
    CEILING_QPN = 0x11, /* of both ends */
    CEILING_FRAME = IPU_VNET_LEN + 65535,
};

struct ceiling_seed {
    uint32_t bytes, seed;
};

/* A train in the window, for the case that it has to be sent again. */
struct ceiling_train {
    uint32_t at, bytes; /* in the window */
    uint32_t psn, packets;
};

struct ceiling {
    int tun, udp;
    uint32_t packet_bytes;                       /* payload in connected mode; 0: datagram mode */
    struct in6_addr ends[2];                     /* here, there */
    struct ceiling_seed seeds[2][CEILING_SEEDS]; /* of what is sent, of what is received */
    uint64_t refused, resent;                    /* packets; trains */
    uint32_t psn;
    size_t train_bytes, each; /* received last; its packets, of which the last may be shorter */
    uint8_t train[1 << 16];
    union {
        struct {                   /* datagram mode */
            int error;             /* of the TUN */
            uint32_t made_packets; /* of the train that is being made; its bytes, and a packet's */
            size_t made_bytes, made_each;
            struct ipu_coalesce merge;
            uint8_t frame[CEILING_FRAME], made[1 << 16];
        };
        struct { /* connected mode */
            uint32_t train_packets, most_packets, slot_bytes;
            uint32_t oldest, waiting; /* of `kept`, a ring */
            uint32_t next_at;         /* in the window */
            uint64_t since_ns;        /* the last progress, while trains wait */
            struct ceiling_train kept[CEILING_KEPT];
            uint8_t window[CEILING_WINDOW];
            uint32_t expected_psn, msn; /* the receiver */
            bool gap;                   /* of which the sender knows */
            uint32_t pieces;            /* of the message that is being received */
            size_t collected;           /* of its bytes, those in `rest` */
            struct iovec iov[CEILING_PIECES];
            uint8_t rest[CEILING_FRAME]; /* of a message in several trains */
        };
    };
};

/* ---- ceiling.c ------------------------------------------------------------------------------- */

/* `tun` yields frames behind IPU_VNET_LEN bytes, `udp` is connected over IPv4 with UDP_GRO; both
 * are non-blocking, and stay the caller's. Returns NULL without memory, and for another
 * packet_bytes. */
struct ceiling *ceiling_create(int tun, int udp, const struct in6_addr ends[2],
                               uint32_t packet_bytes);

/* Gives each direction its turn, resends what is due at now_ns. Returns the frames and trains that
 * it moved, or a negative errno when a descriptor failed. */
int ceiling_step(struct ceiling *self, uint64_t now_ns);

/* Steps, and sleeps when there is nothing to do, until a descriptor fails: a negative errno. */
int ceiling_run(struct ceiling *self);

/* ---- wire.c: trains of packets, each with its ICRC ------------------------------------------- */

/* Copies `bytes` of payload behind the `head` bytes of a packet, which begins with its BTH, then
 * writes the padding and the ICRC. Returns the length of the packet. */
size_t ceiling_seal(struct ceiling *self, uint8_t *packet, size_t head, const uint8_t *payload,
                    size_t bytes);

/* Takes the packet at *at of the received train, and moves *at behind it. Returns whether it is for
 * us and whole; `packet` and the payload are then what it says. */
bool ceiling_next_untrusted(struct ceiling *self, size_t *at, struct soft_roce *packet,
                            uint8_t **payload, size_t *bytes);

/* ---- datagram.c and connected.c -------------------------------------------------------------- */

/* Send one frame of the TUN. Return 1, 0 without one, or a negative errno. */
int ceiling_datagram_send(struct ceiling *self);
int ceiling_connected_send(struct ceiling *self, uint64_t now_ns);

/* Take the packets of a received train. Return 0 or a negative errno. */
int ceiling_datagram_take_untrusted(struct ceiling *self);
int ceiling_connected_take_untrusted(struct ceiling *self, uint64_t now_ns);

void ceiling_datagram_init(struct ceiling *self);
void ceiling_connected_init(struct ceiling *self);

/* The MTU of the TUN. */
uint32_t ceiling_mtu(uint32_t packet_bytes);

/* Returns whether the window has room for another message. */
bool ceiling_has_room(const struct ceiling *self);

/* Resends what the peer has not acknowledged for too long. Returns 0 or a negative errno. */
int ceiling_resend_due(struct ceiling *self, uint64_t now_ns);

#endif
