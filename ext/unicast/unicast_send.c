/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends on a unicast link. A message to a peer goes straight to the inner fabric. A message to a
 * group (a cast) waits in a ring; post_copies() posts one copy for each member, as many as may be
 * under way, and goes on when sent() has taken copies back. So a large link slows only its own
 * multicast down, and nothing else.
 */
#include <string.h>

#include "unicast/unicast_state.h"

/* Marks the cookie of a copy; the rest is the index of its cast. The pump's cookies have their
 * upper bits clear. */
#define COPY (1ull << 63)

static void end(struct ipu_unicast *u, uint64_t cookie)
{
    u->ended[u->ended_count++] = cookie;
}

/* Gives the cookie back when the last copy has come back. */
static void end_if_over(struct ipu_unicast *u, uint16_t index)
{
    struct unicast_cast *cast = &u->casts[index];
    if (!cast->is_posted || cast->under_way > 0)
        return;
    u->free_casts[u->free_cast_count++] = index;
    end(u, cast->send.cookie);
}

/* ---- copies */

/* Returns the next peer that gets a copy, or NULL after the last. */
static struct unicast_peer *next_member(struct ipu_unicast *u, struct unicast_cast *cast)
{
    while (cast->next_peer < u->peers_end) {
        struct unicast_peer *peer = &u->peers[cast->next_peer++];
        if (peer->state == UNICAST_PRESENT && peer->groups.is_known &&
            ipu_group_list_wants(&peer->groups, &cast->mgid, &u->broadcast))
            return peer;
    }
    return NULL;
}

static bool has_handle(struct ipu_unicast *u, struct unicast_peer *peer)
{
    if (peer->ah == NULL) {
        struct ipu_dest dest = {.gid = peer->gid, .qpn = peer->qpn, .hop_limit = u->hop_limit};
        peer->ah = u->inner->ops->ah_create(u->inner->self, &dest);
    }
    if (peer->ah == NULL)
        UNICAST_COUNT(u, tx_no_route);
    return peer->ah != NULL;
}

/* Fills a batch with the next copies of a cast; `at` gets the peer that each goes to. */
static int fill(struct ipu_unicast *u, uint16_t index, struct ipu_send *sends, uint32_t *at)
{
    struct unicast_cast *cast = &u->casts[index];
    struct unicast_peer *peer;
    int n = 0;
    while (u->copies_under_way + (uint32_t)n < UNICAST_COPIES &&
           (peer = next_member(u, cast)) != NULL) {
        cast->has_members = true;
        if (!has_handle(u, peer))
            continue;
        at[n] = cast->next_peer - 1;
        sends[n] = cast->send;
        sends[n].ah = peer->ah;
        sends[n].qpn = peer->qpn;
        sends[n].cookie = COPY | index;
        n++;
    }
    return n;
}

static void end_posting(struct ipu_unicast *u, uint16_t index)
{
    u->waiting_first++;
    u->casts[index].is_posted = true;
    end_if_over(u, index);
}

/* Ends the casts that wait: a broken queue pair takes no copies, and the pump waits for cookies. */
static void abandon(struct ipu_unicast *u)
{
    while (u->waiting_first != u->waiting_end) {
        UNICAST_COUNT(u, tx_broken);
        end_posting(u, u->waiting[u->waiting_first % UNICAST_CASTS]);
    }
}

static void post_copies(struct ipu_unicast *u)
{
    while (u->waiting_first != u->waiting_end && u->copies_under_way < UNICAST_COPIES) {
        uint16_t index = u->waiting[u->waiting_first % UNICAST_CASTS];
        struct unicast_cast *cast = &u->casts[index];
        struct ipu_send sends[UNICAST_COPIES];
        uint32_t at[UNICAST_COPIES];
        int n = fill(u, index, sends, at);
        int taken = n == 0 ? 0 : u->inner->ops->send(u->inner->self, sends, n);
        if (taken < 0) { /* the error comes again, in sent() */
            abandon(u);
            return;
        }
        UNICAST_ADD(u, tx_copies, (uint64_t)taken);
        u->copies_under_way += (uint32_t)taken;
        cast->under_way += (uint32_t)taken;
        if (taken < n) {
            cast->next_peer = at[taken];
            return;
        }
        if (u->copies_under_way == UNICAST_COPIES && cast->next_peer < u->peers_end)
            return;
        if (!cast->has_members)
            UNICAST_COUNT(u, tx_nobody);
        end_posting(u, index);
    }
}

/* ---- called by the pump */

static void begin_cast(struct ipu_unicast *u, const struct ipu_send *send,
                       const struct unicast_group *group)
{
    UNICAST_COUNT(u, tx_groups);
    if (u->free_cast_count == 0) {
        UNICAST_COUNT(u, tx_full);
        end(u, send->cookie);
        return;
    }
    uint16_t index = u->free_casts[--u->free_cast_count];
    u->casts[index] = (struct unicast_cast){.send = *send, .mgid = group->mgid};
    u->waiting[u->waiting_end++ % UNICAST_CASTS] = index;
}

/* Returns whether another message to a group may end at once: each active cast ends, too. */
static bool has_room(const struct ipu_unicast *u)
{
    return u->ended_count + (UNICAST_CASTS - u->free_cast_count) < UNICAST_ENDED;
}

static int send_all(struct ipu_unicast *u, const struct ipu_send *sends, int n)
{
    int taken = 0;
    while (taken < n) {
        struct unicast_group *group = unicast_group_of(sends[taken].ah);
        if (group != NULL) {
            if (!has_room(u))
                break;
            begin_cast(u, &sends[taken++], group);
            continue;
        }
        int end = taken + 1;
        while (end < n && unicast_group_of(sends[end].ah) == NULL)
            end++;
        int got = u->inner->ops->send(u->inner->self, &sends[taken], end - taken);
        if (got < 0)
            return taken > 0 ? taken : got;
        taken += got;
        if (taken < end)
            break;
    }
    return taken;
}

int unicast_send(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_unicast *u = self;
    pthread_mutex_lock(&u->mutex);
    unicast_peers_settle(u);
    int taken = send_all(u, sends, n);
    post_copies(u);
    pthread_mutex_unlock(&u->mutex);
    return taken;
}

/* Separates the returned cookies: keeps the pump's, ends copies, and returns the number kept. */
static int sort(struct ipu_unicast *u, uint64_t *cookies, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (!(cookies[i] & COPY)) {
            cookies[kept++] = cookies[i];
            continue;
        }
        uint16_t index = (uint16_t)cookies[i];
        u->copies_under_way--;
        u->casts[index].under_way--;
        end_if_over(u, index);
    }
    return kept;
}

int unicast_sent(void *self, uint64_t *cookies, int max)
{
    struct ipu_unicast *u = self;
    pthread_mutex_lock(&u->mutex);
    unicast_peers_settle(u);
    int got = u->inner->ops->sent(u->inner->self, cookies, max);
    int n = got > 0 ? sort(u, cookies, got) : 0;
    if (got < 0)
        abandon(u);
    else
        post_copies(u);
    while (n < max && u->ended_count > 0)
        cookies[n++] = u->ended[--u->ended_count];
    pthread_mutex_unlock(&u->mutex);
    return n == 0 && got < 0 ? got : n;
}
