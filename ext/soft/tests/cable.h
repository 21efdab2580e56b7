/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_CABLE_H
#define SOFT_CABLE_H

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"
#include "objects.h"

/*
 * A cable between two HCAs in one process, in place of udp.c, and a clock that the test sets, in
 * place of clock.c: the linker takes these functions instead of the library's. A seed decides what
 * the cable does to packets, so every run is the same. Only one C file of a program includes this
 * header.
 */
#define CABLE_ROOM   2048 /* packets under way to one end; more are lost, as in a full socket */
#define CABLE_BATCH  256
#define CABLE_PACKET (SOFT_ROCE_HEAD_MAX + SOFT_MAX_MESSAGE + SOFT_ROCE_TAIL_MAX)

struct cable_packet {
    struct in6_addr src, dst;
    size_t bytes;
    uint8_t data[CABLE_PACKET];
};

struct soft_udp {
    int fd;
    struct in6_addr gid;
    struct soft_udp *peer; /* NULL: unplugged */
    unsigned int tx_count;
    unsigned int tx_done; /* of the last batch */
    struct soft_udp_slot slot[CABLE_BATCH];
    struct iovec iov[CABLE_BATCH][SOFT_UDP_SLOT_IOV];
    unsigned int rx_head, rx_next, rx_batch, rx_tail; /* kept, to take, fetched, arrived */
    bool has_left;                                    /* packets from rx_left on are kept, too */
    unsigned int rx_left;
    struct cable_packet *rx; /* CABLE_ROOM */
    uint64_t overruns;
    uint64_t sent;
};

/* Of a thousand packets. */
static struct {
    unsigned int lost, doubled, moved, damaged;
    unsigned int stalled; /* of a thousand batches: the socket is full */
    uint64_t random;
    /* Sees each packet first, and may change it; returns false to lose it. */
    bool (*inspect)(struct soft_udp *from, struct cable_packet *packet);
} cable;

static int64_t cable_clock_ns = 1000000000;

int64_t soft_clock_ns(void)
{
    return cable_clock_ns;
}

static inline bool cable_chance(unsigned int of_a_thousand)
{
    return of_a_thousand > 0 && next_random(&cable.random) % 1000 < of_a_thousand;
}

int soft_udp_open(const struct soft_udp_config *config, struct soft_count *count,
                  struct soft_udp **out)
{
    struct soft_udp *udp = calloc(1, sizeof(*udp));

    (void)count;
    CHECK(udp != NULL);
    udp->gid = config->gid;
    udp->fd = eventfd(0, EFD_CLOEXEC);
    udp->rx = calloc(CABLE_ROOM, sizeof(*udp->rx));
    CHECK(udp->fd >= 0 && udp->rx != NULL);
    *out = udp;
    return 0;
}

static inline void cable_part(struct soft_udp *udp)
{
    if (udp->peer != NULL)
        udp->peer->peer = NULL;
    udp->peer = NULL;
}

void soft_udp_close(struct soft_udp *udp)
{
    cable_part(udp);
    close(udp->fd);
    free(udp->rx);
    free(udp);
}

int soft_udp_fd(const struct soft_udp *udp)
{
    return udp->fd;
}

int soft_udp_outlet_fd(const struct soft_udp *udp, unsigned int outlet)
{
    (void)outlet;
    return udp->fd;
}

uint16_t soft_udp_outlet_port(const struct soft_udp *udp, unsigned int outlet)
{
    (void)udp, (void)outlet;
    return SOFT_UDP_PORT;
}

unsigned int soft_udp_stalled_outlets(const struct soft_udp *udp)
{
    (void)udp;
    return 0;
}

bool soft_udp_sent(const struct soft_udp *udp, unsigned int i)
{
    return i < udp->tx_done;
}

uint64_t soft_udp_overruns(const struct soft_udp *udp)
{
    return udp->overruns;
}

struct soft_udp_slot *soft_udp_reserve(struct soft_udp *udp)
{
    struct soft_udp_slot *slot = &udp->slot[udp->tx_count];

    if (udp->tx_count == CABLE_BATCH)
        return NULL;
    slot->iov = udp->iov[udp->tx_count];
    slot->iov_count = 0;
    return slot;
}

unsigned int soft_udp_room(const struct soft_udp *udp)
{
    return CABLE_BATCH - udp->tx_count;
}

void soft_udp_commit(struct soft_udp *udp)
{
    udp->tx_count++;
}

static inline struct cable_packet *cable_at(struct soft_udp *to, unsigned int i)
{
    return &to->rx[i % CABLE_ROOM];
}

static inline void cable_deliver(struct soft_udp *to, const struct cable_packet *packet)
{
    if (to == NULL || cable_chance(cable.lost))
        return;
    if (to->rx_tail - (to->has_left ? to->rx_left : to->rx_head) == CABLE_ROOM) {
        to->overruns++;
        return;
    }
    *cable_at(to, to->rx_tail++) = *packet;
    if (cable_chance(cable.damaged))
        cable_at(to, to->rx_tail - 1)->data[next_random(&cable.random) % packet->bytes] ^= 0x10;
    if (cable_chance(cable.moved)) { /* up to eight places forward, but not among fetched packets */
        unsigned int places = (unsigned int)(next_random(&cable.random) % 8 + 1);

        for (unsigned int i = to->rx_tail - 1; places > 0 && i > to->rx_batch; i--, places--) {
            struct cable_packet swapped = *cable_at(to, i);

            *cable_at(to, i) = *cable_at(to, i - 1);
            *cable_at(to, i - 1) = swapped;
        }
    }
}

unsigned int soft_udp_send(struct soft_udp *udp, int *stall)
{
    unsigned int count = udp->tx_count;

    *stall = 0;
    udp->tx_count = 0;
    if (cable_chance(cable.stalled)) {
        *stall = EAGAIN;
        count = (unsigned int)(next_random(&cable.random) % (count + 1));
    }
    udp->tx_done = count;
    for (unsigned int i = 0; i < count; i++) {
        const struct soft_udp_slot *slot = &udp->slot[i];
        struct cable_packet packet = {.src = udp->gid, .dst = slot->dest->gid};

        for (unsigned int j = 0; j < slot->iov_count; j++) {
            CHECK(packet.bytes + slot->iov[j].iov_len <= CABLE_PACKET);
            memcpy(packet.data + packet.bytes, slot->iov[j].iov_base, slot->iov[j].iov_len);
            packet.bytes += slot->iov[j].iov_len;
        }
        CHECK_EQUAL(packet.bytes, slot->bytes);
        udp->sent++;
        if (cable.inspect != NULL && !cable.inspect(udp, &packet))
            continue;
        cable_deliver(udp->peer, &packet);
        if (cable_chance(cable.doubled))
            cable_deliver(udp->peer, &packet);
    }
    return count;
}

bool soft_udp_next(struct soft_udp *udp, struct soft_udp_packet *out)
{
    const struct cable_packet *packet = cable_at(udp, udp->rx_next);

    if (udp->rx_next == udp->rx_batch)
        return false;
    *out = (struct soft_udp_packet){
        .data = packet->data,
        .bytes = packet->bytes,
        .src = packet->src,
        .dst = packet->dst,
        .src_port = SOFT_UDP_PORT,
        .hop_limit = 64,
    };
    udp->rx_next++;
    return true;
}

bool soft_udp_pending(const struct soft_udp *udp)
{
    return udp->rx_next != udp->rx_batch;
}

bool soft_udp_receive(struct soft_udp *udp)
{
    udp->rx_head = udp->rx_batch;
    udp->rx_batch =
        udp->rx_tail - udp->rx_head > 64 ? udp->rx_head + 64 : udp->rx_tail; /* a batch */
    return udp->rx_batch != udp->rx_head;
}

bool soft_udp_leave_memory(struct soft_udp *udp)
{
    if (udp->has_left)
        return false;
    udp->has_left = true;
    udp->rx_left = udp->rx_head;
    return true;
}

bool soft_udp_has_left(const struct soft_udp *udp)
{
    return udp->has_left;
}

void soft_udp_drop_left(struct soft_udp *udp)
{
    udp->has_left = false;
}

static inline void cable_join(struct soft_udp *a, struct soft_udp *b)
{
    a->peer = b;
    b->peer = a;
}

static inline bool cable_quiet(const struct soft_udp *udp)
{
    return udp->rx_next == udp->rx_tail;
}

#endif
