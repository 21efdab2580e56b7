/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/tables/resolution.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/ip_header.h"
#include "pump/packets/flow_key.h"

enum {
    MILLI = 1000,
    REPORT_MS = 1000,
    TICK_MS = 64,    /* the unit of time in a tag of `refused`, */
    TICK_MASK = 255, /* which wraps after 16 s */
    AGAIN_TICKS = (IPU_RESOLUTION_AGAIN_MS + TICK_MS - 1) / TICK_MS,
    ICMP_IDENTIFIER = 4,
    ICMP_LEN = 8,
    ICMP_UNREACHABLE = 3, /* RFC 792 */
    ICMP_SOURCE_QUENCH = 4,
    ICMP_REDIRECT = 5,
    ICMP_TIME_EXCEEDED = 11,
    ICMP_PARAMETER_PROBLEM = 12,
    ICMP_ECHO = 8,
    ICMP6_INFORMATIONAL = 128, /* RFC 4443 §2.1: the types of errors are lower */
    ICMP6_ECHO = 128,
};

static const struct {
    uint64_t most, per_s, share_per_s;
} limits[IPU_RESOLUTION_RANKS] = {
    [IPU_RESOLUTION_STRANGER] = {IPU_RESOLUTIONS, IPU_RESOLUTIONS_PER_S,
                                 IPU_RESOLUTION_SHARE_PER_S},
    [IPU_RESOLUTION_AGAIN] = {IPU_RESOLUTIONS, IPU_RESOLUTIONS_PER_S, IPU_RESOLUTION_SHARE_PER_S},
    [IPU_RESOLUTION_KNOWN] = {IPU_RESOLUTIONS_KNOWN, IPU_RESOLUTIONS_KNOWN_PER_S,
                              IPU_RESOLUTION_KNOWN_SHARE_PER_S},
    [IPU_RESOLUTION_QUESTION] = {IPU_RESOLUTION_QUESTIONS, IPU_RESOLUTION_QUESTIONS_PER_S,
                                 IPU_RESOLUTION_QUESTION_SHARE_PER_S},
};

int ipu_resolution_init(struct ipu_resolution *resolution, uint32_t parts,
                        const struct ipu_hash_seed *seed)
{
    memset(resolution, 0, sizeof *resolution);
    resolution->parts = parts > 0 ? parts : 1;
    resolution->begun = calloc(IPU_RESOLUTION_BEGUN_SLOTS, sizeof *resolution->begun);
    resolution->known = calloc(IPU_RESOLUTION_KNOWN_SLOTS, sizeof *resolution->known);
    resolution->refused = calloc(IPU_RESOLUTION_REFUSED_SLOTS, sizeof *resolution->refused);
    if (resolution->begun == NULL || resolution->known == NULL || resolution->refused == NULL)
        return -ENOMEM;
    return ipu_hash_seed_init(&resolution->seed, seed);
}

void ipu_resolution_free(struct ipu_resolution *resolution)
{
    free(resolution->begun);
    free(resolution->known);
    free(resolution->refused);
    resolution->begun = NULL;
    resolution->known = resolution->refused = NULL;
}

/* ---- the packet */

static bool is_error(uint8_t protocol, uint8_t type)
{
    if (protocol == IPPROTO_ICMPV6)
        return type < ICMP6_INFORMATIONAL;
    return type == ICMP_UNREACHABLE || type == ICMP_SOURCE_QUENCH || type == ICMP_REDIRECT ||
           type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER_PROBLEM;
}

struct ipu_resolution_flow ipu_resolution_flow_of(const struct ipu_resolution *resolution,
                                                  const uint8_t *ip, size_t len)
{
    struct ipu_flow_key key = ipu_flow_key_of(ip, len);
    struct ipu_resolution_flow flow = {.is_error = false};
    bool is_v4 = ipu_ip_is_v4(ip);
    size_t header = is_v4 ? (size_t)(ip[0] & 15) * 4 : IPU_IPV6_HEADER;
    size_t kind_len = len; /* 0: a peer chooses the length of what our host answers */
    if (key.protocol == (is_v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6) && header + ICMP_LEN <= len) {
        flow.is_error = is_error(key.protocol, ip[header]);
        memcpy(key.ports, ip + header + ICMP_IDENTIFIER, 2);
        key.ports[2] = ip[header];
        if (ip[header] != (is_v4 ? ICMP_ECHO : ICMP6_ECHO))
            kind_len = 0;
    }
    const uint8_t kind[16] = {key.protocol, key.ports[2], key.ports[3], (uint8_t)(kind_len >> 8),
                              (uint8_t)kind_len};
    uint8_t program[32] = {[16] = key.protocol, key.ports[0], key.ports[1]};
    memcpy(program, &key.src, sizeof key.src);
    flow.kind = (uint8_t)(ipu_hash_16(&resolution->seed, kind) % IPU_RESOLUTION_SHARES);
    flow.program = (uint8_t)(ipu_hash_32(&resolution->seed, program) % IPU_RESOLUTION_SHARES);
    return flow;
}

/* ---- the budgets */

static uint64_t fall(struct ipu_resolution_level *level, uint64_t per_s, uint64_t now_ms)
{
    uint64_t fallen = (now_ms - level->at_ms) * per_s; /* in thousandths */
    level->milli = level->milli > fallen ? level->milli - fallen : 0;
    level->at_ms = now_ms;
    return level->milli;
}

/*
 * Takes a place if the budget leaves one. What a kind of packets and a program have under way may
 * together be at most what is left for all: so whoever fills the budget leaves a third of it to
 * packets that differ in one of the two, and half to those that differ in both.
 */
static bool spend(struct ipu_resolution *resolution, enum ipu_resolution_rank rank,
                  struct ipu_resolution_flow flow, uint64_t now_ms)
{
    struct ipu_resolution_budget *budget = &resolution->budgets[rank];
    struct ipu_resolution_level *kind = &budget->kinds[flow.kind];
    struct ipu_resolution_level *program = &budget->programs[flow.program];
    uint64_t parts = resolution->parts;
    uint64_t most = limits[rank].most * MILLI / parts;
    uint64_t all = fall(&budget->all, limits[rank].per_s / parts, now_ms);
    uint64_t mine = fall(kind, limits[rank].share_per_s / parts, now_ms) +
                    fall(program, limits[rank].share_per_s / parts, now_ms);
    if (all + mine + MILLI > most)
        return false;
    budget->all.milli += MILLI;
    kind->milli += MILLI;
    program->milli += MILLI;
    return true;
}

static void give_back(struct ipu_resolution *resolution, const struct ipu_resolution_begun *begun)
{
    struct ipu_resolution_budget *budget = &resolution->budgets[begun->rank];
    struct ipu_resolution_level *levels[] = {&budget->all, &budget->kinds[begun->kind],
                                             &budget->programs[begun->program]};
    for (int i = 0; i < 3; i++)
        levels[i]->milli -= levels[i]->milli < MILLI ? levels[i]->milli : MILLI;
}

/* ---- the addresses */

static struct ipu_resolution_begun *begun_slot(struct ipu_resolution *resolution, uint64_t hash)
{
    return &resolution->begun[hash % IPU_RESOLUTION_BEGUN_SLOTS];
}

static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32) | 1; /* 0: an empty slot */
}

/* Returns whether we refused the address a while ago. */
static bool was_refused(const struct ipu_resolution *resolution, uint64_t hash, uint64_t now_ms)
{
    uint32_t tag = resolution->refused[hash % IPU_RESOLUTION_REFUSED_SLOTS];
    uint32_t ticks = (uint32_t)(now_ms / TICK_MS) - tag;
    return (tag ^ tag_of(hash)) <= TICK_MASK && (ticks & TICK_MASK) >= AGAIN_TICKS;
}

static void note_refusal(struct ipu_resolution *resolution, uint64_t hash, uint64_t now_ms)
{
    uint32_t *slot = &resolution->refused[hash % IPU_RESOLUTION_REFUSED_SLOTS];
    if ((*slot ^ tag_of(hash)) > TICK_MASK)
        *slot = (tag_of(hash) & ~(uint32_t)TICK_MASK) | (uint32_t)(now_ms / TICK_MS & TICK_MASK);
}

/* Two addresses with the same index have a place each; a third one replaces the second. */
static bool is_known(const struct ipu_resolution *resolution, uint64_t hash)
{
    const uint32_t *pair = &resolution->known[hash % IPU_RESOLUTION_KNOWN_SLOTS & ~UINT64_C(1)];
    return pair[0] == tag_of(hash) || pair[1] == tag_of(hash);
}

static void note_answer(struct ipu_resolution *resolution, uint64_t hash)
{
    uint32_t *pair = &resolution->known[hash % IPU_RESOLUTION_KNOWN_SLOTS & ~UINT64_C(1)];
    if (!is_known(resolution, hash))
        pair[pair[0] != 0] = tag_of(hash);
}

static enum ipu_resolution_rank rank_of(const struct ipu_resolution *resolution, uint64_t hash,
                                        bool is_gateway, uint64_t now_ms)
{
    if (is_gateway || is_known(resolution, hash))
        return IPU_RESOLUTION_KNOWN;
    return was_refused(resolution, hash, now_ms) ? IPU_RESOLUTION_AGAIN : IPU_RESOLUTION_STRANGER;
}

enum ipu_resolution_verdict ipu_resolution_judge(struct ipu_resolution *resolution,
                                                 const struct in6_addr *next_hop,
                                                 struct ipu_resolution_flow flow, bool is_gateway,
                                                 uint64_t now_ms)
{
    uint64_t hash = ipu_hash_16(&resolution->seed, next_hop);
    struct ipu_resolution_begun *begun = begun_slot(resolution, hash);
    if (begun->tag == tag_of(hash) && now_ms < begun->until_ms)
        return IPU_RESOLVE;
    if (flow.is_error && !is_gateway)
        return IPU_RESOLVE_ERROR;
    enum ipu_resolution_rank rank = rank_of(resolution, hash, is_gateway, now_ms);
    if (!spend(resolution, rank, flow, now_ms)) {
        note_refusal(resolution, hash, now_ms);
        return IPU_RESOLVE_NOT;
    }
    *begun = (struct ipu_resolution_begun){.tag = tag_of(hash),
                                           .rank = (uint8_t)rank,
                                           .kind = flow.kind,
                                           .program = flow.program,
                                           .live = true,
                                           .until_ms = now_ms + IPU_RESOLUTION_BEGUN_MS};
    return IPU_RESOLVE;
}

bool ipu_resolution_may_ask(struct ipu_resolution *resolution, struct ipu_resolution_flow flow,
                            uint64_t now_ms)
{
    return spend(resolution, IPU_RESOLUTION_QUESTION, flow, now_ms);
}

void ipu_resolution_answered(struct ipu_resolution *resolution, const struct in6_addr *next_hop,
                             uint64_t now_ms)
{
    uint64_t hash = ipu_hash_16(&resolution->seed, next_hop);
    struct ipu_resolution_begun *begun = begun_slot(resolution, hash);
    note_answer(resolution, hash);
    if (begun->tag != tag_of(hash) || !begun->live || now_ms >= begun->until_ms)
        return;
    begun->live = false;
    give_back(resolution, begun);
}

bool ipu_resolution_knows(const struct ipu_resolution *resolution, const struct in6_addr *ip)
{
    return is_known(resolution, ipu_hash_16(&resolution->seed, ip));
}

bool ipu_resolution_report(struct ipu_resolution *resolution, uint64_t now_ms)
{
    if (resolution->reported_ms != 0 && now_ms - resolution->reported_ms < REPORT_MS)
        return false;
    resolution->reported_ms = now_ms;
    return true;
}
