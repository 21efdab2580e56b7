/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_WRITE_SHARE_H
#define IPU_WRITE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Fair shares of the writes to the device while the pump is saturated: a packet that the pump
 * writes alone costs a system call and a walk through the host's IP stack, one that it merges costs
 * a small part of that. So a sender of many single packets could take the pump's time from all
 * others.
 *
 * The pump is saturated when IPU_WRITE_SHARE_BACKLOG packets came in rounds without a pause; each
 * round without work takes IPU_WRITE_SHARE_IDLE off, and at zero the pump keeps up again. While it
 * is saturated each window of IPU_WRITE_SHARE_WINDOW units decides about the next window: a sender
 * may write
 *
 *     IPU_WRITE_SHARE_LEAST + the larger of
 *         the writes of the active sender that wrote least (without one: 0),
 *         the units by which it had more than all others together.
 *
 * So a sender that has the pump for itself, or that writes as little as the others, loses nothing.
 * A merged frame counts as one write, and the pump never drops it. Senders that we have no address
 * handle of share one place, or invented senders would have as many shares as they have addresses.
 * A write takes about as long as the receipt of three packets (bench/notes/floods.md).
 */
enum {
    /* A unit: a packet, or so many bytes of a longer one, as the longest datagram has. */
    IPU_WRITE_SHARE_UNIT = 4096,
    IPU_WRITE_SHARE_BACKLOG = 1024, /* packets without a pause: 4 full rounds, some 3 ms */
    IPU_WRITE_SHARE_IDLE = 64,      /* packets: a full batch */
    IPU_WRITE_SHARE_WINDOW = 256,   /* units: a full round */
    IPU_WRITE_SHARE_LEAST = 32,     /* writes of a sender in each window; an active sender had as
                                       many units; a stream has 5 acknowledgements */
    IPU_WRITE_SHARE_SENDERS = 64,   /* further senders share the places */
    IPU_WRITE_SHARE_STRANGERS = 0,  /* the place of all of them */
};

struct ipu_write_share {
    bool saturated;
    bool disabled;    /* writes to this device cost too little */
    uint32_t current; /* the sender of the current packet */
    uint32_t backlog; /* packets; up to IPU_WRITE_SHARE_BACKLOG */
    uint32_t window;  /* units in this window */
    uint32_t units[IPU_WRITE_SHARE_SENDERS];
    uint32_t writes[IPU_WRITE_SHARE_SENDERS]; /* those that the pump refused, too */
    uint32_t allowed[IPU_WRITE_SHARE_SENDERS];
};

/* Counts a packet of the current sender. */
void ipu_write_share_count(struct ipu_write_share *share, uint32_t bytes);

/* Returns the place of a sender that we know, by a hash of its address. */
static inline uint32_t ipu_write_share_place(uint64_t hash)
{
    return 1 + (uint32_t)(hash % (IPU_WRITE_SHARE_SENDERS - 1));
}

/* Counts a write. Returns whether the sender may write a single packet now. */
static inline bool ipu_write_share_spend(struct ipu_write_share *share, uint32_t sender)
{
    return !share->saturated || ++share->writes[sender] <= share->allowed[sender];
}

/* Ends a round of the pump, in which it received so many packets, or had nothing to do. */
void ipu_write_share_end_round(struct ipu_write_share *share, uint32_t received, bool was_idle);

#endif
