/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hellos, by which hosts with several rails know each other. Behind an encapsulation header of type
 * IPU_TYPE_RAILS, which other implementations ignore:
 *
 *     | "ipor" 4 | version 1 | rails 1 | this rail 1 | active rail 1 | 0 4 |
 *     | token: time 8, code 8 | the receiver's token 16 |
 *     then for each rail | GID 16 | 0 1 | queue pair number 3 |, number 0: it is down
 *
 * A hello leaves by each rail that is up: to the broadcast group, without tokens, so that hosts
 * find each other, and to each peer. Its token names, by a secret code, the address to which it
 * goes, and when. The next hello from there returns the token, and so proves that its sender has
 * received ours on this rail, and that it is for us: flows go by the rail for a while. Nothing else
 * that a hello says counts without that proof, and what it says of an address counts only once a
 * hello from that address has proved it, too.
 *
 * A hello without proof, which anybody may forge, gets at most one in return, and leaves nothing
 * behind. Only the active rail's address may name the others.
 */
#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "rails/rails_state.h"

#define HELLO_NS     250000000u  /* between two hellos to a peer */
#define BROADCAST_NS 5000000000u /* between two to all hosts, after the first ones */
#define RETRY_NS     1000000u    /* when no frame is free */

enum {
    FIRST_BROADCASTS = 4, /* one may get lost */
    VERSION = 2,
    AT_VERSION = 4,
    AT_COUNT,
    AT_RAIL,
    AT_ACTIVE,
    AT_TOKEN = 12,
    AT_RETURNED = AT_TOKEN + sizeof(struct rails_token),
    AT_ADDRESSES = AT_RETURNED + sizeof(struct rails_token),
    ADDRESS_BYTES = 20,
    GRH_SGID = 8,
};

static const uint8_t mark[4] = {'i', 'p', 'o', 'r'};

_Static_assert((int)IPU_ENCAP_LEN + (int)AT_ADDRESSES + IPU_RAILS_MAX * ADDRESS_BYTES <=
                   RAILS_HELLO_BYTES,
               "the longest hello fits");

/* ---- tokens: nobody but us reads ours, so their bytes have our order */

static struct rails_token token_for(const struct ipu_rails *r, uint32_t rail,
                                    const struct rails_address *to, uint64_t sent_ns)
{
    uint64_t words[4] = {[2] = (uint64_t)rail << 32 | to->qpn, [3] = sent_ns};
    memcpy(words, &to->gid, sizeof to->gid);
    return (struct rails_token){.sent_ns = sent_ns, .code = ipu_siphash(&r->secret, words, 4)};
}

/* Returns whether the token is one that we have sent to that address lately. */
static bool is_ours_untrusted(const struct ipu_rails *r, uint32_t rail,
                              const struct rails_address *from, const struct rails_token *token,
                              uint64_t now_ns)
{
    return token->sent_ns != 0 && token->sent_ns <= now_ns &&
           now_ns - token->sent_ns < RAILS_SILENT_NS &&
           token_for(r, rail, from, token->sent_ns).code == token->code;
}

/* ---- out */

/* The hosts that get a hello. */
struct receiver {
    const struct rails_address *address; /* NULL: all hosts */
    const struct rails_token *token;     /* what it has sent to us */
};

static uint32_t write_hello(const struct ipu_rails *r, uint8_t *frame, uint32_t rail,
                            const struct receiver *to)
{
    uint8_t *body = frame + IPU_ENCAP_LEN;
    uint32_t len = AT_ADDRESSES + r->count * ADDRESS_BYTES;
    memset(frame, 0, IPU_ENCAP_LEN + len);
    ipu_ip_put16(frame, IPU_TYPE_RAILS);
    memcpy(body, mark, sizeof mark);
    body[AT_VERSION] = VERSION;
    body[AT_COUNT] = (uint8_t)r->count;
    body[AT_RAIL] = (uint8_t)rail;
    body[AT_ACTIVE] = (uint8_t)r->active;
    if (to != NULL) {
        const struct rails_token token = token_for(r, rail, to->address, r->clock_ns());
        memcpy(body + AT_TOKEN, &token, sizeof token);
        memcpy(body + AT_RETURNED, to->token, sizeof *to->token);
    }
    for (uint32_t k = 0; k < r->count; k++) {
        uint8_t *at = body + AT_ADDRESSES + k * ADDRESS_BYTES;
        const struct ipu_fabric *inner = r->rails[k].inner;
        if (!(r->up >> k & 1) && k != r->active)
            continue;
        memcpy(at, &inner->gid, sizeof inner->gid);
        at[17] = (uint8_t)(inner->qpn >> 16);
        ipu_ip_put16(at + 18, inner->qpn & 0xffff);
    }
    return IPU_ENCAP_LEN + len;
}

/* Queues the hello in a frame; returns whether there is room. */
static bool put(struct ipu_rails *r, uint32_t rail, uint16_t number, void *handle,
                const struct receiver *to)
{
    uint8_t *frame = r->hellos + (size_t)number * RAILS_HELLO_BYTES;
    struct ipu_send send = {.addr = frame,
                            .len = write_hello(r, frame, rail, to),
                            .qpn = to != NULL ? to->address->qpn : r->broadcast.qpn,
                            .ah = handle,
                            .cookie = RAILS_HELLO | number};
    if (!rails_queue(r, rail, &send))
        return false;
    RAILS_COUNT(r, tx_hellos);
    return true;
}

/* Only counts a hello without a handle, a free frame or room in the queue: the next one comes soon.
 */
static void say(struct ipu_rails *r, uint32_t rail, void *handle, const struct receiver *to)
{
    if (r->rails[rail].broken)
        return;
    if (handle != NULL && r->free_hello_count > 0 &&
        put(r, rail, r->free_hellos[r->free_hello_count - 1], handle, to))
        r->free_hello_count--;
    else
        RAILS_COUNT(r, hello_unsent);
}

static void say_on(struct ipu_rails *r, struct rails_peer *peer, uint32_t rail)
{
    const struct receiver to = {&peer->at[rail], &peer->token[rail]};
    if (r->up >> rail & peer->indexed >> rail & ~peer->down >> rail & 1)
        say(r, rail, rails_handle_of_peer(r, peer, rail), &to);
}

static void say_to(struct ipu_rails *r, struct rails_peer *peer, uint64_t now_ns)
{
    if (r->free_hello_count < r->count) {
        peer->next_ns = now_ns + RETRY_NS;
        return;
    }
    peer->next_ns = now_ns + HELLO_NS;
    RAILS_FOR_EACH(r, k)
        say_on(r, peer, k);
}

static void say_to_all(struct ipu_rails *r, uint64_t now_ns)
{
    r->broadcast_ns = now_ns + (r->broadcasts < FIRST_BROADCASTS ? HELLO_NS : BROADCAST_NS);
    r->broadcasts += r->broadcasts < FIRST_BROADCASTS;
    RAILS_FOR_EACH(r, k) {
        struct rails_rail *at = &r->rails[k];
        if (!(r->up >> k & 1))
            continue;
        if (at->broadcast == NULL)
            at->broadcast = at->inner->ops->ah_create(at->inner->self, &r->broadcast);
        say(r, k, at->broadcast, NULL);
    }
}

/* Answers one hello of a host that has not proved to be there, with a frame and a handle for this
 * answer alone. */
static void greet(struct ipu_rails *r, uint32_t rail, const struct receiver *to)
{
    const struct ipu_fabric *inner = r->rails[rail].inner;
    if (!(r->up >> rail & 1) || r->rails[rail].broken)
        return;
    if (r->free_greeted_count == 0) {
        RAILS_COUNT(r, hello_busy);
        return;
    }
    uint16_t number = r->free_greeted[r->free_greeted_count - 1];
    struct ipu_dest dest = r->broadcast;
    dest.gid = to->address->gid;
    dest.qpn = to->address->qpn;
    void *handle = inner->ops->ah_create(inner->self, &dest);
    if (handle == NULL || !put(r, rail, (uint16_t)(RAILS_HELLOS + number), handle, to)) {
        RAILS_COUNT(r, hello_unsent);
        if (handle != NULL)
            inner->ops->ah_destroy(inner->self, handle);
        return;
    }
    r->greeted[number] = (struct rails_stranger){.rail = rail, .ah = handle};
    r->free_greeted_count--;
}

/* ---- time */

static void review_all(struct ipu_rails *r, uint64_t now_ns)
{
    r->next_ns = r->broadcast_ns;
    for (uint32_t i = 0; i < r->peers_max && r->peer_count > 0; i++) {
        struct rails_peer *peer = &r->peers[i];
        if (!peer->live)
            continue;
        if (now_ns - peer->last_ns >= RAILS_GONE_NS) {
            rails_peer_remove(r, peer);
            continue;
        }
        rails_peer_review(r, peer, now_ns);
        if (now_ns >= peer->next_ns)
            say_to(r, peer, now_ns);
        if (peer->next_ns < r->next_ns)
            r->next_ns = peer->next_ns;
    }
    if (r->next_ns <
        now_ns + RETRY_NS) /* one round for the peers that are due at about that time */
        r->next_ns = now_ns + RETRY_NS;
}

void rails_hello_tick(struct ipu_rails *r)
{
    uint64_t now_ns = r->clock_ns();
    if (now_ns < r->next_ns)
        return;
    if (now_ns >= r->broadcast_ns)
        say_to_all(r, now_ns);
    pthread_mutex_lock(&r->mutex);
    review_all(r, now_ns);
    pthread_mutex_unlock(&r->mutex);
}

void rails_hello_changed(struct ipu_rails *r)
{
    for (uint32_t i = 0; i < r->peers_max; i++)
        r->peers[i].next_ns = 0;
    r->next_ns = r->broadcast_ns = 0;
    r->broadcasts = 0;
    rails_hello_tick(r);
}

/* ---- in */

struct hello {
    uint32_t count, rail, active;
    struct rails_token token, returned;
    struct rails_address at[IPU_RAILS_MAX];
};

/* Returns the counter of a hello that we cannot read, or NULL. */
static _Atomic uint64_t *parse_untrusted(struct ipu_rails *r, const uint8_t *body, size_t len,
                                         struct hello *hello)
{
    _Atomic uint64_t *bad = &r->counters.hello_bad;
    if (len <= AT_VERSION || memcmp(body, mark, sizeof mark) != 0)
        return bad;
    if (body[AT_VERSION] != VERSION)
        return &r->counters.hello_version;
    if (len < AT_ADDRESSES)
        return bad;
    *hello =
        (struct hello){.count = body[AT_COUNT], .rail = body[AT_RAIL], .active = body[AT_ACTIVE]};
    memcpy(&hello->token, body + AT_TOKEN, sizeof hello->token);
    memcpy(&hello->returned, body + AT_RETURNED, sizeof hello->returned);
    if (hello->count == 0 || hello->count > IPU_RAILS_MAX || hello->rail >= hello->count ||
        hello->active >= hello->count || len < AT_ADDRESSES + hello->count * ADDRESS_BYTES)
        return bad;
    for (uint32_t k = 0; k < hello->count; k++) {
        const uint8_t *at = body + AT_ADDRESSES + k * ADDRESS_BYTES;
        memcpy(&hello->at[k].gid, at, sizeof hello->at[k].gid);
        hello->at[k].qpn = ipu_ip_get32(at + 16) & 0xffffff;
        if (hello->at[k].gid.s6_addr[0] == 0xff || hello->at[k].qpn == IPU_MULTICAST_QPN)
            return bad;
        for (uint32_t other = 0; other < k; other++)
            if (hello->at[k].qpn != 0 && rails_is_address(&hello->at[k], &hello->at[other]))
                return bad;
    }
    return NULL;
}

/* Finds or makes the peer of a hello with proof, and takes the addresses that it names. NULL: it is
 * none. */
static struct rails_peer *peer_of_untrusted(struct ipu_rails *r, const struct hello *hello,
                                            uint64_t now_ns)
{
    const struct rails_address *source = &hello->at[hello->rail];
    struct rails_peer *peer = rails_peer_find(r, &hello->at[hello->active]);
    if (hello->rail != hello->active)
        return peer != NULL && rails_is_address(&peer->at[hello->rail], source) ? peer : NULL;
    if (peer == NULL)
        peer = rails_peer_add(r, source, now_ns);
    if (peer == NULL) {
        RAILS_COUNT(r, peers_full);
        return NULL;
    }
    peer->active = hello->active;
    for (uint32_t k = 0; k < IPU_RAILS_MAX; k++)
        rails_peer_set(r, peer, k, &hello->at[k]); /* beyond its count: zero, so it has none */
    return peer;
}

/* Takes a hello that returns a token of ours. */
static void take_untrusted(struct ipu_rails *r, uint32_t rail, const struct hello *hello,
                           uint64_t now_ns)
{
    struct rails_peer *peer = peer_of_untrusted(r, hello, now_ns);
    if (peer == NULL)
        return;
    bool is_new = !(peer->usable >> rail & 1);
    rails_peer_index(r, peer, rail);
    peer->last_ns = now_ns;
    peer->reached |= 1u << rail;
    peer->token[rail] = hello->token;
    if (peer->answered_ns[rail] < hello->returned.sent_ns)
        peer->answered_ns[rail] = hello->returned.sent_ns;
    rails_peer_review(r, peer, now_ns);
    if (is_new) /* it may not have a proof of us yet */
        say_on(r, peer, rail);
    if (peer->next_ns == 0)
        peer->next_ns = now_ns + HELLO_NS;
    if (peer->next_ns < r->next_ns)
        r->next_ns = peer->next_ns;
}

/* Answers a hello without proof, unless its address has proved lately that it is there: then our
 * next hello goes there soon. */
static void answer_untrusted(struct ipu_rails *r, uint32_t rail, const struct hello *hello)
{
    const struct rails_address *source = &hello->at[rail];
    const struct receiver to = {source, &hello->token};
    const struct rails_peer *peer = rails_peer_find(r, source);
    RAILS_COUNT(r, hello_unproven);
    if (peer != NULL && rails_is_address(&peer->at[rail], source) && peer->usable >> rail & 1)
        return;
    greet(r, rail, &to);
}

void rails_hello_untrusted(struct ipu_rails *r, uint32_t rail, const struct ipu_received *done,
                           const uint8_t *buf)
{
    struct hello hello;
    struct rails_address source = {.qpn = done->src_qpn};
    memcpy(&source.gid, buf + GRH_SGID, sizeof source.gid);
    if (rails_own(r, &source) >= 0)
        return;
    RAILS_COUNT(r, rx_hellos);
    _Atomic uint64_t *bad = &r->counters.hello_bad;
    if (done->flags & IPU_RECEIVED_GRH)
        bad = parse_untrusted(r, buf + IPU_RX_IP, done->byte_len - IPU_RX_IP, &hello);
    if (bad == NULL && !rails_is_address(&hello.at[hello.rail], &source))
        bad = &r->counters.hello_bad;
    if (bad != NULL) {
        ipu_counter_add(bad, 1);
        return;
    }
    if (hello.rail !=
        rail) /* a switch joins the wires; the peer's rail is for another one of ours */
        return;
    uint64_t now_ns = r->clock_ns();
    pthread_mutex_lock(&r->mutex);
    if (is_ours_untrusted(r, rail, &source, &hello.returned, now_ns))
        take_untrusted(r, rail, &hello, now_ns);
    else
        answer_untrusted(r, rail, &hello);
    pthread_mutex_unlock(&r->mutex);
}
