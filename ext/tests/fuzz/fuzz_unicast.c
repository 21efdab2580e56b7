/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drives a unicast link over the in-process fabric: peers that come, go and change their groups, as
 * their control messages say; datagrams of peers and of strangers with any bytes; messages of the
 * pump to peers and groups; queue pairs that break. Each cookie has to come back once, each posted
 * receive once, and only from a peer.
 */
#include <errno.h>
#include <stdbool.h>

#include "core/frame.h"
#include "fabric/group_list.h"
#include "fabric/memory.h"
#include "our_fabric.h"
#include "unicast/unicast.h"

enum {
    HOSTS = 6, /* host 0 is ours */
    PLACES = 4,
    ACTIONS_MAX = 300,
    GROUPS = 8,
};

struct host {
    struct ipu_memory_port *port;
    struct ipu_fabric *fabric;
    uint8_t recv[RECVS][RECV_LEN];
};

static struct ipu_memory_switch *sw;
static struct host hosts[HOSTS];
static struct ipu_unicast *unicast;
static bool is_present[HOSTS]; /* as a peer of ours, under its number as id */

static struct in6_addr group(uint8_t which)
{
    struct in6_addr mgid = broadcast;
    if (which % GROUPS == 0)
        return mgid;
    memset(mgid.s6_addr + 6, 0, 10);
    mgid.s6_addr[15] = which % GROUPS;
    return mgid;
}

static void post_theirs(struct host *host)
{
    for (uint32_t i = 0; i < RECVS; i++) {
        struct ipu_recv recv = {host->recv[i], RECV_LEN, i};
        (void)host->fabric->ops->post(host->fabric->self, &recv, 1);
    }
}

static void begin(void)
{
    memset(is_present, 0, sizeof is_present);
    sw = ipu_memory_switch_create(1);
    MUST(sw != NULL);
    for (int i = 0; i < HOSTS; i++) {
        struct ipu_memory_config config = {.gid = {.s6_addr = {0xfe, 0x80, [15] = (uint8_t)i}},
                                           .qpn = 100u + (uint32_t)i,
                                           .mtu = MTU,
                                           .queue_depth = RECVS};
        hosts[i].port = ipu_memory_port_create(sw, &config);
        MUST(hosts[i].port != NULL);
        hosts[i].fabric = ipu_memory_port_fabric(hosts[i].port);
        const struct ipu_fabric *fabric = hosts[i].fabric;
        MUST(fabric->ops->memory(fabric->self, hosts[i].recv, sizeof hosts[i].recv) == 0);
        MUST(fabric->ops->memory(fabric->self, message, sizeof message) == 0);
        if (i > 0)
            post_theirs(&hosts[i]);
    }
    struct ipu_unicast_config config = {.broadcast = broadcast, .peers_max = PLACES};
    unicast = ipu_unicast_create(hosts[0].fabric, &config);
    MUST(unicast != NULL);
    begin_ours(ipu_unicast_fabric(unicast));
}

/* [which][length 2][MGIDs, one a byte]: add a host, remove it, or tell all its groups */
static void change_peer(struct input *in)
{
    struct in6_addr mgids[2 * IPU_GROUP_LIST_MAX];
    uint8_t which = input_u8(in), bytes[200];
    int n = (int)input_bytes(in, bytes, sizeof bytes);
    uint64_t id = which % HOSTS;
    const struct ipu_fabric *fabric = hosts[id].fabric;
    int present = 0;
    for (int i = 0; i < HOSTS; i++)
        present += is_present[i];
    switch (which >> 6) {
    case 0: {
        int error = ipu_unicast_add(unicast, id, &fabric->gid, fabric->qpn);
        if (is_present[id])
            MUST(error == -EEXIST);
        else
            MUST(error == 0 || error == -ENOSPC); /* one that left may still have a handle */
        MUST(error != 0 || present < PLACES);
        is_present[id] |= error == 0;
        break;
    }
    case 1:
        ipu_unicast_remove(unicast, id);
        is_present[id] = false;
        break;
    case 2:
        for (int i = 0; i < n; i++)
            mgids[i] = group(bytes[i]);
        ipu_unicast_groups(unicast, id, mgids, n);
        break;
    default: /* more groups than a peer may have */
        for (int i = 0; i < 2 * IPU_GROUP_LIST_MAX; i++) {
            mgids[i] = group(1);
            mgids[i].s6_addr[12] = (uint8_t)(i >> 8);
            mgids[i].s6_addr[13] = (uint8_t)i;
        }
        ipu_unicast_groups(unicast, id, mgids, 2 * IPU_GROUP_LIST_MAX);
    }
    MUST(ipu_unicast_is_peer(unicast, &fabric->gid, fabric->qpn) == is_present[id]);
}

/* [which][mgid][in] */
static void change_group(struct input *in)
{
    uint64_t id = input_u8(in) % HOSTS;
    struct in6_addr mgid = group(input_u8(in));
    ipu_unicast_group(unicast, id, &mgid, input_u8(in) & 1);
}

/* [from][length 2][frame]: a datagram to us */
static void hear(struct input *in)
{
    uint32_t from = 1 + input_u8(in) % (HOSTS - 1);
    const struct ipu_fabric *fabric = hosts[from].fabric;
    struct ipu_dest dest = {.gid = hosts[0].fabric->gid, .qpn = hosts[0].fabric->qpn};
    size_t len = input_bytes(in, message, sizeof message);
    if (len > 0)
        send_from(fabric, &dest, len);
}

static void receive(void)
{
    struct ipu_received done[RECVS];
    int n = receive_ours(done);
    for (int i = 0; i < n; i++)
        MUST(done[i].flags & IPU_RECEIVED_FAILED ||
             (done[i].src_qpn >= 100 && is_present[done[i].src_qpn - 100]));
}

/* [to][many]: bit 7 of `to`: a group */
static void send_some(struct input *in)
{
    uint8_t to = input_u8(in), many = input_u8(in) % 32;
    const struct ipu_fabric *fabric = hosts[to % HOSTS].fabric;
    struct ipu_dest dest = {.gid = fabric->gid, .qpn = fabric->qpn};
    if (to & 128)
        dest = (struct ipu_dest){.gid = group(to), .qpn = IPU_MULTICAST_QPN};
    void *ah = ours->ops->ah_create(ours->self, &dest);
    MUST(ah != NULL);
    for (int i = 0; i < many && sent < COOKIES; i++) {
        struct ipu_send each = {
            .addr = message, .len = MTU, .qpn = dest.qpn, .ah = ah, .cookie = sent};
        if (ours->ops->send(ours->self, &each, 1) != 1)
            break;
        is_out[sent++] = true;
    }
    while (came_back < sent) { /* the pump keeps a handle while sends name it */
        uint32_t before = came_back;
        reap();
        for (int i = 1; i < HOSTS; i++) {
            struct ipu_received done[RECVS];
            if (hosts[i].fabric->ops->received(hosts[i].fabric->self, done, RECVS) > 0)
                post_theirs(&hosts[i]);
        }
        if (before == came_back) {
            reap();
            MUST(before < came_back);
        }
    }
    ours->ops->ah_destroy(ours->self, ah);
}

static void break_queue_pair(struct input *in)
{
    ipu_memory_break(hosts[0].port, input_u8(in) % 3);
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
            change_peer(&in);
            break;
        case 1:
            change_group(&in);
            break;
        case 2:
        case 3:
            hear(&in);
            break;
        case 4:
            send_some(&in);
            break;
        case 5:
            break_queue_pair(&in);
            break;
        default:
            receive();
        }
    }
    receive();
    MUST(came_back == sent);
    ipu_unicast_destroy(unicast);
    for (int i = 0; i < HOSTS; i++)
        ipu_memory_port_destroy(hosts[i].port);
    ipu_memory_switch_destroy(sw);
    return 0;
}
