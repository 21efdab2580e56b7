/* SPDX-License-Identifier: BSD-2-Clause */
/* The MSS by which a TCP connection begins. */
#include "coalesce_frames.h"
#include "pump/packets/mss.h"

enum { MOST = 1976, LESS = 1460 };

/* A segment with these options, which has a right checksum. */
static struct frame segment(bool v6, uint8_t flags, const uint8_t *options, uint32_t len)
{
    struct frame frame = tcp_packet(TCP(.v6 = v6, .flags = flags, .payload = len));
    uint8_t *ip = frame_ip(frame), *tcp = ip + (v6 ? 40 : 20);
    memcpy(tcp + 20, options, len);
    tcp[12] = (uint8_t)((20 + len) / 4 << 4);
    complete(ip, (uint32_t)frame.len - IPU_VNET_LEN, 16);
    return frame;
}

/* Lowers it; returns whether the segment is another one now. */
static bool lowered(bool v6, uint8_t flags, const uint8_t *options, uint32_t len, uint8_t *after)
{
    struct frame frame = segment(v6, flags, options, len);
    uint8_t *tcp = frame_ip(frame) + (v6 ? 40 : 20);
    struct frame before = frame_new(frame.bytes, frame.len);
    ipu_mss_lower_untrusted(tcp, 20 + len, MOST);
    bool changed = memcmp(frame_ip(before), frame.bytes, frame.len) != 0;
    memcpy(after, tcp + 20, len);
    uint16_t csum;
    memcpy(&csum, tcp + 16, 2);
    complete(frame_ip(frame), (uint32_t)frame.len - IPU_VNET_LEN, 16);
    CHECK_EQ(memcmp(&csum, tcp + 16, 2), 0);
    free(frame.bytes);
    free(before.bytes);
    return changed;
}

static void a_longer_mss_is_lowered_wherever_it_stands(void)
{
    static const uint8_t first[] = {2, 4, 0x07, 0xC8, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t odd[] = {1, 2, 4, 0xFF, 0xFF, 3, 3, 7};
    static const uint8_t twice[] = {2, 4, 0x01, 0x00, 2, 4, 0x10, 0x00};
    uint8_t after[40];
    for (int v6 = 0; v6 < 2; v6++) {
        CHECK(lowered(v6, SYN, first, sizeof first, after));
        CHECK(after[2] == MOST >> 8 && after[3] == (MOST & 255));
        CHECK(lowered(v6, SYN | ACK | ECE, odd, sizeof odd, after));
        CHECK(after[3] == MOST >> 8 && after[4] == (MOST & 255));
        CHECK(lowered(v6, SYN, twice, sizeof twice, after)); /* the last one counts */
        CHECK(after[6] == MOST >> 8 && after[2] == 1);
    }
}

static void every_value_keeps_the_checksum_right(void)
{
    uint8_t options[8] = {1, 1, 1, 1, 0, 0, 0, 0}, after[8];
    for (uint32_t at = 0; at < 5; at++)
        for (uint32_t value = 0; value <= 0xFFFF; value += 7) {
            memset(options, 1, sizeof options);
            options[at] = 2;
            options[at + 1] = 4;
            put16(options + at + 2, value);
            CHECK_EQ(lowered(false, SYN, options, sizeof options, after), value > MOST);
        }
}

static void what_names_no_longer_mss_stays_as_it_is(void)
{
    static const struct {
        uint8_t flags;
        uint8_t options[8];
    } kept[] = {
        {SYN, {2, 4, LESS >> 8, LESS & 255, 1, 1, 1, 1}},
        {SYN, {2, 4, MOST >> 8, MOST & 255, 1, 1, 1, 1}},
        {ACK, {2, 4, 0xFF, 0xFF, 1, 1, 1, 1}},
        {SYN, {0, 2, 4, 0xFF, 0xFF, 1, 1, 1}},  /* behind the end of the options */
        {SYN, {2, 3, 0xFF, 1, 1, 1, 1, 1}},     /* no MSS has that length */
        {SYN, {3, 0, 2, 4, 0xFF, 0xFF, 1, 1}},  /* an option without length, */
        {SYN, {3, 9, 2, 4, 0xFF, 0xFF, 1, 1}},  /* one that leaves the header, */
        {SYN, {1, 1, 1, 1, 1, 1, 1, 2}},        /* and one that its end cuts */
        {SYN, {2, 4, 0xFF, 0xFF, 29, 4, 0, 0}}, /* RFC 5925: the options are signed */
        {SYN, {1, 1, 1, 1, 1, 1, 1, 1}},
    };
    uint8_t after[8];
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        CHECK(!lowered(false, kept[i].flags, kept[i].options, 8, after));
}

static void a_header_longer_than_the_segment_is_not_read(void)
{
    static const uint8_t options[] = {2, 4, 0xFF, 0xFF};
    for (uint32_t len = 0; len < 24; len++) {
        struct frame frame = segment(false, SYN, options, sizeof options);
        uint8_t *cut = malloc(len + 1); /* of this length, for the sanitizers */
        CHECK(cut);
        memcpy(cut, frame_ip(frame) + 20, len);
        ipu_mss_lower_untrusted(cut, len, MOST);
        CHECK_EQ(memcmp(cut, frame_ip(frame) + 20, len), 0);
        free(cut);
        free(frame.bytes);
    }
}

static void the_merger_lowers_it_where_the_pump_asks_for_it(void)
{
    static const uint8_t options[] = {2, 4, 0xFF, 0xFF};
    static struct ipu_coalesce coalesce;
    for (int v6 = 0; v6 < 2; v6++)
        for (uint32_t limit = 0; limit <= 2016; limit += 2016) {
            struct frame frame = segment(v6, SYN, options, sizeof options);
            forget();
            ipu_coalesce_init(&coalesce, BOTH, collect, admit, &out);
            coalesce.tcp_packet_bytes = limit;
            ipu_coalesce_add_untrusted(&coalesce, 0, frame_ip(frame), frame.len - IPU_VNET_LEN);
            ipu_coalesce_flush(&coalesce);
            CHECK_EQ(out.n, 1);
            const uint8_t *value = frame_ip(out.frames[0]) + (v6 ? 60 : 40) + 2;
            CHECK_EQ(value[0] << 8 | value[1], limit == 0 ? 0xFFFF : v6 ? 1956 : 1976);
            free(frame.bytes);
        }
    forget();
}

int main(void)
{
    RUN(a_longer_mss_is_lowered_wherever_it_stands);
    RUN(every_value_keeps_the_checksum_right);
    RUN(what_names_no_longer_mss_stays_as_it_is);
    RUN(a_header_longer_than_the_segment_is_not_read);
    RUN(the_merger_lowers_it_where_the_pump_asks_for_it);
    return 0;
}
