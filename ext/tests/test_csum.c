/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/virtio_net.h>
#include <stdbool.h>

#include "check.h"
#include "core/csum.h"
#include "core/frame.h"
#include "core/random.h"

/* Sums 16 bits at a time, big-endian, as in the RFC. */
static uint16_t naive(const uint8_t *data, size_t len)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < len; i++)
        sum += i % 2 ? data[i] : (uint32_t)data[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xFFFF) + (sum >> 16);
    return htons((uint16_t)~sum);
}

static uint16_t csum_of(const void *data, size_t len)
{
    return ipu_csum_finish(ipu_csum_add(0, data, len));
}

static void the_example_of_rfc_1071_sums_to_ddf2(void)
{
    static const uint8_t data[] = {0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7}; /* §3 */
    CHECK_EQ(ntohs((uint16_t)~csum_of(data, sizeof data)), 0xDDF2);
}

static void an_ipv4_header_with_its_checksum_sums_to_zero(void)
{
    /* ping -c1 127.0.0.1 as tcpdump -x shows it. */
    static const uint8_t header[] = {0x45, 0x00, 0x00, 0x54, 0x55, 0x2A, 0x40, 0x00, 0x40, 0x01,
                                     0xE7, 0x7C, 0x7F, 0x00, 0x00, 0x01, 0x7F, 0x00, 0x00, 0x01};
    CHECK_EQ(csum_of(header, sizeof header), 0);
}

static void every_length_and_alignment_agrees_with_the_rfc(void)
{
    enum { LONGEST = 300 };
    uint8_t source[LONGEST];
    uint64_t random = 1;
    for (size_t i = 0; i < LONGEST; i++)
        source[i] = (uint8_t)ipu_random_next(&random);
    for (size_t len = 0; len <= LONGEST; len++) {
        for (size_t shift = 0; shift < 8; shift++) {
            uint8_t *room = malloc(shift + len + 1); /* exact, so that a byte too far shows */
            CHECK(room);
            uint8_t *data = room + shift + 1;
            memcpy(data, source, len);
            CHECK_EQ(csum_of(data, len), naive(data, len));
            uint8_t *copy = malloc(len + 1);
            CHECK(copy);
            uint64_t sum = ipu_csum_copy(copy + 1, data, len);
            CHECK_EQ(ipu_csum_finish(sum), naive(data, len));
            CHECK(memcmp(copy + 1, data, len) == 0);
            free(copy);
            free(room);
        }
    }
}

static void carries_are_never_lost(void)
{
    enum { LEN = 65536 };
    static uint8_t data[LEN];
    static const uint8_t fills[] = {0x00, 0xFF, 0x80, 0x7F};
    for (size_t i = 0; i < sizeof fills; i++) {
        memset(data, fills[i], LEN);
        CHECK_EQ(csum_of(data, LEN), naive(data, LEN));
        CHECK_EQ(csum_of(data, LEN - 1), naive(data, LEN - 1));
    }
    /* All ones on top of all ones: -0 stays -0. */
    memset(data, 0xFF, LEN);
    CHECK_EQ(ipu_csum_finish(ipu_csum_add(UINT64_MAX, data, LEN)), 0);
    /* The fold of the 128-bit sum carries once more. */
    memset(data + 8, 0, 8);
    data[8] = 1;
    CHECK_EQ(ipu_csum_finish(ipu_csum_add(UINT64_MAX, data, 16)), naive(data, 16));
    CHECK_EQ(ipu_csum_finish(UINT64_MAX), 0);
    CHECK_EQ(ipu_csum_finish(0), 0xFFFF);
    CHECK_EQ(ipu_csum_finish(UINT64_MAX - 1), 1);
    CHECK_EQ(ipu_csum_finish(UINT64_C(0xFFFF0000FFFF0001)), 0xFFFE);
}

static void joined_sums_keep_their_carry(void)
{
    static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    uint64_t all = UINT64_MAX;
    CHECK_EQ(ipu_csum_finish(ipu_csum_join(all, 1)), ipu_csum_finish(1));
    CHECK_EQ(ipu_csum_finish(ipu_csum_join(all, ipu_csum_add(0, ones, 8))), 0);
}

static void parts_add_up_to_the_whole(void)
{
    uint8_t data[257];
    uint64_t random = 2;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)ipu_random_next(&random);
    for (size_t cut = 0; cut <= 256; cut += 2) {
        uint64_t sum = ipu_csum_add(ipu_csum_add(0, data, cut), data + cut, sizeof data - cut);
        CHECK_EQ(ipu_csum_finish(sum), naive(data, sizeof data));
    }
}

/* --- Frames --- */

/* UDP 10.0.0.1:1000 -> 10.0.0.2:2000, "hello"; the sums below were done by hand. */
static const uint8_t udp4[] = {0x45, 0x00, 0x00, 0x21, 0x00, 0x00, 0x00, 0x00, 0x40, 0x11, 0x00,
                               0x00, 0x0A, 0x00, 0x00, 0x01, 0x0A, 0x00, 0x00, 0x02, 0x03, 0xE8,
                               0x07, 0xD0, 0x00, 0x0D, 0x00, 0x00, 'h',  'e',  'l',  'l',  'o'};

/* A frame in memory of exactly its length. */
static uint8_t *new_frame(const void *packet, size_t len, uint8_t flags, uint16_t start,
                          uint16_t offset)
{
    uint8_t *frame = malloc(IPU_VNET_LEN + len);
    CHECK(frame);
    struct virtio_net_hdr vnet = {.flags = flags, .csum_start = start, .csum_offset = offset};
    memset(frame, 0, IPU_VNET_LEN);
    memcpy(frame, &vnet, sizeof vnet);
    memcpy(frame + IPU_VNET_LEN, packet, len);
    return frame;
}

static uint16_t field_at(const uint8_t *frame, size_t at)
{
    uint16_t field;
    memcpy(&field, frame + IPU_VNET_LEN + at, sizeof field);
    return ntohs(field);
}

/* A kernel leaves this with NEEDS_CSUM: the folded sum of the pseudo header, not complemented. */
static void put_pseudo(uint8_t *packet, uint8_t protocol, uint32_t len, size_t field)
{
    uint16_t sum = (uint16_t)~ipu_csum_finish(ipu_csum_pseudo(packet, protocol, len));
    memcpy(packet + field, &sum, sizeof sum);
}

static void a_requested_udp_checksum_is_finished_and_the_request_taken_off(void)
{
    uint8_t packet[sizeof udp4];
    memcpy(packet, udp4, sizeof packet);
    put_pseudo(packet, 17, 13, 26);
    CHECK_EQ(packet[26] << 8 | packet[27], 0x1421); /* 0a00+0001+0a00+0002+0011+000d */
    uint8_t *frame = new_frame(packet, sizeof packet,
                               VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID, 20, 6);
    CHECK_EQ(ipu_csum_complete(frame, IPU_VNET_LEN + sizeof packet), 0);
    /* 1421 + 03e8 + 07d0 + 000d + 6865 + 6c6c + 6f00 = 163b7 -> 63b8 -> ~ */
    CHECK_EQ(field_at(frame, 26), 0x9C47);
    CHECK_EQ(frame[0], VIRTIO_NET_HDR_F_DATA_VALID);
    CHECK_EQ(frame[6] | frame[7] | frame[8] | frame[9], 0);
    free(frame);
}

static void a_requested_tcp_checksum_over_ipv6_verifies(void)
{
    uint8_t packet[40 + 20 + 7] = {0x60, 0, 0, 0, 0, 27, 6, 64};
    uint64_t random = 3;
    for (size_t i = 8; i < sizeof packet; i++)
        packet[i] = (uint8_t)ipu_random_next(&random);
    put_pseudo(packet, 6, 27, 40 + 16);
    uint8_t *frame = new_frame(packet, sizeof packet, VIRTIO_NET_HDR_F_NEEDS_CSUM, 40, 16);
    CHECK_EQ(ipu_csum_complete(frame, IPU_VNET_LEN + sizeof packet), 0);
    uint8_t *ip = frame + IPU_VNET_LEN;
    CHECK_EQ(ipu_csum_finish(ipu_csum_add(ipu_csum_pseudo(ip, 6, 27), ip + 40, 27)), 0);
    free(frame);
}

static void the_pseudo_header_is_that_of_rfc_8200_and_rfc_768(void)
{
    static const uint8_t v6[40] = {0x60, 0, 0, 0, 0, 0, 0, 0, 0x20, 0x01, 0xd,  0xb8, 0, 0,
                                   0,    0, 0, 0, 0, 0, 0, 0, 0,    1,    0xfe, 0x80, 0, 0,
                                   0,    0, 0, 0, 0, 0, 0, 0, 0,    0,    0,    2};
    uint8_t pseudo[40] = {0};
    memcpy(pseudo, v6 + 8, 32);
    pseudo[33] = 0x01; /* length 0x10203, next header 58 */
    pseudo[34] = 0x02;
    pseudo[35] = 0x03;
    pseudo[39] = 58;
    CHECK_EQ(ipu_csum_finish(ipu_csum_pseudo(v6, 58, 0x10203)), naive(pseudo, sizeof pseudo));
}

static void a_result_of_zero_is_stored_as_all_ones(void)
{
    uint8_t packet[sizeof udp4] = {0x45};
    uint8_t *frame = new_frame(packet, sizeof packet, VIRTIO_NET_HDR_F_NEEDS_CSUM, 20, 6);
    memset(frame + IPU_VNET_LEN + 20, 0xFF, 2); /* the only bytes: their sum is -0 */
    CHECK_EQ(ipu_csum_complete(frame, IPU_VNET_LEN + sizeof packet), 0);
    CHECK_EQ(field_at(frame, 26), 0xFFFF);
    free(frame);
}

static void a_frame_without_the_request_is_left_alone(void)
{
    uint8_t *frame = new_frame(udp4, sizeof udp4, 0, 20, 6);
    uint8_t *before = new_frame(udp4, sizeof udp4, 0, 20, 6);
    CHECK_EQ(ipu_csum_complete(frame, IPU_VNET_LEN + sizeof udp4), 0);
    CHECK(memcmp(frame, before, IPU_VNET_LEN + sizeof udp4) == 0);
    free(frame);
    free(before);
}

/* Every start and offset around every bound, on frames of exact size, so that ASan sees a slip. */
static void a_field_outside_the_packet_is_refused_and_nothing_is_written(void)
{
    static const uint16_t far[] = {0x7FFF, 0xFFFE, 0xFFFF};
    uint8_t packet[48];
    uint64_t random = 5;
    for (size_t i = 0; i < sizeof packet; i++)
        packet[i] = (uint8_t)ipu_random_next(&random);
    for (size_t len = 0; len <= sizeof packet; len++) {
        for (uint32_t start = 0; start < 56; start++) {
            for (uint32_t offset = 0; offset < 56; offset++) {
                uint16_t s = (uint16_t)(start < 53 ? start : far[start - 53]);
                uint16_t o = (uint16_t)(offset < 53 ? offset : far[offset - 53]);
                uint8_t *frame = new_frame(packet, len, VIRTIO_NET_HDR_F_NEEDS_CSUM, s, o);
                bool inside = s >= 20 && (size_t)s + o + 2 <= len;
                CHECK_EQ(ipu_csum_complete(frame, IPU_VNET_LEN + len), inside ? 0 : -EINVAL);
                if (inside)
                    CHECK_EQ(field_at(frame, (size_t)s + o), ntohs(naive(packet + s, len - s)));
                else
                    CHECK(memcmp(frame + IPU_VNET_LEN, packet, len) == 0);
                free(frame);
            }
        }
    }
}

static void a_frame_shorter_than_its_vnet_header_is_refused(void)
{
    for (size_t len = 0; len < IPU_VNET_LEN; len++) {
        uint8_t *frame = calloc(1, len ? len : 1);
        CHECK(frame);
        CHECK_EQ(ipu_csum_complete(frame, len), -EINVAL);
        free(frame);
    }
}

static void random_vnet_headers_never_reach_outside_the_frame(void)
{
    uint64_t random = 4;
    for (int i = 0; i < 20000; i++) {
        size_t len = ipu_random_below(&random, 200);
        uint8_t *frame = malloc(len + 1);
        CHECK(frame);
        for (size_t j = 0; j < len; j++)
            frame[j] = (uint8_t)ipu_random_next(&random);
        if (len > 10 && ipu_random_below(&random, 2)) /* plausible numbers, too */
            frame[7] = frame[9] = 0;
        uint8_t *exact = realloc(frame, len ? len : 1);
        CHECK(exact);
        int result = ipu_csum_complete(exact, len);
        CHECK(result == 0 || result == -EINVAL);
        free(exact);
    }
}

int main(void)
{
    RUN(the_example_of_rfc_1071_sums_to_ddf2);
    RUN(an_ipv4_header_with_its_checksum_sums_to_zero);
    RUN(every_length_and_alignment_agrees_with_the_rfc);
    RUN(carries_are_never_lost);
    RUN(joined_sums_keep_their_carry);
    RUN(parts_add_up_to_the_whole);
    RUN(a_requested_udp_checksum_is_finished_and_the_request_taken_off);
    RUN(a_requested_tcp_checksum_over_ipv6_verifies);
    RUN(the_pseudo_header_is_that_of_rfc_8200_and_rfc_768);
    RUN(a_result_of_zero_is_stored_as_all_ones);
    RUN(a_frame_without_the_request_is_left_alone);
    RUN(a_field_outside_the_packet_is_refused_and_nothing_is_written);
    RUN(a_frame_shorter_than_its_vnet_header_is_refused);
    RUN(random_vnet_headers_never_reach_outside_the_frame);
}
