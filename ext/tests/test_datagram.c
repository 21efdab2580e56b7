/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams of an application without a stack: what it sends it can read, and damage is refused. */
#include "check.h"
#include "core/ip_header.h"
#include "device/datagram.h"

static struct ipu_queue queue;

/* 10.0.0.1 port 5000 to 10.0.0.2 port 7000 */
static const uint8_t HEADERS4[IPU_DATAGRAM_HEADERS4] = {
    0x45, [6] = 0x40, [8] = 64, 17, [12] = 10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88, 0x1b, 0x58,
};
/* fd00::1 to fd00::2, with the same ports */
static const uint8_t HEADERS6[IPU_DATAGRAM_HEADERS6] = {
    0x60, [6] = 17, 64, 0xfd, [23] = 1, 0xfd, [39] = 2, 0x13, 0x88, 0x1b, 0x58,
};

/* Sends a datagram; returns the packet as the pump reads it, and its length. */
static const uint8_t *sent(const uint8_t *headers, uint32_t headers_len, const char *payload,
                           uint32_t len, uint32_t *total)
{
    static uint8_t frame[2048];
    CHECK(ipu_datagram_send(&queue, headers, headers_len, payload, len));
    ssize_t n = queue.device.ops->read(&queue, frame, sizeof frame);
    CHECK_EQ(n, 16 + headers_len + len);
    *total = headers_len + len;
    return frame + 16;
}

static void check_round(const uint8_t *headers, uint32_t headers_len, const char *payload,
                        uint32_t len, uint32_t flow_len)
{
    uint32_t total;
    const uint8_t *packet = sent(headers, headers_len, payload, len, &total);
    struct ipu_datagram got;
    CHECK(ipu_datagram_read_untrusted(packet, total, &got));
    CHECK_EQ(got.payload_len, len);
    CHECK(memcmp(got.payload, payload, len) == 0);
    CHECK_EQ(got.flow_len, flow_len);
    CHECK(memcmp(got.flow, headers + headers_len - 8 + 4 - flow_len, flow_len) == 0);
}

static void what_is_sent_can_be_read(void)
{
    for (uint32_t len = 0; len <= 5; len++) {
        check_round(HEADERS4, sizeof HEADERS4, "hello", len, IPU_DATAGRAM_FLOW4);
        check_round(HEADERS6, sizeof HEADERS6, "hello", len, IPU_DATAGRAM_FLOW6);
    }
}

/* No byte of an IPv4 packet may change; of IPv6, none but version, class, flow label and hop limit,
 * which no checksum covers. */
static void check_damage(const uint8_t *headers, uint32_t headers_len)
{
    uint32_t total;
    uint8_t packet[64];
    struct ipu_datagram got;
    memcpy(packet, sent(headers, headers_len, "hello", 5, &total), headers_len + 5);
    for (uint32_t at = 0; at < total; at++) {
        bool is_free = headers_len == sizeof HEADERS6 && (at < 4 || at == 7);
        packet[at] ^= 0x08;
        CHECK(is_free || !ipu_datagram_read_untrusted(packet, total, &got));
        packet[at] ^= 0x08;
    }
    for (uint32_t len = 0; len < total; len++)
        CHECK(!ipu_datagram_read_untrusted(packet, len, &got));
    CHECK(ipu_datagram_read_untrusted(packet, total, &got));
}

static void damage_is_refused(void)
{
    check_damage(HEADERS4, sizeof HEADERS4);
    check_damage(HEADERS6, sizeof HEADERS6);
}

static void ipv4_may_come_without_a_checksum_and_ipv6_may_not(void)
{
    uint32_t total;
    uint8_t packet[64];
    struct ipu_datagram got;
    memcpy(packet, sent(HEADERS4, sizeof HEADERS4, "hello", 5, &total), 33);
    ipu_ip_put16(packet + IPU_IPV4_HEADER + IPU_UDP_CSUM, 0);
    CHECK(ipu_datagram_read_untrusted(packet, total, &got));
    memcpy(packet, sent(HEADERS6, sizeof HEADERS6, "hello", 5, &total), 53);
    ipu_ip_put16(packet + IPU_IPV6_HEADER + IPU_UDP_CSUM, 0);
    CHECK(!ipu_datagram_read_untrusted(packet, total, &got));
}

static void a_full_ring_takes_nothing(void)
{
    char payload[1000] = {0};
    uint32_t taken = 0;
    while (ipu_datagram_send(&queue, HEADERS4, sizeof HEADERS4, payload, sizeof payload))
        taken++;
    CHECK(taken > 3);
    uint32_t total;
    static uint8_t frame[2048];
    for (; taken > 0; taken--)
        CHECK(queue.device.ops->read(&queue, frame, sizeof frame) > 0);
    sent(HEADERS4, sizeof HEADERS4, "hello", 5, &total);
}

/* Any bytes of any length are read within their bounds (sanitizers check), and a datagram that is
 * read lies within its packet. */
static void any_bytes_are_read_within_their_bounds(void)
{
    uint32_t total, state = 1, taken = 0;
    for (int round = 0; round < 200000; round++) {
        bool is_v4 = round % 2 == 0;
        const uint8_t *headers = is_v4 ? HEADERS4 : HEADERS6;
        uint8_t whole[64];
        uint32_t headers_len = is_v4 ? sizeof HEADERS4 : sizeof HEADERS6;
        memcpy(whole, sent(headers, headers_len, "hello", 5, &total), headers_len + 5);
        for (int change = round % 3; change > 0; change--) {
            state = state * 1664525u + 1013904223u;
            whole[state >> 8 & 63] = (uint8_t)(state >> 24);
        }
        state = state * 1664525u + 1013904223u;
        uint32_t len = (state >> 8) % 5 == 0 ? (state >> 12) % (total + 1) : total;
        uint8_t *packet = malloc(len > 0 ? len : 1); /* with nothing behind it */
        CHECK(packet != NULL);
        memcpy(packet, whole, len);
        struct ipu_datagram got;
        if (ipu_datagram_read_untrusted(packet, len, &got)) {
            CHECK(got.flow >= packet && got.flow + got.flow_len + 4 == got.payload);
            CHECK(got.payload + got.payload_len <= packet + len);
            taken++;
        }
        free(packet);
    }
    CHECK(taken > 1000);
}

int main(void)
{
    CHECK_EQ(ipu_queue_init(&queue, 1 << 13, 1 << 13), 0);
    RUN(what_is_sent_can_be_read);
    RUN(damage_is_refused);
    RUN(ipv4_may_come_without_a_checksum_and_ipv6_may_not);
    RUN(a_full_ring_takes_nothing);
    RUN(any_bytes_are_read_within_their_bounds);
    ipu_queue_free(&queue);
    return 0;
}
