/* SPDX-License-Identifier: BSD-2-Clause */
/* Rails over the in-process fabric: a wire is a switch, and each host has a port on every wire. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "check.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "fake_fabric.h"
#include "fabric/memory.h"
#include "rails/rails.h"
#include "refuse.h"

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

static uint64_t the_clock(void)
{
    return now_ns;
}

static uint64_t counted(const struct host *host, const char *name)
{
    uint64_t values[IPU_RAILS_COUNTERS_N];
    ipu_rails_counters(host->rails, values);
    for (int i = 0; i < IPU_RAILS_COUNTERS_N; i++)
        if (strcmp(ipu_rails_counter_names[i], name) == 0)
            return values[i];
    CHECK(!"a counter of that name");
    return 0;
}

static uint64_t traffic(const struct host *host, uint32_t rail, const char *name)
{
    uint64_t values[IPU_RAILS_TRAFFIC_N];
    ipu_rails_traffic(host->rails, rail, values);
    for (int i = 0; i < IPU_RAILS_TRAFFIC_N; i++)
        if (strcmp(ipu_rails_traffic_names[i], name) == 0)
            return values[i];
    CHECK(!"a counter of that name");
    return 0;
}

static void post(const struct host *host, const uint8_t *at)
{
    uint64_t cookie = (uint64_t)(at - host->recv[0]) / RECV_LEN;
    struct ipu_recv recv = {(void *)(uintptr_t)at, RECV_LEN, 1000 + cookie};
    CHECK_EQ(host->fabric->ops->post(host->fabric->self, &recv, 1), 1);
}

static void register_frames(const struct host *host)
{
    const struct ipu_fabric *fabric = host->fabric;
    CHECK_EQ(fabric->ops->memory(fabric->self, (void *)(uintptr_t)host->recv, sizeof host->recv),
             0);
    CHECK_EQ(fabric->ops->memory(fabric->self, frames, sizeof frames), 0);
    for (int i = 0; i < RECVS; i++)
        post(host, host->recv[i]);
}

/* The ports of a host on the wires; `generation` gives the queue pairs other numbers. */
static void plug_in(int number, int wires, uint32_t generation)
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

static struct ipu_rails_config config_of(const struct host *host, uint32_t peers_max)
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
static void add_host(int number, uint32_t peers_max)
{
    plug_in(number, WIRES, 0);
    const struct ipu_rails_config config = config_of(&hosts[number], peers_max);
    hosts[number].rails = ipu_rails_create(&config);
    CHECK(hosts[number].rails);
    hosts[number].fabric = ipu_rails_fabric(hosts[number].rails);
    register_frames(&hosts[number]);
}

static void add_single(int number)
{
    plug_in(number, 1, 0);
    register_frames(&hosts[number]);
}

static void remove_host(int number)
{
    struct host *host = &hosts[number];
    ipu_rails_destroy(host->rails);
    for (int w = 0; w < WIRES; w++)
        if (host->ports[w] != NULL)
            ipu_memory_port_destroy(host->ports[w]);
    *host = (struct host){.rails = NULL};
}

static void begin(void)
{
    now_ns = 1000000 * MS;
    for (int w = 0; w < WIRES; w++)
        CHECK(switches[w] = ipu_memory_switch_create((uint64_t)w + 1));
}

static void finish(void)
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
static int poll_host(int number)
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

static void settle(void)
{
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < HOSTS; i++)
            if (hosts[i].rails != NULL)
                (void)poll_host(i);
}

static void pass(uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += 50) {
        now_ns += 50 * MS;
        settle();
    }
}

static struct ipu_dest address_of(int number, int wire)
{
    const struct ipu_fabric *fabric = hosts[number].wires[wire];
    return (struct ipu_dest){.gid = fabric->gid, .qpn = fabric->qpn};
}

static void *handle_to(int from, const struct ipu_dest *dest)
{
    void *ah = hosts[from].fabric->ops->ah_create(hosts[from].fabric->self, dest);
    CHECK(ah);
    return ah;
}

static void send_flow(int from, void *ah, uint32_t qpn, uint32_t flow)
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

static uint32_t flow_of(uint32_t i)
{
    return i * 0x02F0A5B7u + 1;
}

/* Returns for how long at most a rail carries flows that leads nowhere. */
enum { SILENT_MS = 1250, BROADCAST_MS = 5000 };

/* Sends one message of each of 64 flows; `split` gets how many left by each wire. */
static int spread(int from, int to, uint64_t split[WIRES])
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
static struct ipu_rails_peer peer_at(int host, const struct in6_addr *gid, uint32_t qpn)
{
    struct ipu_rails_peer peers[8];
    uint32_t n = ipu_rails_peers(hosts[host].rails, peers, 8);
    for (uint32_t i = 0; i < n; i++)
        if (peers[i].qpn == qpn && memcmp(&peers[i].gid, gid, sizeof *gid) == 0)
            return peers[i];
    return (struct ipu_rails_peer){.qpn = 0};
}

/* The rails by which flows of `host` go to `peer`; 0 if that is no peer. */
static uint32_t usable(int host, int peer)
{
    const struct ipu_fabric *fabric = hosts[peer].fabric;
    return peer_at(host, &fabric->gid, fabric->qpn).usable;
}

static uint32_t count_peers(int host)
{
    struct ipu_rails_peer peers[8];
    return ipu_rails_peers(hosts[host].rails, peers, 8);
}

/* ---- active-backup: no hellos */

static void a_backup_receives_what_is_for_it_and_nothing_to_groups(void)
{
    begin();
    add_host(0, 0);
    add_single(1);
    plug_in(2, WIRES, 0); /* the second wire without the first */
    register_frames(&hosts[2]);
    const struct ipu_dest ours = address_of(0, 0), backup = address_of(0, 1),
                          group = {.gid = broadcast, .qpn = IPU_MULTICAST_QPN};
    void *ah = handle_to(1, &ours);
    send_flow(1, ah, ours.qpn, 5);
    CHECK_EQ(poll_host(0), 1);
    CHECK_EQ(arrivals[0].flow, 5);
    hosts[2].fabric = hosts[2].wires[1];
    register_frames(&hosts[2]);
    void *second = handle_to(2, &backup), *to_all = handle_to(2, &group);
    send_flow(2, second, backup.qpn, 6);
    CHECK_EQ(poll_host(0), 1);
    CHECK_EQ(arrivals[0].flow, 6);
    for (uint32_t i = 0; i < 300; i++) { /* their receives are posted again: they keep no buffer */
        send_flow(2, to_all, group.qpn, i);
        CHECK_EQ(poll_host(0), 0);
    }
    CHECK_EQ(counted(&hosts[0], "rx_backup"), 300);
    CHECK_EQ(traffic(&hosts[0], 1, "rx_packets"), 1);
    CHECK_EQ(counted(&hosts[0], "tx_hellos"), 0);
    hosts[2].fabric->ops->ah_destroy(hosts[2].fabric->self, second);
    hosts[2].fabric->ops->ah_destroy(hosts[2].fabric->self, to_all);
    hosts[1].fabric->ops->ah_destroy(hosts[1].fabric->self, ah);
    finish();
}

static void another_active_rail_sends_at_once_by_the_same_handles(void)
{
    uint64_t split[WIRES];
    begin();
    add_host(0, 0);
    add_host(1, 0);
    CHECK_EQ(spread(0, 1, split), 64);
    CHECK_EQ(split[0], 64);
    const struct ipu_dest group = {.gid = broadcast, .qpn = IPU_MULTICAST_QPN};
    void *to_all = handle_to(0, &group);
    send_flow(0, to_all, group.qpn, 1);
    CHECK_EQ(poll_host(1), 1);
    for (uint32_t i = 0; i < 2; i++)
        ipu_rails_set(hosts[i].rails, 2, 1);
    struct pollfd poll_fd = {hosts[0].fabric->ops->fd(hosts[0].fabric->self), POLLIN, 0};
    CHECK_EQ(poll(&poll_fd, 1, 0), 1); /* the pump wakes for it */
    settle();
    CHECK_EQ(hosts[0].fabric->qpn, hosts[0].wires[1]->qpn);
    CHECK_EQ(memcmp(&hosts[0].fabric->gid, &hosts[0].wires[1]->gid, 16), 0);
    send_flow(0, to_all, group.qpn, 2);
    CHECK_EQ(traffic(&hosts[0], 1, "tx_packets"), 1);
    CHECK_EQ(poll_host(1), 1);
    CHECK_EQ(arrivals[0].flow, 2);
    (void)hosts[0].fabric->ops->arm(hosts[0].fabric->self);
    settle();
    ipu_rails_set(hosts[0].rails, 2, 1); /* no change: the descriptor does not stay readable */
    settle();
    settle();
    CHECK_EQ(poll(&poll_fd, 1, 0), 0);
    ipu_rails_set(hosts[0].rails, 3, 7); /* no such rail */
    settle();
    CHECK_EQ(hosts[0].fabric->qpn, hosts[0].wires[1]->qpn);
    hosts[0].fabric->ops->ah_destroy(hosts[0].fabric->self, to_all);
    finish();
}

static void a_rail_may_be_absent(void)
{
    uint64_t split[WIRES];
    begin();
    plug_in(0, WIRES, 0);
    struct ipu_rails_config config = config_of(&hosts[0], PEERS);
    config.inner[1] = NULL;
    CHECK(hosts[0].rails = ipu_rails_create(&config));
    hosts[0].fabric = ipu_rails_fabric(hosts[0].rails);
    register_frames(&hosts[0]);
    add_host(1, PEERS);
    pass(1000);
    CHECK_EQ(usable(0, 1), 1);
    CHECK_EQ(usable(1, 0), 1);
    CHECK_EQ(spread(0, 1, split), 64);
    CHECK_EQ(split[1], 0);
    CHECK_EQ(spread(1, 0, split), 64);
    CHECK_EQ(split[1], 0);
    finish();
}

/* ---- peers */

static void begin_pair(void)
{
    begin();
    add_host(0, PEERS);
    add_host(1, PEERS);
    pass(500);
    CHECK_EQ(usable(0, 1), 3);
    CHECK_EQ(usable(1, 0), 3);
}

static void flows_of_peers_go_by_both_rails_and_keep_theirs(void)
{
    uint64_t split[WIRES], again[WIRES];
    begin_pair();
    CHECK_EQ(spread(0, 1, split), 64);
    CHECK(split[0] >= 16 && split[1] >= 16);
    CHECK_EQ(spread(0, 1, again), 64);
    CHECK_EQ(again[0], split[0]);
    const struct ipu_dest dest = address_of(1, 0);
    void *ah = handle_to(0, &dest);
    for (uint32_t i = 0; i < 64; i++) { /* one flow leaves by one rail only */
        uint64_t before = traffic(&hosts[0], 0, "tx_packets");
        for (int k = 0; k < 3; k++)
            send_flow(0, ah, dest.qpn, flow_of(i));
        uint64_t first = traffic(&hosts[0], 0, "tx_packets") - before;
        CHECK(first == 0 || first == 3);
        CHECK_EQ(poll_host(1), 3);
        for (int k = 0; k < 3; k++) { /* and all come from the active rail's address */
            CHECK_EQ(arrivals[k].src_qpn, hosts[0].wires[0]->qpn);
            CHECK_EQ(memcmp(&arrivals[k].sgid, &hosts[0].wires[0]->gid, 16), 0);
        }
    }
    hosts[0].fabric->ops->ah_destroy(hosts[0].fabric->self, ah);
    finish();
}

static void what_the_engine_sends_leaves_by_the_active_rail(void)
{
    begin_pair();
    const struct ipu_dest dest = address_of(1, 0);
    void *ah = handle_to(0, &dest);
    ipu_rails_set(hosts[0].rails, 3, 1);
    settle();
    for (int i = 0; i < 10; i++)
        send_flow(0, ah, dest.qpn, 0);
    CHECK_EQ(traffic(&hosts[0], 0, "tx_packets"), 0);
    CHECK_EQ(traffic(&hosts[0], 1, "tx_packets"), 10);
    hosts[0].fabric->ops->ah_destroy(hosts[0].fabric->self, ah);
    finish();
}

static void a_host_with_one_rail_is_reached_by_the_active_one(void)
{
    uint64_t split[WIRES];
    begin_pair();
    add_single(2);
    CHECK_EQ(poll_host(2), 0);
    pass(6000); /* it gets hellos like anybody else */
    CHECK(poll_host(2) > 0);
    CHECK_EQ(spread(0, 2, split), 64);
    CHECK_EQ(split[0], 64);
    finish();
}

static void the_flows_of_a_rail_that_goes_down_move_at_once(void)
{
    uint64_t split[WIRES], before[WIRES];
    begin_pair();
    CHECK_EQ(spread(0, 1, before), 64);
    ipu_rails_set(hosts[0].rails, 1, 0);
    (void)poll_host(0);
    CHECK_EQ(spread(0, 1, split), 64);
    CHECK_EQ(split[0], 64);
    settle(); /* the other host has heard of it */
    CHECK_EQ(usable(1, 0), 1);
    CHECK_EQ(spread(1, 0, split), 64);
    CHECK_EQ(split[0], 64);
    ipu_rails_set(hosts[0].rails, 3, 0);
    settle();
    CHECK_EQ(usable(1, 0), 3);
    CHECK_EQ(spread(0, 1, split), 64);
    CHECK_EQ(split[0], before[0]);
    /* the active rail, too: its address still leads to the host */
    ipu_rails_set(hosts[1].rails, 2, 1);
    settle();
    CHECK_EQ(usable(0, 1), 2);
    CHECK_EQ(spread(0, 1, split), 64);
    CHECK_EQ(split[1], 64);
    finish();
}

static void a_silent_wire_carries_no_flows_after_a_second(void)
{
    uint64_t split[WIRES];
    begin_pair();
    ipu_memory_break(hosts[1].ports[1], 0); /* nothing more arrives there */
    for (int i = 0; i < 20; i++) {
        now_ns += 100 * MS;
        (void)poll_host(0);
        (void)hosts[1].fabric->ops->recover(hosts[1].fabric->self);
        (void)poll_host(1);
        ipu_memory_break(hosts[1].ports[1], 0);
    }
    CHECK_EQ(usable(0, 1), 1);
    (void)spread(0, 1, split);
    CHECK_EQ(split[0], 64);
    finish();
}

static void a_host_that_is_gone_is_no_peer_any_more(void)
{
    begin_pair();
    remove_host(1);
    pass(1500);
    CHECK_EQ(count_peers(0), 1);
    pass(9500);
    CHECK_EQ(count_peers(0), 0);
    add_host(1, PEERS);
    pass(500);
    CHECK_EQ(usable(0, 1), 3);
    finish();
}

static void a_host_that_begins_anew_is_known_by_its_new_addresses(void)
{
    uint64_t split[WIRES];
    begin_pair();
    remove_host(1);
    plug_in(1, WIRES, 1);
    const struct ipu_rails_config config = config_of(&hosts[1], PEERS);
    CHECK(hosts[1].rails = ipu_rails_create(&config));
    hosts[1].fabric = ipu_rails_fabric(hosts[1].rails);
    register_frames(&hosts[1]);
    pass(500);
    CHECK_EQ(usable(0, 1), 3);
    CHECK_EQ(spread(0, 1, split), 64);
    CHECK(split[0] > 0 && split[1] > 0);
    finish();
}

static void there_is_an_end_to_the_peers_and_those_in_use_stay(void)
{
    uint64_t split[WIRES];
    void *handles[HOSTS];
    begin();
    for (int i = 0; i < HOSTS; i++)
        add_host(i, i == 0 ? PEERS : HOSTS);
    pass(20000);
    CHECK_EQ(count_peers(0), PEERS);
    CHECK(counted(&hosts[0], "peers_full") > 0); /* a stranger pushes nobody out */
    CHECK_EQ(counted(&hosts[0], "peers_evicted"), 0);
    CHECK_EQ(count_peers(1) >= PEERS, true);
    for (int i = HOSTS - 1; i > 0; i--) { /* whom the pump knows gets a place, and keeps it */
        const struct ipu_dest dest = address_of(i, 0);
        handles[i] = handle_to(0, &dest);
        for (int tries = 0; usable(0, i) != 3 && tries < 120; tries++)
            pass(50);
        CHECK_EQ(usable(0, i), i > 1 ? 3 : 0);
        for (int other = i; other < HOSTS; other++)
            CHECK_EQ(spread(0, other, split), 64); /* all are reached, the last one by one rail */
        pass(500);
    }
    CHECK_EQ(counted(&hosts[0], "peers_evicted"), 1);
    for (int tries = 0; usable(0, 1) != 3 && tries < 400; tries++) /* the others rest */
        pass(50);
    CHECK_EQ(usable(0, 1), 3);
    for (int i = 1; i < HOSTS; i++)
        hosts[0].fabric->ops->ah_destroy(hosts[0].fabric->self, handles[i]);
    finish();
}

/* ---- forged and broken hellos */

enum { AT_RETURNED = 32, AT_ADDRESSES = 48 }; /* in a hello */

/* A host without rails of its own sends what it likes to host 0 by a wire. */
static void forge(int from, int wire, size_t len)
{
    const struct ipu_fabric *fabric = hosts[from].wires[wire];
    const struct ipu_dest dest = address_of(0, wire);
    uint64_t cookie;
    void *ah = fabric->ops->ah_create(fabric->self, &dest);
    struct ipu_send send = {.addr = hello, .len = (uint32_t)len, .qpn = dest.qpn, .ah = ah};
    CHECK_EQ(fabric->ops->send(fabric->self, &send, 1), 1);
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 1);
    fabric->ops->ah_destroy(fabric->self, ah);
    (void)poll_host(0);
}

/* Writes a hello of two rails with these addresses, without proof; returns its length. */
static size_t write_hello(uint8_t rail, uint8_t active, const struct ipu_dest *first,
                          const struct ipu_dest *second)
{
    const struct ipu_dest *at[2] = {first, second};
    memset(hello, 0, sizeof hello);
    ipu_ip_put16(hello, IPU_TYPE_RAILS);
    memcpy(hello + 4, "ipor\2\2", 6);
    hello[10] = rail;
    hello[11] = active;
    for (int k = 0; k < 2; k++) {
        memcpy(hello + AT_ADDRESSES + 20 * k, &at[k]->gid, 16);
        hello[AT_ADDRESSES + 20 * k + 19] = (uint8_t)at[k]->qpn;
    }
    return AT_ADDRESSES + 40;
}

/* Has a host without rails receive by one of its wires. */
static void listen_on(int number, int wire)
{
    struct host *host = &hosts[number];
    const struct ipu_fabric *fabric = host->fabric = host->wires[wire];
    CHECK_EQ(fabric->ops->memory(fabric->self, host->recv, sizeof host->recv), 0);
    for (int i = wire; i < RECVS; i += WIRES) /* the other wire has the others */
        post(host, host->recv[i]);
}

/* Counts the hellos that such a host got for itself alone, and keeps the token of the last one. */
static int collect(int number, uint8_t token[16])
{
    int n = poll_host(number), own = 0;
    for (int i = 0; i < n; i++) {
        if (arrivals[i].is_to_group)
            continue;
        own++;
        memcpy(token, arrivals[i].token, 16);
    }
    return own;
}

/* Such a host sends this hello to host 0, and again with the token that it got. */
static void prove(int number, int wire, size_t len)
{
    uint8_t token[16];
    (void)poll_host(number);
    forge(number, wire, len);
    CHECK_EQ(collect(number, token), 1);
    memcpy(hello + AT_RETURNED, token, sizeof token);
    forge(number, wire, len);
}

static void no_host_takes_the_address_of_another(void)
{
    uint8_t token[16];
    begin_pair();
    plug_in(2, WIRES, 0);
    const struct ipu_dest victim[] = {address_of(1, 0), address_of(1, 1)},
                          own[] = {address_of(2, 0), address_of(2, 1)};
    /* from an address that the hello does not name */
    forge(2, 0, write_hello(0, 0, &victim[0], &own[1]));
    CHECK_EQ(counted(&hosts[0], "hello_bad"), 1);
    /* as a second rail of the victim, which names another one */
    listen_on(2, 1);
    prove(2, 1, write_hello(1, 0, &victim[0], &own[1]));
    CHECK_EQ(usable(0, 1), 3);
    CHECK_EQ(count_peers(0), 1);
    /* with the victim's second rail as its own, which the victim's hellos deny */
    listen_on(2, 0);
    prove(2, 0, write_hello(0, 0, &own[0], &victim[1]));
    CHECK_EQ(count_peers(0), 2);
    CHECK_EQ(peer_at(0, &own[0].gid, own[0].qpn).usable, 1);
    pass(300);
    CHECK_EQ(usable(0, 1), 3);
    CHECK_EQ(usable(1, 0), 3);
    CHECK_EQ(peer_at(0, &own[0].gid, own[0].qpn).reached, 1);
    CHECK(collect(2, token) > 0);
    /* the victim's datagrams still have its address as their source */
    uint64_t split[WIRES];
    CHECK_EQ(spread(1, 0, split), 64);
    CHECK(split[1] > 0);
    CHECK_EQ(arrivals[0].src_qpn, victim[0].qpn);
    finish();
}

static void nothing_goes_to_an_address_that_another_host_names(void)
{
    uint8_t token[16];
    begin();
    add_host(0, PEERS);
    plug_in(1, WIRES, 0);
    plug_in(2, WIRES, 0);
    listen_on(1, 1);
    listen_on(2, 0);
    const struct ipu_dest own = address_of(2, 0), victim = address_of(1, 1);
    prove(2, 0, write_hello(0, 0, &own, &victim));
    CHECK_EQ(count_peers(0), 1);
    for (int i = 0; i < 8; i++) {
        pass(250);
        CHECK(collect(2, token) > 0); /* the peer's own address gets them */
        memcpy(hello + AT_RETURNED, token, sizeof token);
        forge(2, 0, AT_ADDRESSES + 40);
        CHECK_EQ(collect(1, token), 0);
    }
    CHECK_EQ(peer_at(0, &own.gid, own.qpn).usable, 1);
    finish();
}

static void a_hello_without_proof_gets_one_and_leaves_nothing_behind(void)
{
    uint8_t token[16], other[16];
    begin();
    add_host(0, PEERS);
    pass(2000); /* the first broadcasts */
    plug_in(1, WIRES, 0);
    listen_on(1, 0);
    const struct ipu_dest own[] = {address_of(1, 0), address_of(1, 1)};
    size_t len = write_hello(0, 0, &own[0], &own[1]);
    for (int i = 0; i < 400; i++) {
        forge(1, 0, len);
        CHECK_EQ(collect(1, token), 1);
    }
    pass(20000);
    CHECK_EQ(collect(1, token), 0);
    CHECK_EQ(count_peers(0), 0);
    CHECK_EQ(counted(&hosts[0], "hello_unproven"), 400);
    /* A token of another address, another rail or another time proves nothing. */
    plug_in(2, WIRES, 0);
    listen_on(2, 0);
    const struct ipu_dest others[] = {address_of(2, 0), address_of(2, 1)};
    forge(2, 0, write_hello(0, 0, &others[0], &others[1]));
    CHECK_EQ(collect(2, other), 1);
    (void)write_hello(0, 0, &own[0], &own[1]);
    memcpy(hello + AT_RETURNED, other, sizeof other);
    forge(1, 0, len);
    CHECK_EQ(collect(1, token), 1);
    (void)write_hello(1, 1, &own[0], &own[1]);
    memcpy(hello + AT_RETURNED, token, sizeof token);
    listen_on(1, 1);
    forge(1, 1, len);
    CHECK_EQ(collect(1, other), 1);
    CHECK_EQ(count_peers(0), 0);
    now_ns += SILENT_MS * MS;
    memcpy(hello + AT_RETURNED, other, sizeof other);
    forge(1, 1, len);
    CHECK_EQ(count_peers(0), 0);
    for (int bit = 0; bit < 128; bit++) {
        CHECK_EQ(collect(1, other), 1);
        memcpy(hello + AT_RETURNED, other, sizeof other);
        hello[AT_RETURNED + bit / 8] ^= (uint8_t)(1 << bit % 8);
        forge(1, 1, len);
        CHECK_EQ(count_peers(0), 0);
    }
    CHECK_EQ(collect(1, other), 1);
    memcpy(hello + AT_RETURNED, other, sizeof other);
    forge(1, 1, len);
    CHECK_EQ(count_peers(0), 1);
    finish();
}

static void forged_hellos_of_a_peer_change_nothing(void)
{
    uint64_t split[WIRES];
    begin_pair();
    const struct ipu_dest peer[] = {address_of(1, 0), address_of(1, 1)},
                          none = {.gid = {.s6_addr = {0xfe, 0x80, [15] = 99}}, .qpn = 99};
    uint64_t unproven = counted(&hosts[0], "hello_unproven"), sent;
    for (int i = 0; i < 40;
         i++) { /* host 1's port sends them, as if another host used its address */
        forge(1, 0, write_hello(0, 0, &peer[0], &none));
        forge(1, 1, write_hello(1, 1, &none, &peer[1]));
        sent = counted(&hosts[0], "tx_hellos");
        forge(1, 0, write_hello(0, 0, &peer[0], &none));
        CHECK_EQ(counted(&hosts[0], "tx_hellos"), sent); /* the address gets hellos anyway */
        CHECK_EQ(usable(0, 1), 3);
        pass(50);
    }
    CHECK(counted(&hosts[0], "hello_unproven") >= unproven + 120);
    CHECK_EQ(usable(1, 0), 3);
    CHECK_EQ(spread(0, 1, split), 64);
    CHECK(split[0] > 0 && split[1] > 0);
    finish();
}

static void a_flood_of_strangers_leaves_frames_to_peers(void)
{
    begin_pair();
    for (int i = 2; i < HOSTS; i++)
        plug_in(i, WIRES, 0);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 40; i++) { /* without a look at what has been sent */
            const struct ipu_dest own[] = {address_of(2 + i % 3, 0), address_of(2 + i % 3, 1)};
            const struct ipu_fabric *fabric = hosts[2 + i % 3].wires[0];
            const struct ipu_dest dest = address_of(0, 0);
            uint64_t cookie;
            size_t len = write_hello(0, 0, &own[0], &own[1]);
            void *ah = fabric->ops->ah_create(fabric->self, &dest);
            struct ipu_send send = {.addr = hello, .len = (uint32_t)len, .qpn = dest.qpn, .ah = ah};
            CHECK_EQ(fabric->ops->send(fabric->self, &send, 1), 1);
            CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 1);
            fabric->ops->ah_destroy(fabric->self, ah);
        }
        pass(50);
        CHECK_EQ(usable(0, 1), 3);
        CHECK_EQ(usable(1, 0), 3);
    }
    CHECK(counted(&hosts[0], "hello_busy") > 0);
    CHECK_EQ(count_peers(0), 1);
    finish();
}

/* Fills the queue of host 0's active rail with messages to this address. */
static void *fill_queue(const struct ipu_dest *dest)
{
    const struct ipu_fabric *fabric = hosts[0].fabric;
    void *ah = handle_to(0, dest);
    const struct ipu_send send = {.addr = frames[0], .len = FRAME, .qpn = dest->qpn, .ah = ah};
    while (fabric->ops->send(fabric->self, &send, 1) == 1)
        continue;
    return ah;
}

/* For want of a handle, or of room in the queue of the rail: those to a stranger and those to all.
 */
static void a_hello_that_cannot_leave_is_counted(void)
{
    uint8_t token[16];
    begin();
    add_host(0, PEERS);
    plug_in(1, WIRES, 0);
    listen_on(1, 0);
    const struct ipu_dest own[] = {address_of(1, 0), address_of(1, 1)};
    const size_t len = write_hello(0, 0, &own[0], &own[1]);
    pass(2000); /* the first broadcasts */
    (void)collect(1, token);
    refuse_after(1); /* the first handle is the forger's */
    forge(1, 0, len);
    CHECK(refuse_stop());
    CHECK_EQ(collect(1, token), 0);
    CHECK_EQ(counted(&hosts[0], "hello_unsent"), 1);
    void *ah = fill_queue(&own[0]);
    uint64_t said = counted(&hosts[0], "tx_hellos");
    forge(1, 0, len);
    CHECK_EQ(counted(&hosts[0], "hello_unsent"), 2);
    CHECK_EQ(counted(&hosts[0], "tx_hellos"), said);
    hosts[0].fabric->ops->ah_destroy(hosts[0].fabric->self, ah);
    ah = fill_queue(&own[0]);
    now_ns += BROADCAST_MS * MS;
    (void)poll_host(0);
    CHECK_EQ(counted(&hosts[0], "hello_unsent"), 3);
    CHECK_EQ(counted(&hosts[0], "tx_hellos"), said + 1); /* by the other rail */
    hosts[0].fabric->ops->ah_destroy(hosts[0].fabric->self, ah);
    (void)poll_host(0);
    (void)poll_host(1);
    for (int i = 0; i < 20; i++) { /* and nothing is left behind: more than there are frames */
        forge(1, 0, len);
        CHECK(collect(1, token) >= 1);
    }
    CHECK_EQ(counted(&hosts[0], "hello_busy"), 0);
    finish();
}

static void a_rail_counts_as_reached_once_the_peer_has_answered_on_it(void)
{
    begin();
    add_host(0, PEERS);
    plug_in(1, WIRES, 0);
    listen_on(1, 1);
    const struct ipu_dest own[] = {address_of(1, 0), address_of(1, 1)};
    prove(1, 1, write_hello(1, 1, &own[0], &own[1])); /* its first wire is another one than ours */
    pass(500);
    CHECK_EQ(peer_at(0, &own[1].gid, own[1].qpn).reached, 2);
    finish();
    begin_pair();
    ipu_rails_set(hosts[1].rails, 2, 1);
    pass(500);
    const struct ipu_rails_peer peer = peer_at(0, &hosts[1].fabric->gid, hosts[1].fabric->qpn);
    CHECK_EQ(peer.usable, 2);
    CHECK_EQ(peer.reached, 3);
    finish();
}

static void hellos_that_nobody_can_read_are_counted(void)
{
    begin();
    add_host(0, PEERS);
    plug_in(1, WIRES, 0);
    const struct ipu_dest own[] = {address_of(1, 0), address_of(1, 1)};
    size_t whole = write_hello(0, 0, &own[0], &own[1]);
    uint64_t bad = 0;
    for (size_t len = 4; len < whole; len++) {
        forge(1, 0, len);
        CHECK_EQ(counted(&hosts[0], "hello_bad"), ++bad);
    }
    static const struct {
        int at;
        uint8_t value;
    } changes[] = {{4, 'x'}, {9, 0}, {9, 9}, {9, 3}, {10, 2}, {11, 2}, {AT_ADDRESSES, 0xff}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        (void)write_hello(0, 0, &own[0], &own[1]);
        hello[changes[i].at] = changes[i].value;
        forge(1, 0, whole);
        CHECK_EQ(counted(&hosts[0], "hello_bad"), ++bad);
    }
    CHECK_EQ(counted(&hosts[0], "hello_version"), 0);
    (void)write_hello(0, 0, &own[0], &own[1]);
    hello[8] = 1;
    forge(1, 0, whole);
    CHECK_EQ(counted(&hosts[0], "hello_version"), 1);
    CHECK_EQ(counted(&hosts[0], "hello_bad"), bad);
    CHECK_EQ(count_peers(0), 0);
    uint32_t random = 1;
    for (int round = 0; round < 20000; round++) { /* none of them does harm */
        (void)write_hello((uint8_t)(round & 1), 0, &own[0], &own[1]);
        for (int i = 0; i < 4; i++) {
            random = random * 1664525u + 1013904223u;
            hello[4 + (random >> 8) % 84] = (uint8_t)(random >> 24);
        }
        forge(1, round & 1, whole);
        if (round % 100 == 0)
            pass(100);
    }
    CHECK_EQ(count_peers(0), 0);
    listen_on(1, 0);
    prove(1, 0, write_hello(0, 0, &own[0], &own[1]));
    CHECK_EQ(count_peers(0), 1);
    finish();
}

/* ---- queues */

static void a_full_queue_holds_messages_in_order(void)
{
    begin();
    add_host(0, 0);
    add_host(1, 0);
    const struct ipu_dest dest = address_of(1, 0);
    void *ah = handle_to(0, &dest);
    const struct ipu_fabric *fabric = hosts[0].fabric;
    int sent = 0, over = 0;
    struct ipu_send send = {.addr = frames[0], .len = FRAME, .qpn = dest.qpn, .ah = ah};
    for (int i = 0; i < 2000; i++) { /* nobody takes the ended ones: the port's queue fills up */
        send.cookie = (uint64_t)i;
        if (fabric->ops->send(fabric->self, &send, 1) == 0)
            over++;
        else
            sent++;
    }
    CHECK(sent > 512 && over > 0);
    uint64_t cookies[64], next = 0;
    for (int idle = 0; idle < 3;) {
        int n = fabric->ops->sent(fabric->self, cookies, 64);
        CHECK(n >= 0);
        idle = n == 0 ? idle + 1 : 0;
        for (int i = 0; i < n; i++)
            CHECK_EQ(cookies[i], next++);
    }
    CHECK_EQ(next, (uint64_t)sent);
    fabric->ops->ah_destroy(fabric->self, ah);
    finish();
}

static void a_handle_that_goes_takes_its_waiting_messages_along(void)
{
    begin();
    add_host(0, 0);
    add_host(1, 0);
    const struct ipu_dest dest = address_of(1, 0);
    void *ah = handle_to(0, &dest);
    const struct ipu_fabric *fabric = hosts[0].fabric;
    struct ipu_send send = {
        .addr = frames[0], .len = FRAME, .qpn = dest.qpn, .ah = ah, .cookie = 9};
    int sent = 0;
    while (fabric->ops->send(fabric->self, &send, 1) == 1)
        sent++;
    fabric->ops->ah_destroy(fabric->self, ah);
    CHECK(counted(&hosts[0], "tx_abandoned") > 0);
    uint64_t cookies[64];
    for (int n; (n = fabric->ops->sent(fabric->self, cookies, 64)) > 0;)
        sent -= n;
    CHECK_EQ(sent, 0);
    finish();
}

static void a_broken_queue_pair_gives_every_cookie_back_and_recovers(void)
{
    uint64_t split[WIRES];
    begin_pair();
    const struct ipu_dest dest = address_of(1, 0);
    const struct ipu_fabric *fabric = hosts[0].fabric;
    void *ah = handle_to(0, &dest);
    ipu_memory_break(hosts[0].ports[0], 0);
    ipu_memory_break(hosts[0].ports[1], 0);
    int owed = 0, error = 0;
    for (uint32_t i = 0; i < 20; i++) {
        struct ipu_send send = {.addr = frames[0],
                                .len = FRAME,
                                .qpn = dest.qpn,
                                .ah = ah,
                                .cookie = 9,
                                .flow = flow_of(3 * i)};
        owed += fabric->ops->send(fabric->self, &send, 1);
    }
    uint64_t cookies[64];
    while ((error = fabric->ops->sent(fabric->self, cookies, 64)) > 0)
        owed -= error;
    CHECK_EQ(error, -EIO);
    CHECK_EQ(owed, 0);
    struct ipu_received done[RECVS];
    for (int n; (n = fabric->ops->received(fabric->self, done, RECVS)) > 0;)
        for (int i = 0; i < n; i++)
            post(&hosts[0], hosts[0].recv[done[i].cookie - 1000]);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    pass(500);
    CHECK_EQ(usable(0, 1), 3);
    CHECK_EQ(spread(0, 1, split), 64);
    fabric->ops->ah_destroy(fabric->self, ah);
    finish();
}

/* A fabric whose queue pair fails before its sends have ended, as those of verbs do. */
static struct late {
    struct ipu_fabric fabric;
    uint64_t cookies[8];
    int held;
    bool failed;
} lates[WIRES];

static int late_send(void *self, const struct ipu_send *sends, int n)
{
    struct late *late = self;
    for (int i = 0; i < n; i++)
        late->cookies[late->held++] = sends[i].cookie;
    return n;
}

static int late_sent(void *self, uint64_t *cookies, int max)
{
    struct late *late = self;
    if (!late->failed) {
        late->failed = late->held > 0;
        return late->failed ? -EIO : 0;
    }
    int n = late->held < max ? late->held : max;
    for (int i = 0; i < n; i++)
        cookies[i] = late->cookies[--late->held];
    return n > 0 ? n : -EIO;
}

static int late_fd(void *self)
{
    const struct ipu_fabric *wire = hosts[0].wires[(struct late *)self - lates];
    return wire->ops->fd(wire->self);
}

static int late_recover(void *self)
{
    return ((struct late *)self)->held > 0 ? -EBUSY : 0;
}

static void sends_that_end_after_the_failure_end_before_the_recovery(void)
{
    static const struct ipu_fabric_ops ops = {
        .memory = fake_memory,
        .ah_create = fake_ah_create,
        .ah_destroy = fake_ah_destroy,
        .send = late_send,
        .post = fake_post,
        .sent = late_sent,
        .received = fake_received,
        .arm = fake_arm_none,
        .fd = late_fd,
        .recover = late_recover,
    };
    begin();
    add_single(1);
    plug_in(0, WIRES, 0);
    struct ipu_rails_config config = config_of(&hosts[0], 0);
    for (int w = 0; w < WIRES; w++) {
        lates[w] = (struct late){.fabric = *hosts[0].wires[w]};
        lates[w].fabric.ops = &ops;
        lates[w].fabric.self = &lates[w];
        config.inner[w] = &lates[w].fabric;
    }
    struct ipu_rails *rails = ipu_rails_create(&config);
    CHECK(rails);
    const struct ipu_fabric *fabric = ipu_rails_fabric(rails);
    const struct ipu_dest dest = address_of(1, 0);
    void *ah = fabric->ops->ah_create(fabric->self, &dest);
    struct ipu_send send = {
        .addr = frames[0], .len = FRAME, .qpn = dest.qpn, .ah = ah, .cookie = 9};
    CHECK_EQ(fabric->ops->send(fabric->self, &send, 1), 1);
    uint64_t cookies[8];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 8), -EIO);
    CHECK_EQ(fabric->ops->recover(fabric->self), -EBUSY);
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 8), 1);
    CHECK_EQ(cookies[0], 9);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    fabric->ops->ah_destroy(fabric->self, ah);
    ipu_rails_destroy(rails);
    finish();
}

/* ---- changes by another thread */

enum { ROUNDS = 2000 };

static _Atomic int begun, ended;

static void *change(void *arg)
{
    for (int round = 1; round <= ROUNDS; round++) {
        while (atomic_load(&begun) < round)
            sched_yield();
        ipu_rails_set(arg, 3, (uint32_t)round % WIRES);
        atomic_store(&ended, round);
    }
    return NULL;
}

static void a_change_that_the_pump_has_taken_wakes_it_no_more(void)
{
    pthread_t thread;
    begin();
    add_host(0, 0);
    const struct ipu_fabric *fabric = hosts[0].fabric;
    struct pollfd wakes = {.fd = fabric->ops->fd(fabric->self), .events = POLLIN};
    CHECK_EQ(pthread_create(&thread, NULL, change, hosts[0].rails), 0);
    for (int round = 1; round <= ROUNDS; round++) {
        atomic_store(&begun, round);
        while (atomic_load(&ended) < round)
            CHECK_EQ(fabric->ops->send(fabric->self, NULL, 0), 0);
        CHECK_EQ(fabric->ops->send(fabric->self, NULL, 0), 0);
        CHECK_EQ(poll(&wakes, 1, 0), 0);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    finish();
}

/* ---- connections */

/* A shared receive queue and the connections of one rail; the oldest receive takes each message. */
static struct rc_end {
    uint64_t posted[RECVS];
    int first, last, room;
    int known, sends, ended;
    struct ipu_connection *connection; /* whose message arrives */
} ends[WIRES];

static int end_add(void *self, struct ipu_connection *connection)
{
    struct rc_end *end = self;
    end->known++;
    end->connection = connection;
    return 0;
}

static void end_remove(void *self, struct ipu_connection *connection)
{
    struct rc_end *end = self;
    CHECK(connection == end->connection);
    end->known--;
}

static int end_send(void *self, struct ipu_connection *connection, const struct ipu_send *sends,
                    int n)
{
    struct rc_end *end = self;
    CHECK(connection == end->connection && sends != NULL);
    end->sends += n;
    return n;
}

static int end_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct rc_end *end = self;
    int taken = 0;
    for (; taken < n && end->last - end->first < end->room; taken++)
        end->posted[end->last++ % RECVS] = recvs[taken].cookie;
    return taken;
}

static int end_sent(void *self, struct ipu_connection_sent *sent, int max)
{
    struct rc_end *end = self;
    int n = 0;
    for (; n < max && end->ended < end->sends; n++, end->ended++)
        sent[n] = (struct ipu_connection_sent){.connection = end->connection};
    return n;
}

static int end_received(void *self, struct ipu_connection_received *done, int max)
{
    struct rc_end *end = self;
    if (max == 0 || end->first == end->last)
        return 0;
    done[0] = (struct ipu_connection_received){.cookie = end->posted[end->first++ % RECVS],
                                               .connection = end->connection};
    return 1;
}

static const struct ipu_connected_ops end_ops = {
    .add = end_add,
    .remove = end_remove,
    .send = end_send,
    .post = end_post,
    .sent = end_sent,
    .received = end_received,
};

static int in_queue(int wire)
{
    return ends[wire].last - ends[wire].first;
}

static void a_connection_stays_on_its_rail_and_receives_are_shared_out(void)
{
    begin();
    plug_in(0, WIRES, 0);
    struct ipu_fabric inner[WIRES];
    struct ipu_rails_config config = config_of(&hosts[0], 0);
    for (int w = 0; w < WIRES; w++) {
        ends[w] = (struct rc_end){.room = RECVS};
        inner[w] = *hosts[0].wires[w];
        inner[w].connected = &end_ops;
        inner[w].connected_self = &ends[w];
        config.inner[w] = &inner[w];
    }
    CHECK(hosts[0].rails = ipu_rails_create(&config));
    const struct ipu_fabric *fabric = hosts[0].fabric = ipu_rails_fabric(hosts[0].rails);
    const struct ipu_connected_ops *ops = fabric->connected;
    CHECK(ops);
    struct ipu_connection connections[WIRES] = {{.qpn = 7}, {.qpn = 7}};
    for (uint32_t w = 0; w < WIRES; w++)
        ipu_rails_assign(hosts[0].rails, &connections[w], w);
    ipu_rails_assign(hosts[0].rails, &connections[1], WIRES); /* no such rail: nothing changes */
    CHECK_EQ(ops->add(fabric->connected_self, &connections[1]), 0);
    CHECK_EQ(ends[1].known, 1);
    struct ipu_recv recvs[64];
    for (int i = 0; i < 64; i++)
        recvs[i] = (struct ipu_recv){.cookie = (uint64_t)i};
    CHECK_EQ(ops->post(fabric->connected_self, recvs, 40), 40);
    CHECK(in_queue(0) == 20 && in_queue(1) == 20);

    /* Messages come to the connection's rail, whichever is active, and this one gets their frames.
     */
    struct ipu_connection_received done[8];
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1);
        CHECK(done[0].connection == &connections[1]);
    }
    ipu_rails_set(hosts[0].rails, 3, 1);
    CHECK_EQ(ops->post(fabric->connected_self, recvs, 10), 10);
    CHECK(in_queue(0) == 20 && in_queue(1) == 20);
    struct ipu_send send = {.cookie = 3};
    CHECK_EQ(ops->send(fabric->connected_self, &connections[1], &send, 1), 1);
    CHECK(ends[0].sends == 0 && ends[1].sends == 1);
    struct ipu_connection_sent sent[8];
    CHECK_EQ(ops->sent(fabric->connected_self, sent, 8), 1);
    CHECK(sent[0].connection == &connections[1]);

    /* One on the other rail, while the first one leaves. */
    CHECK_EQ(ops->add(fabric->connected_self, &connections[0]), 0);
    CHECK_EQ(ops->send(fabric->connected_self, &connections[0], &send, 1), 1);
    CHECK_EQ(ops->send(fabric->connected_self, &connections[1], &send, 1), 1);
    CHECK_EQ(ops->sent(fabric->connected_self, sent, 8), 2);
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 2);
    ops->remove(fabric->connected_self, &connections[1]);
    CHECK_EQ(ends[1].known, 0);
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1); /* of the other one alone */

    /* A queue that is full leaves the receives to the other one, and to the caller. */
    ends[0].room = 25;
    CHECK_EQ(ops->post(fabric->connected_self, recvs, 64), 25 - 18 + RECVS - 19);
    CHECK(in_queue(0) == 25 && in_queue(1) == RECVS);
    inner[1].connected = NULL; /* a rail that makes none */
    struct ipu_rails *mixed = ipu_rails_create(&config);
    CHECK(mixed != NULL && ipu_rails_fabric(mixed)->connected == NULL);
    ipu_rails_destroy(mixed);
    finish();
}

/* ---- life */

static void limits_are_those_of_all_rails(void)
{
    begin();
    plug_in(0, WIRES, 0);
    struct ipu_fabric first = *hosts[0].wires[0], second = *hosts[0].wires[1];
    struct ipu_rails_config config = config_of(&hosts[0], PEERS);
    config.inner[0] = &first;
    config.inner[1] = &second;
    first.max_ah = 100;
    second.max_ah = 50;
    enum { STRANGERS = 16 };
    second.mtu = 1024;
    second.one_piece = true;
    first.min_recv = 77;
    first.max_recv = second.max_recv = 16;
    struct ipu_rails *rails = ipu_rails_create(&config);
    CHECK(rails);
    const struct ipu_fabric *fabric = ipu_rails_fabric(rails);
    CHECK_EQ(fabric->max_ah, 50 - PEERS - STRANGERS);
    CHECK_EQ(fabric->mtu, 1024);
    CHECK_EQ(fabric->max_recv, 32);
    CHECK_EQ(fabric->min_recv, 77);
    CHECK(fabric->one_piece && fabric->spreads_flows);
    CHECK_EQ(fabric->ops->deadline_ns(fabric->self), 0); /* the first hello is due */
    ipu_rails_destroy(rails);
    finish();
}

static void bad_configurations_and_lack_of_memory_are_refused(void)
{
    begin();
    plug_in(0, WIRES, 0);
    const struct ipu_rails_config good = config_of(&hosts[0], PEERS);
    struct ipu_rails_config bad[5] = {good, good, good, good, good};
    bad[0].count = 0;
    bad[1].count = IPU_RAILS_MAX + 1;
    bad[2].active = 2;
    bad[3].inner[0] = NULL;
    bad[4].peers_max = 1 << 20;
    for (int i = 0; i < 5; i++) {
        CHECK(ipu_rails_create(&bad[i]) == NULL);
        CHECK_EQ(errno, EINVAL);
    }
    ipu_rails_destroy(NULL);
    struct ipu_rails *made;
    for (int n = 0;; n++) {
        refuse_after(n);
        made = ipu_rails_create(&good);
        if (!refuse_stop())
            break;
        CHECK(made == NULL);
    }
    ipu_rails_destroy(made);
    finish();
}

int main(void)
{
    RUN(a_backup_receives_what_is_for_it_and_nothing_to_groups);
    RUN(another_active_rail_sends_at_once_by_the_same_handles);
    RUN(a_rail_may_be_absent);
    RUN(flows_of_peers_go_by_both_rails_and_keep_theirs);
    RUN(what_the_engine_sends_leaves_by_the_active_rail);
    RUN(a_host_with_one_rail_is_reached_by_the_active_one);
    RUN(the_flows_of_a_rail_that_goes_down_move_at_once);
    RUN(a_silent_wire_carries_no_flows_after_a_second);
    RUN(a_host_that_is_gone_is_no_peer_any_more);
    RUN(a_host_that_begins_anew_is_known_by_its_new_addresses);
    RUN(there_is_an_end_to_the_peers_and_those_in_use_stay);
    RUN(no_host_takes_the_address_of_another);
    RUN(nothing_goes_to_an_address_that_another_host_names);
    RUN(a_hello_without_proof_gets_one_and_leaves_nothing_behind);
    RUN(forged_hellos_of_a_peer_change_nothing);
    RUN(a_flood_of_strangers_leaves_frames_to_peers);
    RUN(a_hello_that_cannot_leave_is_counted);
    RUN(a_rail_counts_as_reached_once_the_peer_has_answered_on_it);
    RUN(hellos_that_nobody_can_read_are_counted);
    RUN(a_full_queue_holds_messages_in_order);
    RUN(a_handle_that_goes_takes_its_waiting_messages_along);
    RUN(a_broken_queue_pair_gives_every_cookie_back_and_recovers);
    RUN(sends_that_end_after_the_failure_end_before_the_recovery);
    RUN(a_change_that_the_pump_has_taken_wakes_it_no_more);
    RUN(a_connection_stays_on_its_rail_and_receives_are_shared_out);
    RUN(limits_are_those_of_all_rails);
    RUN(bad_configurations_and_lack_of_memory_are_refused);
    return 0;
}
