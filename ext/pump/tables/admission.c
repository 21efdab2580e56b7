/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/tables/admission.h"

#include <string.h>

#include "core/clock.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "pump/packets/classify.h"

enum {
    ARP_BYTES = 56, /* of IPoIB: RFC 4391 §9.2 */
    ARP_SENDER = 28,
    ARP_TARGET = 52,
    ND_TARGET = IPU_IPV6_HEADER + 8,
    ND_BYTES = ND_TARGET + 16,
    ROOM_STRANGERS = 2, /* what must be free for them, so that answers find room */
    ROOM_KNOWN = 1,
};

/* While this is an own address, requests for all IPv4 addresses reach the engine: a proxy's. */
static const struct in6_addr all_ipv4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

/* The same for IPv6. No message is about this address, which is a multicast one. */
static const struct in6_addr all_ipv6 = {.s6_addr = {0xff}};

/* What a message is to the engine: nothing, a neighbour's question for others, something that
 * concerns us, an answer for which it waits. */
enum rank { NO_CONCERN, OVERHEARD, CONCERN, AWAITED };

struct message {
    struct in6_addr about;  /* the address of which the message gives the owner */
    struct in6_addr target; /* the host that it asks or answers; unspecified: all hosts */
    bool has_target, asks;
};

int ipu_admission_init(struct ipu_admission *admission)
{
    memset(admission, 0, sizeof *admission);
    return ipu_neigh_init(&admission->own, IPU_ADMISSION_OWN_MAX, NULL);
}

void ipu_admission_free(struct ipu_admission *admission)
{
    ipu_neigh_free(&admission->own);
}

int ipu_admission_set_own(struct ipu_admission *admission, const struct in6_addr *ip, bool ours)
{
    struct ipu_ah *none;
    if (!ours)
        return ipu_neigh_delete(&admission->own, ip, &none);
    return ipu_neigh_set(&admission->own, ip, NULL, IPU_NEIGH_HOLD, 0, &none);
}

/* ---- the message */

/* False: the message is too short; the engine counts the reason. */
static bool parse_untrusted(const uint8_t *frame, size_t len, struct message *message)
{
    const uint8_t *body = frame + IPU_ENCAP_LEN;
    *message = (struct message){.has_target = true};
    if (ipu_ip_get16(frame) == IPU_TYPE_ARP) {
        if (len < IPU_ENCAP_LEN + ARP_BYTES)
            return false;
        if (ipu_ip_get32(body + ARP_SENDER) != 0) /* else a probe: RFC 5227 §2.1.1 */
            message->about = ipu_classify_map4(body + ARP_SENDER);
        message->target = ipu_classify_map4(body + ARP_TARGET);
        message->asks = memcmp(&message->target, &message->about, sizeof message->about) != 0;
        return true;
    }
    if (len < IPU_ENCAP_LEN + ND_BYTES)
        return false;
    enum ipu_icmp6_concern concern = ipu_icmp6_kinds[body[IPU_IPV6_HEADER]].concern;
    bool answers = concern == IPU_ICMP6_ANSWERS;
    memcpy(&message->about, body + (answers ? ND_TARGET : IPU_IPV6_SOURCE), 16);
    memcpy(&message->target, body + (answers ? IPU_IPV6_DESTINATION : ND_TARGET), 16);
    message->asks = concern == IPU_ICMP6_ASKS;
    message->has_target = concern != IPU_ICMP6_ALL;
    return true;
}

/* ---- our requests */

static uint64_t now_s(void)
{
    return ipu_clock_coarse_ms() / 1000;
}

static struct ipu_admission_asked *asked_slot(struct ipu_admission *admission,
                                              const struct in6_addr *ip)
{
    return &admission->asked[ipu_hash_16(&admission->own.seed, ip) % IPU_ADMISSION_SLOTS];
}

void ipu_admission_sent(struct ipu_admission *admission, const uint8_t *frame, size_t len)
{
    struct message message;
    uint32_t type = ipu_ip_get16(frame);
    bool is_nd = type == IPU_TYPE_IPV6 && len >= IPU_ENCAP_LEN + ND_BYTES &&
                 frame[IPU_ENCAP_LEN + 6] == IPPROTO_ICMPV6 &&
                 ipu_icmp6_kinds[frame[IPU_ENCAP_LEN + IPU_IPV6_HEADER]].concern == IPU_ICMP6_ASKS;
    if ((type != IPU_TYPE_ARP && !is_nd) || !parse_untrusted(frame, len, &message))
        return;
    *asked_slot(admission, &message.target) =
        (struct ipu_admission_asked){.ip = message.target,
                                     .until_s = now_s() + IPU_ADMISSION_ASKED_S,
                                     .left = IPU_ADMISSION_ANSWERS};
}

static bool take_answer(struct ipu_admission *admission, const struct in6_addr *ip, uint64_t now)
{
    struct ipu_admission_asked *asked = asked_slot(admission, ip);
    if (asked->left == 0 || asked->until_s < now || memcmp(&asked->ip, ip, sizeof *ip) != 0)
        return false;
    asked->left--;
    return true;
}

/* ---- the decision */

/* Returns whether the message is for us, for whom we are a proxy, or for all hosts. */
static bool is_for_us(const struct ipu_neigh_table *own, const struct message *message)
{
    if (own->count == 0 || !message->has_target || ipu_neigh_find(own, &message->about) != NULL ||
        ipu_neigh_find(own, &message->target) != NULL)
        return true;
    bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&message->target);
    return ipu_neigh_find(own, is_ipv4 ? &all_ipv4 : &all_ipv6) != NULL;
}

static enum rank rank_of(struct ipu_admission *admission, const struct ipu_neigh_table *neigh,
                         const struct message *message, uint64_t now)
{
    if (take_answer(admission, &message->about, now))
        return AWAITED;
    bool for_us = is_for_us(&admission->own, message);
    if (ipu_neigh_find(neigh, &message->about) != NULL)
        return message->asks && !for_us ? OVERHEARD : CONCERN;
    if (for_us)
        return CONCERN;
    bool probes = IN6_IS_ADDR_UNSPECIFIED(&message->about);
    return probes && ipu_neigh_find(neigh, &message->target) != NULL ? CONCERN : NO_CONCERN;
}

/* Whoever asks us becomes a neighbour; one that has answered is at its address. */
static bool is_known(const struct ipu_neigh_table *neigh, const struct ipu_resolution *answered,
                     const struct message *message)
{
    bool probes = IN6_IS_ADDR_UNSPECIFIED(&message->about);
    const struct in6_addr *ip = probes ? &message->target : &message->about;
    return ipu_neigh_find(neigh, ip) != NULL && ipu_resolution_knows(answered, ip);
}

/* The count of the sender in this second; senders with the same hash share one. */
static uint16_t *count_of(struct ipu_admission *admission,
                          const struct ipu_admission_sender *sender)
{
    struct in6_addr key = {.s6_addr32 = {0}};
    if (sender->sgid != NULL)
        memcpy(&key, sender->sgid, sizeof key);
    key.s6_addr32[0] ^= sender->qpn;
    return &admission->by_sender[ipu_hash_16(&admission->own.seed, &key) % IPU_ADMISSION_SLOTS];
}

static void begin_second(struct ipu_admission *admission, uint64_t now)
{
    if (admission->second == now)
        return;
    admission->second = now;
    admission->strangers = admission->known = 0;
    admission->reported = false;
    memset(admission->by_sender, 0, sizeof admission->by_sender);
}

enum ipu_admission_verdict ipu_admission_judge_untrusted(struct ipu_admission *admission,
                                                         const struct ipu_neigh_table *neigh,
                                                         const struct ipu_resolution *answered,
                                                         const struct ipu_admission_sender *sender,
                                                         const uint8_t *frame, size_t len,
                                                         uint32_t room)
{
    struct message message;
    uint64_t now = now_s();
    enum rank rank = CONCERN;
    bool known = false;
    if (parse_untrusted(frame, len, &message)) {
        rank = rank_of(admission, neigh, &message, now);
        known = is_known(neigh, answered, &message);
    }
    if (rank == NO_CONCERN)
        return IPU_ADMIT_UNCONCERNED;
    if (rank == AWAITED)
        return IPU_ADMIT;
    begin_second(admission, now);
    uint16_t *count = count_of(admission, sender);
    /* A neighbour that scans the link must not use up what its requests to us need. */
    if (rank == OVERHEARD && *count >= IPU_ADMISSION_OVERHEARD)
        return IPU_ADMIT_UNCONCERNED;
    uint32_t *all = known ? &admission->known : &admission->strangers;
    uint32_t max = known ? IPU_ADMISSION_KNOWN : IPU_ADMISSION_STRANGERS;
    uint32_t least = known ? ROOM_KNOWN : ROOM_STRANGERS;
    if (room < least || *count >= IPU_ADMISSION_PER_SENDER || *all >= max)
        return IPU_ADMIT_NOT;
    (*count)++;
    (*all)++;
    return IPU_ADMIT;
}
