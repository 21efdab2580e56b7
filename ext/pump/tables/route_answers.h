/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_ROUTE_ANSWERS_H
#define IPU_ROUTE_ANSWERS_H

#include "pump/packets/flow_key.h"
#include "pump/tables/route.h"

/* The kernel's answer about the route of a flow. */
struct ipu_route_answer {
    struct ipu_flow_key key;
    union {
        struct in6_addr gateway; /* GATEWAY */
        struct ipu_hops *hops;   /* MULTIPATH */
    };
    uint8_t kind;
    uint8_t live;
    uint8_t pad[6];
};

/*
 * The answers for flows whose route is of kind ASK. A full table forgets all of them: the engine
 * asks the kernel again. One thread only.
 */
struct ipu_route_answers {
    struct ipu_route_answer *slots; /* NULL: the table is empty */
    uint32_t mask;
    uint32_t count;
    uint32_t max;
    struct ipu_hash_seed seed;
};

/* Returns 0, or the error of ipu_hash_seed_init(). */
int ipu_route_answers_init(struct ipu_route_answers *answers, uint32_t max,
                           const struct ipu_hash_seed *seed);
void ipu_route_answers_free(struct ipu_route_answers *answers);

/* Returns the answer, valid until the table changes; NULL: there is none. */
const struct ipu_route_answer *ipu_route_answers_find(const struct ipu_route_answers *answers,
                                                      const struct ipu_flow_key *key);

/* Stores the answer, and takes over its hops. Returns the number of answers that the full table
 * forgot, or -ENOMEM, with the hops freed. */
int ipu_route_answers_put(struct ipu_route_answers *answers, struct ipu_route_answer answer);

/* Forgets all answers. */
void ipu_route_answers_flush(struct ipu_route_answers *answers);

#endif
