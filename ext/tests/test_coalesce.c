/* SPDX-License-Identifier: BSD-2-Clause */
/* The rules by which packets become one frame. */
#include "coalesce_frames.h"

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
    /* A receive may leave any bytes in front. */
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
    forget();
}
