/* SPDX-License-Identifier: BSD-2-Clause */
/* Hellos between hosts with rails: forged and broken ones, floods of them, and those that cannot
 * leave. */
#include "rails_world.h"
#include "refuse.h"

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

int main(void)
{
    RUN(no_host_takes_the_address_of_another);
    RUN(nothing_goes_to_an_address_that_another_host_names);
    RUN(a_hello_without_proof_gets_one_and_leaves_nothing_behind);
    RUN(forged_hellos_of_a_peer_change_nothing);
    RUN(a_flood_of_strangers_leaves_frames_to_peers);
    RUN(a_hello_that_cannot_leave_is_counted);
    RUN(a_rail_counts_as_reached_once_the_peer_has_answered_on_it);
    RUN(hellos_that_nobody_can_read_are_counted);
    return 0;
}
