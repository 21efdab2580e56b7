/* SPDX-License-Identifier: BSD-2-Clause */
/* A unicast link over the in-process fabric: the receivers of copies, strangers, and cookies. */
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "core/frame.h"
#include "fabric/group_list.h"
#include "fabric/memory.h"
#include "refuse.h"
#include "unicast/unicast.h"

enum { MTU = 256, HOSTS = 70, RECVS = 64, RECV_LEN = 40 + MTU, FRAME = 48 };

static const struct in6_addr broadcast = {
    .s6_addr = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}};

struct host {
    struct ipu_memory_port *port;
    struct ipu_fabric *fabric;
    uint8_t recv[RECVS][RECV_LEN];
};

static struct ipu_memory_switch *sw;
static struct host hosts[HOSTS]; /* the first one has the unicast link */
static struct ipu_unicast *unicast;
static struct ipu_fabric *ours;
static uint8_t frame[FRAME], message[FRAME + 40];

static uint64_t counted(const char *name)
{
    uint64_t values[IPU_UNICAST_COUNTERS_N];
    ipu_unicast_counters(unicast, values);
    for (int i = 0; i < IPU_UNICAST_COUNTERS_N; i++)
        if (strcmp(ipu_unicast_counter_names[i], name) == 0)
            return values[i];
    CHECK(!"a counter of that name");
    return 0;
}

static void post(const struct ipu_fabric *fabric, struct host *host)
{
    for (uint32_t i = 0; i < RECVS; i++) {
        struct ipu_recv recv = {host->recv[i], RECV_LEN, 1000 + i};
        CHECK_EQ(fabric->ops->post(fabric->self, &recv, 1), 1);
    }
}

static void plug_in(int number, uint32_t depth)
{
    struct host *host = &hosts[number];
    struct ipu_memory_config config = {.gid = {.s6_addr = {0xfe, 0x80, [15] = (uint8_t)number}},
                                       .qpn = 100u + (uint32_t)number,
                                       .mtu = MTU,
                                       .queue_depth = depth};
    host->port = ipu_memory_port_create(sw, &config);
    CHECK(host->port);
    host->fabric = ipu_memory_port_fabric(host->port);
    CHECK_EQ(host->fabric->ops->memory(host->fabric->self, host->recv, sizeof host->recv), 0);
    CHECK_EQ(host->fabric->ops->memory(host->fabric->self, message, sizeof message), 0);
}

static void begin(int n)
{
    memset(hosts, 0, sizeof hosts);
    sw = ipu_memory_switch_create(1);
    CHECK(sw);
    for (int i = 0; i < n; i++) {
        plug_in(i, i == 0 ? 0 : RECVS);
        if (i > 0)
            post(hosts[i].fabric, &hosts[i]);
    }
    struct ipu_unicast_config config = {.broadcast = broadcast, .peers_max = HOSTS};
    unicast = ipu_unicast_create(hosts[0].fabric, &config);
    CHECK(unicast);
    ours = ipu_unicast_fabric(unicast);
    CHECK_EQ(ours->ops->memory(ours->self, frame, sizeof frame), 0);
    post(ours, &hosts[0]);
}

static void finish(void)
{
    ipu_unicast_destroy(unicast);
    for (int i = 0; i < HOSTS; i++)
        if (hosts[i].port != NULL)
            ipu_memory_port_destroy(hosts[i].port);
    ipu_memory_switch_destroy(sw);
}

static void add(int number)
{
    const struct ipu_fabric *fabric = hosts[number].fabric;
    CHECK_EQ(ipu_unicast_add(unicast, (uint64_t)number, &fabric->gid, fabric->qpn), 0);
    ipu_unicast_groups(unicast, (uint64_t)number, NULL, 0);
}

static struct in6_addr ipv4_group(uint8_t last)
{
    struct in6_addr mgid = broadcast;
    memset(mgid.s6_addr + 6, 0, 10);
    mgid.s6_addr[12] = 0x0f;
    mgid.s6_addr[15] = last;
    return mgid;
}

static void *handle_of(const struct in6_addr *gid, uint32_t qpn)
{
    struct ipu_dest dest = {.gid = *gid, .qpn = qpn};
    void *ah = ours->ops->ah_create(ours->self, &dest);
    CHECK(ah);
    return ah;
}

static void send_one(void *ah, uint32_t qpn, uint64_t cookie)
{
    struct ipu_send send = {.addr = frame, .len = FRAME, .qpn = qpn, .ah = ah, .cookie = cookie};
    CHECK_EQ(ours->ops->send(ours->self, &send, 1), 1);
}

/* Polls until `wanted` cookies, each of which is 7, have come back, and then for more. */
static void reap(int wanted)
{
    uint64_t cookies[8];
    for (int idle = 0; idle < 3;) {
        int n = ours->ops->sent(ours->self, cookies, 8);
        CHECK(n >= 0 && n <= wanted);
        for (int i = 0; i < n; i++)
            CHECK_EQ(cookies[i], 7);
        wanted -= n;
        idle += wanted == 0;
    }
}

static int arrived(int number)
{
    struct ipu_received done[RECVS];
    const struct ipu_fabric *fabric = hosts[number].fabric;
    return fabric->ops->received(fabric->self, done, RECVS);
}

static void cast(const struct in6_addr *mgid)
{
    void *ah = handle_of(mgid, IPU_MULTICAST_QPN);
    send_one(ah, IPU_MULTICAST_QPN, 7);
    reap(1);
    ours->ops->ah_destroy(ours->self, ah);
}

/* ---- sending */

static void a_group_goes_to_its_members_and_one_cookie_comes_back(void)
{
    const struct in6_addr group = ipv4_group(9), other = ipv4_group(10);
    begin(4);
    for (int i = 1; i < 4; i++)
        add(i);
    ipu_unicast_groups(unicast, 1, &group, 1);
    ipu_unicast_groups(unicast, 2, &other, 1);
    cast(&group);
    CHECK_EQ(arrived(1), 1);
    CHECK_EQ(arrived(2), 0);
    CHECK_EQ(arrived(3), 0);
    ipu_unicast_group(unicast, 2, &group, true);
    ipu_unicast_group(unicast, 1, &group, false);
    cast(&group);
    CHECK_EQ(arrived(1), 0);
    CHECK_EQ(arrived(2), 1);
    CHECK_EQ(arrived(3), 0);
    cast(&broadcast);
    for (int i = 1; i < 4; i++)
        CHECK_EQ(arrived(i), 1);
    CHECK_EQ(counted("tx_groups"), 3);
    CHECK_EQ(counted("tx_copies"), 1 + 1 + 3);
    CHECK_EQ(counted("tx_nobody"), 0);
    finish();
}

static void a_group_without_members_gives_the_cookie_back(void)
{
    begin(2);
    cast(&broadcast);
    CHECK_EQ(counted("tx_nobody"), 1);
    const struct ipu_fabric *fabric = hosts[1].fabric;
    CHECK_EQ(ipu_unicast_add(unicast, 1, &fabric->gid, fabric->qpn), 0);
    cast(&broadcast); /* the peer has not sent its groups: it may not accept our datagrams yet */
    CHECK_EQ(counted("tx_nobody"), 2);
    ipu_unicast_groups(unicast, 1, NULL, 0);
    const struct in6_addr group = ipv4_group(9);
    cast(&group);
    CHECK_EQ(counted("tx_nobody"), 3);
    CHECK_EQ(arrived(1), 0);
    finish();
}

static void a_peer_in_too_many_groups_gets_everything(void)
{
    begin(2);
    add(1);
    ipu_unicast_groups(unicast, 1, NULL, 0);
    for (int i = 0; i <= IPU_GROUP_LIST_MAX; i++) {
        struct in6_addr mgid = ipv4_group((uint8_t)i);
        mgid.s6_addr[14] = (uint8_t)(i >> 8);
        ipu_unicast_group(unicast, 1, &mgid, true);
    }
    struct in6_addr group = ipv4_group(1);
    group.s6_addr[13] = 1;
    cast(&group);
    CHECK_EQ(arrived(1), 1);
    finish();
}

static void more_members_than_fit_the_queue_get_one_copy_each(void)
{
    begin(HOSTS);
    for (int i = 1; i < HOSTS; i++)
        add(i);
    cast(&broadcast);
    cast(&broadcast);
    for (int i = 1; i < HOSTS; i++)
        CHECK_EQ(arrived(i), 2);
    finish();
}

static void unicast_and_groups_in_one_batch_keep_their_cookies(void)
{
    begin(3);
    add(1);
    add(2);
    void *one = handle_of(&hosts[1].fabric->gid, hosts[1].fabric->qpn);
    void *all = handle_of(&broadcast, IPU_MULTICAST_QPN);
    struct ipu_send sends[5];
    for (uint64_t i = 0; i < 5; i++)
        sends[i] = (struct ipu_send){.addr = frame,
                                     .len = FRAME,
                                     .qpn = i % 2 ? IPU_MULTICAST_QPN : hosts[1].fabric->qpn,
                                     .ah = i % 2 ? all : one,
                                     .cookie = i};
    CHECK_EQ(ours->ops->send(ours->self, sends, 5), 5);
    uint64_t cookies[16];
    uint32_t seen = 0;
    for (int total = 0; total < 5;) {
        int n = ours->ops->sent(ours->self, cookies, 16);
        CHECK(n >= 0);
        for (int i = 0; i < n; i++) {
            CHECK(cookies[i] < 5 && !(seen >> cookies[i] & 1));
            seen |= 1u << cookies[i];
        }
        total += n;
    }
    CHECK_EQ(ours->ops->sent(ours->self, cookies, 16), 0);
    CHECK_EQ(arrived(1), 5);
    CHECK_EQ(arrived(2), 2);
    ours->ops->ah_destroy(ours->self, one);
    ours->ops->ah_destroy(ours->self, all);
    finish();
}

static void too_many_casts_are_lost_and_counted_with_their_cookies(void)
{
    begin(HOSTS);
    for (int i = 1; i < HOSTS; i++)
        add(i);
    void *all = handle_of(&broadcast, IPU_MULTICAST_QPN);
    int sent = 0;
    struct ipu_send send = {
        .addr = frame, .len = FRAME, .qpn = IPU_MULTICAST_QPN, .ah = all, .cookie = 7};
    while (sent < 2000 && ours->ops->send(ours->self, &send, 1) == 1)
        sent++;
    CHECK(sent < 2000); /* the caller keeps further messages */
    CHECK(counted("tx_full") > 0);
    reap(sent);
    CHECK_EQ(counted("tx_copies"), (HOSTS - 1) * ((uint64_t)sent - counted("tx_full")));
    ours->ops->ah_destroy(ours->self, all);
    finish();
}

static void a_queue_pair_that_breaks_gives_every_cookie_back(void)
{
    begin(HOSTS);
    for (int i = 1; i < HOSTS; i++)
        add(i);
    void *all = handle_of(&broadcast, IPU_MULTICAST_QPN);
    for (int i = 0; i < 20; i++)
        send_one(all, IPU_MULTICAST_QPN, 7);
    ipu_memory_break(hosts[0].port, 0);
    uint64_t cookies[64];
    int n, total = 0;
    while ((n = ours->ops->sent(ours->self, cookies, 64)) > 0)
        total += n;
    CHECK_EQ(n, -EIO);
    CHECK_EQ(total, 20);
    struct ipu_received done[RECVS];
    CHECK_EQ(ours->ops->received(ours->self, done, RECVS), RECVS);
    for (int i = 0; i < RECVS; i++) {
        CHECK(done[i].flags & IPU_RECEIVED_FAILED);
        CHECK(done[i].cookie >= 1000 && done[i].cookie < 1000 + RECVS);
    }
    CHECK_EQ(ours->ops->recover(ours->self), 0);
    post(ours, &hosts[0]);
    cast(&broadcast);
    CHECK_EQ(arrived(HOSTS - 1) > 0, true);
    ours->ops->ah_destroy(ours->self, all);
    finish();
}

/* ---- peers */

static void a_peer_that_left_gets_nothing_and_its_place_is_free_again(void)
{
    begin(3);
    add(1);
    add(2);
    CHECK_EQ(ipu_unicast_add(unicast, 9, &hosts[1].fabric->gid, hosts[1].fabric->qpn), -EEXIST);
    CHECK_EQ(ipu_unicast_add(unicast, 1, &hosts[1].fabric->gid, 5), -EEXIST);
    cast(&broadcast);
    ipu_unicast_remove(unicast, 1);
    ipu_unicast_remove(unicast, 1);
    CHECK(!ipu_unicast_is_peer(unicast, &hosts[1].fabric->gid, hosts[1].fabric->qpn));
    CHECK(ipu_unicast_is_peer(unicast, &hosts[2].fabric->gid, hosts[2].fabric->qpn));
    cast(&broadcast);
    CHECK_EQ(arrived(1), 1);
    CHECK_EQ(arrived(2), 2);
    for (uint64_t id = 100; id < 1000; id++) { /* many more than there are places */
        CHECK_EQ(ipu_unicast_add(unicast, id, &hosts[1].fabric->gid, hosts[1].fabric->qpn), 0);
        ipu_unicast_groups(unicast, id, NULL, 0);
        cast(&broadcast);
        CHECK_EQ(arrived(1), 1);
        CHECK_EQ(arrived(2), 1);
        for (int i = 1; i <= 2; i++) {
            struct ipu_recv recv = {hosts[i].recv[0], RECV_LEN, 1000};
            CHECK_EQ(hosts[i].fabric->ops->post(hosts[i].fabric->self, &recv, 1), 1);
        }
        ipu_unicast_remove(unicast, id);
    }
    finish();
}

static void there_is_an_end_to_the_places(void)
{
    begin(1);
    struct in6_addr gid = hosts[0].fabric->gid;
    for (uint32_t i = 0; i < HOSTS; i++)
        CHECK_EQ(ipu_unicast_add(unicast, i, &gid, 1000 + i), 0);
    CHECK_EQ(ipu_unicast_add(unicast, HOSTS, &gid, 2000), -ENOSPC);
    ipu_unicast_remove(unicast, 3);
    CHECK_EQ(ipu_unicast_add(unicast, HOSTS, &gid, 2000), 0);
    finish();
}

/* ---- receiving */

/* A host sends us a frame that begins with `head`. */
static void hear(int from, const uint8_t *head, size_t len)
{
    const struct ipu_fabric *fabric = hosts[from].fabric;
    struct ipu_dest dest = {.gid = hosts[0].fabric->gid, .qpn = hosts[0].fabric->qpn};
    memset(message, 0, sizeof message);
    memcpy(message, head, len);
    void *ah = fabric->ops->ah_create(fabric->self, &dest);
    struct ipu_send send = {.addr = message, .len = 64, .qpn = dest.qpn, .ah = ah};
    uint64_t cookie;
    CHECK_EQ(fabric->ops->send(fabric->self, &send, 1), 1);
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 1);
    fabric->ops->ah_destroy(fabric->self, ah);
}

static const uint8_t ipv4_unicast[24] = {0x08, 0, 0, 0, 0x45, [20] = 10, 0, 0, 1};
static const uint8_t ipv4_multicast[24] = {0x08, 0, 0, 0, 0x45, [20] = 239, 1, 2, 3};
static const uint8_t arp_request[16] = {0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 1};

static void only_peers_may_speak(void)
{
    struct ipu_received done[RECVS];
    begin(3);
    add(1);
    for (int i = 0; i < 1000; i++) { /* their receives are posted again: they keep no buffer */
        hear(2, ipv4_unicast, sizeof ipv4_unicast);
        CHECK_EQ(ours->ops->received(ours->self, done, RECVS), 0);
    }
    CHECK_EQ(counted("rx_stranger"), 1000);
    for (int i = 0; i < RECVS; i++)
        hear(1, ipv4_unicast, sizeof ipv4_unicast);
    CHECK_EQ(ours->ops->received(ours->self, done, RECVS), RECVS);
    uint64_t seen = 0;
    for (int i = 0; i < RECVS; i++) {
        CHECK_EQ(done[i].src_qpn, hosts[1].fabric->qpn);
        seen |= 1ull << (done[i].cookie - 1000);
    }
    CHECK_EQ(seen, UINT64_MAX); /* each of the pump's cookies, once */
    ipu_unicast_remove(unicast, 1);
    post(ours, &hosts[0]);
    hear(1, ipv4_unicast, sizeof ipv4_unicast);
    CHECK_EQ(ours->ops->received(ours->self, done, RECVS), 0);
    CHECK_EQ(counted("rx_stranger"), 1001);
    finish();
}

static void the_same_gid_with_another_queue_pair_is_a_stranger(void)
{
    struct ipu_received done[1];
    begin(2);
    CHECK_EQ(ipu_unicast_add(unicast, 1, &hosts[1].fabric->gid, hosts[1].fabric->qpn + 1), 0);
    hear(1, ipv4_unicast, sizeof ipv4_unicast);
    CHECK_EQ(ours->ops->received(ours->self, done, 1), 0);
    CHECK_EQ(counted("rx_stranger"), 1);
    finish();
}

static void check_dgid(const uint8_t *head, size_t len, const struct in6_addr *wanted)
{
    struct ipu_received done;
    hear(1, head, len);
    CHECK_EQ(ours->ops->received(ours->self, &done, 1), 1);
    uint8_t *buf = hosts[0].recv[done.cookie - 1000];
    CHECK_EQ(memcmp(buf + 24, wanted, 16), 0);
    struct ipu_recv recv = {buf, RECV_LEN, done.cookie};
    CHECK_EQ(ours->ops->post(ours->self, &recv, 1), 1);
}

static void a_copy_names_its_group_again(void)
{
    struct in6_addr mgid = ipv4_group(3);
    mgid.s6_addr[13] = 1;
    mgid.s6_addr[14] = 2;
    begin(2);
    add(1);
    check_dgid(ipv4_unicast, sizeof ipv4_unicast, &hosts[0].fabric->gid);
    check_dgid(ipv4_multicast, sizeof ipv4_multicast, &mgid);
    check_dgid(arp_request, sizeof arp_request, &broadcast);
    finish();
}

/* ---- life */

static void bad_configurations_and_lack_of_memory_are_refused(void)
{
    begin(1);
    struct ipu_unicast_config config = {.broadcast = broadcast, .peers_max = 0};
    CHECK(ipu_unicast_create(hosts[0].fabric, &config) == NULL);
    CHECK_EQ(errno, EINVAL);
    config.peers_max = 1 << 20;
    CHECK(ipu_unicast_create(hosts[0].fabric, &config) == NULL);
    CHECK_EQ(errno, EINVAL);
    config.peers_max = 8;
    struct ipu_fabric limited = *hosts[0].fabric;
    limited.max_ah = 10;
    struct ipu_unicast *made = ipu_unicast_create(&limited, &config);
    CHECK(made);
    CHECK_EQ(ipu_unicast_fabric(made)->max_ah, 2);
    ipu_unicast_destroy(made);
    ipu_unicast_destroy(NULL);
    for (int n = 0;; n++) {
        refuse_after(n);
        made = ipu_unicast_create(hosts[0].fabric, &config);
        if (!refuse_stop())
            break;
        CHECK(made == NULL);
    }
    ipu_unicast_destroy(made);
    finish();
}

/* Groups for which there is no memory mean all groups, and a handle is refused. */
static void lack_of_memory_for_a_peer_costs_copies_and_no_peer(void)
{
    const struct in6_addr other = ipv4_group(200);
    int n = 0;
    for (bool refused = true; refused; n++) {
        struct ipu_dest dest = {.gid = other, .qpn = IPU_MULTICAST_QPN};
        begin(2);
        refuse_after(n);
        add(1);
        for (uint8_t i = 0; i < RECVS - 4; i++) {
            struct in6_addr mgid = ipv4_group(i);
            ipu_unicast_group(unicast, 1, &mgid, true);
        }
        void *ah = ours->ops->ah_create(ours->self, &dest);
        refused = refuse_stop();
        CHECK(refused || ah != NULL);
        if (ah != NULL)
            ours->ops->ah_destroy(ours->self, ah);
        for (uint8_t i = 0; i < RECVS - 4; i++) {
            struct in6_addr mgid = ipv4_group(i);
            cast(&mgid);
            CHECK_EQ(arrived(1), 1);
        }
        finish();
    }
    CHECK_EQ(n, 5); /* room for 16, 32 and 64 groups, a handle, and none */
}

int main(void)
{
    RUN(a_group_goes_to_its_members_and_one_cookie_comes_back);
    RUN(a_group_without_members_gives_the_cookie_back);
    RUN(a_peer_in_too_many_groups_gets_everything);
    RUN(more_members_than_fit_the_queue_get_one_copy_each);
    RUN(unicast_and_groups_in_one_batch_keep_their_cookies);
    RUN(too_many_casts_are_lost_and_counted_with_their_cookies);
    RUN(a_queue_pair_that_breaks_gives_every_cookie_back);
    RUN(a_peer_that_left_gets_nothing_and_its_place_is_free_again);
    RUN(there_is_an_end_to_the_places);
    RUN(only_peers_may_speak);
    RUN(the_same_gid_with_another_queue_pair_is_a_stranger);
    RUN(a_copy_names_its_group_again);
    RUN(bad_configurations_and_lack_of_memory_are_refused);
    RUN(lack_of_memory_for_a_peer_costs_copies_and_no_peer);
    return 0;
}
