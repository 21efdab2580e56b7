/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of a unicast link, with the groups of a peer, and of rails, over a fabric that sends at
 * once or never, and delivers what the test gives. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "fabric/group_list.h"
#include "fake_fabric.h"
#include "rails/rails_state.h"
#include "table_rows.h"
#include "unicast/unicast_state.h"

enum { MTU = 2044, RAIL_PEERS = 256, RECVS = 16 };

/* ---- the fabric */

static struct {
    uint64_t cookies[4096];
    uint32_t cookie_count;
    bool is_stuck; /* sends do not end */
    int fd;
    uint8_t token[sizeof(struct rails_token)];
    struct ipu_recv posted[8192];
    uint32_t posted_count;
    uint8_t arriving[200];
    uint32_t arriving_len, arriving_from;
} wire;

enum { AT_TOKEN = IPU_ENCAP_LEN + 12, AT_RETURNED = AT_TOKEN + 16, AT_FIRST = AT_RETURNED + 16 };

static int wire_send(void *self, const struct ipu_send *sends, int n)
{
    (void)self;
    for (int i = 0; i < n; i++) {
        if (ipu_ip_get16(sends[i].addr) == IPU_TYPE_RAILS)
            memcpy(wire.token, (const uint8_t *)sends[i].addr + AT_TOKEN, sizeof wire.token);
        CHECK(wire.cookie_count < 4096);
        wire.cookies[wire.cookie_count++] = sends[i].cookie;
    }
    return n;
}

static int wire_sent(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = 0;
    while (!wire.is_stuck && n < max && wire.cookie_count > 0)
        cookies[n++] = wire.cookies[--wire.cookie_count];
    return n;
}

static int wire_post(void *self, const struct ipu_recv *recvs, int n)
{
    (void)self;
    for (int i = 0; i < n; i++)
        wire.posted[wire.posted_count++] = recvs[i];
    return n;
}

static int wire_received(void *self, struct ipu_received *done, int max)
{
    (void)self, (void)max;
    if (wire.arriving_len == 0)
        return 0;
    struct ipu_recv to = wire.posted[--wire.posted_count];
    struct in6_addr gid = address(wire.arriving_from);
    memset(to.addr, 0, IPU_GRH_LEN);
    memcpy((uint8_t *)to.addr + 8, &gid, sizeof gid);
    memcpy((uint8_t *)to.addr + IPU_GRH_LEN, wire.arriving, wire.arriving_len);
    done[0] = (struct ipu_received){.cookie = to.cookie,
                                    .byte_len = IPU_GRH_LEN + wire.arriving_len,
                                    .src_qpn = wire.arriving_from,
                                    .flags = IPU_RECEIVED_GRH};
    wire.arriving_len = 0;
    return 1;
}

static int wire_fd(void *self)
{
    (void)self;
    return wire.fd;
}

static const struct ipu_fabric_ops wire_ops = {
    FAKE_FABRIC_OPS,   .send = wire_send,         .post = wire_post,
    .sent = wire_sent, .received = wire_received, .fd = wire_fd,
};
static struct ipu_fabric wire_fabric = {
    .ops = &wire_ops, .gid = {.s6_addr = {0xfe, 0x80, [8] = 1}}, .qpn = 0x48, .mtu = MTU};

/* ---- a unicast link */

static struct ipu_unicast *unicast;
static struct ipu_fabric *unicast_fabric;
static void *to_all;
static uint64_t no_room;
static uint8_t message[64];

static const struct in6_addr broadcast = {
    .s6_addr = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}};

static void open_unicast(void)
{
    struct ipu_unicast_config config = {.broadcast = broadcast, .peers_max = CAP};
    memset(&wire, 0, sizeof wire);
    no_room = 0;
    unicast = ipu_unicast_create(&wire_fabric, &config);
    CHECK(unicast != NULL);
    unicast_fabric = ipu_unicast_fabric(unicast);
}

static void close_unicast(void)
{
    ipu_unicast_destroy(unicast);
}

/* The engine counts each refusal as mesh_full. */
static void add_peer(uint32_t number)
{
    struct in6_addr gid = address(number);
    no_room += ipu_unicast_add(unicast, number, &gid, number + 1) == -ENOSPC;
}

static uint32_t count_peers(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < unicast->peers_end; i++)
        count += unicast->peers[i].state == UNICAST_PRESENT;
    return count;
}

static uint64_t peers_refused(void)
{
    return no_room;
}

static bool admits_peer(void)
{
    struct in6_addr gid = address(HONEST);
    ipu_unicast_remove(unicast, 0);
    add_peer(HONEST);
    return ipu_unicast_is_peer(unicast, &gid, HONEST + 1);
}

/* Their messages to groups stay under way. */
static void open_casts(void)
{
    open_unicast();
    for (uint32_t i = 0; i < 2; i++) {
        add_peer(i);
        ipu_unicast_groups(unicast, i, NULL, 0);
    }
    struct ipu_dest dest = {.gid = broadcast, .qpn = IPU_MULTICAST_QPN};
    to_all = unicast_fabric->ops->ah_create(unicast_fabric->self, &dest);
    CHECK(to_all != NULL);
    wire.is_stuck = true;
}

static void close_casts(void)
{
    unicast_fabric->ops->ah_destroy(unicast_fabric->self, to_all);
    close_unicast();
}

static void add_cast(uint32_t number)
{
    struct ipu_send send = {.addr = message,
                            .len = sizeof message,
                            .qpn = IPU_MULTICAST_QPN,
                            .ah = to_all,
                            .cookie = number};
    uint64_t cookies[8];
    CHECK_EQ(unicast_fabric->ops->send(unicast_fabric->self, &send, 1), 1);
    while (unicast_fabric->ops->sent(unicast_fabric->self, cookies, 8) > 0)
        continue;
}

static uint32_t count_casts(void)
{
    return UNICAST_CASTS - unicast->free_cast_count;
}

static uint64_t casts_lost(void)
{
    return atomic_load(&unicast->counters.tx_full);
}

/* Messages end, and so there is room. */
static bool admits_cast(void)
{
    uint64_t before = casts_lost(), cookies[8];
    wire.is_stuck = false;
    for (int i = 0; i < UNICAST_CASTS && count_casts() > 0; i++)
        (void)unicast_fabric->ops->sent(unicast_fabric->self, cookies, 8);
    add_cast(HONEST);
    return casts_lost() == before;
}

/* ---- the groups of a peer */

static struct ipu_group_list groups;

static void open_groups(void)
{
    groups = (struct ipu_group_list){0};
    ipu_group_list_restart(&groups);
}

static void add_group(uint32_t number)
{
    struct in6_addr mgid = address(number);
    ipu_group_list_add(&groups, &mgid);
}

static uint32_t count_groups(void)
{
    return (uint32_t)groups.room;
}

/* The peer gets the messages to all groups. */
static bool admits_group(void)
{
    struct in6_addr mgid = address(HONEST);
    add_group(HONEST);
    return ipu_group_list_wants(&groups, &mgid, &broadcast);
}

static void close_groups(void)
{
    ipu_group_list_free(&groups);
}

/* ---- rails */

static struct ipu_rails *rails;
static const struct ipu_fabric *rails_fabric;
static void *held;
static uint8_t rails_frames[RECVS][IPU_GRH_LEN + MTU];

static uint64_t the_clock(void)
{
    return 1000000000000u;
}

static void poll_rails(void)
{
    struct ipu_received done[8];
    uint64_t cookies[8];
    for (int i = 0; i < 3; i++) {
        (void)rails_fabric->ops->received(rails_fabric->self, done, 8);
        (void)rails_fabric->ops->sent(rails_fabric->self, cookies, 8);
    }
}

static void open_rails(void)
{
    const struct ipu_rails_config config = {
        .inner = {&wire_fabric},
        .count = 1,
        .up = 1,
        .peers_max = RAIL_PEERS,
        .broadcast = {.gid = broadcast, .qpn = IPU_MULTICAST_QPN},
        .clock_ns = the_clock,
    };
    memset(&wire, 0, sizeof wire);
    wire.fd = eventfd(0, EFD_NONBLOCK);
    rails = ipu_rails_create(&config);
    CHECK(rails != NULL);
    rails_fabric = ipu_rails_fabric(rails);
    held = NULL;
    for (uint32_t i = 0; i < RECVS; i++) {
        struct ipu_recv recv = {rails_frames[i], sizeof rails_frames[i], i};
        CHECK_EQ(rails_fabric->ops->post(rails_fabric->self, &recv, 1), 1);
    }
    poll_rails();
}

static void close_rails(void)
{
    if (held != NULL)
        rails_fabric->ops->ah_destroy(rails_fabric->self, held);
    ipu_rails_destroy(rails);
    close(wire.fd);
}

/* A host with one rail says hello, with the token that it got last if it has proof. */
static void greet(uint32_t number, bool has_proof)
{
    struct in6_addr gid = address(number);
    memset(wire.arriving, 0, sizeof wire.arriving);
    ipu_ip_put16(wire.arriving, IPU_TYPE_RAILS);
    memcpy(wire.arriving + IPU_ENCAP_LEN, "ipor\2\1", 6);
    if (has_proof)
        memcpy(wire.arriving + AT_RETURNED, wire.token, sizeof wire.token);
    memcpy(wire.arriving + AT_FIRST, &gid, sizeof gid);
    wire.arriving[AT_FIRST + 17] = (uint8_t)(number >> 16);
    ipu_ip_put16(wire.arriving + AT_FIRST + 18, number & 0xffff);
    wire.arriving_from = number;
    wire.arriving_len = AT_FIRST + 20;
    poll_rails();
}

static void add_host(uint32_t number)
{
    greet(number + 2, false);
    greet(number + 2, true);
}

static uint32_t count_hosts(void)
{
    return rails->peer_count;
}

static uint64_t hosts_refused(void)
{
    return atomic_load(&rails->counters.peers_full);
}

/* A neighbour of ours takes the place of a peer without traffic. */
static bool admits_host(void)
{
    const struct rails_address honest = {.gid = address(HONEST + 2), .qpn = HONEST + 2};
    const struct ipu_dest dest = {.gid = honest.gid, .qpn = honest.qpn};
    held = rails_fabric->ops->ah_create(rails_fabric->self, &dest);
    add_host(HONEST);
    return rails_peer_find(rails, &honest) != NULL;
}

static void open_hellos(void)
{
    open_rails();
    wire.is_stuck = true;
}

static void add_hello(uint32_t number)
{
    greet(number + 2, false);
}

static uint32_t count_hellos(void)
{
    return RAILS_STRANGERS - rails->free_greeted_count;
}

static uint64_t hellos_refused(void)
{
    return atomic_load(&rails->counters.hello_busy);
}

static bool admits_hello(void)
{
    uint64_t before = hellos_refused();
    wire.is_stuck = false;
    for (int i = 0; i < RAILS_STRANGERS; i++)
        poll_rails();
    uint64_t sent = atomic_load(&rails->counters.tx_hellos);
    add_hello(HONEST);
    return hellos_refused() == before && atomic_load(&rails->counters.tx_hellos) == sent + 1;
}

/* ---- all of them */

static const struct row rows[] = {
    {"groups of a peer", IPU_GROUP_LIST_MAX, open_groups, add_group, count_groups, NULL,
     admits_group, close_groups, 0, false},
    {"peers of a unicast link", CAP, open_unicast, add_peer, count_peers, peers_refused,
     admits_peer, close_unicast, CAP, false},
    {"messages to groups of a unicast link under way", UNICAST_CASTS, open_casts, add_cast,
     count_casts, casts_lost, admits_cast, close_casts, 0, false},
    {"hosts to which flows are spread over rails", RAIL_PEERS, open_rails, add_host, count_hosts,
     hosts_refused, admits_host, close_rails, 0, false},
    {"hellos under way to hosts that have answered none", RAILS_STRANGERS, open_hellos, add_hello,
     count_hellos, hellos_refused, admits_hello, close_rails, 0, false},
};

int main(void)
{
    fill_tables(rows, sizeof rows / sizeof *rows);
    return 0;
}
