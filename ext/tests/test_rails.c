/* SPDX-License-Identifier: BSD-2-Clause */
/* Rails: which one carries what, the table of peers, changes by another thread, and life. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "rails_world.h"
#include "refuse.h"

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
    RUN(a_change_that_the_pump_has_taken_wakes_it_no_more);
    RUN(limits_are_those_of_all_rails);
    RUN(bad_configurations_and_lack_of_memory_are_refused);
    return 0;
}
