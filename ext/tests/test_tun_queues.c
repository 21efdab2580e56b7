/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests which queue a packet goes to, and that the choice reads no byte behind the packet. */
#include "device/tun_queues.h"

#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "core/frame.h"
#include "core/random.h"

enum { TCP = 6, UDP = 17, ICMP = 1, ESP = 50, ICMP6 = 58, FRAGMENT = 44, HOP_BY_HOP = 0 };
enum { QUEUES = 16, FLOWS = 4096 };

struct packet {
    uint8_t bytes[80];
    size_t len;
};

static struct ipu_tun_queues queues_of(uint32_t count)
{
    struct ipu_tun_queues tun;
    int fds[IPU_TX_QUEUES_MAX] = {0};
    CHECK_EQ(ipu_tun_queues_init(&tun, fds, count), 0);
    return tun;
}

/* Copies the packet to a block of its own, so that the sanitizer sees a read behind the end. */
static uint32_t choose(const struct ipu_tun_queues *tun, const uint8_t *ip, size_t len)
{
    uint8_t *copy = malloc(len > 0 ? len : 1);
    CHECK(copy != NULL);
    memcpy(copy, ip, len);
    uint32_t queue = ipu_tun_queues_choose(tun, copy, len);
    free(copy);
    CHECK(queue < tun->count);
    return queue;
}

static uint32_t queue_of(const struct ipu_tun_queues *tun, const struct packet *packet)
{
    return choose(tun, packet->bytes, packet->len);
}

static void put_ports(uint8_t *at, uint32_t from, uint32_t to)
{
    at[0] = (uint8_t)(from >> 8);
    at[1] = (uint8_t)from;
    at[2] = (uint8_t)(to >> 8);
    at[3] = (uint8_t)to;
}

static struct packet v4(uint8_t protocol, uint8_t from, uint8_t to, uint32_t sport, uint32_t dport)
{
    struct packet packet = {.bytes = {0x45, [3] = 28, [9] = protocol}, .len = 28};
    memcpy(packet.bytes + 12, (uint8_t[]){10, 0, 0, from, 10, 0, 0, to}, 8);
    put_ports(packet.bytes + 20, sport, dport);
    return packet;
}

static struct packet v6(uint8_t next, uint8_t from, uint8_t to, uint32_t sport, uint32_t dport)
{
    struct packet packet = {.bytes = {0x60, [5] = 8, [6] = next}, .len = 48};
    packet.bytes[8] = packet.bytes[24] = 0xfd;
    packet.bytes[23] = from;
    packet.bytes[39] = to;
    put_ports(packet.bytes + 40, sport, dport);
    return packet;
}

typedef struct packet build(uint8_t protocol, uint8_t from, uint8_t to, uint32_t sport,
                            uint32_t dport);
static build *const families[] = {v4, v6};

static void both_directions_of_a_flow_have_one_queue(void)
{
    struct ipu_tun_queues tun = queues_of(QUEUES);
    for (size_t family = 0; family < 2; family++)
        for (uint32_t flow = 0; flow < FLOWS; flow++) {
            uint8_t protocol = flow % 2 ? TCP : UDP;
            struct packet there = families[family](protocol, 1, 2, 40000 + flow, 5201);
            struct packet back = families[family](protocol, 2, 1, 5201, 40000 + flow);
            CHECK_EQ(queue_of(&tun, &there), queue_of(&tun, &back));
        }
}

static void flows_spread_over_all_queues(void)
{
    for (uint32_t count = 1; count <= QUEUES; count++) {
        struct ipu_tun_queues tun = queues_of(count);
        for (size_t family = 0; family < 2; family++) {
            uint32_t seen[QUEUES] = {0};
            for (uint32_t flow = 0; flow < FLOWS; flow++) {
                struct packet packet = families[family](TCP, 1, 2, 32768 + flow, 5201);
                seen[queue_of(&tun, &packet)]++;
            }
            for (uint32_t i = 0; i < count; i++) { /* 256 or more each, 16 the deviation */
                CHECK(seen[i] > FLOWS / count / 2);
                CHECK(seen[i] < FLOWS / count * 2 + 1);
            }
        }
    }
}

/* All its packets have the queue of the first, whatever bytes are in the place of the ports. */
static void check_ports_do_not_count(build *family, uint8_t protocol,
                                     void (*change)(struct packet *))
{
    struct ipu_tun_queues tun = queues_of(QUEUES);
    uint32_t first = 0;
    for (uint32_t n = 0; n < 64; n++) {
        struct packet packet = family(protocol, 1, 2, n * 997, n * 31);
        if (change != NULL)
            change(&packet);
        if (n == 0)
            first = queue_of(&tun, &packet);
        CHECK_EQ(queue_of(&tun, &packet), first);
    }
}

static void set_first_fragment(struct packet *packet)
{
    packet->bytes[6] = 0x20; /* more fragments */
}

static void set_later_fragment(struct packet *packet)
{
    packet->bytes[7] = 185; /* an offset */
}

static void fragments_go_by_addresses_alone_all_to_one_queue(void)
{
    struct ipu_tun_queues tun = queues_of(QUEUES);
    check_ports_do_not_count(v4, UDP, set_first_fragment);
    check_ports_do_not_count(v4, UDP, set_later_fragment);
    check_ports_do_not_count(v6, FRAGMENT, NULL);
    struct packet first = v4(UDP, 1, 2, 7, 8), later = v4(UDP, 1, 2, 9, 10);
    set_first_fragment(&first);
    set_later_fragment(&later);
    CHECK_EQ(queue_of(&tun, &first), queue_of(&tun, &later));
}

static void dont_fragment_is_no_fragment(void)
{
    struct ipu_tun_queues tun = queues_of(QUEUES);
    bool seen[QUEUES] = {0};
    uint32_t different = 0;
    for (uint32_t n = 0; n < 64; n++) {
        struct packet packet = v4(TCP, 1, 2, n * 997, 80), plain = packet;
        packet.bytes[6] = 0x40;
        CHECK_EQ(queue_of(&tun, &packet), queue_of(&tun, &plain));
        different += !seen[queue_of(&tun, &packet)];
        seen[queue_of(&tun, &packet)] = true;
    }
    CHECK(different > 4);
}

static void what_has_no_ports_goes_by_its_addresses(void)
{
    check_ports_do_not_count(v4, ICMP, NULL);
    check_ports_do_not_count(v4, ESP, NULL);
    check_ports_do_not_count(v6, ICMP6, NULL);
}

static void extension_headers_are_not_read_as_ports(void)
{
    check_ports_do_not_count(v6, HOP_BY_HOP, NULL);
    check_ports_do_not_count(v6, 43, NULL);
    check_ports_do_not_count(v6, 60, NULL);
}

static void ipv4_options_are_skipped(void)
{
    struct ipu_tun_queues tun = queues_of(QUEUES);
    for (uint32_t n = 0; n < 64; n++) {
        struct packet plain = v4(TCP, 1, 2, n, 80), options = plain;
        options.bytes[0] = 0x4f;
        memset(options.bytes + 20, 0xa5, 40);
        put_ports(options.bytes + 60, n, 80);
        options.len = 68;
        CHECK_EQ(queue_of(&tun, &options), queue_of(&tun, &plain));
    }
}

static void tcp_and_udp_of_the_same_ports_are_different_flows(void)
{
    struct ipu_tun_queues tun = queues_of(QUEUES);
    uint32_t different = 0;
    for (uint32_t n = 0; n < 64; n++) {
        struct packet tcp = v4(TCP, 1, 2, n, 80), udp = v4(UDP, 1, 2, n, 80);
        different += queue_of(&tun, &tcp) != queue_of(&tun, &udp);
    }
    CHECK(different > 32);
}

static void a_truncated_packet_goes_somewhere_and_nothing_behind_it_is_read(void)
{
    struct ipu_tun_queues tun = queues_of(QUEUES);
    for (size_t family = 0; family < 2; family++) {
        struct packet packet = families[family](TCP, 1, 2, 3, 4);
        for (size_t len = 0; len <= packet.len; len++)
            (void)choose(&tun, packet.bytes, len);
    }
    struct packet short_options = v4(TCP, 1, 2, 3, 4);
    for (uint32_t header = 0; header < 16; header++) { /* wrong lengths */
        short_options.bytes[0] = (uint8_t)(0x40 | header);
        (void)queue_of(&tun, &short_options);
    }
}

static void what_is_no_ip_packet_goes_to_the_first_queue(void)
{
    struct ipu_tun_queues tun = queues_of(QUEUES);
    uint8_t bytes[64];
    for (uint32_t version = 0; version < 16; version++) {
        memset(bytes, 0x5a, sizeof bytes);
        bytes[0] = (uint8_t)(version << 4 | 5);
        if (version != 4 && version != 6)
            CHECK_EQ(choose(&tun, bytes, sizeof bytes), 0);
    }
}

static void any_bytes_have_a_queue(void)
{
    struct ipu_tun_queues tun = queues_of(3);
    uint64_t random = 5;
    uint8_t bytes[72];
    for (int n = 0; n < 100000; n++) {
        for (size_t i = 0; i < sizeof bytes; i += 8) {
            uint64_t word = ipu_random_next(&random);
            memcpy(bytes + i, &word, 8);
        }
        if (n % 2)
            bytes[0] = (uint8_t)((n % 4 == 1 ? 0x40 : 0x60) | (bytes[0] & 15));
        (void)choose(&tun, bytes, ipu_random_below(&random, sizeof bytes + 1));
    }
}

static void another_device_spreads_in_another_way(void)
{
    struct ipu_tun_queues first = queues_of(QUEUES), second = queues_of(QUEUES);
    uint32_t different = 0;
    for (uint32_t n = 0; n < 256; n++) {
        struct packet packet = v4(TCP, 1, 2, n, 80);
        different += queue_of(&first, &packet) != queue_of(&second, &packet);
    }
    CHECK(different > 128);
}

static void a_frame_goes_to_the_descriptor_of_its_flow(void)
{
    enum { COUNT = 4 };
    const int fds[COUNT] = {10, 11, 12, 13};
    struct ipu_tun_queues tun;
    CHECK_EQ(ipu_tun_queues_init(&tun, fds, COUNT), 0);
    for (uint32_t n = 0; n < 64; n++) {
        struct packet packet = v4(TCP, 1, 2, n, 80);
        uint8_t frame[IPU_VNET_LEN + 80] = {0};
        memcpy(frame + IPU_VNET_LEN, packet.bytes, packet.len);
        CHECK_EQ(ipu_tun_queues_fd(&tun, frame, IPU_VNET_LEN + packet.len),
                 fds[queue_of(&tun, &packet)]);
    }
    CHECK_EQ(ipu_tun_queues_fd(&tun, (const uint8_t *)"short", 5), fds[0]);
}

static void impossible_numbers_of_queues_are_refused(void)
{
    struct ipu_tun_queues tun;
    int fds[IPU_TX_QUEUES_MAX] = {0};
    CHECK_EQ(ipu_tun_queues_init(&tun, fds, 0), -EINVAL);
    CHECK_EQ(ipu_tun_queues_init(&tun, fds, IPU_TX_QUEUES_MAX + 1), -EINVAL);
}

int main(void)
{
    RUN(both_directions_of_a_flow_have_one_queue);
    RUN(flows_spread_over_all_queues);
    RUN(fragments_go_by_addresses_alone_all_to_one_queue);
    RUN(dont_fragment_is_no_fragment);
    RUN(what_has_no_ports_goes_by_its_addresses);
    RUN(extension_headers_are_not_read_as_ports);
    RUN(ipv4_options_are_skipped);
    RUN(tcp_and_udp_of_the_same_ports_are_different_flows);
    RUN(a_truncated_packet_goes_somewhere_and_nothing_behind_it_is_read);
    RUN(what_is_no_ip_packet_goes_to_the_first_queue);
    RUN(any_bytes_have_a_queue);
    RUN(another_device_spreads_in_another_way);
    RUN(a_frame_goes_to_the_descriptor_of_its_flow);
    RUN(impossible_numbers_of_queues_are_refused);
    return 0;
}
