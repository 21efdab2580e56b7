/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_RAILS_WORLD_H
#define IPU_TESTS_RAILS_WORLD_H

/* Rails over the in-process fabric: a wire is a switch, and each host has a port on every wire. */
#include <stdbool.h>

#include "check.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "fabric/memory.h"
#include "rails/rails.h"

enum { MTU = 2048, WIRES = 2, HOSTS = 5, RECVS = 64, RECV_LEN = 40 + MTU, FRAME = 64, PEERS = 3 };

#define MS 1000000ull

static const struct in6_addr broadcast = {
    .s6_addr = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}};

struct host {
    struct ipu_memory_port *ports[WIRES];
    const struct ipu_fabric *wires[WIRES];
    struct ipu_rails *rails;
    const struct ipu_fabric *fabric; /* of the rails; of a host with one rail: of its port */
    uint8_t recv[RECVS][RECV_LEN];
};

static struct ipu_memory_switch *switches[WIRES];
static struct host hosts[HOSTS];
static uint8_t frames[256][FRAME];
static uint8_t hello[300]; /* a forged one */
static uint64_t now_ns;

static inline uint64_t the_clock(void)
{
    return now_ns;
}

static inline uint64_t counted(const struct host *host, const char *name)
{
    uint64_t values[IPU_RAILS_COUNTERS_N];
    ipu_rails_counters(host->rails, values);
    for (int i = 0; i < IPU_RAILS_COUNTERS_N; i++)
        if (strcmp(ipu_rails_counter_names[i], name) == 0)
            return values[i];
    CHECK(!"a counter of that name");
    return 0;
}

static inline uint64_t traffic(const struct host *host, uint32_t rail, const char *name)
{
    uint64_t values[IPU_RAILS_TRAFFIC_N];
    ipu_rails_traffic(host->rails, rail, values);
    for (int i = 0; i < IPU_RAILS_TRAFFIC_N; i++)
        if (strcmp(ipu_rails_traffic_names[i], name) == 0)
            return values[i];
    CHECK(!"a counter of that name");
    return 0;
}

static inline void post(const struct host *host, const uint8_t *at)
{
    uint64_t cookie = (uint64_t)(at - host->recv[0]) / RECV_LEN;
    struct ipu_recv recv = {(void *)(uintptr_t)at, RECV_LEN, 1000 + cookie};
    CHECK_EQ(host->fabric->ops->post(host->fabric->self, &recv, 1), 1);
}

static inline void register_frames(const struct host *host)
{
    const struct ipu_fabric *fabric = host->fabric;
    CHECK_EQ(fabric->ops->memory(fabric->self, (void *)(uintptr_t)host->recv, sizeof host->recv),
             0);
    CHECK_EQ(fabric->ops->memory(fabric->self, frames, sizeof frames), 0);
    for (int i = 0; i < RECVS; i++)
        post(host, host->recv[i]);
}

/* The ports of a host on the wires; `generation` gives the queue pairs other numbers. */
static inline void plug_in(int number, int wires, uint32_t generation)
{
    struct host *host = &hosts[number];
    *host = (struct host){.rails = NULL};
    for (int w = 0; w < wires; w++) {
        struct ipu_memory_config config = {
            .gid = {.s6_addr = {0xfe, 0x80, [14] = (uint8_t)w, [15] = (uint8_t)(number + 1)}},
            .qpn = 100 + 10 * generation + (uint32_t)number,
            .mtu = MTU,
        };
        host->ports[w] = ipu_memory_port_create(switches[w], &config);
        CHECK(host->ports[w]);
        CHECK_EQ(ipu_memory_attach(host->ports[w], &broadcast), 0);
        host->wires[w] = ipu_memory_port_fabric(host->ports[w]);
        CHECK_EQ(host->wires[w]->ops->memory(host->wires[w]->self, hello, sizeof hello), 0);
    }
    host->fabric = host->wires[0];
}

static inline struct ipu_rails_config config_of(const struct host *host, uint32_t peers_max)
{
    return (struct ipu_rails_config){
        .inner = {host->wires[0], host->wires[1]},
        .count = WIRES,
        .up = 3,
        .peers_max = peers_max,
        .broadcast = {.gid = broadcast, .qpn = IPU_MULTICAST_QPN},
        .clock_ns = the_clock,
    };
}

/* A host with several rails, and hellos if it has peers. */
static inline void add_host(int number, uint32_t peers_max)
{
    plug_in(number, WIRES, 0);
    const struct ipu_rails_config config = config_of(&hosts[number], peers_max);
    hosts[number].rails = ipu_rails_create(&config);
    CHECK(hosts[number].rails);
    hosts[number].fabric = ipu_rails_fabric(hosts[number].rails);
    register_frames(&hosts[number]);
}

static inline void add_single(int number)
{
    plug_in(number, 1, 0);
    register_frames(&hosts[number]);
}

static inline void remove_host(int number)
{
    struct host *host = &hosts[number];
    ipu_rails_destroy(host->rails);
    for (int w = 0; w < WIRES; w++)
        if (host->ports[w] != NULL)
            ipu_memory_port_destroy(host->ports[w]);
    *host = (struct host){.rails = NULL};
}

static inline void begin(void)
{
    now_ns = 1000000 * MS;
    for (int w = 0; w < WIRES; w++)
        CHECK(switches[w] = ipu_memory_switch_create((uint64_t)w + 1));
}

static inline void finish(void)
{
    for (int i = 0; i < HOSTS; i++)
        remove_host(i);
    for (int w = 0; w < WIRES; w++)
        ipu_memory_switch_destroy(switches[w]);
}

/* ---- traffic */

/* The flows of the datagrams that arrived last, and their sources. */
struct arrival {
    uint32_t flow, src_qpn;
    struct in6_addr sgid;
    bool is_to_group;
    uint8_t token[16]; /* of a hello */
};

static struct arrival arrivals[1024];

/* Takes datagrams, and what was sent; returns how many came. */
static inline int poll_host(int number)
{
    struct host *host = &hosts[number];
    struct ipu_received done[16];
    uint64_t cookies[16];
    int total = 0, empty = 0;
    while (empty < 3) {
        (void)host->fabric->ops->arm(host->fabric->self); /* as the pump does before it sleeps */
        int n = host->fabric->ops->received(host->fabric->self, done, 16);
        empty = n > 0 ? 0 : empty + 1;
        for (int i = 0; i < n; i++) {
            uint8_t *buf = host->recv[done[i].cookie - 1000];
            struct arrival *arrival = &arrivals[total++];
            arrival->flow = ipu_ip_get32(buf + IPU_RX_IP);
            arrival->src_qpn = done[i].src_qpn;
            memcpy(&arrival->sgid, buf + 8, 16);
            arrival->is_to_group = buf[24] == 0xff;
            memcpy(arrival->token, buf + IPU_RX_ENCAP + 16, 16);
            post(host, buf);
        }
    }
    while (host->fabric->ops->sent(host->fabric->self, cookies, 16) > 0)
        continue;
    return total;
}

static inline void settle(void)
{
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < HOSTS; i++)
            if (hosts[i].rails != NULL)
                (void)poll_host(i);
}

static inline void pass(uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += 50) {
        now_ns += 50 * MS;
        settle();
    }
}

static inline struct ipu_dest address_of(int number, int wire)
{
    const struct ipu_fabric *fabric = hosts[number].wires[wire];
    return (struct ipu_dest){.gid = fabric->gid, .qpn = fabric->qpn};
}

static inline void *handle_to(int from, const struct ipu_dest *dest)
{
    void *ah = hosts[from].fabric->ops->ah_create(hosts[from].fabric->self, dest);
    CHECK(ah);
    return ah;
}

static inline void send_flow(int from, void *ah, uint32_t qpn, uint32_t flow)
{
    uint8_t *frame = frames[flow % 256];
    ipu_ip_put16(frame, IPU_TYPE_IPV4);
    ipu_ip_put16(frame + 4, flow >> 16);
    ipu_ip_put16(frame + 6, flow & 0xffff);
    struct ipu_send send = {
        .addr = frame, .len = FRAME, .qpn = qpn, .ah = ah, .cookie = 7, .flow = flow};
    CHECK_EQ(hosts[from].fabric->ops->send(hosts[from].fabric->self, &send, 1), 1);
    (void)poll_host(from);
}

static inline uint32_t flow_of(uint32_t i)
{
    return i * 0x02F0A5B7u + 1;
}

/* Returns for how long at most a rail carries flows that leads nowhere. */
enum { SILENT_MS = 1250, BROADCAST_MS = 5000 };

/* Sends one message of each of 64 flows; `split` gets how many left by each wire. */
static inline int spread(int from, int to, uint64_t split[WIRES])
{
    const struct ipu_dest dest = address_of(to, 0);
    void *ah = handle_to(from, &dest);
    uint64_t before[WIRES];
    int came = 0;
    for (uint32_t w = 0; w < WIRES; w++)
        before[w] = traffic(&hosts[from], w, "tx_packets");
    for (uint32_t i = 0; i < 64; i++) {
        send_flow(from, ah, dest.qpn, flow_of(i));
        came += poll_host(to);
    }
    for (uint32_t w = 0; w < WIRES; w++)
        split[w] = traffic(&hosts[from], w, "tx_packets") - before[w];
    hosts[from].fabric->ops->ah_destroy(hosts[from].fabric->self, ah);
    return came;
}

/* What `host` knows of the peer with this address; all zero if there is none. */
static inline struct ipu_rails_peer peer_at(int host, const struct in6_addr *gid, uint32_t qpn)
{
    struct ipu_rails_peer peers[8];
    uint32_t n = ipu_rails_peers(hosts[host].rails, peers, 8);
    for (uint32_t i = 0; i < n; i++)
        if (peers[i].qpn == qpn && memcmp(&peers[i].gid, gid, sizeof *gid) == 0)
            return peers[i];
    return (struct ipu_rails_peer){.qpn = 0};
}

/* The rails by which flows of `host` go to `peer`; 0 if that is no peer. */
static inline uint32_t usable(int host, int peer)
{
    const struct ipu_fabric *fabric = hosts[peer].fabric;
    return peer_at(host, &fabric->gid, fabric->qpn).usable;
}

static inline uint32_t count_peers(int host)
{
    struct ipu_rails_peer peers[8];
    return ipu_rails_peers(hosts[host].rails, peers, 8);
}

/* Two hosts that are peers. */
static inline void begin_pair(void)
{
    begin();
    add_host(0, PEERS);
    add_host(1, PEERS);
    pass(500);
    CHECK_EQ(usable(0, 1), 3);
    CHECK_EQ(usable(1, 0), 3);
}

#endif
