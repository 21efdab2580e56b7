/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives from all rails: takes hellos out, drops what came to groups at a backup, and gives each
 * peer one source address. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/clock.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "rails/rails_state.h"

enum { GRH_SGID = 8, GRH_DGID = 24 };

/* ---- post */

/* Posts the receives that the inner fabric refused, or that we dropped. A broken queue pair refuses
 * them until it has recovered. */
static void post_refused(struct rails_rail *at, const struct rails_receive *receives)
{
    while (at->refused_count > 0 && !at->broken) {
        struct ipu_recv recvs[RAILS_BATCH];
        uint32_t n = at->refused_count < RAILS_BATCH ? at->refused_count : RAILS_BATCH;
        uint32_t *last = at->refused + at->refused_count - n;
        for (uint32_t i = 0; i < n; i++) {
            recvs[i] = receives[last[i]].recv;
            recvs[i].cookie = last[i];
        }
        int taken = at->inner->ops->post(at->inner->self, recvs, (int)n);
        at->broken |= taken < 0; /* received() reports it */
        if (taken <= 0)
            return;
        memmove(last, last + taken, (n - (uint32_t)taken) * sizeof *last);
        at->refused_count -= (uint32_t)taken;
    }
}

/* Returns the rail with the fewest receives. */
static uint32_t poorest(const struct ipu_rails *r)
{
    uint32_t found = r->active;
    RAILS_FOR_EACH(r, k) {
        if (r->rails[k].posted < r->rails[found].posted)
            found = k;
    }
    return found;
}

int rails_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_rails *r = self;
    int taken = 0;
    while (taken < n && r->free_receive_count > 0) {
        uint32_t index = r->free_receives[--r->free_receive_count];
        uint32_t rail = poorest(r);
        struct rails_rail *at = &r->rails[rail];
        r->receives[index] = (struct rails_receive){.recv = recvs[taken++], .rail = rail};
        at->refused[at->refused_count++] = index;
        at->posted++;
    }
    RAILS_FOR_EACH(r, k)
        post_refused(&r->rails[k], r->receives);
    return taken;
}

/* ---- receive */

/* Returns whether a message may be ARP or neighbour discovery, which names its source: the engine
 * compares them, also when the peer has another active rail and its hello has not come yet. */
static bool names_source(const uint8_t *frame, size_t len)
{
    uint32_t type = ipu_ip_get16(frame);
    return type == IPU_TYPE_ARP ||
           (type == IPU_TYPE_IPV6 && len > IPU_ENCAP_LEN + IPU_IPV6_NEXT_HEADER &&
            frame[IPU_ENCAP_LEN + IPU_IPV6_NEXT_HEADER] == IPPROTO_ICMPV6);
}

/* Returns whether the pump gets the datagram. */
static bool admit_untrusted(struct ipu_rails *r, uint32_t rail, struct ipu_received *done,
                            uint8_t *buf)
{
    bool has_grh = (done->flags & IPU_RECEIVED_GRH) && done->byte_len >= IPU_GRH_LEN;
    if (r->peers_max > 0 && done->byte_len >= IPU_RX_IP &&
        ipu_ip_get16(buf + IPU_RX_ENCAP) == IPU_TYPE_RAILS) {
        rails_hello_untrusted(r, rail, done, buf);
        return false;
    }
    if (!has_grh)
        return true;
    struct rails_address source = {.qpn = done->src_qpn};
    memcpy(&source.gid, buf + GRH_SGID, sizeof source.gid);
    if (buf[GRH_DGID] == 0xff) {
        int own = rails_own(r, &source);
        if (rail == r->active && (own < 0 || own == (int)rail))
            return true; /* the pump drops the echo of the active rail: E8 */
        RAILS_COUNT(r, rx_backup);
        return false;
    }
    const struct rails_peer *peer = rails_peer_find(r, &source);
    if (peer != NULL && peer->at[peer->active].qpn != 0 && done->byte_len >= IPU_RX_IP &&
        !names_source(buf + IPU_RX_ENCAP, done->byte_len - IPU_GRH_LEN)) {
        memcpy(buf + GRH_SGID, &peer->at[peer->active].gid, sizeof source.gid);
        done->src_qpn = peer->at[peer->active].qpn;
    }
    return true;
}

static int receive(struct ipu_rails *r, uint32_t rail, struct ipu_received *done, int max)
{
    struct rails_rail *at = &r->rails[rail];
    const struct ipu_fabric *inner = at->inner;
    int n = inner->ops->received(inner->self, done, max), kept = 0;
    if (n < 0) {
        rails_break(r, rail);
        return n;
    }
    at->dry = n > 0 ? 0 : at->dry + 1;
    if (at->dry >= RAILS_DRY && rail != r->active && !rails_is_busy(at) && !at->broken &&
        inner->ops->arm(inner->self) == 0)
        r->asleep |= 1u << rail;
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)done[i].cookie;
        const struct ipu_recv *recv = &r->receives[index].recv;
        if (!(done[i].flags & IPU_RECEIVED_FAILED)) {
            if (!admit_untrusted(r, rail, &done[i], recv->addr)) {
                at->refused[at->refused_count++] = index;
                continue;
            }
            ipu_counter_add(&at->traffic.rx_packets, 1);
            ipu_counter_add(&at->traffic.rx_bytes,
                            done[i].byte_len > IPU_GRH_LEN ? done[i].byte_len - IPU_GRH_LEN : 0);
        }
        done[i].cookie = recv->cookie;
        done[kept++] = done[i];
        at->posted--;
        r->free_receives[r->free_receive_count++] = index;
    }
    post_refused(at, r->receives);
    return kept;
}

/* Polls the rails of `which`, a bit for each; returns the number of datagrams, or a negative errno.
 */
static int poll_rails(struct ipu_rails *r, uint32_t which, struct ipu_received *done, int max)
{
    int total = 0, error = 0;
    for (uint32_t i = 0; i < r->count && total < max; i++) {
        uint32_t k = (r->first + i) % r->count;
        if (r->rails[k].inner == NULL || !(which >> k & 1))
            continue;
        int n = receive(r, k, done + total, max - total);
        if (n > 0)
            total += n;
        if (n < 0 || r->rails[k].broken)
            error = n < 0 ? n : -EIO;
    }
    return total == 0 && error < 0 ? error : total;
}

/* Ends the sleep of rails that have something to report. */
static void wake(struct ipu_rails *r)
{
    struct epoll_event events[IPU_RAILS_MAX + 1];
    int n = epoll_wait(r->epoll_fd, events, IPU_RAILS_MAX + 1, 0);
    for (int i = 0; i < n; i++)
        r->asleep &= ~(1u << events[i].data.u32);
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        int64_t at =
            inner->ops->deadline_ns != NULL ? inner->ops->deadline_ns(inner->self) : INT64_MAX;
        if (at != INT64_MAX && at <= (int64_t)ipu_clock_ns())
            r->asleep &= ~(1u << k);
    }
}

int rails_received(struct ipu_rails *r, struct ipu_received *done, int max)
{
    uint32_t slept = r->asleep;
    int total = poll_rails(r, ~slept, done, max);
    /* The device may have woken the pump, or a datagram of an earlier poll. If a rail that sleeps
     * did it, the pump is awake again at once, and finds nothing for the second time. */
    r->woken = total != 0 ? 0 : r->woken + r->armed;
    if (slept != 0 && total >= 0 && total < max &&
        (r->woken == RAILS_WOKEN || ++r->rounds % RAILS_ROUNDS == 0)) {
        r->woken = 0;
        wake(r);
        int more = poll_rails(r, slept & ~r->asleep, done + total, max - total);
        total = more > 0 ? total + more : total > 0 ? total : more;
    }
    r->armed = false;
    r->first = (r->first + 1) % r->count;
    rails_flush(r); /* hellos */
    return total;
}
