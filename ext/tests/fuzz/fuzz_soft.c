/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receive path of the built-in HCA with living queue pairs: datagrams, queue pair 1, and three
 * connections. The fuzzer computes the ICRC, so packets get past its check. This file stands in for
 * the socket, the clock and the random numbers.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "crc32.h"
#include "icrc.h"
#include "input.h"
#include "objects.h"
#include "rc.h"

enum { PACKET_MAX = 8192, WRS = 64, CQ_DEPTH = 32, MTU = 1024, QKEY = 0x0b1b, ACTIONS_MAX = 256 };

enum action {
    PACKET = 0,
    CLOCK,
    SEND,
    POLL,
    STALL,
    WALK,
    ACTIONS,
};

enum packet_flag {
    PSN_RELATIVE = 1, /* the PSN is a distance from the one that the connection expects */
    STRANGER = 2,
    TO_GROUP = 4,
    BAD_ICRC = 8,
    RAW_KEYS = 16,
    BATCHED = 32, /* behind the packet before, in one batch */
};

enum { UD, GSI, RC_OWN, RC_SHARED, RC_HALF, QPS }; /* RC_HALF receives and does not send */

static const struct in6_addr own_gid = {{{0xfe, 0x80, [8] = 2, [15] = 1}}};
static const struct in6_addr peer_gid = {{{0xfe, 0x80, [8] = 2, [15] = 2}}};
static const struct in6_addr stranger_gid = {{{0xfe, 0x80, [8] = 2, [15] = 3}}};
static const struct in6_addr group_gid = {
    {{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}}};

struct buffer {
    uint8_t *data;
    uint32_t bytes;
    bool posted;
};

static struct {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_srq *srq;
    struct soft_ah *ah;
    struct soft_qp *qp[QPS];
    struct buffer receive[QPS][4];
    uint8_t *message; /* the memory that sends read */
    uint64_t sending; /* posted, by number modulo 64 */
    uint64_t sends;
    uint32_t random;
} world;

static int64_t clock_ns;

/* ---- in the place of the library's parts ----------------------------------------------------- */

enum { SLOTS = SOFT_CUT_PACKETS };

struct soft_udp {
    struct soft_udp_slot slot[SLOTS];
    struct iovec iov[SLOTS][SOFT_UDP_SLOT_IOV];
    unsigned int tx_count;
    unsigned int tx_done; /* of the last batch */
    unsigned int stalls;
    struct soft_udp_packet rx[8];
    unsigned int rx_next, rx_count;
};

static struct soft_udp udp;

int64_t soft_clock_ns(void)
{
    return clock_ns;
}

uint32_t soft_random(void)
{
    return world.random += 0x101;
}

int soft_udp_open(const struct soft_udp_config *config, struct soft_count *count,
                  struct soft_udp **out)
{
    (void)config, (void)count, (void)out;
    return -ENODEV;
}

void soft_udp_close(struct soft_udp *socket)
{
    (void)socket;
}

int soft_udp_fd(const struct soft_udp *socket)
{
    (void)socket;
    return -1;
}

int soft_udp_outlet_fd(const struct soft_udp *socket, unsigned int outlet)
{
    (void)socket, (void)outlet;
    return -1;
}

uint16_t soft_udp_outlet_port(const struct soft_udp *socket, unsigned int outlet)
{
    (void)socket, (void)outlet;
    return SOFT_UDP_PORT;
}

unsigned int soft_udp_stalled_outlets(const struct soft_udp *socket)
{
    (void)socket;
    return 0;
}

bool soft_udp_sent(const struct soft_udp *socket, unsigned int i)
{
    return i < socket->tx_done;
}

uint64_t soft_udp_overruns(const struct soft_udp *socket)
{
    (void)socket;
    return 0;
}

struct soft_udp_slot *soft_udp_reserve(struct soft_udp *socket)
{
    struct soft_udp_slot *slot = &socket->slot[socket->tx_count];

    if (socket->tx_count == SLOTS)
        return NULL;
    slot->iov = socket->iov[socket->tx_count];
    slot->iov_count = 0;
    return slot;
}

unsigned int soft_udp_room(const struct soft_udp *socket)
{
    return SLOTS - socket->tx_count;
}

void soft_udp_commit(struct soft_udp *socket)
{
    socket->tx_count++;
}

/* A packet that leaves must be well formed, and have the right ICRC. */
static void check_sent(const struct soft_udp_slot *slot)
{
    uint8_t packet[PACKET_MAX];
    size_t bytes = 0;
    uint32_t seed;

    for (unsigned int i = 0; i < slot->iov_count; i++) {
        MUST(bytes + slot->iov[i].iov_len <= sizeof(packet));
        memcpy(packet + bytes, slot->iov[i].iov_base, slot->iov[i].iov_len);
        bytes += slot->iov[i].iov_len;
    }
    MUST(bytes == slot->bytes && bytes % 4 == 0);
    seed =
        soft_icrc_seed(&own_gid, &slot->dest->gid, SOFT_UDP_PORT, SOFT_UDP_PORT, (uint16_t)bytes);
    MUST(soft_icrc_check(seed, packet, bytes));
}

unsigned int soft_udp_send(struct soft_udp *socket, int *stall)
{
    unsigned int count = socket->tx_count;

    *stall = 0;
    socket->tx_count = 0;
    if (socket->stalls > 0) {
        socket->stalls--;
        *stall = socket->stalls % 2 ? EAGAIN : ENOBUFS;
        count /= 2;
    }
    socket->tx_done = count;
    for (unsigned int i = 0; i < count; i++)
        check_sent(&socket->slot[i]);
    return count;
}

bool soft_udp_next(struct soft_udp *socket, struct soft_udp_packet *out)
{
    if (socket->rx_next == socket->rx_count)
        return false;
    *out = socket->rx[socket->rx_next++];
    return true;
}

bool soft_udp_pending(const struct soft_udp *socket)
{
    return socket->rx_next != socket->rx_count;
}

bool soft_udp_receive(struct soft_udp *socket)
{
    (void)socket;
    return false;
}

/* This socket has one memory: the HCA waits for borrowed packets. */
bool soft_udp_leave_memory(struct soft_udp *socket)
{
    (void)socket;
    return false;
}

bool soft_udp_has_left(const struct soft_udp *socket)
{
    (void)socket;
    return false;
}

void soft_udp_drop_left(struct soft_udp *socket)
{
    (void)socket;
}

/* ---- the world ------------------------------------------------------------------------------- */

static void post_receive(int which, int i)
{
    struct buffer *buffer = &world.receive[which][i];
    uint32_t first = buffer->bytes < 48 ? buffer->bytes : 48;
    struct soft_recv_wr wr = {
        .wr_id = (uint64_t)which << 8 | (uint64_t)i,
        .num_sge = 2,
        .sg = {{buffer->data, first}, {buffer->data + first, buffer->bytes - first}}};
    int taken;

    if (buffer->posted)
        return;
    if (which == RC_SHARED)
        taken = soft_srq_post_recv(world.srq, &wr, 1);
    else
        taken = soft_qp_post_recv(world.qp[which], &wr, 1);
    buffer->posted = taken == 1;
}

static void connect_qp(int which)
{
    struct soft_rc_attr attr = {
        .path = {.dgid = peer_gid},
        .dest_qpn = 0x77,
        .rq_psn = 0xfffffa, /* wraps soon */
        .path_mtu_bytes = MTU,
        .min_rnr_timer = 12,
        .sq_psn = 0xfffffa,
        .timeout = 10,
        .retry_count = 3,
        .rnr_retry = 3,
    };
    struct soft_qp *qp = world.qp[which];

    MUST(soft_qp_modify(qp, SOFT_QPS_INIT, NULL) == 0);
    MUST(soft_qp_modify(qp, SOFT_QPS_RTR, &attr) == 0);
    if (which != RC_HALF)
        MUST(soft_qp_modify(qp, SOFT_QPS_RTS, &attr) == 0);
}

static void create_qp(int which)
{
    static const enum soft_qp_type types[QPS] = {SOFT_QPT_UD, SOFT_QPT_GSI, SOFT_QPT_RC,
                                                 SOFT_QPT_RC, SOFT_QPT_RC};
    struct soft_qp_attr attr = {.type = types[which],
                                .send_cq = world.cq,
                                .recv_cq = world.cq,
                                .max_send_wr = WRS,
                                .max_recv_wr = WRS,
                                .qkey = QKEY,
                                .srq = which == RC_SHARED ? world.srq : NULL};

    MUST(soft_qp_create(world.hca, &attr, &world.qp[which]) == 0);
    if (which >= RC_OWN)
        connect_qp(which);
}

static void open_world(void)
{
    struct soft_hca_attr attr = {.gid = own_gid, .active_mtu_bytes = 4096, .datagram_bytes = 4096};
    struct soft_ah_attr to_peer = {.dgid = peer_gid};

    memset(&udp, 0, sizeof(udp));
    world.random = 0;
    world.sending = world.sends = 0;
    clock_ns = 1000000000;
    MUST(soft_hca_create(&attr, &world.hca) == 0);
    MUST(soft_cq_create(world.hca, CQ_DEPTH, &world.cq) == 0);
    MUST(soft_srq_create(world.hca, WRS, &world.srq) == 0);
    MUST(soft_ah_create(world.hca, &to_peer, &world.ah) == 0);
    for (int which = 0; which < QPS; which++) {
        create_qp(which);
        for (int i = 0; i < 4; i++) {
            struct buffer *buffer = &world.receive[which][i];
            buffer->bytes = i == 3 ? 100 : which < RC_OWN ? 40 + 2048 : 3000;
            buffer->data = malloc(buffer->bytes);
            buffer->posted = false;
            MUST(buffer->data != NULL);
            post_receive(which, i);
        }
    }
    MUST(soft_qp_attach_mcast(world.qp[UD], &group_gid) == 0);
    world.hca->udp = &udp;
}

static void close_world(void)
{
    world.hca->udp = NULL;
    soft_hca_close(world.hca);
    for (int which = 0; which < QPS; which++)
        for (int i = 0; i < 4; i++)
            free(world.receive[which][i].data);
    for (unsigned int i = 0; i < 8; i++)
        free((void *)(uintptr_t)udp.rx[i].data);
}

/* ---- actions --------------------------------------------------------------------------------- */

/* Puts into the packet the numbers that a peer knows of us. */
static void fix_up(uint8_t *packet, size_t bytes, uint8_t which, uint8_t flags, int distance)
{
    const struct soft_qp *qp = which < QPS ? world.qp[which] : NULL;
    uint32_t qpn = qp != NULL ? soft_qp_qpn(qp) : SOFT_QPN_MCAST;
    uint32_t psn;

    if (which > QPS || bytes < SOFT_ROCE_BTH_BYTES + SOFT_ROCE_DETH_BYTES)
        return;
    soft_roce_put32(packet + 4, (uint32_t)packet[4] << 24 | qpn);
    if (!(flags & RAW_KEYS)) {
        packet[1] &= 0xf0;
        soft_roce_put16(packet + 2, SOFT_PKEY_DEFAULT);
        if (qp == NULL || qp->rc == NULL)
            soft_roce_put32(packet + 12, which == GSI ? SOFT_QKEY_GSI : QKEY);
    }
    if (qp == NULL || qp->rc == NULL || !(flags & PSN_RELATIVE))
        return;
    psn = packet[0] == SOFT_ROCE_RC_ACK ? qp->rc->unacked : qp->rc->expected;
    psn = soft_psn_add(psn, (uint32_t)distance & SOFT_PSN_MASK);
    soft_roce_put32(packet + 8, (uint32_t)packet[8] << 24 | psn);
}

static void seal(struct soft_udp_packet *ip, uint8_t *data, bool right)
{
    uint8_t kept = data[SOFT_ROCE_MASKED_BYTE];
    size_t n = ip->bytes - SOFT_ICRC_BYTES;
    uint32_t crc =
        soft_icrc_seed(&ip->src, &ip->dst, ip->src_port, SOFT_UDP_PORT, (uint16_t)ip->bytes);

    data[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc = soft_crc32_update(crc, data, n);
    data[SOFT_ROCE_MASKED_BYTE] = kept;
    soft_roce_put32le(data + n, right ? crc : ~crc);
}

static void complete(const struct soft_wc *wc)
{
    struct buffer *buffer;

    if (wc->wr_id >> 16) {
        MUST(world.sending & UINT64_C(1) << wc->wr_id % 64); /* each completes once */
        world.sending &= ~(UINT64_C(1) << wc->wr_id % 64);
        return;
    }
    if (wc->flags & SOFT_WC_LENT) {
        memset(wc->lent - SOFT_LENT_ROOM, 0, SOFT_LENT_ROOM + wc->byte_len - SOFT_GRH_BYTES);
        (void)input_touch(wc->lent_grh, SOFT_GRH_BYTES);
        return;
    }
    buffer = &world.receive[wc->wr_id >> 8][wc->wr_id & 3];
    MUST(buffer->posted);
    MUST(wc->status != SOFT_WC_SUCCESS || wc->byte_len <= buffer->bytes);
    if (wc->status == SOFT_WC_SUCCESS)
        (void)input_touch(buffer->data, wc->byte_len);
    buffer->posted = false;
}

/* A socket fetches nothing while packets are lent. */
static void give_back(void)
{
    for (struct soft_wc wc; world.hca->lent > 0 && soft_cq_poll(world.cq, 1, &wc) == 1;)
        complete(&wc);
    MUST(world.hca->lent == 0);
}

/* [which QP][flags][distance of the PSN][length 2][packet without its ICRC] */
static void packet(struct input *in)
{
    static uint8_t data[PACKET_MAX];
    uint8_t which = input_u8(in), flags = input_u8(in);
    int distance = (int8_t)input_u8(in);
    size_t bytes = input_bytes(in, data, sizeof(data) - SOFT_ICRC_BYTES);
    struct soft_udp_packet *ip = &udp.rx[udp.rx_count % 8];
    uint8_t *exact = malloc(bytes + SOFT_ICRC_BYTES);

    MUST(exact != NULL);
    if (udp.rx_count == 0)
        give_back();
    fix_up(data, bytes, which % (QPS + 2), flags, distance);
    memcpy(exact, data, bytes);
    free((void *)(uintptr_t)ip->data);
    *ip = (struct soft_udp_packet){
        .data = exact,
        .bytes = bytes + SOFT_ICRC_BYTES,
        .src = flags & STRANGER ? stranger_gid : peer_gid,
        .dst = flags & TO_GROUP ? group_gid : own_gid,
        .src_port = SOFT_UDP_PORT,
        .hop_limit = 64,
    };
    if (bytes >= SOFT_ROCE_BTH_BYTES)
        seal(ip, exact, !(flags & BAD_ICRC));
    udp.rx_count++;
    if (!(flags & BATCHED) || udp.rx_count == 8) {
        (void)soft_hca_progress(world.hca);
        while (udp.rx_next < udp.rx_count) { /* packets that a consumer without buffers holds up */
            clock_ns += 1000000;
            (void)soft_hca_progress(world.hca);
        }
        udp.rx_next = udp.rx_count = 0;
    }
}

static uint32_t make(const void *context, uint32_t k, uint8_t *to)
{
    uint32_t bytes = k == 0 ? *(const uint32_t *)context : 1;

    memcpy(to, world.message, bytes);
    return bytes;
}

/* [which QP][length 2]: from 16 on, the HCA cuts the message in two */
static void send_message(struct input *in)
{
    static uint32_t cut_bytes[64];
    uint8_t kind = input_u8(in);
    int which = kind % 16 % QPS;
    uint32_t bytes = input_u16(in) % 6000;
    uint64_t bit = UINT64_C(1) << world.sends % 64;
    uint8_t flags = SOFT_SEND_SIGNALED | (bytes % 7 == 0 ? SOFT_SEND_WITH_IMM : 0);
    struct soft_send_wr wr = {
        .wr_id = 1 << 16 | world.sends % 64,
        .ah = world.ah,
        .remote_qpn = 0x77,
        .remote_qkey = QKEY,
        .flags = flags,
        .num_sge = 2,
        .sg = {{world.message, bytes / 2}, {world.message + bytes / 2, bytes - bytes / 2}}};

    if (world.sending & bit)
        return;
    if (kind >= 16) {
        cut_bytes[world.sends % 64] = bytes;
        wr.flags |= SOFT_SEND_CUT;
        wr.cut = (struct soft_cut){2, bytes, 1, make, &cut_bytes[world.sends % 64]};
    }
    world.sending |= bit; /* before the call, which may complete it */
    if (soft_qp_post_send(world.qp[which], &wr, 1) == 1)
        world.sends++;
    else
        world.sending &= ~bit;
}

static void poll(struct input *in)
{
    struct soft_wc wc[8];
    uint8_t repost = input_u8(in);
    int n = soft_cq_poll(world.cq, 1 + repost % 8, wc);

    for (int i = 0; i < n; i++)
        complete(&wc[i]);
    for (int which = 0; which < QPS; which++)
        for (int i = 0; i < 4 && repost & 1u << which; i++)
            post_receive(which, i);
}

/* Ends a connection, or makes it anew. */
static void walk(struct input *in)
{
    int which = RC_OWN + input_u8(in) % 3;

    if (input_u8(in) % 2 == 0) {
        (void)soft_qp_modify(world.qp[which], SOFT_QPS_ERR, NULL);
        return;
    }
    for (struct soft_wc wc; soft_cq_poll(world.cq, 1, &wc) == 1;)
        complete(&wc);
    /* A reset forgets posted work, so nothing else of the queue pair may be under way. */
    (void)soft_qp_modify(world.qp[which], SOFT_QPS_ERR, NULL);
    for (struct soft_wc wc; soft_cq_poll(world.cq, 1, &wc) == 1;)
        complete(&wc);
    if (soft_qp_modify(world.qp[which], SOFT_QPS_RESET, NULL) == 0)
        connect_qp(which);
}

/* From 128 on, the datagrams are lent from now on. */
static void stall(uint8_t kind)
{
    udp.stalls = kind % 4;
    if (kind >= 128)
        soft_qp_lend(world.qp[UD]);
}

static void act(struct input *in)
{
    switch ((enum action)(input_u8(in) % ACTIONS)) {
    case PACKET:
        packet(in);
        break;
    case CLOCK:
        clock_ns += (int64_t)input_u16(in) * 50000;
        (void)soft_hca_progress(world.hca);
        break;
    case SEND:
        send_message(in);
        break;
    case POLL:
        poll(in);
        break;
    case STALL:
        stall(input_u8(in));
        break;
    default:
        walk(in);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t message[6000];
    struct input in = {data, bytes};

    world.message = message;
    open_world();
    for (int i = 0; i < ACTIONS_MAX && in.left > 0; i++)
        act(&in);
    close_world();
    return 0;
}
