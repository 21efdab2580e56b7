/* SPDX-License-Identifier: BSD-2-Clause */
/* Headers, CRC and ICRC, without any HCA. */
#include <arpa/inet.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "check.h"
#include "crc32.h"
#include "icrc.h"
#include "roce.h"

struct golden {
    const char *name, *src, *dst;
    uint16_t src_port;
    uint32_t dest_qpn, src_qpn, qkey;
    uint16_t pkey;
    uint32_t psn;
    int solicited, has_imm;
    uint32_t imm_data;
    size_t payload_bytes, bytes;
    uint8_t packet[320];
};

#include "golden.h"

#define GOLDEN_COUNT (sizeof(golden) / sizeof(golden[0]))

static struct in6_addr address(const char *text)
{
    struct in6_addr a;

    CHECK(inet_pton(AF_INET6, text, &a) == 1);
    return a;
}

static uint32_t seed_of(const struct golden *g)
{
    struct in6_addr src = address(g->src), dst = address(g->dst);

    return soft_icrc_seed(&src, &dst, g->src_port, 4791, (uint16_t)g->bytes);
}

static void another_source_port_changes_every_seed_alike(void)
{
    const struct in6_addr gids[] = {address("fe80::1"), address("::ffff:192.0.2.1")};

    for (uint32_t port = 0xc000; port < 0xc010; port++) {
        uint32_t change = soft_icrc_port_change(4791, (uint16_t)port);

        for (size_t i = 0; i < 2; i++)
            for (uint16_t bytes = 16; bytes < 9000; bytes = (uint16_t)(bytes * 3))
                CHECK_EQUAL(soft_icrc_seed(&gids[i], &gids[i], 4791, 4791, bytes) ^ change,
                            soft_icrc_seed(&gids[i], &gids[i], (uint16_t)port, 4791, bytes));
    }
    CHECK_EQUAL(soft_icrc_port_change(4791, 4791), 0);
}

/* ---- CRC-32 ---------------------------------------------------------------------------------- */

/* Bit by bit, straight from the polynomial. */
static uint32_t crc32_by_bits(uint32_t crc, const uint8_t *p, size_t bytes)
{
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

enum { CRC32S = 4 };
static const enum soft_crc32 crc32s[CRC32S] = {SOFT_CRC32_VECTORS, SOFT_CRC32_ISAL,
                                               SOFT_CRC32_DEFLATE, SOFT_CRC32_TABLE};

static void crc32_uses_the_best_that_is_there(void)
{
    enum soft_crc32 first = soft_crc32_used();

    for (size_t i = 0; i < CRC32S && crc32s[i] != first; i++)
        CHECK(!soft_crc32_use(crc32s[i]) || first == SOFT_CRC32_ISAL);
    CHECK(soft_crc32_use(SOFT_CRC32_TABLE));
    CHECK_EQUAL(soft_crc32_used(), SOFT_CRC32_TABLE);
    soft_crc32_use_best();
    CHECK_EQUAL(soft_crc32_used(), first);
}

static void crc32_has_its_check_value(void)
{
    for (size_t i = 0; i < CRC32S; i++) {
        if (!soft_crc32_use(crc32s[i]))
            continue;
        /* The "check" of CRC-32/ISO-HDLC in Williams' catalogue form. */
        CHECK_EQUAL(soft_crc32_update(0, "123456789", 9), 0xcbf43926u);
        CHECK_EQUAL(soft_crc32_update(0, "", 0), 0);
        CHECK_EQUAL(soft_crc32_update(0x12345678u, NULL, 0), 0x12345678u);
        CHECK_EQUAL(soft_crc32_copy(0x12345678u, NULL, NULL, 0), 0x12345678u);
        /* rxe starts from this value: the register after 8 bytes of ones, not yet inverted. */
        CHECK_EQUAL(~soft_crc32_update(0, "\xff\xff\xff\xff\xff\xff\xff\xff", 8), 0xdebb20e3u);
    }
    soft_crc32_use_best();
}

/* All lengths up to 3000, of which each begins at one of 64 offsets. The blocks end where the
 * memory does: so AddressSanitizer sees a read or a write beyond them. */
static void crc32_agrees_with_the_definition_at_all_lengths_and_cuts(void)
{
    enum { LENGTHS = 3001, OFFSETS = 64 };
    uint64_t random = 1;

    for (size_t len = 0; len < LENGTHS; len++) {
        size_t from = next_random(&random) % OFFSETS, to = next_random(&random) % OFFSETS;
        size_t cut = next_random(&random) % (len + 1);
        uint8_t *block = malloc(from + len), *copy = malloc(to + len + 1);
        uint8_t *data = block + from, *there = copy + to;
        uint32_t whole;

        for (size_t i = 0; i < from + len; i++)
            block[i] = (uint8_t)next_random(&random);
        whole = crc32_by_bits(0, data, len);
        for (size_t i = 0; i < CRC32S; i++) {
            if (!soft_crc32_use(crc32s[i]))
                continue;
            memset(copy, 0x5a, to + len + 1);
            CHECK_EQUAL(soft_crc32_update(0, data, len), whole);
            CHECK_EQUAL(
                soft_crc32_copy(soft_crc32_update(0, data, cut), there, data + cut, len - cut),
                whole);
            CHECK(memcmp(there, data + cut, len - cut) == 0);
            CHECK_EQUAL(there[len - cut], 0x5a);
        }
        free(block);
        free(copy);
    }
    soft_crc32_use_best();
}

#ifdef __x86_64__
/* Returns whether the CPU reports which parts of its state are in use. */
static bool tells_state_in_use(void)
{
    unsigned int a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE) && (c & bit_AVX) &&
           __get_cpuid_count(0xd, 1, &a, &b, &c, &d) && (a & 4);
}

/* The upper halves of the vector registers, as XGETBV reports: of YMM 4, of ZMM 0x40. */
static uint32_t upper_halves_in_use(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low & 0x44;
}

__attribute__((target("avx"))) static void clear_upper_halves(void)
{
    __builtin_ia32_vzeroupper();
}

static void crc32_leaves_no_vector_register_half_used(void)
{
    static uint8_t data[4096], copy[4096];

    if (!tells_state_in_use())
        return;
    clear_upper_halves();
    if (upper_halves_in_use() != 0)
        return; /* this CPU does not report it */
    for (size_t i = 0; i < CRC32S; i++) {
        if (!soft_crc32_use(crc32s[i]))
            continue;
        for (size_t len = 0; len <= sizeof(data); len += 61) {
            (void)soft_crc32_update(0, data, len);
            CHECK_EQUAL(upper_halves_in_use(), 0);
            (void)soft_crc32_copy(0, copy, data, len);
            CHECK_EQUAL(upper_halves_in_use(), 0);
        }
    }
    soft_crc32_use_best();
}
#endif

/* ---- golden packets -------------------------------------------------------------------------- */

static void icrc_agrees_with_scapy(void)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++)
        CHECK(soft_icrc_check(seed_of(&golden[i]), golden[i].packet, golden[i].bytes));
}

/* E1: their opcodes are those of UD. */
static void golden_packets_parse_to_their_fields(void)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const struct golden *g = &golden[i];
        const uint8_t *payload;
        struct soft_roce r;
        size_t bytes;

        CHECK_EQUAL(soft_roce_parse_bth_untrusted(g->packet, g->bytes, &r), SOFT_ROCE_OK);
        CHECK_EQUAL(soft_roce_parse_rest_untrusted(g->packet, g->bytes, &r, &payload, &bytes),
                    SOFT_ROCE_OK);
        CHECK_EQUAL(r.opcode, g->has_imm ? 0x65 : 0x64);
        CHECK_EQUAL(r.solicited, g->solicited);
        CHECK_EQUAL(r.pkey, g->pkey);
        CHECK_EQUAL(r.dest_qpn, g->dest_qpn);
        CHECK_EQUAL(r.psn, g->psn);
        CHECK_EQUAL(r.qkey, g->qkey);
        CHECK_EQUAL(r.src_qpn, g->src_qpn);
        CHECK_EQUAL(r.has_imm, g->has_imm);
        CHECK_EQUAL(r.imm_data, g->imm_data);
        CHECK_EQUAL(bytes, g->payload_bytes);
        CHECK_EQUAL(payload - g->packet, 20 + (g->has_imm ? 4 : 0));
    }
}

static void packing_gives_the_golden_bytes(void)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const struct golden *g = &golden[i];
        struct soft_roce r = {
            .opcode = g->has_imm ? SOFT_ROCE_UD_SEND_IMM : SOFT_ROCE_UD_SEND,
            .solicited = g->solicited,
            .pad_bytes = -g->payload_bytes & 3,
            .pkey = g->pkey,
            .dest_qpn = g->dest_qpn,
            .psn = g->psn,
            .qkey = g->qkey,
            .src_qpn = g->src_qpn,
            .imm_data = g->imm_data,
        };
        uint8_t head[SOFT_ROCE_HEAD_MAX];
        size_t n = soft_roce_pack(head, &r);

        CHECK_EQUAL(n, 20 + (g->has_imm ? 4 : 0));
        head[4] |= g->packet[4] & 0xc0; /* FECN and BECN are set by switches, never by us */
        CHECK(memcmp(head, g->packet, n) == 0);
    }
}

/* Each packet lies in a heap block of its length, so that the sanitizer sees a read past the
 * end. */
static void every_truncation_is_refused(void)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const struct golden *g = &golden[i];

        for (size_t len = 0; len < g->bytes; len++) {
            uint8_t *cut = malloc(len + (len == 0));
            const uint8_t *payload;
            struct soft_roce r;
            size_t bytes;
            bool accepted;

            memcpy(cut, g->packet, len);
            accepted =
                soft_roce_parse_bth_untrusted(cut, len, &r) == SOFT_ROCE_OK &&
                soft_icrc_check(seed_of(g), cut, len) &&
                soft_roce_parse_rest_untrusted(cut, len, &r, &payload, &bytes) == SOFT_ROCE_OK;
            CHECK(!accepted);
            if (len % 4 != 0 || len < 16)
                CHECK_EQUAL(soft_roce_parse_bth_untrusted(cut, len, &r), SOFT_ROCE_MALFORMED);
            free(cut);
        }
    }
}

static void every_flipped_bit_fails_the_icrc_but_those_it_masks(void)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const struct golden *g = &golden[i];
        uint8_t packet[sizeof(g->packet)];

        memcpy(packet, g->packet, g->bytes);
        for (size_t bit = 0; bit < g->bytes * 8; bit++) {
            packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
            CHECK_EQUAL(soft_icrc_check(seed_of(g), packet, g->bytes), bit / 8 == 4);
            packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
}

static void addresses_and_ports_are_in_the_icrc(void)
{
    const struct golden *g = &golden[0];
    struct in6_addr src = address(g->src), dst = address(g->dst), other = address("fe80::1");
    uint16_t n = (uint16_t)g->bytes;

    CHECK(soft_icrc_check(soft_icrc_seed(&src, &dst, 4791, 4791, n), g->packet, n));
    CHECK(!soft_icrc_check(soft_icrc_seed(&other, &dst, 4791, 4791, n), g->packet, n));
    CHECK(!soft_icrc_check(soft_icrc_seed(&src, &other, 4791, 4791, n), g->packet, n));
    CHECK(!soft_icrc_check(soft_icrc_seed(&src, &dst, 4792, 4791, n), g->packet, n));
    CHECK(!soft_icrc_check(soft_icrc_seed(&src, &dst, 4791, 4792, n), g->packet, n));
    CHECK(!soft_icrc_check(soft_icrc_seed(&src, &dst, 4791, 4791, n + 4), g->packet, n));
}

/* Makes the packet of other_ids[i], whose payload is zeros, at the end of a piece of memory. */
static uint8_t *packet_with_id(size_t i, size_t *bytes)
{
    struct soft_roce roce = {.opcode = SOFT_ROCE_UD_SEND,
                             .pad_bytes = -other_ids[i].payload_bytes & 3,
                             .pkey = 0xffff,
                             .dest_qpn = 0x11,
                             .src_qpn = 0x12,
                             .qkey = 0x0b1b};
    size_t head_bytes = SOFT_ROCE_BTH_BYTES + SOFT_ROCE_DETH_BYTES;
    uint8_t *packet;

    *bytes = head_bytes + other_ids[i].payload_bytes + roce.pad_bytes + SOFT_ICRC_BYTES;
    packet = calloc(1, *bytes);
    CHECK(packet != NULL);
    CHECK_EQUAL(soft_roce_pack(packet, &roce), head_bytes);
    soft_roce_put32le(packet + *bytes - SOFT_ICRC_BYTES, other_ids[i].icrc);
    return packet;
}

static void any_identification_fits_if_asked_for_and_no_flipped_bit(void)
{
    struct in6_addr src = address("::ffff:192.0.2.1"), dst = address("::ffff:192.0.2.2");

    for (size_t i = 0; i < sizeof(other_ids) / sizeof(other_ids[0]); i++) {
        size_t n;
        uint8_t *packet = packet_with_id(i, &n);
        uint32_t seed = soft_icrc_seed(&src, &dst, 4791, 4791, (uint16_t)n);

        CHECK(!soft_icrc_check(seed, packet, n));
        CHECK(soft_icrc_check_any_id(seed, packet, n));
        CHECK(!soft_icrc_check_any_id(seed ^ 0x10000, packet, n));
        for (size_t bit = 0; bit < n * 8; bit++) {
            packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
            CHECK_EQUAL(soft_icrc_check_any_id(seed, packet, n), bit / 8 == SOFT_ROCE_MASKED_BYTE);
            packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        free(packet);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void other_versions_and_opcodes_are_distinguished(void)
{
    uint8_t packet[24] = {0x64, 0x01};
    const uint8_t *payload;
    struct soft_roce r;
    size_t bytes;

    CHECK_EQUAL(soft_roce_parse_bth_untrusted(packet, 24, &r), SOFT_ROCE_VERSION);
    packet[1] = 0;
    for (int opcode = 0; opcode < 256; opcode++) {
        enum soft_roce_verdict verdict;

        packet[0] = (uint8_t)opcode;
        CHECK_EQUAL(soft_roce_parse_bth_untrusted(packet, 24, &r), SOFT_ROCE_OK);
        verdict = soft_roce_parse_rest_untrusted(packet, 24, &r, &payload, &bytes);
        /* 8 bytes after the BTH and before the ICRC: room for a DETH, an AETH, immediate data. */
        if (opcode == 0x64 || (opcode <= 0x17 && (0xc203bf >> opcode & 1) != 0))
            CHECK_EQUAL(verdict, SOFT_ROCE_OK);
        else if (opcode == 0x65 || (opcode <= 0x17 && (0x181c40 >> opcode & 1) != 0))
            CHECK_EQUAL(verdict, SOFT_ROCE_MALFORMED);
        else
            CHECK_EQUAL(verdict, SOFT_ROCE_OPCODE);
    }
}

static void more_padding_than_payload_is_malformed(void)
{
    uint8_t packet[28] = {0x64};
    const uint8_t *payload;
    struct soft_roce r;
    size_t bytes;

    for (int pad = 0; pad < 4; pad++) {
        packet[1] = (uint8_t)(pad << 4);
        CHECK_EQUAL(soft_roce_parse_bth_untrusted(packet, 24, &r), SOFT_ROCE_OK);
        CHECK_EQUAL(soft_roce_parse_rest_untrusted(packet, 24, &r, &payload, &bytes),
                    pad == 0 ? SOFT_ROCE_OK : SOFT_ROCE_MALFORMED);
        CHECK_EQUAL(soft_roce_parse_rest_untrusted(packet, 28, &r, &payload, &bytes), SOFT_ROCE_OK);
        CHECK_EQUAL(bytes, 4 - pad);
    }
}

static void random_bytes_never_lead_out_of_the_packet(void)
{
    uint64_t random = 20240501;
    int accepted = 0;

    for (int round = 0; round < 200000; round++) {
        size_t len = next_random(&random) % 80;
        uint8_t *packet = malloc(len + (len == 0));
        const uint8_t *payload;
        struct soft_roce r;
        size_t bytes;

        for (size_t i = 0; i < len; i++)
            packet[i] = (uint8_t)next_random(&random);
        if (len > 1 && round % 2) { /* half of them with a chance */
            packet[0] = 0x64 + (round >> 1) % 2;
            packet[1] &= 0xf0;
        }
        if (soft_roce_parse_bth_untrusted(packet, len, &r) == SOFT_ROCE_OK) {
            (void)soft_icrc_check(0, packet, len);
            if (soft_roce_parse_rest_untrusted(packet, len, &r, &payload, &bytes) == SOFT_ROCE_OK) {
                CHECK(payload >= packet + SOFT_ROCE_BTH_BYTES &&
                      payload + bytes + 4 <= packet + len);
                CHECK(r.dest_qpn <= 0xffffff && r.src_qpn <= 0xffffff && r.psn <= 0xffffff);
                accepted++;
            }
        }
        free(packet);
    }
    CHECK(accepted > 10000);
}

/* ---- GRH and P_Keys -------------------------------------------------------------------------- */

static void the_grh_is_an_ipv6_header_for_iba(void)
{
    static const uint8_t expected[40] = {
        0x6a, 0x51, 0x23, 0x45, 0x00, 0x1c, 0x1b, 0x40, 0xfe, 0x80, 0,    0,    0,    0,
        0,    0,    0x50, 0x54, 0x00, 0xff, 0xfe, 0x12, 0x34, 0x56, 0xff, 0x12, 0x40, 0x1b,
        0xff, 0xff, 0,    0,    0,    0,    0,    0,    0xff, 0xff, 0xff, 0xff,
    };
    struct in6_addr src = address("fe80::5054:ff:fe12:3456");
    struct in6_addr dst = address("ff12:401b:ffff::ffff:ffff");
    uint8_t grh[40];

    soft_roce_pack_grh(grh, 0xf0000000u | 0xa5u << 20 | 0x12345, 28, 64, &src, &dst);
    CHECK(memcmp(grh, expected, sizeof(grh)) == 0);
}

static void pkeys_match_by_value_and_one_full_member(void)
{
    static const struct {
        uint16_t a, b;
        bool match;
    } rules[] = {
        {0xffff, 0xffff, true},  {0xffff, 0x7fff, true},  {0x7fff, 0xffff, true},
        {0x7fff, 0x7fff, false}, {0x8001, 0x8001, true},  {0x8001, 0x0001, true},
        {0x0001, 0x0001, false}, {0x8001, 0x8002, false}, {0xffff, 0x8001, false},
        {0x8000, 0x8000, false}, {0x8000, 0x0000, false}, {0x0000, 0x0000, false},
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        CHECK_EQUAL(soft_roce_pkey_match(rules[i].a, rules[i].b), rules[i].match);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(crc32_has_its_check_value),
        TEST(crc32_uses_the_best_that_is_there),
        TEST(crc32_agrees_with_the_definition_at_all_lengths_and_cuts),
#ifdef __x86_64__
        TEST(crc32_leaves_no_vector_register_half_used),
#endif
        TEST(icrc_agrees_with_scapy),
        TEST(another_source_port_changes_every_seed_alike),
        TEST(golden_packets_parse_to_their_fields),
        TEST(packing_gives_the_golden_bytes),
        TEST(every_truncation_is_refused),
        TEST(every_flipped_bit_fails_the_icrc_but_those_it_masks),
        TEST(addresses_and_ports_are_in_the_icrc),
        TEST(any_identification_fits_if_asked_for_and_no_flipped_bit),
        TEST(other_versions_and_opcodes_are_distinguished),
        TEST(more_padding_than_payload_is_malformed),
        TEST(random_bytes_never_lead_out_of_the_packet),
        TEST(the_grh_is_an_ipv6_header_for_iba),
        TEST(pkeys_match_by_value_and_one_full_member),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
