/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "segment_frames.h"
#include "core/csum.h"
#include "core/random.h"
#include "pump/packets/segment.h"

enum { TCP4 = VIRTIO_NET_HDR_GSO_TCPV4, TCP6 = VIRTIO_NET_HDR_GSO_TCPV6 };
enum { UDP = VIRTIO_NET_HDR_GSO_UDP_L4, ECN = VIRTIO_NET_HDR_GSO_ECN };

/* scapy 2.5 made all packets here, whole ones and their segments, with its checksums. 25 bytes of
 * payload, "abc...y". TCP 10.0.0.1:1000 -> 10.0.0.2:2000, ECT, DF, id fffe, sequence fffffff8,
 * flags CWR PSH FIN ACK, timestamps.
 */
static const char tcp4[] = "4502004dfffe4000400626a80a0000010a00000203e807d0fffffff80a0b0c0d"
                           "809912348fe600000101080a01020304050607086162636465666768696a6b6c"
                           "6d6e6f70717273747576777879";
static const char *const tcp4_by_10[] = {
    "4502003efffe4000400626b70a0000010a00000203e807d0fffffff80a0b0c0d"
    "80901234232000000101080a01020304050607086162636465666768696a",
    "4502003effff4000400626b60a0000010a00000203e807d0000000020a0b0c0d"
    "80101234f16400000101080a01020304050607086b6c6d6e6f7071727374",
    "4502003900004000400626bb0a0000010a00000203e807d00000000c0a0b0c0d"
    "80191234b89900000101080a01020304050607087576777879",
};
/* fd00::1 -> fd00::2, traffic class 2, flow label abcde; PSH ACK. */
static const char tcp6[] = "602abcde002d0640fd000000000000000000000000000001fd00000000000000"
                           "000000000000000203e807d0000000050a0b0c0d50181234f384000061626364"
                           "65666768696a6b6c6d6e6f70717273747576777879";
static const char *const tcp6_by_20[] = {
    "602abcde00280640fd000000000000000000000000000001fd00000000000000"
    "000000000000000203e807d0000000050a0b0c0d501012345981000061626364"
    "65666768696a6b6c6d6e6f7071727374",
    "602abcde00190640fd000000000000000000000000000001fd00000000000000"
    "000000000000000203e807d0000000190a0b0c0d501812341bb7000075767778"
    "79",
};
static const char udp4[] = "4500003500070000401166af0a0000010a00000203e807d0002151d061626364"
                           "65666768696a6b6c6d6e6f70717273747576777879";
static const char *const udp4_by_16[] = {
    "4500002c00070000401166b80a0000010a00000203e807d000189cb861626364"
    "65666768696a6b6c6d6e6f70",
    "4500002500080000401166be0a0000010a00000203e807d00011953b71727374"
    "7576777879",
};
static const char udp6[] = "602abcde00211140fd000000000000000000000000000001fd00000000000000"
                           "000000000000000203e807d000216bce6162636465666768696a6b6c6d6e6f70"
                           "717273747576777879";
static const char *const udp6_by_16[] = {
    "602abcde00181140fd000000000000000000000000000001fd00000000000000"
    "000000000000000203e807d00018b6b66162636465666768696a6b6c6d6e6f70",
    "602abcde00111140fd000000000000000000000000000001fd00000000000000"
    "000000000000000203e807d00011af39717273747576777879",
};
/* Behind a hop-by-hop header and a routing header of type 2, whose address fd00::9 is the one in
 * the pseudo header. */
static const char routed[] = "602abcde00410040fd000000000000000000000000000001fd00000000000000"
                             "00000000000000022b000104000000001102020100000000fd00000000000000"
                             "000000000000000903e807d000216bc76162636465666768696a6b6c6d6e6f70"
                             "717273747576777879";
static const char *const routed_by_16[] = {
    "602abcde00380040fd000000000000000000000000000001fd00000000000000"
    "00000000000000022b000104000000001102020100000000fd00000000000000"
    "000000000000000903e807d00018b6af6162636465666768696a6b6c6d6e6f70",
    "602abcde00310040fd000000000000000000000000000001fd00000000000000"
    "00000000000000022b000104000000001102020100000000fd00000000000000"
    "000000000000000903e807d00011af32717273747576777879",
};

struct kind {
    const char *whole;
    const char *const *segments;
    int n;
    uint8_t type;
    uint16_t size, start, offset;
};

static const struct kind kinds[] = {
    {tcp4, tcp4_by_10, 3, TCP4 | ECN, 10, 20, 16}, {tcp6, tcp6_by_20, 2, TCP6, 20, 40, 16},
    {udp4, udp4_by_16, 2, UDP, 16, 20, 6},         {udp6, udp6_by_16, 2, UDP, 16, 40, 6},
    {routed, routed_by_16, 2, UDP, 16, 72, 6},
};
enum { KINDS = sizeof kinds / sizeof *kinds, MTU = 2044 };

static struct frame super_frame(const struct kind *kind)
{
    struct frame frame = frame_of_hex(kind->whole);
    /* hdr_len is wrong, and the code must not trust it. */
    frame_ask_segments(frame, kind->type, 0xFFFF, kind->size, kind->start, kind->offset);
    return frame;
}

/* Returns the next segment in one piece, in memory of exactly its length. */
static struct frame next_segment(struct ipu_segment *segment)
{
    uint8_t *head = malloc(segment->head_len);
    const uint8_t *payload;
    CHECK(head);
    uint32_t n = ipu_segment_next(segment, head, &payload);
    struct frame whole = frame_new(head, segment->head_len);
    whole.len += n;
    whole.bytes = realloc(whole.bytes, whole.len);
    CHECK(whole.bytes);
    memcpy(whole.bytes + whole.len - n, payload, n);
    free(head);
    return whole;
}

static void check_segments(struct ipu_segment *segment, const char *const *wanted, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_EQ(segment->left, n - i);
        struct frame got = next_segment(segment);
        check_hex(frame_ip(got), got.len - IPU_VNET_LEN, wanted[i]);
        free(got.bytes);
    }
    CHECK_EQ(segment->left, 0);
}

static void every_kind_is_cut_into_the_packets_that_scapy_makes(void)
{
    for (int i = 0; i < KINDS; i++) {
        struct ipu_segment segment;
        struct frame frame = super_frame(&kinds[i]);
        CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), 0);
        check_segments(&segment, kinds[i].segments, kinds[i].n);
        free(frame.bytes);
    }
}

/* A fabric may make the packets in any order, and each of them again. */
static void a_fabric_that_cuts_makes_the_same_packets(void)
{
    for (int i = 0; i < KINDS; i++) {
        struct ipu_segment segment;
        struct frame frame = super_frame(&kinds[i]);
        CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), 0);
        memcpy(frame_ip(frame) - IPU_ENCAP_LEN, "ENCP", IPU_ENCAP_LEN);
        struct ipu_cut cut = ipu_segment_cut(&segment);
        CHECK_EQ(cut.packets, kinds[i].n);
        CHECK_EQ(cut.size_bytes, kinds[i].size);
        for (int k = 2 * kinds[i].n - 1; k >= 0; k--) {
            uint32_t number = (uint32_t)(k % kinds[i].n);
            size_t len = strlen(kinds[i].segments[number]) / 2;
            uint8_t *made = malloc(IPU_ENCAP_LEN + len); /* exact, so that a byte too far shows */
            CHECK(made != NULL);
            CHECK_EQ(cut.make(cut.context, number, made), IPU_ENCAP_LEN + len);
            CHECK(memcmp(made, "ENCP", IPU_ENCAP_LEN) == 0);
            check_hex(made + IPU_ENCAP_LEN, len, kinds[i].segments[number]);
            free(made);
        }
        free(frame.bytes);
    }
}

static void tcp_is_cut_finer_for_a_smaller_mtu_and_udp_is_not(void)
{
    struct ipu_segment segment;
    struct frame frame = super_frame(&kinds[0]);
    struct virtio_net_hdr vnet = ipu_vnet_read(frame.bytes);
    vnet.gso_size = 1000;
    ipu_vnet_write(frame.bytes, vnet);
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), 0);
    CHECK_EQ(segment.left, 1);
    CHECK_EQ(ipu_segment_fit(&segment, 52), -EMSGSIZE); /* headers alone */
    CHECK_EQ(ipu_segment_fit(&segment, 62), 0);
    check_segments(&segment, tcp4_by_10, 3);
    free(frame.bytes);

    frame = super_frame(&kinds[2]);
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, 28 + 15), -EMSGSIZE);
    CHECK_EQ(segment.left, 0);
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, 28 + 16), 0);
    CHECK_EQ(ipu_segment_fit(&segment, 28 + 15), -EMSGSIZE);
    check_segments(&segment, udp4_by_16, 2); /* nothing has changed */
    free(frame.bytes);
}

/* The kernel's segment size stays, although a larger one fits. */
static void a_segment_size_that_fits_is_kept(void)
{
    struct ipu_segment segment;
    struct frame frame = super_frame(&kinds[0]);
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, 65535), 0);
    CHECK_EQ(segment.size_bytes, 10);
    free(frame.bytes);
}

static void a_trimmed_frame_is_its_own_first_segment(void)
{
    for (int i = 0; i < KINDS; i++) {
        struct ipu_segment segment;
        struct frame frame = super_frame(&kinds[i]);
        CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), 0);
        size_t len = ipu_segment_trim(&segment);
        check_hex(frame_ip(frame), len, kinds[i].segments[0]);
        CHECK_EQ(segment.left, 0);
        free(frame.bytes);
    }
}

static void a_frame_that_is_one_segment_stays_as_it_is(void)
{
    for (int i = 0; i < KINDS; i++) {
        struct ipu_segment segment;
        struct frame frame = super_frame(&kinds[i]);
        struct virtio_net_hdr vnet = ipu_vnet_read(frame.bytes);
        vnet.gso_size = 25;
        ipu_vnet_write(frame.bytes, vnet);
        CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), 0);
        check_segments(&segment, &kinds[i].whole, 1);
        free(frame.bytes);
    }
}

static void a_udp_checksum_of_zero_is_sent_as_all_ones(void)
{
    struct ipu_segment segment;
    struct frame frame = super_frame(&kinds[2]);
    uint16_t csum;
    memcpy(&csum, (uint8_t[]){0x9c, 0xb8}, 2); /* of the first segment */
    /* Added to the payload, in the place of the two bytes "op", it makes the sum -0. */
    uint16_t word;
    memcpy(&word, frame_ip(frame) + 28 + 14, 2);
    uint16_t changed = (uint16_t)~ipu_csum_finish((uint64_t)word + csum);
    memcpy(frame_ip(frame) + 28 + 14, &changed, 2);
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), 0);
    struct frame got = next_segment(&segment);
    CHECK_EQ(frame_ip(got)[26], 0xFF);
    CHECK_EQ(frame_ip(got)[27], 0xFF);
    free(got.bytes);
    free(frame.bytes);
}

static void the_longest_packet_is_cut_to_the_last_byte(void)
{
    enum { LEN = 65535, HEAD = 40, SIZE = 2004 };
    static uint8_t packet[LEN] = {0x45, 0, 0xFF, 0xFF, [8] = 64, 6, [32] = 0x50, 0x18};
    uint64_t random = 1;
    for (int i = HEAD; i < LEN; i++)
        packet[i] = (uint8_t)ipu_random_next(&random);
    struct frame frame = frame_new(packet, LEN);
    frame_ask_segments(frame, TCP4, HEAD, SIZE, 20, 16);
    struct ipu_segment segment;
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), 0);
    uint32_t at = 0, count = segment.left;
    CHECK_EQ(count, 33);
    for (uint32_t i = 0; i < count; i++) {
        struct frame got = next_segment(&segment);
        uint8_t *ip = frame_ip(got);
        size_t len = got.len - IPU_VNET_LEN;
        uint32_t seq;
        memcpy(&seq, ip + 24, 4);
        CHECK_EQ(ntohl(seq), at);
        CHECK_EQ(ip[4] << 8 | ip[5], i);
        CHECK_EQ(ip[33], i == count - 1 ? 0x18 : 0x10);
        CHECK(memcmp(ip + HEAD, packet + HEAD + at, len - HEAD) == 0);
        at += (uint32_t)(len - HEAD);
        free(got.bytes);
    }
    CHECK_EQ(at, LEN - HEAD);
    free(frame.bytes);
}

/* One changed byte of one frame, which must not be cut then. at < 0: in the vnet header. */
struct spoiled {
    int kind;
    int at;
    uint8_t value;
};

enum {
    FLAGS = -16,
    TYPE = -15,
    SIZE_LOW = -12,
    START_LOW = -10,
    START_HIGH = -9,
    OFFSET_LOW = -8,
    OFFSET_HIGH = -7,
};

static const struct spoiled spoiled[] = {
    {0, FLAGS, 0},   /* no checksum asked for */
    {0, TYPE, TCP6}, /* the other IP version */
    {0, TYPE, UDP},  /* the other transport */
    {2, TYPE, TCP4}, /* */
    {2, TYPE, UDP | ECN},
    {2, TYPE, VIRTIO_NET_HDR_GSO_UDP}, /* fragments */
    {1, TYPE, TCP4},
    {0, TYPE, 0x7F},
    {0, TYPE, ECN},
    {0, SIZE_LOW, 0},
    {0, START_LOW, 0},
    {0, START_LOW, 19},
    {0, START_LOW, 24},
    {0, START_HIGH, 0xFF},
    {0, OFFSET_LOW, 6},
    {0, OFFSET_HIGH, 1},
    {2, OFFSET_LOW, 16},
    {0, 0, 0x55}, /* IP version */
    {0, 0, 0x44}, /* a header of 16 bytes */
    {0, 0, 0x46}, /* options where the transport header was */
    {0, 0, 0x4F},
    {0, 2, 0x01}, /* total length */
    {0, 3, 0x4E},
    {0, 3, 0x4C},
    {0, 6, 0x20}, /* more fragments */
    {0, 7, 0x01}, /* fragment offset */
    {0, 9, 17},   /* protocol */
    {0, 9, 1},
    {0, 32, 0x40}, /* data offset below 20 bytes */
    {2, 25, 0x20}, /* UDP length */
    {2, 25, 0x22},
    {1, 0, 0x40},
    {1, 5, 0x2E},  /* payload length */
    {1, 6, 0},     /* TCP becomes a hop-by-hop header */
    {1, 6, 44},    /* a fragment header */
    {1, 6, 50},    /* ESP */
    {4, 41, 0xFF}, /* an extension header beyond the end */
    {4, 49, 0xFF},
    {4, 48, 6},
};

static void what_does_not_fit_together_is_refused(void)
{
    for (size_t i = 0; i < sizeof spoiled / sizeof *spoiled; i++) {
        struct frame frame = super_frame(&kinds[spoiled[i].kind]);
        struct ipu_segment segment;
        uint8_t *at = frame_ip(frame) + spoiled[i].at;
        CHECK(*at != spoiled[i].value);
        *at = spoiled[i].value;
        int result = ipu_segment_init(&segment, frame.bytes, frame.len, MTU);
        if (result != -EINVAL)
            fprintf(stderr, "spoiled[%zu] is not refused\n", i);
        CHECK_EQ(result, -EINVAL);
        free(frame.bytes);
    }
}

static void a_tcp_header_beyond_the_packet_is_refused(void)
{
    /* 24 bytes of transport header in a packet that has 20 of them, then 20 in 19. */
    struct frame frame = frame_of_hex("450000280000400040060000"
                                      "0a0000010a000002"
                                      "03e807d0000000000000000060101234000000"
                                      "00");
    struct ipu_segment segment;
    frame_ask_segments(frame, TCP4, 40, 10, 20, 16);
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), -EINVAL);
    frame_ip(frame)[32] = 0x50;
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), 0);
    CHECK_EQ(segment.left, 1); /* no payload: one packet all the same */
    frame_ip(frame)[3] = 0x27;
    CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len - 1, MTU), -EINVAL);
    free(frame.bytes);
}

static void headers_longer_than_the_room_for_them_are_refused(void)
{
    /* Destination options of 8 * (1 + n) bytes, then UDP. */
    for (uint32_t n = 0; n < 40; n++) {
        uint8_t packet[40 + 8 * 41 + 8 + 20] = {0x60, [6] = 60, 64};
        uint32_t start = 40 + 8 * (n + 1), len = start + 8 + 20;
        packet[4] = (uint8_t)((len - 40) >> 8);
        packet[5] = (uint8_t)(len - 40);
        packet[40] = 17;
        packet[41] = (uint8_t)n;
        packet[start + 5] = 28;
        struct frame frame = frame_new(packet, len);
        frame_ask_segments(frame, UDP, 0, 10, (uint16_t)start, 6);
        struct ipu_segment segment;
        bool fits = start + 8 <= IPU_SEGMENT_HEAD_MAX;
        CHECK_EQ(ipu_segment_init(&segment, frame.bytes, frame.len, MTU), fits ? 0 : -EINVAL);
        free(frame.bytes);
    }
}

static void frames_cut_short_are_refused(void)
{
    for (int i = 0; i < KINDS; i++) {
        struct frame whole = super_frame(&kinds[i]);
        for (size_t len = 0; len < whole.len; len++) {
            uint8_t *bytes = malloc(len ? len : 1);
            struct ipu_segment segment;
            CHECK(bytes);
            memcpy(bytes, whole.bytes, len);
            CHECK_EQ(ipu_segment_init(&segment, bytes, len, MTU), -EINVAL);
            free(bytes);
        }
        free(whole.bytes);
    }
}

static uint32_t transport_of(const uint8_t *ip, const struct ipu_segment *segment)
{
    return ip[0] >> 4 == 4 ? (ip[0] & 15u) * 4 : segment->start;
}

/* Cuts every accepted frame: its packets must fit, be whole and have the right lengths. */
static void cut_all(struct ipu_segment *segment, const struct frame *frame, uint32_t mtu)
{
    uint32_t payload = 0, total = segment->packet_len - segment->head_len;
    uint32_t count = segment->left;
    CHECK(count > 0 && segment->head_len <= IPU_SEGMENT_HEAD_MAX);
    CHECK(segment->head_len <= frame->len - IPU_VNET_LEN);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_EQ(segment->left, count - i);
        struct frame got = next_segment(segment);
        const uint8_t *ip = frame_ip(got);
        size_t len = got.len - IPU_VNET_LEN;
        CHECK(len <= mtu);
        CHECK_EQ(ip[0] >> 4 == 4 ? ip[2] << 8 | ip[3] : 40 + (ip[4] << 8 | ip[5]), len);
        CHECK_EQ(transport_of(ip, segment), segment->start);
        if (ip[0] >> 4 == 4)
            CHECK_EQ(ipu_csum_finish(ipu_csum_add(0, ip, segment->start)), 0);
        CHECK(memcmp(ip + segment->head_len, segment->ip + segment->head_len + payload,
                     len - segment->head_len) == 0);
        payload += (uint32_t)len - segment->head_len;
        free(got.bytes);
    }
    CHECK_EQ(payload, total);
}

static void frames_with_random_bytes_changed_never_reach_outside(void)
{
    uint64_t random = 7;
    int accepted = 0;
    for (int i = 0; i < 200000; i++) {
        struct frame frame = super_frame(&kinds[ipu_random_below(&random, KINDS)]);
        uint32_t changes = 1 + ipu_random_below(&random, 3);
        for (uint32_t j = 0; j < changes; j++) {
            /* The vnet header and the IP and transport headers much more often than the rest. */
            uint32_t reach = ipu_random_below(&random, 2) ? 16 : (uint32_t)frame.len;
            uint8_t *at = frame.bytes + ipu_random_below(&random, reach);
            *at = ipu_random_below(&random, 2) ? (uint8_t)ipu_random_next(&random)
                                               : (uint8_t)(*at + ipu_random_below(&random, 5) - 2);
        }
        uint32_t mtu = ipu_random_below(&random, 200);
        struct ipu_segment segment;
        int result = ipu_segment_init(&segment, frame.bytes, frame.len, mtu);
        CHECK(result == 0 || result == -EINVAL || result == -EMSGSIZE);
        if (result == 0) {
            accepted++;
            cut_all(&segment, &frame, mtu);
        }
        free(frame.bytes);
    }
    CHECK(accepted > 1000);
}

static void random_bytes_never_reach_outside(void)
{
    uint64_t random = 11;
    for (int i = 0; i < 200000; i++) {
        size_t len = ipu_random_below(&random, 160);
        uint8_t *bytes = malloc(len ? len : 1);
        CHECK(bytes);
        for (size_t j = 0; j < len; j++)
            bytes[j] = (uint8_t)ipu_random_next(&random);
        struct ipu_segment segment;
        struct frame frame = {bytes, len};
        if (ipu_segment_init(&segment, bytes, len, MTU) == 0)
            cut_all(&segment, &frame, MTU);
        free(bytes);
    }
}

int main(void)
{
    RUN(every_kind_is_cut_into_the_packets_that_scapy_makes);
    RUN(a_fabric_that_cuts_makes_the_same_packets);
    RUN(tcp_is_cut_finer_for_a_smaller_mtu_and_udp_is_not);
    RUN(a_segment_size_that_fits_is_kept);
    RUN(a_trimmed_frame_is_its_own_first_segment);
    RUN(a_frame_that_is_one_segment_stays_as_it_is);
    RUN(a_udp_checksum_of_zero_is_sent_as_all_ones);
    RUN(the_longest_packet_is_cut_to_the_last_byte);
    RUN(what_does_not_fit_together_is_refused);
    RUN(a_tcp_header_beyond_the_packet_is_refused);
    RUN(headers_longer_than_the_room_for_them_are_refused);
    RUN(frames_cut_short_are_refused);
    RUN(frames_with_random_bytes_changed_never_reach_outside);
    RUN(random_bytes_never_reach_outside);
}
