/* SPDX-License-Identifier: BSD-2-Clause */
/* Random streams: what the merger joins is, cut again, what it was. */
#include "coalesce_frames.h"
#include "core/random.h"
#include "pump/packets/segment.h"

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
    RUN(cut_and_merged_again_a_frame_is_what_it_was);
    RUN(a_terrible_stream_is_the_same_packets_in_the_same_order);
    RUN(random_packets_never_reach_outside);
    forget();
}
