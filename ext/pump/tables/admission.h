/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_ADMISSION_H
#define IPU_ADMISSION_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pump/tables/neigh.h"
#include "pump/tables/resolution.h"

/*
 * Selects the ARP and ND messages that the engine gets when there are more than it can read, which
 * is some 5000 a second. A host announces itself 3 times, and asks at most 3 times in 3 s. The
 * first four numbers are messages a second.
 */
enum {
    IPU_ADMISSION_PER_SENDER = 256, /* of one queue pair: a router with many neighbours, */
    IPU_ADMISSION_OVERHEARD = 64,   /* requests of a neighbour for others among them */
    IPU_ADMISSION_STRANGERS = 500,  /* of all hosts that have never answered */
    IPU_ADMISSION_KNOWN = 2000,     /* about neighbours that have: so many restart at once */
    IPU_ADMISSION_ANSWERS = 16,     /* to each of our questions */
    IPU_ADMISSION_OWN_MAX = 3074,   /* our addresses, others that we answer for, all */
    IPU_ADMISSION_SLOTS = 1024,     /* of senders, and of questions */
    IPU_ADMISSION_ROOM_PARTS = 16,  /* of the event ring; `room` counts them */
    IPU_ADMISSION_ASKED_S = 4,      /* the engine asks for 3 s */
};

/* A request that the engine has sent; a later request with the same hash replaces it. */
struct ipu_admission_asked {
    struct in6_addr ip;
    uint64_t until_s;
    uint32_t left; /* answers that may still come */
};

struct ipu_admission {
    struct ipu_neigh_table own; /* addresses that we answer for, as a set */
    struct ipu_admission_asked asked[IPU_ADMISSION_SLOTS];
    uint64_t second; /* of the numbers below */
    uint32_t strangers, known;
    uint16_t by_sender[IPU_ADMISSION_SLOTS];
    bool reported; /* the engine knows that the pump refuses messages in this second */
};

/* The sender of a datagram; sgid NULL: there was no GRH. */
struct ipu_admission_sender {
    const uint8_t *sgid;
    uint32_t qpn;
};

enum ipu_admission_verdict {
    IPU_ADMIT,
    IPU_ADMIT_NOT, /* too many messages */
    IPU_ADMIT_UNCONCERNED,
};

/* Returns 0 or a negative errno, as ipu_neigh_init() does. */
int ipu_admission_init(struct ipu_admission *admission);

void ipu_admission_free(struct ipu_admission *admission);

/* Adds an address of ours, or removes it; 0.0.0.0 stands for all IPv4 addresses. Returns 0,
 * -ENOSPC, -ENOMEM or -ENOENT. */
int ipu_admission_set_own(struct ipu_admission *admission, const struct in6_addr *ip, bool ours);

/* Notes that we send a frame, from the encapsulation header on: the frame may be a request. */
void ipu_admission_sent(struct ipu_admission *admission, const uint8_t *frame, size_t len);

/* Decides about an ARP or ND message, from the encapsulation header on. `neigh` has the neighbours,
 * and `answered` knows which of them have answered. `room` is the free part of
 * the event ring, in IPU_ADMISSION_ROOM_PARTS. */
enum ipu_admission_verdict ipu_admission_judge_untrusted(struct ipu_admission *admission,
                                                         const struct ipu_neigh_table *neigh,
                                                         const struct ipu_resolution *answered,
                                                         const struct ipu_admission_sender *sender,
                                                         const uint8_t *frame, size_t len,
                                                         uint32_t room);

#endif
