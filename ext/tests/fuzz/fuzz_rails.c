/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drives the rails of a host over two in-process wires: hellos of hosts that name any addresses,
 * with and without proof, and any other bytes; messages of the pump; rails that go down, and queue
 * pairs that break; and time. Each cookie has to come back once, each posted receive once. A host
 * that has proved nothing is no peer, and gets no more hellos than it has sent.
 */
#include <errno.h>
#include <stdbool.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "fabric/memory.h"
#include "our_fabric.h"
#include "rails/rails.h"

enum {
    WIRES = 2,
    HOSTS = 5, /* host 0 is ours */
    PEERS = 3,
    ACTIONS_MAX = 300,
    TOKEN_BYTES = 16,
    AT_TOKEN = 16, /* in a hello with its encapsulation header, as the next ones */
    AT_RETURNED = 32,
    AT_ADDRESSES = 48,
};

#define MS 1000000ull

/* A port of a host on a wire. */
struct end {
    struct ipu_memory_port *port;
    const struct ipu_fabric *fabric;
    uint8_t recv[RECVS][RECV_LEN];
    uint8_t token[TOKEN_BYTES]; /* that came last */
    bool has_token, has_proved;
    uint32_t sent, came; /* hellos to and from us alone, before the proof */
};

static struct ipu_memory_switch *switches[WIRES];
static struct end ends[HOSTS][WIRES];
static struct ipu_rails *rails;
static uint64_t now_ns;

static uint64_t the_clock(void)
{
    return now_ns;
}

static void begin(void)
{
    memset(ends, 0, sizeof ends);
    now_ns = 1000 * MS;
    struct ipu_rails_config config = {
        .count = WIRES,
        .up = 3,
        .peers_max = PEERS,
        .broadcast = {.gid = broadcast, .qpn = IPU_MULTICAST_QPN},
        .clock_ns = the_clock,
    };
    for (int w = 0; w < WIRES; w++) {
        switches[w] = ipu_memory_switch_create((uint64_t)w + 1);
        MUST(switches[w] != NULL);
        for (int i = 0; i < HOSTS; i++) {
            struct end *end = &ends[i][w];
            struct ipu_memory_config port = {
                .gid = {.s6_addr = {0xfe, 0x80, [14] = (uint8_t)w, [15] = (uint8_t)i}},
                .qpn = 100u + (uint32_t)i,
                .mtu = MTU,
                .queue_depth = RECVS};
            end->port = ipu_memory_port_create(switches[w], &port);
            MUST(end->port != NULL);
            end->fabric = ipu_memory_port_fabric(end->port);
            const struct ipu_fabric *fabric = end->fabric;
            MUST(ipu_memory_attach(end->port, &broadcast) == 0);
            MUST(fabric->ops->memory(fabric->self, message, sizeof message) == 0);
            MUST(fabric->ops->memory(fabric->self, end->recv, sizeof end->recv) == 0);
            for (uint32_t k = 0; i > 0 && k < RECVS; k++) {
                struct ipu_recv recv = {end->recv[k], RECV_LEN, k};
                MUST(fabric->ops->post(fabric->self, &recv, 1) == 1);
            }
        }
        config.inner[w] = ends[0][w].fabric;
    }
    rails = ipu_rails_create(&config);
    MUST(rails != NULL);
    begin_ours(ipu_rails_fabric(rails));
}

/* The host takes what has come to it. */
static void listen_to(struct end *end)
{
    struct ipu_received done[RECVS];
    int n = end->fabric->ops->received(end->fabric->self, done, RECVS);
    for (int i = 0; i < n; i++) {
        uint8_t *buf = end->recv[done[i].cookie];
        if (buf[24] != 0xff && done[i].byte_len > IPU_GRH_LEN + AT_ADDRESSES &&
            ipu_ip_get16(buf + IPU_RX_ENCAP) == IPU_TYPE_RAILS) {
            memcpy(end->token, buf + IPU_RX_ENCAP + AT_TOKEN, TOKEN_BYTES);
            end->has_token = true;
            end->came++;
            MUST(end->has_proved || end->came <= end->sent);
        }
        struct ipu_recv recv = {buf, RECV_LEN, done[i].cookie};
        MUST(end->fabric->ops->post(end->fabric->self, &recv, 1) == 1);
    }
}

static void listen_to_all(void)
{
    for (int i = 1; i < HOSTS; i++)
        for (int w = 0; w < WIRES; w++)
            listen_to(&ends[i][w]);
}

static void check_peers(void)
{
    struct ipu_rails_peer peers[PEERS + 1];
    uint32_t n = ipu_rails_peers(rails, peers, PEERS + 1);
    MUST(n <= PEERS);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *gid = peers[i].gid.s6_addr;
        MUST((peers[i].usable & ~peers[i].reached) == 0);
        MUST(gid[15] < HOSTS && gid[14] < WIRES && ends[gid[15]][gid[14]].has_proved);
    }
}

static void receive(void)
{
    struct ipu_received done[RECVS];
    (void)receive_ours(done);
    reap();
    listen_to_all();
    check_peers();
}

/* Sends the message to us, or to all. */
static void send_to_us(struct end *from, uint32_t wire, size_t len, bool is_to_all)
{
    struct ipu_dest dest = {.gid = ends[0][wire].fabric->gid, .qpn = ends[0][wire].fabric->qpn};
    if (is_to_all)
        dest = (struct ipu_dest){.gid = broadcast, .qpn = IPU_MULTICAST_QPN};
    send_from(from->fabric, &dest, len);
    from->sent++;
}

/* [from][length 2][frame] */
static void hear(struct input *in)
{
    uint8_t from = input_u8(in);
    uint32_t wire = from >> 6 & 1;
    size_t len = input_bytes(in, message, sizeof message);
    if (len > 0)
        send_to_us(&ends[1 + from % (HOSTS - 1)][wire], wire, len, from & 128);
}

/* [from][rails: count 4 bits, rail 2, active 2][how][for each rail: host]
 * how: 1: with proof; 2: to all; 4: and a bit of it is wrong, of the byte that the upper half says
 */
static void hear_hello(struct input *in)
{
    uint8_t from = input_u8(in), fields = input_u8(in), how = input_u8(in);
    uint32_t wire = from >> 6 & 1, count = fields & 15;
    struct end *end = &ends[1 + from % (HOSTS - 1)][wire];
    memset(message, 0, sizeof message);
    ipu_ip_put16(message, IPU_TYPE_RAILS);
    memcpy(message + 4, "ipor\2", 5);
    message[9] = (uint8_t)count;
    message[10] = fields >> 4 & 3;
    message[11] = fields >> 6;
    memcpy(message + AT_TOKEN, message, TOKEN_BYTES);
    if (how & 1 && end->has_token) {
        memcpy(message + AT_RETURNED, end->token, TOKEN_BYTES);
        end->has_proved |= !(how & 4);
    }
    if (how & 4)
        message[AT_RETURNED + (how >> 4)] ^= 1;
    for (uint32_t k = 0; k < count && k < IPU_RAILS_MAX; k++) {
        uint8_t host = input_u8(in), *at = message + AT_ADDRESSES + 20 * k;
        const struct ipu_fabric *fabric = ends[host % HOSTS][host >> 6 & 1].fabric;
        if (host & 128) /* a rail that is down */
            continue;
        memcpy(at, &fabric->gid, 16);
        at[19] = (uint8_t)fabric->qpn;
    }
    size_t len = AT_ADDRESSES + 20 * (count < IPU_RAILS_MAX ? count : IPU_RAILS_MAX);
    send_to_us(end, wire, len, how & 2);
}

/* [to][many][flow] */
static void send_some(struct input *in)
{
    uint8_t to = input_u8(in), many = input_u8(in) % 32, flow = input_u8(in);
    const struct ipu_fabric *fabric = ends[to % HOSTS][to >> 6 & 1].fabric;
    struct ipu_dest dest = {.gid = fabric->gid, .qpn = fabric->qpn};
    if (to & 128)
        dest = (struct ipu_dest){.gid = broadcast, .qpn = IPU_MULTICAST_QPN};
    void *ah = ours->ops->ah_create(ours->self, &dest);
    MUST(ah != NULL);
    memset(message, 0, sizeof message);
    ipu_ip_put16(message, IPU_TYPE_IPV4);
    for (int i = 0; i < many && sent < COOKIES; i++) {
        struct ipu_send each = {.addr = message,
                                .len = MTU,
                                .qpn = dest.qpn,
                                .ah = ah,
                                .cookie = sent,
                                .flow = (uint32_t)(flow + i) * 0x9E3779B1u};
        if (ours->ops->send(ours->self, &each, 1) != 1)
            break;
        is_out[sent++] = true;
    }
    while (came_back < sent) { /* the pump keeps a handle while sends name it */
        uint32_t before = came_back;
        reap();
        reap();
        MUST(before < came_back);
        listen_to_all();
    }
    ours->ops->ah_destroy(ours->self, ah);
}

static void break_queue_pair(struct input *in)
{
    ipu_memory_break(ends[0][input_u8(in) % WIRES].port, input_u8(in) % 3);
    receive();
    recover_ours();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input in = {data, bytes};
    begin();
    for (int i = 0; i < ACTIONS_MAX && in.left > 0; i++) {
        switch (input_u8(&in) & 7) {
        case 0:
            hear(&in);
            break;
        case 1:
        case 2:
            hear_hello(&in);
            break;
        case 3:
            send_some(&in);
            break;
        case 4:
            ipu_rails_set(rails, input_u8(&in), input_u8(&in) % (WIRES + 1));
            break;
        case 5:
            break_queue_pair(&in);
            break;
        case 6:
            now_ns += input_u8(&in) * 50 * MS;
            break;
        default:
            receive();
        }
    }
    receive();
    MUST(came_back == sent);
    ipu_rails_destroy(rails);
    for (int w = 0; w < WIRES; w++) {
        for (int i = 0; i < HOSTS; i++)
            ipu_memory_port_destroy(ends[i][w].port);
        ipu_memory_switch_destroy(switches[w]);
    }
    return 0;
}
