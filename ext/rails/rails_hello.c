/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hellos, by which hosts with several rails know each other. Behind an encapsulation header of type
 * IPU_TYPE_RAILS, which other implementations ignore:
 *
 *     | "ipor" 4 | version 1 | rails 1 | this rail 1 | active rail 1 | hears 1 | 0 3 |
 *     then for each rail | GID 16 | 0 1 | queue pair number 3 |, number 0: it is down
 *
 * A hello leaves by each rail that is up: to the broadcast group, so that hosts find each other,
 * and to each peer. `hears` has a bit for each rail by which the sender hears the receiver; flows
 * go by those rails on which both hear each other. A hello counts for the rail that it names only
 * if its source is that rail's address, and only the active rail's address may name the others.
 */
#include <string.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "rails/rails_state.h"

#define HELLO_NS     250000000u   /* between two hellos to a peer */
#define BROADCAST_NS 5000000000u  /* between two to all hosts, after the first ones */
#define RETRY_NS     1000000u     /* when no frame is free */
#define GONE_NS      10000000000u /* without a hello for so long, a host is no peer any more */

enum {
    FIRST_BROADCASTS = 4, /* one may get lost */
    VERSION = 1,
    AT_VERSION = 4,
    AT_COUNT,
    AT_RAIL,
    AT_ACTIVE,
    AT_HEARS,
    AT_ADDRESSES = 12,
    ADDRESS_BYTES = 20,
    GRH_SGID = 8,
    GRH_DGID = 24,
};

static const uint8_t mark[4] = {'i', 'p', 'o', 'r'};

_Static_assert((int)IPU_ENCAP_LEN + AT_ADDRESSES + IPU_RAILS_MAX * ADDRESS_BYTES <=
                   RAILS_HELLO_BYTES,
               "the longest hello fits");

/* ---- out */

static uint32_t write_hello(const struct ipu_rails *r, uint8_t *frame, uint32_t rail,
                            uint32_t hears)
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
    body[AT_HEARS] = (uint8_t)hears;
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

/* Does nothing without a handle, a free frame or room in the queue: the next hello comes soon. */
static void say(struct ipu_rails *r, uint32_t rail, void *handle, uint32_t qpn, uint32_t hears)
{
    if (handle == NULL || r->free_hello_count == 0 || r->rails[rail].broken)
        return;
    uint16_t number = r->free_hellos[r->free_hello_count - 1];
    uint8_t *frame = r->hellos + (size_t)number * RAILS_HELLO_BYTES;
    struct ipu_send send = {.addr = frame,
                            .len = write_hello(r, frame, rail, hears),
                            .qpn = qpn,
                            .ah = handle,
                            .cookie = RAILS_HELLO | number};
    if (!rails_queue(r, rail, &send))
        return;
    r->free_hello_count--;
    RAILS_COUNT(r, tx_hellos);
}

static void say_to(struct ipu_rails *r, struct rails_peer *peer, uint64_t now_ns)
{
    if (r->free_hello_count < r->count) {
        peer->next_ns = now_ns + RETRY_NS;
        return;
    }
    peer->next_ns = now_ns + HELLO_NS;
    RAILS_FOR_EACH(r, k) {
        if (r->up >> k & 1 && peer->at[k].qpn != 0 && !(peer->down >> k & 1))
            say(r, k, rails_handle_of_peer(r, peer, k), peer->at[k].qpn, peer->heard);
    }
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
        say(r, k, at->broadcast, r->broadcast.qpn, 0);
    }
}

/* ---- time */

static void review_all(struct ipu_rails *r, uint64_t now_ns)
{
    r->next_ns = r->broadcast_ns;
    for (uint32_t i = 0; i < r->peers_max && r->peer_count > 0; i++) {
        struct rails_peer *peer = &r->peers[i];
        if (!peer->live)
            continue;
        if (now_ns - peer->last_ns >= GONE_NS) {
            rails_peer_remove(r, peer);
            continue;
        }
        bool is_other = rails_peer_review(r, peer, now_ns);
        if (is_other || now_ns >= peer->next_ns)
            say_to(r, peer, now_ns);
        if (peer->next_ns < r->next_ns)
            r->next_ns = peer->next_ns;
    }
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
    uint32_t count, rail, active, hears;
    struct rails_address at[IPU_RAILS_MAX];
};

static bool parse_untrusted(const uint8_t *body, size_t len, struct hello *hello)
{
    if (len < AT_ADDRESSES || memcmp(body, mark, sizeof mark) != 0 || body[AT_VERSION] != VERSION)
        return false;
    *hello = (struct hello){.count = body[AT_COUNT],
                            .rail = body[AT_RAIL],
                            .active = body[AT_ACTIVE],
                            .hears = body[AT_HEARS]};
    if (hello->count == 0 || hello->count > IPU_RAILS_MAX || hello->rail >= hello->count ||
        hello->active >= hello->count || len < AT_ADDRESSES + hello->count * ADDRESS_BYTES)
        return false;
    for (uint32_t k = 0; k < hello->count; k++) {
        const uint8_t *at = body + AT_ADDRESSES + k * ADDRESS_BYTES;
        memcpy(&hello->at[k].gid, at, sizeof hello->at[k].gid);
        hello->at[k].qpn = ipu_ip_get32(at + 16) & 0xffffff;
        if (hello->at[k].gid.s6_addr[0] == 0xff || hello->at[k].qpn == IPU_MULTICAST_QPN)
            return false;
        for (uint32_t other = 0; other < k; other++)
            if (hello->at[k].qpn != 0 && rails_is_address(&hello->at[k], &hello->at[other]))
                return false;
    }
    return true;
}

/* Finds or makes the peer of a hello, and takes the addresses that it names. NULL: it is none. */
static struct rails_peer *peer_of_untrusted(struct ipu_rails *r, const struct hello *hello)
{
    const struct rails_address *source = &hello->at[hello->rail];
    struct rails_peer *peer = rails_peer_find(r, &hello->at[hello->active]);
    if (hello->rail != hello->active)
        return peer != NULL && rails_is_address(&peer->at[hello->rail], source) ? peer : NULL;
    if (peer == NULL)
        peer = rails_peer_add(r);
    if (peer == NULL) {
        RAILS_COUNT(r, peers_full);
        return NULL;
    }
    peer->active = hello->active;
    for (uint32_t k = 0; k < IPU_RAILS_MAX; k++)
        rails_peer_set(r, peer, k, &hello->at[k]); /* beyond its count: zero, so it has none */
    return peer;
}

static void take_untrusted(struct ipu_rails *r, uint32_t rail, const struct hello *hello,
                           bool is_to_us)
{
    uint64_t now_ns = r->clock_ns();
    struct rails_peer *peer = peer_of_untrusted(r, hello);
    if (peer == NULL)
        return;
    rails_peer_heard(r, peer, hello->rail);
    peer->last_ns = now_ns;
    if (is_to_us)
        peer->hears = hello->hears;
    if (hello->rail == rail)
        peer->heard_ns[rail] = now_ns;
    /* Our answer lets the peer know that we hear it. */
    if (rails_peer_review(r, peer, now_ns))
        say_to(r, peer, now_ns);
    if (peer->next_ns < r->next_ns)
        r->next_ns = peer->next_ns;
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
    if (!(done->flags & IPU_RECEIVED_GRH) ||
        !parse_untrusted(buf + IPU_RX_IP, done->byte_len - IPU_RX_IP, &hello) ||
        !rails_is_address(&hello.at[hello.rail], &source)) {
        RAILS_COUNT(r, hello_bad);
        return;
    }
    pthread_mutex_lock(&r->mutex);
    take_untrusted(r, rail, &hello, buf[GRH_DGID] != 0xff);
    pthread_mutex_unlock(&r->mutex);
}
