/* SPDX-License-Identifier: BSD-2-Clause */
/* Foreign packets, which the test injects: their faults, groups, and a fuzzer. */
#include <errno.h>

#include "bench.h"
#include "crc32.h"
#include "icrc.h"

static const struct in6_addr peer_gid = {{{0xfe, 0x80, [8] = 2, [15] = 2}}};
static const struct in6_addr group_gid = {
    {{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, [12] = 0xff, 0xff, 0xff, 0xff}}};

/* ---- packets of others ----------------------------------------------------------------------- */

struct wire {
    uint8_t data[512];
    struct soft_udp_packet ip;
};

static void seal(struct wire *w)
{
    size_t n = w->ip.bytes - SOFT_ICRC_BYTES;
    uint8_t kept = w->data[SOFT_ROCE_MASKED_BYTE];
    uint32_t crc = soft_icrc_seed(&w->ip.src, &w->ip.dst, w->ip.src_port, SOFT_UDP_PORT,
                                  (uint16_t)w->ip.bytes);

    w->data[SOFT_ROCE_MASKED_BYTE] = 0xff;
    soft_roce_put32le(w->data + n, soft_crc32_update(crc, w->data, n));
    w->data[SOFT_ROCE_MASKED_BYTE] = kept;
}

static void make_packet(struct wire *w, const struct in6_addr *dst, uint32_t dest_qpn,
                        size_t payload_bytes)
{
    struct soft_roce roce = {
        .opcode = SOFT_ROCE_UD_SEND,
        .pad_bytes = -payload_bytes & 3,
        .pkey = 0xffff,
        .dest_qpn = dest_qpn,
        .qkey = QKEY,
        .src_qpn = 0x1234,
    };
    size_t head = soft_roce_pack(w->data, &roce);

    memset(w->data + head, 'p', payload_bytes + 3);
    w->ip =
        (struct soft_udp_packet){.data = w->data, .src = peer_gid, .dst = *dst, .src_port = 49152};
    w->ip.bytes = head + payload_bytes + roce.pad_bytes + SOFT_ICRC_BYTES;
    seal(w);
}

/* Returns by how much the identification 0x1234 changes the ICRC of a packet: the difference
 * between the CRCs of two messages that differ in just these two bytes. */
static uint32_t id_difference(size_t packet_bytes)
{
    uint8_t message[512] = {0x12, 0x34};
    uint8_t zeros[512] = {0};
    size_t n = 16 + 8 + packet_bytes - SOFT_ICRC_BYTES; /* from the identification on */

    return soft_crc32_update(0, message, n) ^ soft_crc32_update(0, zeros, n);
}

static void put_in(const struct bench *b, const struct wire *w)
{
    soft_lock_acquire(b->hca);
    soft_progress_take(b->hca, &w->ip, false);
    soft_lock_release(b->hca);
}

/* rxe sends this over IPv4: the ICRC covers an identification that the socket does not see. */
static void other_identifications_pass_only_where_other_adapters_are_expected(void)
{
    struct in6_addr src = {{{[10] = 0xff, 0xff, 192, 0, 2, 2}}};
    struct in6_addr dst = {{{[10] = 0xff, 0xff, 192, 0, 2, 1}}};
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    uint8_t buffer[128];
    struct soft_wc wc;
    struct wire w;

    b.hca->attr.gid = dst;
    post_recv(qp, 1, buffer, sizeof(buffer));
    make_packet(&w, &dst, soft_qp_qpn(qp), 10);
    w.ip.src = src;
    seal(&w);
    for (size_t i = 0; i < SOFT_ICRC_BYTES; i++)
        w.data[w.ip.bytes - SOFT_ICRC_BYTES + i] ^= (uint8_t)(id_difference(w.ip.bytes) >> 8 * i);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_ICRC), 1);
    b.hca->other_adapters = true;
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_RX_ANY_ID), 1);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.byte_len, 50);
    w.data[30] ^= 1;
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_ICRC), 2);
    soft_hca_close(b.hca);
}

static void each_fault_of_a_packet_has_its_counter(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    uint8_t buffer[128];
    struct soft_wc wc;
    struct wire w;

    post_recv(qp, 1, buffer, sizeof(buffer));
    make_packet(&w, &own_gid, soft_qp_qpn(qp), 10);
    w.data[30] ^= 1;
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_ICRC), 1);

    make_packet(&w, &own_gid, soft_qp_qpn(qp), 10);
    w.data[1] |= 1;
    seal(&w);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_VERSION), 1);

    make_packet(&w, &own_gid, soft_qp_qpn(qp), 10);
    w.data[0] = 0x04; /* RC SEND only */
    seal(&w);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_OPCODE), 1);

    make_packet(&w, &own_gid, soft_qp_qpn(qp), 12);
    w.ip.bytes -= 2;
    put_in(&b, &w);
    w.ip.bytes = 15;
    put_in(&b, &w);
    w.ip.bytes = 0;
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_MALFORMED), 3);

    make_packet(&w, &own_gid, soft_qp_qpn(qp) ^ 1, 10);
    put_in(&b, &w);
    make_packet(&w, &own_gid, SOFT_QPN_MCAST, 10);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QPN), 2);

    make_packet(&w, &peer_gid, soft_qp_qpn(qp), 10);
    put_in(&b, &w);
    make_packet(&w, &group_gid, SOFT_QPN_MCAST, 10);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_ADDRESS), 2);

    expect_empty(&b);
    make_packet(&w, &own_gid, soft_qp_qpn(qp), 10);
    put_in(&b, &w);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.src_qp, 0x1234);
    CHECK_EQUAL(wc.byte_len, 50);
    soft_hca_close(b.hca);
}

static void a_group_packet_goes_to_every_attached_qp(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp[4];
    uint8_t buffer[4][128];
    struct soft_wc wc[8];
    struct wire w;

    for (int i = 0; i < 4; i++) {
        qp[i] = create_qp(&b, SOFT_QPT_UD, 0, i == 2 ? 0x9999 : QKEY);
        post_recv(qp[i], i, buffer[i], sizeof(buffer[i]));
        if (i < 3)
            CHECK_EQUAL(soft_qp_attach_mcast(qp[i], &group_gid), 0);
    }
    CHECK_EQUAL(soft_qp_attach_mcast(qp[0], &group_gid), 0); /* twice is once */
    CHECK_EQUAL(soft_qp_attach_mcast(qp[0], &peer_gid), -EINVAL);
    CHECK_EQUAL(soft_qp_detach_mcast(qp[3], &group_gid), -ENOENT);
    make_packet(&w, &group_gid, SOFT_QPN_MCAST, 10);
    put_in(&b, &w);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 2);
    CHECK_EQUAL(wc[0].wr_id + wc[1].wr_id, 1);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QKEY), 1);
    CHECK(memcmp(buffer[1] + 24, &group_gid, 16) == 0); /* the group is the GRH's DGID */
    CHECK(memcmp(buffer[1] + 40, "pppppppppp", 10) == 0);

    make_packet(&w, &group_gid, soft_qp_qpn(qp[0]), 10);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_QPN), 1);

    CHECK_EQUAL(soft_qp_detach_mcast(qp[0], &group_gid), 0);
    CHECK_EQUAL(soft_qp_detach_mcast(qp[0], &group_gid), -ENOENT);
    soft_qp_destroy(qp[2]); /* detaches */
    post_recv(qp[1], 11, buffer[1], sizeof(buffer[1]));
    make_packet(&w, &group_gid, SOFT_QPN_MCAST, 10);
    put_in(&b, &w);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 2);
    CHECK_EQUAL(wc[0].status, SOFT_WC_WR_FLUSH_ERR);
    CHECK_EQUAL(wc[1].wr_id, 11);
    CHECK_EQUAL(b.hca->group_count, 1);
    CHECK_EQUAL(soft_qp_detach_mcast(qp[1], &group_gid), 0);
    CHECK_EQUAL(b.hca->group_count, 0);
    soft_hca_close(b.hca);
}

static void a_limited_members_own_multicast_is_no_drop(void)
{
    static const uint16_t limited = 0x7fff;
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct wire w;

    CHECK_EQUAL(soft_hca_set_pkeys(b.hca, &limited, 1), 0);
    CHECK_EQUAL(soft_qp_attach_mcast(qp, &group_gid), 0);
    make_packet(&w, &group_gid, SOFT_QPN_MCAST, 10);
    w.data[2] = 0x7f; /* the P_Key, from its first byte on */
    seal(&w);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_PKEY), 1);
    CHECK_EQUAL(counter(&b, SOFT_C_RX_OWN), 0);
    w.ip.src = own_gid;
    seal(&w);
    put_in(&b, &w);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_PKEY), 1);
    CHECK_EQUAL(counter(&b, SOFT_C_RX_OWN), 1);
    soft_hca_close(b.hca);
}

static void many_groups_are_found_and_the_table_ends_at_its_limit(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b), *other = create_ud(&b);
    struct in6_addr gid = group_gid;
    uint8_t buffer[128];
    struct soft_wc wc;
    struct wire w;

    for (int i = 0; i < SOFT_MAX_MCAST; i++) {
        gid.s6_addr[14] = (uint8_t)(i >> 8);
        gid.s6_addr[15] = (uint8_t)i;
        CHECK_EQUAL(soft_qp_attach_mcast(i % 2 ? qp : other, &gid), 0);
    }
    CHECK_EQUAL(soft_qp_attach_mcast(qp, &gid), 0); /* it exists */
    gid.s6_addr[13] = 0;
    CHECK_EQUAL(soft_qp_attach_mcast(qp, &gid), -ENOSPC);
    gid.s6_addr[13] = 0xff;
    gid.s6_addr[14] = 0x12;
    gid.s6_addr[15] = 0x35;
    post_recv(qp, 77, buffer, sizeof(buffer));
    make_packet(&w, &gid, SOFT_QPN_MCAST, 1);
    put_in(&b, &w);
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK_EQUAL(wc.wr_id, 77);
    soft_qp_destroy(qp);
    CHECK_EQUAL(b.hca->group_count, SOFT_MAX_MCAST / 2);
    soft_qp_destroy(other);
    CHECK_EQUAL(b.hca->group_count, 0);
    soft_hca_close(b.hca);
}

static void mutated_packets_are_delivered_or_counted_and_nothing_else(void)
{
    static const enum soft_counter ends[] = {
        SOFT_C_RX_DELIVERED, SOFT_C_DROP_ADDRESS,  SOFT_C_DROP_MALFORMED, SOFT_C_DROP_VERSION,
        SOFT_C_DROP_ICRC,    SOFT_C_DROP_OPCODE,   SOFT_C_DROP_QPN,       SOFT_C_DROP_PKEY,
        SOFT_C_DROP_QKEY,    SOFT_C_DROP_TOO_LONG,
    };
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    uint64_t random = 4791, ended = 0;
    const int rounds = 200000;

    for (int i = 0; i < rounds; i++) {
        struct wire w;
        struct soft_wc wc;
        uint8_t *buffer = malloc(100);

        make_packet(&w, &own_gid, soft_qp_qpn(qp), next_random(&random) % 80);
        for (int n = (int)(next_random(&random) % 4); n > 0; n--)
            w.data[next_random(&random) % w.ip.bytes] ^= (uint8_t)(1 << next_random(&random) % 8);
        if (next_random(&random) % 4 == 0)
            w.ip.bytes = next_random(&random) % (w.ip.bytes + 1);
        if (w.ip.bytes >= SOFT_ICRC_BYTES && next_random(&random) % 4 != 0)
            seal(&w); /* mostly with a correct ICRC, or no packet would get past that check */
        w.ip.data = malloc(w.ip.bytes + (w.ip.bytes == 0)); /* exact, for the sanitizer */
        memcpy((uint8_t *)(uintptr_t)w.ip.data, w.data, w.ip.bytes);
        post_recv(qp, i, buffer, 100);
        put_in(&b, &w);
        free((uint8_t *)(uintptr_t)w.ip.data);
        if (soft_cq_poll(b.cq, 1, &wc) == 0) { /* take the buffer back, by a message to ourselves */
            struct soft_send_wr wr = send_wr(&b, qp, 0, "", 0);

            wr.flags = 0;
            CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
            CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
        }
        CHECK_EQUAL(wc.wr_id, i);
        CHECK(wc.byte_len <= 100);
        free(buffer);
    }
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        bool is_drop = ends[i] != SOFT_C_RX_DELIVERED && counter(&b, ends[i]) > 0;
        struct in6_addr source;

        CHECK(counter(&b, ends[i]) > 0 || ends[i] == SOFT_C_DROP_ADDRESS);
        CHECK_EQUAL(soft_hca_drop_source(b.hca, ends[i], &source), is_drop);
        CHECK(!is_drop || memcmp(&source, &peer_gid, sizeof(source)) == 0);
        ended += counter(&b, ends[i]);
    }
    CHECK_EQUAL(ended, counter(&b, SOFT_C_RX_PACKETS));
    soft_hca_close(b.hca);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(each_fault_of_a_packet_has_its_counter),
        TEST(other_identifications_pass_only_where_other_adapters_are_expected),
        TEST(a_group_packet_goes_to_every_attached_qp),
        TEST(a_limited_members_own_multicast_is_no_drop),
        TEST(many_groups_are_found_and_the_table_ends_at_its_limit),
        TEST(mutated_packets_are_delivered_or_counted_and_nothing_else),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
