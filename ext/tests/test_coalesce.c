/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "segment_frames.h"
#include "core/csum.h"
#include "core/random.h"
#include "pump/coalesce.h"
#include "pump/segment.h"

enum { BOTH = IPU_COALESCE_TCP | IPU_COALESCE_UDP };
enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32, ECE = 64, CWR = 128 };

/* ---- frames that come out
 * -------------------------------------------------------------------------- */

enum { OUT_MAX = 4096 };

static struct {
    struct frame frames[OUT_MAX];
    uint32_t packets[OUT_MAX];
    int n;
} out;

static void collect(void *context, const struct iovec *iov, uint32_t packets, size_t bytes)
{
    size_t len = 0, headers = 0;
    CHECK(context == &out);
    CHECK(out.n < OUT_MAX);
    for (uint32_t i = 0; i < packets; i++)
        len += iov[i].iov_len;
    struct frame frame = {malloc(len), len};
    CHECK(frame.bytes);
    len = 0;
    for (uint32_t i = 0; i < packets; i++) {
        memcpy(frame.bytes + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    if (packets > 1)
        headers = ipu_vnet_read(frame.bytes).hdr_len;
    CHECK_EQ(bytes, len - IPU_VNET_LEN + (packets - 1) * headers);
    out.packets[out.n] = packets;
    out.frames[out.n++] = frame;
}

/* Refuses what is not merged of the senders from `refused` on. */
static uint32_t refused = UINT32_MAX;

static bool admit(void *context, uint32_t sender, uint32_t packets)
{
    CHECK(context == &out);
    return packets > 1 || sender < refused;
}

static void forget(void)
{
    while (out.n > 0)
        free(out.frames[--out.n].bytes);
}

/* ---- packets that go in
 * ---------------------------------------------------------------------------- */

struct tcp {
    bool v6;
    uint16_t id; /* without DF */
    bool df;
    uint8_t tos, ttl;
    uint16_t port;
    uint32_t seq, ack;
    uint8_t flags;
    uint16_t window, urgent;
    uint32_t timestamp; /* 0: no options */
    uint32_t payload;
};

/* Given fields replace the usual ones. */
#pragma GCC diagnostic ignored "-Woverride-init"
#define TCP(...) ((struct tcp){.ttl = 64, .port = 1000, .flags = ACK, .window = 500, __VA_ARGS__})

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xFFFF);
}

static void complete(uint8_t *ip, uint32_t len, uint32_t offset)
{
    bool v4 = ip[0] >> 4 == 4;
    uint32_t start = v4 ? 20 : 40;
    uint16_t csum;
    if (v4) {
        put16(ip + 10, 0);
        csum = ipu_csum_finish(ipu_csum_add(0, ip, 20));
        memcpy(ip + 10, &csum, 2);
    }
    put16(ip + start + offset, 0);
    uint64_t sum = ipu_csum_pseudo(ip, v4 ? ip[9] : ip[6], len - start);
    csum = ipu_csum_finish(ipu_csum_add(sum, ip + start, len - start));
    memcpy(ip + start + offset, &csum, 2);
}

/* The IP header; returns its length. */
static uint32_t put_ip(uint8_t *ip, bool v6, uint32_t len, uint8_t protocol)
{
    if (v6) {
        put32(ip, 0x60000000);
        put16(ip + 4, len - 40);
        ip[6] = protocol;
        ip[7] = 64;
        ip[8] = ip[24] = 0xFD;
        ip[23] = 1;
        ip[39] = 2;
        return 40;
    }
    ip[0] = 0x45;
    put16(ip + 2, len);
    ip[8] = 64;
    ip[9] = protocol;
    put32(ip + 12, 0x0A000001);
    put32(ip + 16, 0x0A000002);
    return 20;
}

/* The payload at sequence number s is the byte s, so that wrong merges show. */
static struct frame tcp_packet(struct tcp tcp)
{
    uint32_t header = tcp.timestamp ? 32 : 20;
    uint32_t start = tcp.v6 ? 40 : 20;
    uint32_t len = start + header + tcp.payload;
    struct frame frame = frame_new(NULL, 0);
    frame.bytes = realloc(frame.bytes, IPU_VNET_LEN + len);
    CHECK(frame.bytes);
    frame.len = IPU_VNET_LEN + len;
    memset(frame.bytes, 0xEE, IPU_VNET_LEN);
    uint8_t *ip = frame_ip(frame);
    memset(ip, 0, len);
    put_ip(ip, tcp.v6, len, 6);
    if (tcp.v6) {
        put32(ip, 0x60000000 | (uint32_t)tcp.tos << 20);
        ip[7] = tcp.ttl;
    } else {
        ip[1] = tcp.tos;
        put16(ip + 4, tcp.id);
        put16(ip + 6, tcp.df ? 0x4000 : 0);
        ip[8] = tcp.ttl;
    }
    uint8_t *at = ip + start;
    put16(at, tcp.port);
    put16(at + 2, 2000);
    put32(at + 4, tcp.seq);
    put32(at + 8, tcp.ack);
    at[12] = (uint8_t)(header / 4 << 4);
    at[13] = tcp.flags;
    put16(at + 14, tcp.window);
    put16(at + 18, tcp.urgent);
    if (tcp.timestamp) {
        put32(at + 20, 0x0101080A);
        put32(at + 24, tcp.timestamp);
    }
    for (uint32_t i = 0; i < tcp.payload; i++)
        at[header + i] = (uint8_t)(tcp.seq + i);
    complete(ip, len, 16);
    return frame;
}

static struct frame udp_packet(bool v6, uint16_t id, uint16_t port, uint32_t payload)
{
    uint32_t start = v6 ? 40 : 20, len = start + 8 + payload;
    struct frame frame = frame_new(NULL, 0);
    frame.bytes = realloc(frame.bytes, IPU_VNET_LEN + len);
    CHECK(frame.bytes);
    frame.len = IPU_VNET_LEN + len;
    uint8_t *ip = frame_ip(frame);
    memset(ip, 0, len);
    put_ip(ip, v6, len, 17);
    if (!v6)
        put16(ip + 4, id);
    put16(ip + start, port);
    put16(ip + start + 2, 2000);
    put16(ip + start + 4, 8 + payload);
    for (uint32_t i = 0; i < payload; i++)
        ip[start + 8 + i] = (uint8_t)(id + i);
    complete(ip, len, 6);
    return frame;
}

/* Packets that go through as one batch. */
struct batch {
    struct frame frames[512];
    int n;
};

static void put(struct batch *batch, struct frame frame)
{
    CHECK(batch->n < 512);
    batch->frames[batch->n++] = frame;
}

static void run(struct batch *batch, uint32_t kinds)
{
    static struct ipu_coalesce coalesce;
    forget();
    ipu_coalesce_init(&coalesce, kinds, collect, admit, &out);
    for (int i = 0; i < batch->n; i++)
        ipu_coalesce_add_untrusted(&coalesce, 0, frame_ip(batch->frames[i]),
                                   batch->frames[i].len - IPU_VNET_LEN);
    ipu_coalesce_flush(&coalesce);
    while (batch->n > 0)
        free(batch->frames[--batch->n].bytes);
}

/* ---- one frame, every field ------------------------------------------------------------------ */

static void three_segments_become_the_frame_that_they_were_cut_from(void)
{
    /* Made by scapy: DF, ECT, timestamps, ids fffe, ffff, 0; the last is shorter, with PSH. */
    static const char *const segments[] = {
        "4502003efffe4000400626b70a0000010a00000203e807d0fffffff80a0b0c0d"
        "8010123423a000000101080a01020304050607086162636465666768696a",
        "4502003effff4000400626b60a0000010a00000203e807d0000000020a0b0c0d"
        "80101234f16400000101080a01020304050607086b6c6d6e6f7071727374",
        "4502003900004000400626bb0a0000010a00000203e807d00000000c0a0b0c0d"
        "80181234b89a00000101080a01020304050607087576777879",
    };
    struct batch batch = {.n = 0};
    for (int i = 0; i < 3; i++)
        put(&batch, frame_of_hex(segments[i]));
    /* As a receive leaves it: any bytes may be in front. */
    memset(batch.frames[0].bytes, 0xEE, IPU_VNET_LEN);
    run(&batch, BOTH);
    CHECK_EQ(out.n, 1);
    CHECK_EQ(out.packets[0], 3);
    struct virtio_net_hdr vnet = ipu_vnet_read(out.frames[0].bytes);
    CHECK_EQ(vnet.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
    CHECK_EQ(vnet.gso_type, VIRTIO_NET_HDR_GSO_TCPV4);
    CHECK_EQ(vnet.hdr_len, 52);
    CHECK_EQ(vnet.gso_size, 10);
    CHECK_EQ(vnet.csum_start, 20);
    CHECK_EQ(vnet.csum_offset, 16);
    for (uint32_t i = sizeof vnet; i < IPU_VNET_LEN; i++)
        CHECK_EQ(out.frames[0].bytes[i], 0);
    /* Length 77, header checksum as scapy has it; in the checksum field the pseudo header:
     * 0a00 + 0001 + 0a00 + 0002 + 0006 + 57 bytes = 1442. */
    check_hex(frame_ip(out.frames[0]), out.frames[0].len - IPU_VNET_LEN,
              "4502004dfffe4000400626a80a0000010a00000203e807d0fffffff80a0b0c0d"
              "80181234144200000101080a01020304050607086162636465666768696a6b6c"
              "6d6e6f70717273747576777879");
}

static void datagrams_of_one_size_become_a_udp_frame(void)
{
    static const char *const datagrams[] = {
        "4500002c00070000401166b80a0000010a00000203e807d000189cb861626364"
        "65666768696a6b6c6d6e6f70",
        "4500002500080000401166be0a0000010a00000203e807d00011953b71727374"
        "7576777879",
    };
    struct batch batch = {.n = 0};
    for (int i = 0; i < 2; i++)
        put(&batch, frame_of_hex(datagrams[i]));
    run(&batch, BOTH);
    CHECK_EQ(out.n, 1);
    struct virtio_net_hdr vnet = ipu_vnet_read(out.frames[0].bytes);
    CHECK_EQ(vnet.flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
    CHECK_EQ(vnet.gso_type, 5); /* VIRTIO_NET_HDR_GSO_UDP_L4 */
    CHECK_EQ(vnet.hdr_len, 28);
    CHECK_EQ(vnet.gso_size, 16);
    CHECK_EQ(vnet.csum_start, 20);
    CHECK_EQ(vnet.csum_offset, 6);
    /* 0a00 + 0001 + 0a00 + 0002 + 0011 + 33 bytes = 1435 */
    check_hex(frame_ip(out.frames[0]), out.frames[0].len - IPU_VNET_LEN,
              "4500003500070000401166af0a0000010a00000203e807d00021143561626364"
              "65666768696a6b6c6d6e6f70717273747576777879");
}

static void ipv6_frames_have_the_type_and_length_of_ipv6(void)
{
    struct batch batch = {.n = 0};
    for (uint32_t i = 0; i < 3; i++)
        put(&batch, tcp_packet(TCP(.v6 = true, .seq = 100 * i, .payload = 100)));
    for (uint16_t i = 0; i < 3; i++)
        put(&batch, udp_packet(true, i, 1000, 100));
    run(&batch, BOTH);
    CHECK_EQ(out.n, 2);
    CHECK_EQ(ipu_vnet_read(out.frames[0].bytes).gso_type, VIRTIO_NET_HDR_GSO_TCPV6);
    CHECK_EQ(ipu_vnet_read(out.frames[0].bytes).csum_start, 40);
    CHECK_EQ(ipu_vnet_read(out.frames[0].bytes).hdr_len, 60);
    CHECK_EQ(frame_ip(out.frames[0])[4] << 8 | frame_ip(out.frames[0])[5], 320);
    CHECK_EQ(ipu_vnet_read(out.frames[1].bytes).gso_type, VIRTIO_NET_HDR_GSO_UDP_L4);
    CHECK_EQ(frame_ip(out.frames[1])[4] << 8 | frame_ip(out.frames[1])[5], 308);
    CHECK_EQ(frame_ip(out.frames[1])[44] << 8 | frame_ip(out.frames[1])[45], 308);
}

static void a_packet_alone_is_handed_on_as_it_came(void)
{
    struct batch batch = {.n = 0};
    struct frame packet = tcp_packet(TCP(.seq = 5, .payload = 10));
    struct frame copy = frame_new(frame_ip(packet), packet.len - IPU_VNET_LEN);
    put(&batch, packet);
    run(&batch, BOTH);
    CHECK_EQ(out.n, 1);
    CHECK_EQ(out.packets[0], 1);
    CHECK_EQ(out.frames[0].len, copy.len);
    CHECK(memcmp(out.frames[0].bytes, copy.bytes, copy.len) == 0); /* vnet: zeros */
    free(copy.bytes);
}

/* ---- the rules ------------------------------------------------------------------------------- */

/* How many frames two packets become. */
static int frames_of_two(struct tcp first, struct tcp second)
{
    struct batch batch = {.n = 0};
    put(&batch, tcp_packet(first));
    put(&batch, tcp_packet(second));
    run(&batch, BOTH);
    if (out.n == 2) /* in order, whatever the reason */
        CHECK_EQ(frame_ip(out.frames[0])[first.v6 ? 47 : 27], (uint8_t)first.seq);
    return out.n;
}

static void tcp_merges_by_all_of_the_rules_and_no_other_way(void)
{
#define FIRST(...)  TCP(.seq = 10, .payload = 10, .id = 7, __VA_ARGS__)
#define SECOND(...) TCP(.seq = 20, .payload = 10, .id = 8, __VA_ARGS__)
    CHECK_EQ(frames_of_two(FIRST(), SECOND()), 1);
    CHECK_EQ(frames_of_two(FIRST(.v6 = true), SECOND(.v6 = true)), 1);
    CHECK_EQ(frames_of_two(FIRST(.timestamp = 9), SECOND(.timestamp = 9)), 1);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.payload = 9)), 1);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.flags = ACK | PSH)), 1);
    CHECK_EQ(frames_of_two(FIRST(.tos = 2), SECOND(.tos = 2)), 1);
    CHECK_EQ(frames_of_two(FIRST(.id = 0xFFFF), SECOND(.id = 0)), 1);
    CHECK_EQ(frames_of_two(FIRST(.seq = 0xFFFFFFFB), SECOND(.seq = 5)), 1);
    CHECK_EQ(frames_of_two(FIRST(.df = true), SECOND(.df = true)), 1);
    CHECK_EQ(frames_of_two(FIRST(.df = true), SECOND(.df = true, .id = 7)), 1);

    CHECK_EQ(frames_of_two(FIRST(), SECOND(.seq = 21)), 2); /* a gap */
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.seq = 19)), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.seq = 10)), 2); /* again */
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.payload = 11)), 2);
    CHECK_EQ(frames_of_two(FIRST(.flags = ACK | PSH), SECOND()), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.ack = 1)), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.window = 501)), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.urgent = 1)), 2);
    CHECK_EQ(frames_of_two(FIRST(.timestamp = 9), SECOND(.timestamp = 10)), 2);
    CHECK_EQ(frames_of_two(FIRST(.timestamp = 9), SECOND()), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.timestamp = 9)), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.port = 1001)), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.tos = 1)), 2); /* CE */
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.ttl = 63)), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.id = 9)), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.id = 7)), 2);
    CHECK_EQ(frames_of_two(FIRST(), SECOND(.df = true)), 2);
    CHECK_EQ(frames_of_two(FIRST(.df = true), SECOND()), 2);
    CHECK_EQ(frames_of_two(FIRST(.v6 = true), SECOND(.v6 = true, .tos = 1)), 2);
    CHECK_EQ(frames_of_two(FIRST(.v6 = true), SECOND(.v6 = true, .ttl = 63)), 2);
    CHECK_EQ(frames_of_two(FIRST(.v6 = true), SECOND()), 2);

    static const uint8_t flags[] = {FIN, SYN, RST, URG, ECE, CWR};
    for (size_t i = 0; i < sizeof flags; i++) {
        CHECK_EQ(frames_of_two(FIRST(), SECOND(.flags = ACK | flags[i])), 2);
        CHECK_EQ(frames_of_two(FIRST(.flags = ACK | flags[i]), SECOND(.flags = ACK | flags[i])), 2);
    }
    CHECK_EQ(frames_of_two(FIRST(.flags = 0), SECOND(.flags = 0)), 2);
}

/* Flips each header bit of the second packet in turn: this ends the run, or leaves a packet that
 * the first one's headers describe wholly. */
static void no_bit_of_a_header_is_lost(void)
{
    for (int v6 = 0; v6 < 2; v6++) {
        uint32_t head = (v6 ? 40 : 20) + 32;
        for (uint32_t bit = 0; bit < 8 * head; bit++) {
            struct batch batch = {.n = 0};
            put(&batch, tcp_packet(TCP(.v6 = v6, .seq = 10, .payload = 10, .timestamp = 9)));
            struct frame second =
                tcp_packet(TCP(.v6 = v6, .id = 1, .seq = 20, .payload = 10, .timestamp = 9));
            uint8_t *ip = frame_ip(second);
            ip[bit / 8] ^= (uint8_t)(1u << bit % 8);
            /* The checksums stay right, so they are not the reason. */
            uint8_t before[2] = {ip[bit / 8]};
            complete(ip, (uint32_t)second.len - IPU_VNET_LEN, 16);
            bool is_csum = ip[bit / 8] != before[0];
            put(&batch, second);
            run(&batch, BOTH);
            bool is_psh = bit == 8 * (head - 32 + 13) + 3;
            CHECK_EQ(out.n, is_csum || is_psh ? 1 : 2);
        }
    }
}

static void wrong_checksums_are_the_kernels_to_see(void)
{
    for (int v6 = 0; v6 < 2; v6++) {
        uint32_t len = (v6 ? 40 : 20) + 20 + 10;
        for (uint32_t spoil = 0; spoil < len; spoil++) {
            /* Of three packets we spoil the second, then the first, at any place: the spoiled
             * packet stays alone. */
            for (int which = 0; which < 2; which++) {
                struct batch batch = {.n = 0};
                for (uint32_t i = 0; i < 3; i++)
                    put(&batch,
                        tcp_packet(TCP(.v6 = v6, .id = (uint16_t)i, .seq = 10 * i, .payload = 10)));
                struct frame bad = batch.frames[1 - which];
                frame_ip(bad)[spoil] ^= 0x04;
                struct frame copy = frame_new(frame_ip(bad), bad.len - IPU_VNET_LEN);
                run(&batch, BOTH);
                int matches = 0;
                for (int i = 0; i < out.n; i++)
                    matches += out.frames[i].len == copy.len &&
                               memcmp(out.frames[i].bytes, copy.bytes, copy.len) == 0;
                CHECK_EQ(matches, 1);
                free(copy.bytes);
            }
        }
    }
}

static void a_push_and_a_short_segment_end_the_run(void)
{
    for (int push = 0; push < 2; push++) {
        struct batch batch = {.n = 0};
        uint32_t seq = 0;
        for (uint32_t i = 0; i < 6; i++) {
            uint32_t payload = i == 2 && !push ? 5 : 10;
            uint8_t flags = (uint8_t)(i == 2 && push ? ACK | PSH : ACK);
            put(&batch,
                tcp_packet(TCP(.id = (uint16_t)i, .seq = seq, .payload = payload, .flags = flags)));
            seq += payload;
        }
        run(&batch, BOTH);
        CHECK_EQ(out.n, 2);
        CHECK_EQ(out.packets[0], 3);
        CHECK_EQ(out.packets[1], 3);
        CHECK_EQ(frame_ip(out.frames[0])[33], push ? ACK | PSH : ACK);
        CHECK_EQ(frame_ip(out.frames[1])[33], ACK);
    }
}

static void a_frame_never_exceeds_64_packets_or_65535_bytes(void)
{
    struct batch batch = {.n = 0};
    for (uint32_t i = 0; i < 150; i++)
        put(&batch, udp_packet(false, (uint16_t)i, 1000, 20));
    run(&batch, BOTH);
    CHECK_EQ(out.n, 3);
    CHECK_EQ(out.packets[0], 64);
    CHECK_EQ(out.packets[1], 64);
    CHECK_EQ(out.packets[2], 22);
    for (uint32_t i = 0; i < 40; i++)
        put(&batch, tcp_packet(TCP(.id = (uint16_t)i, .seq = 2004 * i, .payload = 2004)));
    run(&batch, BOTH);
    CHECK_EQ(out.n, 2);
    CHECK_EQ(out.packets[0], 32); /* 40 + 32 * 2004 = 64168; one more would be 66172 */
    CHECK_EQ(out.frames[0].len, IPU_VNET_LEN + 64168);
    /* To the byte: 40 + 5 * 13099 = 65535. */
    for (uint32_t more = 0; more < 2; more++) {
        for (uint32_t i = 0; i < 5; i++)
            put(&batch, tcp_packet(TCP(.id = (uint16_t)i, .seq = (13099 + more) * i,
                                       .payload = 13099 + more)));
        run(&batch, BOTH);
        CHECK_EQ(out.n, more ? 2 : 1);
    }
}

static void interleaved_flows_are_merged_each(void)
{
    struct batch batch = {.n = 0};
    for (uint32_t i = 0; i < 10; i++) {
        for (uint16_t flow = 0; flow < 4; flow++)
            put(&batch,
                tcp_packet(TCP(.v6 = flow % 2, .id = (uint16_t)i, .port = (uint16_t)(1000 + flow),
                               .seq = 10 * i, .payload = 10)));
        put(&batch, udp_packet(false, (uint16_t)i, 1000, 10));
    }
    run(&batch, BOTH);
    CHECK_EQ(out.n, 5);
    for (int i = 0; i < out.n; i++)
        CHECK_EQ(out.packets[i], 10);
}

static void more_flows_than_runs_still_all_come_out_in_their_order(void)
{
    struct batch batch = {.n = 0};
    enum { FLOWS = 2 * IPU_COALESCE_RUNS };
    uint32_t next[FLOWS] = {0};
    for (uint32_t i = 0; i < 10; i++)
        for (uint16_t flow = 0; flow < FLOWS; flow++)
            put(&batch,
                tcp_packet(TCP(.id = (uint16_t)i, .port = flow, .seq = 10 * i, .payload = 10)));
    run(&batch, BOTH);
    uint32_t total = 0;
    for (int i = 0; i < out.n; i++) {
        const uint8_t *ip = frame_ip(out.frames[i]);
        uint32_t flow = (uint32_t)(ip[20] << 8 | ip[21]);
        CHECK(flow < FLOWS);
        CHECK_EQ(ip[27], next[flow]);
        next[flow] += 10 * out.packets[i];
        total += out.packets[i];
    }
    CHECK_EQ(total, 10 * FLOWS);
}

static void control_segments_follow_the_data_before_them(void)
{
    static const struct tcp controls[] = {
        {.ttl = 64, .port = 1000, .seq = 20, .flags = ACK},
        {.ttl = 64, .port = 1000, .seq = 20, .flags = ACK | FIN},
        {.ttl = 64, .port = 1000, .seq = 20, .flags = RST},
    };
    for (int i = 0; i < 3; i++) {
        struct batch batch = {.n = 0};
        put(&batch, tcp_packet(TCP(.seq = 0, .payload = 10)));
        put(&batch, tcp_packet(TCP(.seq = 0, .payload = 10, .port = 7)));
        put(&batch, tcp_packet(TCP(.id = 1, .seq = 10, .payload = 10)));
        put(&batch, tcp_packet(controls[i]));
        put(&batch, tcp_packet(TCP(.id = 1, .seq = 10, .payload = 10, .port = 7)));
        run(&batch, BOTH);
        CHECK_EQ(out.n, 3);
        CHECK_EQ(out.packets[0], 2);
        CHECK_EQ(out.packets[1], 1); /* the control segment; the other flow goes on */
        CHECK_EQ(out.packets[2], 2);
    }
}

static void what_is_no_tcp_or_udp_stays_behind_everything_before_it(void)
{
    /* A fragment of a datagram, ICMP, IPv4 options, an IPv6 extension header, trailing bytes. */
    for (int kind = 0; kind < 5; kind++) {
        struct batch batch = {.n = 0};
        for (uint32_t i = 0; i < 2; i++) {
            put(&batch, tcp_packet(TCP(.id = (uint16_t)i, .seq = 10 * i, .payload = 10)));
            put(&batch, udp_packet(false, (uint16_t)i, 1000, 10));
        }
        struct frame other =
            kind == 3 ? udp_packet(true, 0, 1000, 10) : udp_packet(false, 2, 1000, 10);
        uint8_t *ip = frame_ip(other);
        if (kind == 0)
            ip[6] = 0x20;
        else if (kind == 1)
            ip[9] = 1;
        else if (kind == 2)
            ip[0] = 0x46;
        else if (kind == 3)
            ip[6] = 0;
        else
            ip[3]--;
        put(&batch, other);
        put(&batch, udp_packet(false, 3, 1000, 10));
        put(&batch, udp_packet(false, 4, 1000, 10));
        run(&batch, BOTH);
        CHECK_EQ(out.n, 4);
        CHECK_EQ(out.packets[0] + out.packets[1], 4);
        CHECK_EQ(out.packets[2], 1);
        CHECK_EQ(out.packets[3], 2);
    }
}

static void a_packet_that_is_not_admitted_ends_no_run(void)
{
    struct batch batch = {.n = 0};
    for (uint32_t i = 0; i < 4; i++) {
        put(&batch, tcp_packet(TCP(.id = (uint16_t)i, .seq = 10 * i, .payload = 10)));
        struct frame icmp = udp_packet(false, 2, 1000, 10);
        frame_ip(icmp)[9] = 1;
        put(&batch, icmp);
        put(&batch, udp_packet(false, (uint16_t)i, (uint16_t)(3000 + i), 10));
    }
    refused = 0;
    run(&batch, BOTH);
    refused = UINT32_MAX;
    CHECK_EQ(out.n, 1);
    CHECK_EQ(out.packets[0], 4);
}

static void udp_merges_by_its_rules(void)
{
    struct batch batch = {.n = 0};
    put(&batch, udp_packet(false, 0, 1000, 10));
    put(&batch, udp_packet(false, 1, 1000, 9)); /* shorter: ends it */
    put(&batch, udp_packet(false, 2, 1000, 9));
    put(&batch, udp_packet(false, 3, 1000, 10)); /* longer: a new one */
    put(&batch, udp_packet(false, 5, 1000, 10)); /* an id is missing */
    run(&batch, BOTH);
    CHECK_EQ(out.n, 4);
    CHECK_EQ(out.packets[0], 2);

    /* Without a checksum, with a length that is not the packet's, without payload: each alone. */
    for (int kind = 0; kind < 3; kind++) {
        for (uint16_t i = 0; i < 2; i++) {
            struct frame frame = udp_packet(false, i, 1000, kind == 2 ? 0 : 10);
            if (kind == 0)
                put16(frame_ip(frame) + 26, 0);
            else if (kind == 1)
                put16(frame_ip(frame) + 24, 17);
            put(&batch, frame);
        }
        run(&batch, BOTH);
        CHECK_EQ(out.n, 2);
    }
}

static void only_what_the_device_takes_is_merged(void)
{
    for (uint32_t kinds = 0; kinds <= BOTH; kinds++) {
        struct batch batch = {.n = 0};
        for (uint32_t i = 0; i < 2; i++) {
            put(&batch, tcp_packet(TCP(.id = (uint16_t)i, .seq = 10 * i, .payload = 10)));
            put(&batch, udp_packet(false, (uint16_t)i, 1000, 10));
        }
        run(&batch, kinds);
        CHECK_EQ(out.n,
                 4 - (kinds & IPU_COALESCE_TCP ? 1 : 0) - (kinds & IPU_COALESCE_UDP ? 1 : 0));
    }
}

/* ---- there and back -------------------------------------------------------------------------- */

static void cut_and_merged_again_a_frame_is_what_it_was(void)
{
    uint64_t random = 3;
    for (int round = 0; round < 300; round++) {
        bool v6 = ipu_random_below(&random, 2), udp = ipu_random_below(&random, 2);
        uint32_t start = v6 ? 40 : 20, head = start + (udp ? 8 : 20);
        uint32_t size = 1 + ipu_random_below(&random, 2000);
        uint32_t payload = size + 1 + ipu_random_below(&random, 63 * size);
        if (payload > 65000)
            payload = 65000;
        if (payload > 64 * size)
            payload = 64 * size;
        struct frame original =
            udp ? udp_packet(v6, (uint16_t)ipu_random_next(&random), 1000, payload)
                : tcp_packet(
                      TCP(.v6 = v6, .df = ipu_random_below(&random, 2),
                          .id = (uint16_t)ipu_random_next(&random),
                          .seq = (uint32_t)ipu_random_next(&random), .payload = payload,
                          .flags = (uint8_t)(ACK | (ipu_random_below(&random, 2) ? PSH : 0))));
        frame_ask_segments(original,
                           udp  ? VIRTIO_NET_HDR_GSO_UDP_L4
                           : v6 ? VIRTIO_NET_HDR_GSO_TCPV6
                                : VIRTIO_NET_HDR_GSO_TCPV4,
                           (uint16_t)head, (uint16_t)size, (uint16_t)start, udp ? 6 : 16);
        struct ipu_segment segment;
        struct batch batch = {.n = 0};
        CHECK_EQ(ipu_segment_init(&segment, original.bytes, original.len, 2044), 0);
        while (segment.left > 0) {
            struct frame packet = {malloc(IPU_VNET_LEN + head + size), 0};
            CHECK(packet.bytes);
            const uint8_t *data;
            uint32_t n = ipu_segment_next(&segment, frame_ip(packet), &data);
            memcpy(frame_ip(packet) + head, data, n);
            packet.len = IPU_VNET_LEN + head + n;
            put(&batch, packet);
        }
        run(&batch, BOTH);
        CHECK_EQ(out.n, 1);
        CHECK_EQ(out.frames[0].len, original.len);
        CHECK(memcmp(out.frames[0].bytes, original.bytes, original.len) == 0);
        free(original.bytes);
    }
}

enum { FLOWS = 12 };

/* The arrived packets of one flow, in order. */
static struct {
    struct frame packets[512];
    int n, seen;
} arrived[FLOWS];

static int flow_of(const uint8_t *ip)
{
    uint32_t start = ip[0] >> 4 == 4 ? 20 : 40;
    return (ip[start] << 8 | ip[start + 1]) % FLOWS;
}

static void check_next(const uint8_t *ip, size_t len)
{
    int flow = flow_of(ip);
    CHECK(arrived[flow].seen < arrived[flow].n);
    struct frame *wanted = &arrived[flow].packets[arrived[flow].seen++];
    CHECK_EQ(len, wanted->len - IPU_VNET_LEN);
    CHECK(memcmp(ip, frame_ip(*wanted), len) == 0);
    free(wanted->bytes);
}

static struct frame random_packet(uint64_t *random, uint32_t *seq, uint16_t *id)
{
    uint32_t payload = ipu_random_below(random, 10) ? 100 : ipu_random_below(random, 120);
    uint16_t flow = (uint16_t)ipu_random_below(random, FLOWS);
    bool v6 = flow % 2;
    struct frame frame;
    if (flow % 3 == 0) {
        frame = udp_packet(v6, id[flow]++, flow, payload);
    } else {
        uint8_t flags = ACK;
        if (ipu_random_below(random, 8) == 0)
            flags |= (uint8_t)(1u << ipu_random_below(random, 8));
        frame =
            tcp_packet(TCP(.v6 = v6, .id = id[flow]++, .port = flow, .seq = seq[flow],
                           .flags = flags, .timestamp = flow % 4 == 0 ? 1 : 0, .payload = payload));
        seq[flow] += payload;
    }
    /* Damaged, but still of its flow: not in the version, the protocol, the addresses, the ports.
     */
    if (ipu_random_below(random, 16) == 0)
        frame_ip(frame)[1 + ipu_random_below(random, 5)] ^=
            (uint8_t)(1u << ipu_random_below(random, 8));
    if (ipu_random_below(random, 16) == 0)
        frame.bytes[frame.len - 1] ^= 1;
    return frame;
}

/* Packets of many flows are lost, repeated, swapped and damaged: cut again, each flow is as it
 * arrived. */
static void a_terrible_stream_is_the_same_packets_in_the_same_order(void)
{
    uint64_t random = 5;
    uint32_t merged = 0;
    for (int round = 0; round < 2000; round++) {
        uint32_t seq[FLOWS] = {0};
        uint16_t id[FLOWS] = {0};
        struct batch batch = {.n = 0};
        memset(arrived, 0, sizeof arrived);
        uint32_t packets = 1 + ipu_random_below(&random, 64);
        for (uint32_t i = 0; i < packets; i++) {
            struct frame frame = random_packet(&random, seq, id);
            if (ipu_random_below(&random, 20) == 0) { /* lost */
                free(frame.bytes);
                continue;
            }
            put(&batch, frame);
            if (ipu_random_below(&random, 20) == 0)
                put(&batch, frame_new(frame_ip(frame), frame.len - IPU_VNET_LEN));
            if (batch.n > 1 && ipu_random_below(&random, 20) == 0) {
                struct frame last = batch.frames[batch.n - 1];
                batch.frames[batch.n - 1] = batch.frames[batch.n - 2];
                batch.frames[batch.n - 2] = last;
            }
        }
        for (int i = 0; i < batch.n; i++) {
            int flow = flow_of(frame_ip(batch.frames[i]));
            arrived[flow].packets[arrived[flow].n++] =
                frame_new(frame_ip(batch.frames[i]), batch.frames[i].len - IPU_VNET_LEN);
        }
        run(&batch, BOTH);
        for (int i = 0; i < out.n; i++) {
            struct ipu_segment segment;
            if (out.packets[i] == 1) {
                check_next(frame_ip(out.frames[i]), out.frames[i].len - IPU_VNET_LEN);
                continue;
            }
            merged += out.packets[i];
            CHECK_EQ(ipu_segment_init(&segment, out.frames[i].bytes, out.frames[i].len, 2044), 0);
            CHECK_EQ(segment.left, out.packets[i]);
            while (segment.left > 0) {
                uint8_t packet[2044];
                const uint8_t *data;
                uint32_t n = ipu_segment_next(&segment, packet, &data);
                memcpy(packet + segment.head_len, data, n);
                check_next(packet, segment.head_len + n);
            }
        }
        for (int flow = 0; flow < FLOWS; flow++)
            CHECK_EQ(arrived[flow].seen, arrived[flow].n);
    }
    CHECK(merged > 10000);
}

/* ---- hostile bytes --------------------------------------------------------------------------- */

static void random_packets_never_reach_outside(void)
{
    uint64_t random = 13;
    for (int round = 0; round < 4000; round++) {
        struct batch batch = {.n = 0};
        for (int i = 0; i < 30; i++) {
            bool v4 = ipu_random_below(&random, 2);
            uint32_t len = (v4 ? 20 : 40) + ipu_random_below(&random, 60);
            uint8_t bytes[128];
            for (uint32_t j = 0; j < len; j++) /* mostly alike, so that runs begin */
                bytes[j] = ipu_random_below(&random, 30) ? 0 : (uint8_t)ipu_random_next(&random);
            put_ip(bytes, !v4, ipu_random_below(&random, 8) ? len : ipu_random_below(&random, 200),
                   ipu_random_below(&random, 2) ? 6 : 17);
            uint32_t start = v4 ? 20 : 40;
            if (len > start + 13 && ipu_random_below(&random, 4)) {
                bytes[start + 12] = (uint8_t)(ipu_random_below(&random, 16) << 4);
                bytes[start + 13] = ACK;
            }
            put(&batch, frame_new(bytes, len));
        }
        run(&batch, BOTH);
        CHECK(out.n > 0);
    }
}

int main(void)
{
    RUN(three_segments_become_the_frame_that_they_were_cut_from);
    RUN(datagrams_of_one_size_become_a_udp_frame);
    RUN(ipv6_frames_have_the_type_and_length_of_ipv6);
    RUN(a_packet_alone_is_handed_on_as_it_came);
    RUN(tcp_merges_by_all_of_the_rules_and_no_other_way);
    RUN(no_bit_of_a_header_is_lost);
    RUN(wrong_checksums_are_the_kernels_to_see);
    RUN(a_push_and_a_short_segment_end_the_run);
    RUN(a_frame_never_exceeds_64_packets_or_65535_bytes);
    RUN(interleaved_flows_are_merged_each);
    RUN(more_flows_than_runs_still_all_come_out_in_their_order);
    RUN(control_segments_follow_the_data_before_them);
    RUN(what_is_no_tcp_or_udp_stays_behind_everything_before_it);
    RUN(a_packet_that_is_not_admitted_ends_no_run);
    RUN(udp_merges_by_its_rules);
    RUN(only_what_the_device_takes_is_merged);
    RUN(cut_and_merged_again_a_frame_is_what_it_was);
    RUN(a_terrible_stream_is_the_same_packets_in_the_same_order);
    RUN(random_packets_never_reach_outside);
    forget();
}
