/* SPDX-License-Identifier: BSD-2-Clause */
/* Senders that compete for the writes of a saturated pump, which is stepped by hand: one round
 * receives what the test queues before it. */
#include <errno.h>

#include "pump/state/pump_state.h" /* comes first: it has parameters that are called pump */

#include "fake_fabric.h"
#include "stepped_pump.h"
#include "roomy_pump.h"
#include "core/csum.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "pump/tables/write_share.h"

enum {
    MTU = 2044,
    ROUND = 256,
    FRAMES = 512,
    PAYLOAD = 100,
    PACKET = IPU_IPV4_HEADER + IPU_UDP_HEADER + PAYLOAD,
    ROUNDS = 64,
    WARM_ROUNDS = 8, /* more than the backlog and a window */
    BULK = 1,        /* senders, by the number of their queue pair */
    SINGLES = 2,
    LIGHT = 3,
    STRANGER = 1000, /* from here on the pump knows no sender */
};

static struct {
    uint32_t senders[ROUND]; /* of the packets to come */
    int queued, next;
    bool without_grh;
} fabric_state;

static uint64_t written[ROUND * ROUNDS]; /* packets, by sender */

/* ---- a fabric that receives what the test queues */

/* The packets of BULK can merge; the others have no checksum and cannot. */
static void write_packet(uint8_t *ip, uint32_t sender)
{
    uint64_t sum;
    uint16_t csum;
    memset(ip, 0, PACKET);
    memcpy(ip, (uint8_t[]){0x45, 0, 0, PACKET, 0, 0, 0x40, 0, 64, IPPROTO_UDP}, 10);
    memcpy(ip + 12, (uint8_t[]){10, 0, (uint8_t)(sender >> 8), (uint8_t)sender, 10, 0, 0, 99}, 8);
    csum = ipu_csum_finish(ipu_csum_add(0, ip, IPU_IPV4_HEADER));
    memcpy(ip + 10, &csum, sizeof csum);
    ip[IPU_IPV4_HEADER + 5] = IPU_UDP_HEADER + PAYLOAD;
    if (sender != BULK)
        return;
    sum = ipu_csum_pseudo(ip, IPPROTO_UDP, IPU_UDP_HEADER + PAYLOAD);
    csum =
        ipu_csum_finish(ipu_csum_add(sum, ip + IPU_IPV4_HEADER, IPU_UDP_HEADER + (size_t)PAYLOAD));
    memcpy(ip + IPU_IPV4_HEADER + IPU_UDP_CSUM, &csum, sizeof csum);
}

static struct in6_addr gid_of(uint32_t sender)
{
    return (struct in6_addr){{{0xfe, 0x80, [14] = (uint8_t)(sender >> 8), (uint8_t)sender}}};
}

static int some_received(void *self, struct ipu_received *done, int max)
{
    (void)self;
    int n = 0;
    while (n < max && fabric_state.next < fabric_state.queued) {
        uint32_t sender = fabric_state.senders[fabric_state.next++];
        struct ipu_recv recv = fake_take_posted();
        struct in6_addr gid = gid_of(sender);
        uint8_t *buf = recv.addr;
        memcpy(buf + 8, &gid, sizeof gid);
        memcpy(buf + IPU_RX_ENCAP, (uint8_t[]){0x08, 0, 0, 0}, 4);
        write_packet(buf + IPU_RX_IP, sender);
        done[n++] = (struct ipu_received){
            .cookie = recv.cookie,
            .byte_len = IPU_RX_IP + PACKET,
            .src_qpn = sender,
            .flags = fabric_state.without_grh ? 0 : IPU_RECEIVED_GRH,
        };
    }
    return n;
}

static const struct ipu_fabric_ops fabric_ops = {
    FAKE_FABRIC_OPS,        .send = fake_send_all,     .post = fake_post_kept,
    .sent = fake_none_sent, .received = some_received, .fd = the_fabric_fd,
};

/* ---- a device that counts what it gets from whom */

static uint32_t sender_of(const uint8_t *frame)
{
    return ipu_ip_get16(frame + IPU_VNET_LEN + 14);
}

static int device_write(void *self, const void *buf, size_t len)
{
    (void)self, (void)len;
    written[sender_of(buf)]++;
    return 0;
}

static int device_writev(void *self, const struct iovec *iov, int n)
{
    (void)self;
    written[sender_of(iov->iov_base)] += (uint64_t)n;
    return 0;
}

static int no_take(void *self, uint32_t index, const uint8_t *ip, size_t ip_len)
{
    (void)self, (void)index, (void)ip, (void)ip_len;
    return -ENOBUFS;
}

static uint32_t no_back(void *self)
{
    (void)self;
    return IPU_SLAB_NONE;
}

static const struct ipu_device_ops tun_ops = {
    .read = read_no_packet, .write = device_write, .writev = device_writev, .fd = the_device_fd};
static const struct ipu_device_ops queue_ops = {.read = read_no_packet,
                                                .write = device_write,
                                                .writev = device_writev,
                                                .fd = the_device_fd,
                                                .take = no_take,
                                                .back = no_back};

/* ---- */

static struct ipu_fabric fabric = {.ops = &fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};
static struct ipu_device tun = {.ops = &tun_ops, .offload = IPU_DEVICE_TCP | IPU_DEVICE_UDP};
static struct ipu_device plain_tun = {.ops = &tun_ops};
static struct ipu_device queue = {.ops = &queue_ops, .offload = IPU_DEVICE_TCP | IPU_DEVICE_UDP};

static void know(uint32_t sender)
{
    give(
        (struct ipu_command){
            .type = IPU_COMMAND_NEIGH_SET,
            .neigh_set = {.next_hop = gid_of(sender),
                          .dest = {.qpn = sender, .gid = gid_of(sender), .flow_label = sender},
                          .mtu = MTU}},
        NULL);
}

static uint32_t place_of(struct in6_addr gid, uint32_t sender)
{
    return ipu_write_share_place(ipu_ah_cache_hash(&pump->ahs, &gid, sender));
}

/* The key of the hash is random, so senders may share a place by chance. */
static bool share_no_place(void)
{
    for (uint32_t one = BULK; one < LIGHT; one++)
        for (uint32_t other = one + 1; other <= LIGHT; other++)
            if (place_of(gid_of(one), one) == place_of(gid_of(other), other) ||
                place_of(in6addr_any, one) == place_of(in6addr_any, other))
                return false;
    return true;
}

static void begin(struct ipu_device *device)
{
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = device,
        .mtu = MTU,
        .rx_frames = FRAMES,
        ROOMY_PUMP,
    };
    memset(written, 0, sizeof written);
    open_descriptors();
    for (bool ready = false; !ready; ready = share_no_place()) {
        if (pump != NULL)
            ipu_pump_destroy(pump);
        memset(&fabric_state, 0, sizeof fabric_state);
        fake_posted.count = 0;
        CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    }
    know(BULK);
    know(SINGLES);
    know(LIGHT);
    CHECK(ipu_pump_step(pump, ROUND) > 0);
}

static void end(void)
{
    uint64_t ends = 0;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        ends += written[i];
    CHECK_EQ(ends, counter("rx_packets"));
    destroy_pump();
}

static void queue_packets(uint32_t sender, int n)
{
    for (int i = 0; i < n; i++)
        fabric_state.senders[fabric_state.queued++] = sender;
}

static void step(void)
{
    CHECK_EQ(ipu_pump_step(pump, ROUND), fabric_state.queued);
    fabric_state.queued = fabric_state.next = 0;
}

/* Rounds of packets of three senders without a pause. */
static void run_rounds(int rounds, int bulk, int singles, int light)
{
    for (int round = 0; round < rounds; round++) {
        queue_packets(BULK, bulk);
        queue_packets(SINGLES, singles);
        queue_packets(LIGHT, light);
        step();
    }
}

static void saturate(int bulk, int singles, int light)
{
    run_rounds(WARM_ROUNDS, bulk, singles, light);
    memset(written, 0, sizeof written);
}

/* Written before the warm-up, which end() would miss. */
static void end_saturated(void)
{
    destroy_pump();
}

static void a_lone_sender_of_single_packets_loses_none(void)
{
    begin(&tun);
    run_rounds(ROUNDS, 0, ROUND, 0);
    CHECK_EQ(written[SINGLES], ROUNDS * ROUND);
    CHECK_EQ(counter("rx_over_share"), 0);
    end();
}

static void a_sender_loses_none_while_others_send_little(void)
{
    begin(&tun);
    run_rounds(ROUNDS, 8, ROUND - 16, 8);
    CHECK_EQ(counter("rx_over_share"), 0);
    end();
}

static void a_sender_of_single_packets_gets_its_share_beside_bulk_and_the_rest_is_counted(void)
{
    begin(&tun);
    saturate(128, 128, 0);
    uint64_t before = counter("rx_over_share");
    run_rounds(ROUNDS, 128, 128, 0);
    CHECK_EQ(written[BULK], ROUNDS * 128);
    CHECK(written[SINGLES] >= ROUNDS * IPU_WRITE_SHARE_LEAST);
    CHECK(written[SINGLES] <= ROUNDS * (IPU_WRITE_SHARE_LEAST + 8)); /* 8: the writes of bulk */
    CHECK_EQ(written[SINGLES] + counter("rx_over_share") - before, ROUNDS * 128);
    end_saturated();
}

static void the_majority_gives_up_as_much_as_others_send(void)
{
    begin(&tun);
    saturate(64, 192, 0);
    run_rounds(ROUNDS, 64, 192, 0);
    CHECK_EQ(written[BULK], ROUNDS * 64);
    CHECK(written[SINGLES] >= ROUNDS * (192 - 64));
    CHECK(written[SINGLES] < ROUNDS * 192);
    end_saturated();
}

static void a_sender_of_few_packets_loses_none(void)
{
    begin(&tun);
    run_rounds(ROUNDS, 118, 118, 20);
    CHECK_EQ(written[LIGHT], ROUNDS * 20);
    CHECK(counter("rx_over_share") > 0);
    end();
}

static void senders_with_equal_writes_lose_none(void)
{
    begin(&tun);
    run_rounds(ROUNDS, 0, 128, 128);
    CHECK_EQ(counter("rx_over_share"), 0);
    end();
}

static void without_offloads_all_packets_are_single(void)
{
    begin(&plain_tun);
    run_rounds(ROUNDS, 128, 128, 0);
    CHECK_EQ(counter("rx_over_share"), 0);
    saturate(40, 108, 108);
    CHECK(counter("rx_over_share") > 0);
    end_saturated();
}

static void strangers_share_one_place(void)
{
    begin(&tun);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        queue_packets(BULK, 128);
        for (uint32_t i = 0; i < 128; i++)
            queue_packets(STRANGER + round * 128 + i, 1);
        step();
    }
    CHECK_EQ(written[BULK], ROUNDS * 128);
    CHECK(counter("rx_over_share") > (ROUNDS - WARM_ROUNDS) * 128 * 5 / 8);
    end();
}

static void more_senders_than_places_lose_none_if_they_send_alike(void)
{
    begin(&tun);
    fabric_state.without_grh = true; /* so the hardware vouches for each */
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < ROUND; i++)
            queue_packets(STRANGER + i, 1);
        step();
    }
    CHECK_EQ(counter("rx_over_share"), 0);
    end();
}

static void a_pump_that_keeps_up_drops_nothing(void)
{
    begin(&tun);
    for (int round = 0; round < ROUNDS; round++) {
        run_rounds(1, 128, 128, 0);
        for (int idle = 0; idle < ROUND / IPU_WRITE_SHARE_IDLE; idle++)
            step();
    }
    CHECK_EQ(counter("rx_over_share"), 0);
    end();
}

static void a_pump_that_has_caught_up_drops_nothing_more(void)
{
    begin(&tun);
    saturate(128, 128, 0);
    run_rounds(2, 128, 128, 0);
    uint64_t dropped = counter("rx_over_share");
    CHECK(dropped > 0);
    for (int idle = 0; idle < IPU_WRITE_SHARE_BACKLOG / IPU_WRITE_SHARE_IDLE; idle++)
        step();
    run_rounds(IPU_WRITE_SHARE_BACKLOG / ROUND, 128, 128, 0);
    CHECK_EQ(counter("rx_over_share"), dropped);
    end_saturated();
}

static void an_application_gets_all(void)
{
    begin(&queue);
    run_rounds(ROUNDS, 128, 128, 0);
    CHECK_EQ(counter("rx_over_share"), 0);
    end();
}

/* A message of a connection counts as many units as it has packets. */
static void long_packets_count_as_several(void)
{
    struct ipu_write_share share = {0};
    ipu_write_share_end_round(&share, IPU_WRITE_SHARE_BACKLOG, false);
    share.current = ipu_write_share_place(UINT64_MAX);
    CHECK(share.current > 0 && share.current < IPU_WRITE_SHARE_SENDERS);
    ipu_write_share_count(&share, 65520);
    CHECK_EQ(share.units[share.current], 15);
    ipu_write_share_count(&share, 60);
    CHECK_EQ(share.units[share.current], 16);
    CHECK_EQ(share.window, 16);
}

/* So many senders that none of them has units enough to count as active. */
static void a_window_without_an_active_sender_leaves_each_the_least(void)
{
    struct ipu_write_share share = {0};
    ipu_write_share_end_round(&share, IPU_WRITE_SHARE_BACKLOG, false);
    for (uint32_t i = 0; i <= IPU_WRITE_SHARE_WINDOW; i++) { /* the last packet ends the window */
        share.current = i % IPU_WRITE_SHARE_SENDERS;
        ipu_write_share_count(&share, PAYLOAD);
    }
    for (uint32_t sender = 0; sender < IPU_WRITE_SHARE_SENDERS; sender++)
        CHECK_EQ(share.allowed[sender], IPU_WRITE_SHARE_LEAST);
}

int main(void)
{
    RUN(a_lone_sender_of_single_packets_loses_none);
    RUN(a_sender_loses_none_while_others_send_little);
    RUN(a_sender_of_single_packets_gets_its_share_beside_bulk_and_the_rest_is_counted);
    RUN(the_majority_gives_up_as_much_as_others_send);
    RUN(a_sender_of_few_packets_loses_none);
    RUN(senders_with_equal_writes_lose_none);
    RUN(without_offloads_all_packets_are_single);
    RUN(strangers_share_one_place);
    RUN(more_senders_than_places_lose_none_if_they_send_alike);
    RUN(a_pump_that_keeps_up_drops_nothing);
    RUN(a_pump_that_has_caught_up_drops_nothing_more);
    RUN(an_application_gets_all);
    RUN(long_packets_count_as_several);
    RUN(a_window_without_an_active_sender_leaves_each_the_least);
    return 0;
}
