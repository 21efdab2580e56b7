/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that the HCA must not deliver, and the counters that show them. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "crc32.h"
#include "icrc.h"
#include "live.h"

#ifndef UDP_NO_CHECK6_TX
#define UDP_NO_CHECK6_TX 101
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* ---- refusals -------------------------------------------------------------------------------- */

static void wrong_keys_and_small_buffers_are_counted_drops(void)
{
    static const uint16_t other_partition[] = {0x8001};
    struct soft_send_wr wr;
    struct soft_qp *tight;
    uint8_t small[48];
    struct end a, b;

    open_both(&a, &b);
    tight = qp_on(b.hca, b.cq, 1);
    send_to(&a, a.peer, soft_qp_qpn(tight), "x", 1);
    await_counter(b.hca, SOFT_C_DROP_NO_BUFFER, 1);
    post(tight, 1, small, sizeof(small));
    send_to(&a, a.peer, soft_qp_qpn(tight), "123456789", 9);
    await_counter(b.hca, SOFT_C_DROP_TOO_LONG, 1);
    wr = message(a.peer, soft_qp_qpn(b.qp), "x", 1);
    wr.remote_qkey = QKEY + 1;
    CHECK_EQUAL(soft_qp_post_send(a.qp, &wr, 1), 1);
    await_counter(b.hca, SOFT_C_DROP_QKEY, 1);
    send_to(&a, a.peer, soft_qp_qpn(b.qp) ^ 0x800000, "x", 1);
    await_counter(b.hca, SOFT_C_DROP_QPN, 1);
    CHECK_EQUAL(soft_hca_set_pkeys(a.hca, other_partition, 1), 0);
    send_to(&a, a.peer, soft_qp_qpn(b.qp), "x", 1);
    await_counter(b.hca, SOFT_C_DROP_PKEY, 1);
    CHECK_EQUAL(soft_hca_set_pkeys(b.hca, other_partition, 1), 0);
    exchange(&a, &b);
    close_both(&a, &b);
}

struct stranger {
    int fd;
    struct in6_addr own;
    uint16_t port;
    struct sockaddr_in6 to;
};

/* Opens an ordinary UDP socket in namespace B, which sends any bytes to A. */
static struct stranger open_stranger(const struct end *a, const struct end *b)
{
    struct soft_hca_attr attr;
    struct stranger s;
    struct sockaddr_in6 name = {.sin6_family = AF_INET6};
    socklen_t len = sizeof(name);

    soft_hca_query(b->hca, &attr);
    enter(place[1].netns);
    s.fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    leave();
    CHECK(s.fd >= 0);
    name.sin6_addr = s.own = attr.gid;
    name.sin6_scope_id = attr.ifindex;
    CHECK(bind(s.fd, (struct sockaddr *)&name, sizeof(name)) == 0);
    CHECK(getsockname(s.fd, (struct sockaddr *)&name, &len) == 0);
    s.port = ntohs(name.sin6_port);
    s.to = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                 .sin6_port = htons(SOFT_UDP_PORT),
                                 .sin6_addr = gid_of(a->hca),
                                 .sin6_scope_id = attr.ifindex};
    return s;
}

static size_t make_packet(const struct stranger *s, uint32_t qpn, size_t payload_bytes,
                          uint8_t *packet)
{
    struct soft_roce roce = {
        .opcode = SOFT_ROCE_UD_SEND,
        .pad_bytes = -payload_bytes & 3,
        .pkey = 0xffff,
        .dest_qpn = qpn,
        .qkey = QKEY,
        .src_qpn = 0x4711,
    };
    size_t n = soft_roce_pack(packet, &roce);
    uint32_t crc;

    memset(packet + n, 's', payload_bytes + 3);
    n += payload_bytes + roce.pad_bytes;
    crc = soft_icrc_seed(&s->own, &s->to.sin6_addr, s->port, SOFT_UDP_PORT, (uint16_t)(n + 4));
    packet[SOFT_ROCE_MASKED_BYTE] = 0xff;
    crc = soft_crc32_update(crc, packet, n);
    packet[SOFT_ROCE_MASKED_BYTE] = 0;
    soft_roce_put32le(packet + n, crc);
    return n + 4;
}

static void throw(const struct stranger *s, const void *packet, size_t bytes)
{
    CHECK_EQUAL(sendto(s->fd, packet, bytes, 0, (const struct sockaddr *)&s->to, sizeof(s->to)),
                bytes);
}

static void corrupted_packets_are_dropped_and_the_good_one_is_not(void)
{
    uint8_t good[256], bad[256];
    uint64_t icrc = 0, malformed = 0, version = 0;
    struct stranger s;
    struct soft_wc wc;
    struct end a, b;
    size_t n;

    open_both(&a, &b);
    s = open_stranger(&a, &b);
    n = make_packet(&s, soft_qp_qpn(a.qp), 50, good);
    for (size_t bit = 0; bit < n * 8; bit++) {
        if (bit / 8 == SOFT_ROCE_MASKED_BYTE)
            continue;
        memcpy(bad, good, n);
        bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (bit / 8 == 1 && bit % 8 < 4)
            version++;
        else
            icrc++;
        throw(&s, bad, n);
    }
    for (size_t len = 0; len < n; len++) {
        if (len < 16 || len % 4 != 0)
            malformed++;
        else
            icrc++;
        throw(&s, good, len);
    }
    throw(&s, good, n);
    await(a.cq, 1, &wc);
    CHECK_EQUAL(wc.src_qp, 0x4711);
    CHECK_EQUAL(wc.byte_len, 90);
    CHECK_EQUAL(counter(a.hca, SOFT_C_DROP_ICRC), icrc);
    CHECK_EQUAL(counter(a.hca, SOFT_C_DROP_VERSION), version);
    CHECK_EQUAL(counter(a.hca, SOFT_C_DROP_MALFORMED), malformed);
    CHECK_EQUAL(counter(a.hca, SOFT_C_RX_DELIVERED), 1);
    close(s.fd);
    close_both(&a, &b);
}

/* A train, whose packets share the ICRC seed of the first. */
static void the_first_packet_of_a_train_takes_no_other_with_it(void)
{
    uint8_t train[1024];
    struct stranger s;
    struct soft_wc wc[3];
    struct end a, b;
    size_t n;
    int segment;

    open_both(&a, &b);
    s = open_stranger(&a, &b);
    n = make_packet(&s, soft_qp_qpn(a.qp), 50, train);
    for (size_t i = 1; i < 4; i++)
        memcpy(train + i * n, train, n);
    train[1] |= 1; /* the version */
    segment = (int)n;
    CHECK(setsockopt(s.fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)) == 0);
    throw(&s, train, 4 * n);
    await(a.cq, 3, wc);
    CHECK_EQUAL(counter(a.hca, SOFT_C_RX_SUPER), 1);
    CHECK_EQUAL(counter(a.hca, SOFT_C_DROP_VERSION), 1);
    CHECK_EQUAL(counter(a.hca, SOFT_C_DROP_ICRC), 0);
    close(s.fd);
    close_both(&a, &b);
}

static void packets_without_a_udp_checksum_are_taken_as_rxe_sends_them(void)
{
    uint8_t packet[256];
    struct stranger s;
    struct soft_wc wc;
    struct end a, b;
    int one = 1;

    open_both(&a, &b);
    s = open_stranger(&a, &b);
    CHECK(setsockopt(s.fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, &one, sizeof(one)) == 0);
    throw(&s, packet, make_packet(&s, soft_qp_qpn(a.qp), 50, packet));
    await(a.cq, 1, &wc);
    CHECK_EQUAL(wc.byte_len, 90);
    close(s.fd);
    close_both(&a, &b);
}

static void packets_to_groups_of_other_programs_are_not_ours(void)
{
    struct in6_addr group = group_number(0);
    struct ipv6_mreq membership = {.ipv6mr_multiaddr = group};
    struct soft_hca_attr attr;
    struct stranger s;
    uint8_t packet[256];
    struct end a, b;
    int member;

    open_both(&a, &b);
    s = open_stranger(&a, &b);
    soft_hca_query(a.hca, &attr);
    membership.ipv6mr_interface = attr.ifindex;
    enter(place[0].netns);
    member = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    leave();
    CHECK(setsockopt(member, IPPROTO_IPV6, IPV6_JOIN_GROUP, &membership, sizeof(membership)) == 0);
    s.to.sin6_addr = group;
    throw(&s, packet, make_packet(&s, SOFT_QPN_MCAST, 50, packet));
    await_counter(a.hca, SOFT_C_DROP_ADDRESS, 1);
    close(member);
    close(s.fd);
    close_both(&a, &b);
}

const struct test live_refusals[] = {
    TEST(wrong_keys_and_small_buffers_are_counted_drops),
    TEST(corrupted_packets_are_dropped_and_the_good_one_is_not),
    TEST(the_first_packet_of_a_train_takes_no_other_with_it),
    TEST(packets_without_a_udp_checksum_are_taken_as_rxe_sends_them),
    TEST(packets_to_groups_of_other_programs_are_not_ours),
    {NULL, NULL},
};
