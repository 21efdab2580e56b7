/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/tables/route_answers.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64u

static uint32_t hash(const struct ipu_hash_seed *seed, const struct ipu_flow_key *key)
{
    return ipu_flow_key_hash(key, seed) + key->tos * UINT32_C(0x9E3779B1);
}

static bool is_live(const void *slot)
{
    return ((const struct ipu_route_answer *)slot)->live;
}

static uint32_t hash_of(const void *slot, const struct ipu_hash_seed *seed)
{
    return hash(seed, &((const struct ipu_route_answer *)slot)->key);
}

static const struct ipu_hash_layout layout = {
    .bytes = sizeof(struct ipu_route_answer), .is_live = is_live, .hash = hash_of};

int ipu_route_answers_init(struct ipu_route_answers *answers, uint32_t max,
                           const struct ipu_hash_seed *seed)
{
    memset(answers, 0, sizeof *answers);
    answers->max = max;
    return ipu_hash_seed_init(&answers->seed, seed);
}

static void free_hops(const struct ipu_route_answer *answer)
{
    if (answer->kind == IPU_ROUTE_MULTIPATH)
        free(answer->hops);
}

void ipu_route_answers_flush(struct ipu_route_answers *answers)
{
    for (uint32_t i = 0; answers->slots != NULL && i <= answers->mask; i++)
        free_hops(&answers->slots[i]);
    free(answers->slots);
    answers->slots = NULL;
    answers->count = 0;
}

void ipu_route_answers_free(struct ipu_route_answers *answers)
{
    ipu_route_answers_flush(answers);
}

/* Returns the slot of the flow, or the empty slot where it belongs. */
static struct ipu_route_answer *slot_of(const struct ipu_route_answers *answers,
                                        const struct ipu_flow_key *key)
{
    IPU_HASH_TABLE_PROBE(i, hash(&answers->seed, key), answers->mask) {
        struct ipu_route_answer *slot = &answers->slots[i];
        if (!slot->live || memcmp(&slot->key, key, sizeof *key) == 0)
            return slot;
    }
}

const struct ipu_route_answer *ipu_route_answers_find(const struct ipu_route_answers *answers,
                                                      const struct ipu_flow_key *key)
{
    if (answers->slots == NULL)
        return NULL;
    const struct ipu_route_answer *slot = slot_of(answers, key);
    return slot->live ? slot : NULL;
}

/* Makes room for one more answer. */
static int grow(struct ipu_route_answers *answers)
{
    if (answers->slots != NULL && !ipu_hash_table_is_crowded(answers->count, answers->mask))
        return 0;
    uint32_t mask = answers->slots == NULL ? FIRST_SLOTS - 1 : 2 * answers->mask + 1;
    struct ipu_route_answer *slots = calloc(mask + UINT64_C(1), sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    if (answers->slots != NULL)
        ipu_hash_table_copy(&layout, &answers->seed, answers->slots, answers->mask, slots, mask);
    free(answers->slots);
    answers->slots = slots;
    answers->mask = mask;
    return 0;
}

int ipu_route_answers_put(struct ipu_route_answers *answers, struct ipu_route_answer answer)
{
    int forgotten = 0;
    if (answers->count >= answers->max) {
        forgotten = (int)answers->count;
        ipu_route_answers_flush(answers);
    }
    if (grow(answers) != 0) {
        free_hops(&answer);
        return -ENOMEM;
    }
    struct ipu_route_answer *slot = slot_of(answers, &answer.key);
    if (slot->live)
        free_hops(slot);
    else
        answers->count++;
    answer.live = 1;
    *slot = answer;
    return forgotten;
}
