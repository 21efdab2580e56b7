/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_RESOLUTION_H
#define IPU_RESOLUTION_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/hash.h"

/*
 * Selects the misses that may begin a resolution, which costs the engine events and timers, and the
 * link broadcasts. Somebody who makes our host send to invented addresses, or scans the link from
 * it, gets a share, and hosts that have answered, gateways, and addresses that are asked for again
 * do not wait behind him. One costs the engine 0.1 ms or more, and the link three broadcasts; an
 * answer gives its place back. ext/README.md has the theory ("New resolutions").
 */
enum {
    /* Unanswered ones at once, of strangers: Linux gc_thresh3 counts such neighbours; and how many
     * of them a second makes room for: Linux has 1024 in 3 s. */
    IPU_RESOLUTIONS = 1024,
    IPU_RESOLUTIONS_PER_S = 240,
    IPU_RESOLUTION_SHARE_PER_S = 80, /* of one program, or kind of packets: a scanner's rate */
    /* The same of hosts that have answered, and of gateways: all neighbours of a busy host, after a
     * flush. */
    IPU_RESOLUTIONS_KNOWN = 8192,
    IPU_RESOLUTIONS_KNOWN_PER_S = 2000,     /* */
    IPU_RESOLUTION_KNOWN_SHARE_PER_S = 700, /* */
    IPU_RESOLUTION_QUESTIONS = 4096,        /* about routes */
    IPU_RESOLUTION_QUESTIONS_PER_S = 3000,  /* */
    IPU_RESOLUTION_QUESTION_SHARE_PER_S = 1000,
    IPU_RESOLUTION_BEGUN_MS = 3500, /* the engine asks for 3 s, and refuses for another one */
    IPU_RESOLUTION_AGAIN_MS = 200,  /* TCP, DNS and ping repeat after a second; a scanner at once */
    IPU_RESOLUTION_BEGUN_SLOTS = 8192, /* as many resolutions as may be under way */
    IPU_RESOLUTION_KNOWN_SLOTS = 16384,
    IPU_RESOLUTION_REFUSED_SLOTS = 65536, /* a second of 50 000 a second */
    IPU_RESOLUTION_SHARES = 256,          /* kinds, and programs, with a share of their own */
};

/* Each rank has a budget of its own. */
enum ipu_resolution_rank {
    IPU_RESOLUTION_STRANGER,
    IPU_RESOLUTION_AGAIN,    /* refused lately, and asked for again after a while */
    IPU_RESOLUTION_KNOWN,    /* has answered, or is a gateway */
    IPU_RESOLUTION_QUESTION, /* about a route */
    IPU_RESOLUTION_RANKS,
};

/* A level in thousandths, which falls as time passes. */
struct ipu_resolution_level {
    uint64_t milli, at_ms;
};

struct ipu_resolution_budget {
    struct ipu_resolution_level all;
    struct ipu_resolution_level kinds[IPU_RESOLUTION_SHARES], programs[IPU_RESOLUTION_SHARES];
};

/* The sources that make our host send: packets with the same length and destination port or ICMP
 * type, and packets of one socket. A scanner differs from an honest program in one of them, or in
 * both. */
struct ipu_resolution_flow {
    uint8_t kind, program;
    bool is_error; /* an ICMP error */
};

struct ipu_resolution_begun {
    uint32_t tag;
    uint8_t rank, kind, program, live;
    uint64_t until_ms;
};

/* The tables are indexed by a hash; a later address with the same index replaces an earlier one. */
struct ipu_resolution {
    struct ipu_hash_seed seed;
    uint32_t parts;
    struct ipu_resolution_budget budgets[IPU_RESOLUTION_RANKS];
    struct ipu_resolution_begun *begun;
    uint32_t *known, *refused; /* tags */
    uint64_t reported_ms;      /* when the engine last heard that we refuse resolutions */
};

enum ipu_resolution_verdict {
    IPU_RESOLVE,
    IPU_RESOLVE_NOT,   /* too many resolutions */
    IPU_RESOLVE_ERROR, /* an ICMP error to a stranger */
};

/* `parts` pumps share the budgets of one interface. Returns 0 or a negative errno. */
int ipu_resolution_init(struct ipu_resolution *resolution, uint32_t parts,
                        const struct ipu_hash_seed *seed);

void ipu_resolution_free(struct ipu_resolution *resolution);

/* Describes a packet that ipu_classify_tx() accepted. */
struct ipu_resolution_flow ipu_resolution_flow_of(const struct ipu_resolution *resolution,
                                                  const uint8_t *ip, size_t len);

/* Decides about a packet to a next hop without an entry. */
enum ipu_resolution_verdict ipu_resolution_judge(struct ipu_resolution *resolution,
                                                 const struct in6_addr *next_hop,
                                                 struct ipu_resolution_flow flow, bool is_gateway,
                                                 uint64_t now_ms);

/* Decides about a packet whose route only the kernel knows. */
bool ipu_resolution_may_ask(struct ipu_resolution *resolution, struct ipu_resolution_flow flow,
                            uint64_t now_ms);

/* Notes that the host has answered: its resolution no longer counts. */
void ipu_resolution_answered(struct ipu_resolution *resolution, const struct in6_addr *next_hop,
                             uint64_t now_ms);

/* Returns whether the host has ever answered, as far as we remember. */
bool ipu_resolution_knows(const struct ipu_resolution *resolution, const struct in6_addr *ip);

/* Returns whether to report a refusal to the engine, once a second. */
bool ipu_resolution_report(struct ipu_resolution *resolution, uint64_t now_ms);

#endif
