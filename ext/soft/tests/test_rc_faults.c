/* SPDX-License-Identifier: BSD-2-Clause */
/* Reliable connections on a bad cable, with bad peers, and the packets that they make. */
#include "crc32.h"
#include "icrc.h"
#include "rc_bench.h"

static uint8_t out[SOFT_MAX_RC_BYTES], in[SOFT_MAX_RC_BYTES];

/* ---- loss, duplication, reordering ----------------------------------------------------------- */

#define MESSAGES     1000
#define MESSAGE_MAX  65560
#define STREAM_DEPTH 16

/* Messages both ways on one connection; their lengths and bytes follow from their numbers. */
struct stream {
    uint64_t sent, got, completed;
    uint8_t *data[STREAM_DEPTH], *buffer[STREAM_DEPTH];
};

static uint32_t length_of(uint64_t number)
{
    uint64_t random = number * 2654435761u + 12345;

    (void)next_random(&random);
    return number % 3 == 0 ? MESSAGE_MAX - (uint32_t)(random % 50)
                           : (uint32_t)(next_random(&random) % (number % 3 == 1 ? 3000 : 20000));
}

static void write_message(uint8_t *data, uint64_t number, int direction)
{
    uint64_t random = number * 2 + (uint64_t)direction + 1;

    for (uint32_t i = 0, n = length_of(number); i < n; i += 8) {
        uint64_t eight = next_random(&random);

        memcpy(data + i, &eight, 8);
    }
}

static bool message_right(const uint8_t *data, uint64_t number, int direction)
{
    uint64_t random = number * 2 + (uint64_t)direction + 1;

    for (uint32_t i = 0, n = length_of(number); i < n; i += 8) {
        uint64_t eight = next_random(&random);

        if (memcmp(data + i, &eight, n - i < 8 ? n - i : 8) != 0)
            return false;
    }
    return true;
}

static void take_completions(struct pair *p, struct stream *s, int which)
{
    struct soft_wc wc;

    while (soft_cq_poll(p->end[which].cq, 1, &wc) == 1) {
        CHECK_EQUAL(wc.status, SOFT_WC_SUCCESS);
        if (wc.opcode == SOFT_WC_SEND) {
            CHECK_EQUAL(wc.wr_id, s[which].completed++);
            continue;
        }
        CHECK_EQUAL(wc.wr_id, s[which].got);
        CHECK_EQUAL(wc.byte_len, length_of(wc.wr_id));
        CHECK_EQUAL(wc.imm_data, wc.wr_id);
        CHECK(message_right(s[which].buffer[wc.wr_id % STREAM_DEPTH], wc.wr_id, 1 - which));
        s[which].got++;
        receive_one(p->end[which].qp, wc.wr_id + STREAM_DEPTH,
                    s[which].buffer[wc.wr_id % STREAM_DEPTH], MESSAGE_MAX);
    }
}

static void post_messages(struct pair *p, struct stream *s, int which)
{
    while (s[which].sent < MESSAGES && s[which].sent - s[which].completed < STREAM_DEPTH) {
        uint64_t number = s[which].sent++;
        uint8_t *data = s[which].data[number % STREAM_DEPTH];
        struct soft_send_wr wr = {
            .wr_id = number,
            .flags = SOFT_SEND_SIGNALED | SOFT_SEND_WITH_IMM,
            .imm_data = (uint32_t)number,
            .num_sge = 2,
            .sg = {{data, length_of(number) / 2},
                   {data + length_of(number) / 2, length_of(number) - length_of(number) / 2}},
        };

        write_message(data, number, which);
        CHECK_EQUAL(soft_qp_post_send(p->end[which].qp, &wr, 1), 1);
    }
}

/* All messages arrive once and in order, both ways, whatever the cable does. */
static void exchange_streams(struct pair *p)
{
    struct stream s[2];

    memset(s, 0, sizeof(s));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < STREAM_DEPTH; j++) {
            s[i].data[j] = malloc(MESSAGE_MAX + 8);
            s[i].buffer[j] = malloc(MESSAGE_MAX);
            CHECK(s[i].data[j] != NULL && s[i].buffer[j] != NULL);
            receive_one(p->end[i].qp, (uint64_t)j, s[i].buffer[j], MESSAGE_MAX);
        }
    while (s[0].got < MESSAGES || s[1].got < MESSAGES || s[0].completed < MESSAGES ||
           s[1].completed < MESSAGES) {
        for (int i = 0; i < 2; i++) {
            post_messages(p, s, i);
            take_completions(p, s, i);
        }
        (void)turn(p);
    }
    CHECK_EQUAL(soft_qp_state(p->end[0].qp), SOFT_QPS_RTS);
    CHECK_EQUAL(soft_qp_state(p->end[1].qp), SOFT_QPS_RTS);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < STREAM_DEPTH; j++) {
            free(s[i].data[j]);
            free(s[i].buffer[j]);
        }
}

static void stream_at(unsigned int lost, unsigned int doubled, unsigned int moved,
                      unsigned int damaged, unsigned int stalled, uint64_t seed)
{
    struct pair p;

    open_pair(&p);
    calm_cable(seed);
    cable.lost = lost;
    cable.doubled = doubled;
    cable.moved = moved;
    cable.damaged = damaged;
    cable.stalled = stalled;
    exchange_streams(&p);
    if (lost + doubled + moved + damaged == 0)
        CHECK_EQUAL(counted(&p.end[0], SOFT_C_RC_RETRANSMITS), 0);
    else
        CHECK(counted(&p.end[0], SOFT_C_RC_RETRANSMITS) > 0);
    close_pair(&p);
}

static void a_stream_is_whole_on_a_good_cable(void)
{
    stream_at(0, 0, 0, 0, 0, 1);
}

static void a_stream_is_whole_where_the_socket_is_often_full(void)
{
    stream_at(0, 0, 0, 0, 300, 2);
}

static void a_stream_is_whole_at_one_percent_loss(void)
{
    stream_at(10, 0, 0, 0, 0, 3);
    stream_at(10, 20, 50, 0, 20, 4);
}

static void a_stream_is_whole_at_five_percent_loss(void)
{
    stream_at(50, 50, 50, 10, 20, 5);
    stream_at(50, 50, 50, 10, 20, 6);
}

static void a_stream_is_whole_at_twenty_percent_loss(void)
{
    stream_at(200, 0, 0, 0, 0, 7);
    stream_at(200, 50, 50, 10, 20, 8);
}

/* ---- giving up ------------------------------------------------------------------------------- */

static void a_silent_peer_ends_the_connection_after_its_retries(void)
{
    struct pair p;
    int64_t start_ns;

    open_pair(&p);
    receive_one(p.end[0].qp, 50, in, 100);
    receive_one(p.end[1].qp, 60, in, 100);
    post_one(p.end[0].qp, 1, "x", 1);
    expect_status(&p, 1, 60, SOFT_WC_SUCCESS);
    expect_status(&p, 0, 1, SOFT_WC_SUCCESS);
    cable_part(p.end[0].hca->udp);
    start_ns = cable_clock_ns;
    for (uint64_t i = 2; i < 5; i++)
        post_one(p.end[0].qp, i, out, 3000);
    expect_status(&p, 0, 2, SOFT_WC_RETRY_EXC_ERR);
    expect_status(&p, 0, 3, SOFT_WC_WR_FLUSH_ERR);
    expect_status(&p, 0, 4, SOFT_WC_WR_FLUSH_ERR);
    expect_status(&p, 0, 50, SOFT_WC_WR_FLUSH_ERR);
    CHECK_EQUAL(soft_qp_state(p.end[0].qp), SOFT_QPS_ERR);
    /* Once, and seven retries: 1 + 1 + 2 and five times 4 times as long. */
    CHECK_EQUAL(cable_clock_ns - start_ns, 24 * (4096ll << 10));
    CHECK_EQUAL(counted(&p.end[0], SOFT_C_RC_TIMEOUTS), 8);
    CHECK_EQUAL(soft_hca_deadline_ns(p.end[0].hca), SOFT_NO_DEADLINE_NS);
    close_pair(&p);
}

static void a_peer_without_buffers_is_waited_for(void)
{
    struct pair p;
    int64_t start_ns;

    open_pair(&p);
    post_one(p.end[0].qp, 1, out, 5000);
    start_ns = cable_clock_ns;
    while (cable_clock_ns < start_ns + 1000000000)
        CHECK(turn(&p));
    CHECK(counted(&p.end[1], SOFT_C_RC_NOT_READY) > 1000); /* each 0.64 ms */
    CHECK(counted(&p.end[1], SOFT_C_RC_NOT_READY) < 1700);
    CHECK_EQUAL(counted(&p.end[0], SOFT_C_RC_TIMEOUTS), 0);
    receive_one(p.end[1].qp, 2, in, 5000);
    expect_status(&p, 1, 2, SOFT_WC_SUCCESS);
    expect_status(&p, 0, 1, SOFT_WC_SUCCESS);
    close_pair(&p);
}

static void a_limit_ends_the_wait_for_buffers(void)
{
    struct pair p;
    int64_t start_ns;

    open_ends(&p);
    start_ns = cable_clock_ns;
    for (int i = 0; i < 2; i++)
        p.end[i].qp = create_rc(&p.end[i], NULL);
    for (int i = 0; i < 2; i++) {
        p.end[i].attr = attr_to(&p.end[1 - i], p.end[1 - i].qp);
        p.end[i].attr.rnr_retry = 3;
        connect_qp(p.end[i].qp, &p.end[i].attr);
    }
    post_one(p.end[0].qp, 1, out, 5000);
    post_one(p.end[0].qp, 2, out, 5000);
    expect_status(&p, 0, 1, SOFT_WC_RNR_RETRY_EXC_ERR);
    expect_status(&p, 0, 2, SOFT_WC_WR_FLUSH_ERR);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_NOT_READY), 4);
    /* Each wait is four times as long; the clock may go on to a timer that has been cancelled. */
    CHECK(cable_clock_ns - start_ns >= (1 + 4 + 16) * 640000);
    CHECK(cable_clock_ns - start_ns < (1 + 4 + 16 + 8) * 640000);
    close_pair(&p);
}

static void a_message_longer_than_the_buffer_ends_the_connection(void)
{
    for (uint32_t n = 1000; n <= 101000; n += 50000) {
        struct pair p;

        open_pair(&p);
        receive_one(p.end[1].qp, 7, in, n - 1);
        receive_one(p.end[1].qp, 8, in, n);
        post_one(p.end[0].qp, 1, out, n);
        expect_status(&p, 1, 7, SOFT_WC_LOC_LEN_ERR);
        expect_status(&p, 1, 8, SOFT_WC_WR_FLUSH_ERR);
        expect_status(&p, 0, 1, SOFT_WC_REM_INV_REQ_ERR);
        CHECK_EQUAL(soft_qp_state(p.end[1].qp), SOFT_QPS_ERR);
        CHECK_EQUAL(soft_qp_state(p.end[0].qp), SOFT_QPS_ERR);
        close_pair(&p);
    }
}

static void a_peer_that_starts_anew_is_noticed_and_reconnected(void)
{
    struct pair p;

    open_pair(&p);
    receive_one(p.end[1].qp, 1, in, 100);
    post_one(p.end[0].qp, 2, "before", 6);
    expect_status(&p, 1, 1, SOFT_WC_SUCCESS);
    expect_status(&p, 0, 2, SOFT_WC_SUCCESS);
    close_hca(&p.end[1]);
    open_hca(&p.end[1], 2);
    plug(&p);
    p.end[1].qp = create_rc(&p.end[1], NULL); /* the number is another one */
    post_one(p.end[0].qp, 3, "lost", 4);
    expect_status(&p, 0, 3, SOFT_WC_RETRY_EXC_ERR);
    CHECK(counted(&p.end[1], SOFT_C_DROP_QPN) > 0);
    CHECK_EQUAL(soft_qp_modify(p.end[0].qp, SOFT_QPS_RESET, NULL), 0);
    connect_pair(&p);
    receive_one(p.end[1].qp, 4, in, 100);
    post_one(p.end[0].qp, 5, "after", 5);
    expect_status(&p, 1, 4, SOFT_WC_SUCCESS);
    expect_status(&p, 0, 5, SOFT_WC_SUCCESS);
    CHECK(memcmp(in, "after", 5) == 0);
    close_pair(&p);
}

static void a_peer_that_vanishes_under_load_costs_one_connection_only(void)
{
    struct pair p;
    struct soft_qp *other[2];
    struct soft_rc_attr attr;
    uint64_t errors = 0;

    open_pair(&p);
    for (int i = 0; i < 2; i++)
        other[i] = create_rc(&p.end[i], NULL);
    for (int i = 0; i < 2; i++) {
        attr = attr_to(&p.end[1 - i], other[1 - i]);
        connect_qp(other[i], &attr);
    }
    for (uint64_t i = 0; i < 100; i++) {
        post_one(p.end[0].qp, i, out, 65560);
        receive_one(p.end[1].qp, i, in, 65560);
    }
    for (int i = 0; i < 10; i++)
        (void)turn(&p);
    soft_qp_destroy(p.end[1].qp); /* in the middle of a message */
    receive_one(other[1], 1000, in, 100);
    post_one(other[0], 1001, "alive", 5);
    for (bool alive = false; errors == 0 || !alive;) {
        struct soft_wc wc = expect_wc(&p, 0);

        alive |= wc.wr_id == 1001 && wc.status == SOFT_WC_SUCCESS;
        errors += wc.status == SOFT_WC_RETRY_EXC_ERR;
    }
    CHECK_EQUAL(soft_qp_state(other[0]), SOFT_QPS_RTS);
    close_pair(&p);
}

/* ---- what is on the wire --------------------------------------------------------------------- */

static struct cable_packet seen[64];
static unsigned int seen_count;

static bool see(struct soft_udp *from, struct cable_packet *packet)
{
    (void)from;
    if (seen_count < 64)
        seen[seen_count++] = *packet;
    return true;
}

static void packets_are_as_the_architecture_says(void)
{
    /* BTH (volume 1, 9.2): opcode, SE M pad version, P_Key, QPN, A PSN. AETH: syndrome, MSN. */
    static const uint8_t opcodes[] = {0x04, 0x11, 0x05, 0x11, 0x00, 0x01,
                                      0x02, 0x11, 0x00, 0x03, 0x11};
    static const uint32_t lengths[] = {3, 4, 2 * MTU + 1, MTU + 4};
    struct pair p;
    uint32_t psn = 0xfffff0, msn = 0;

    open_pair(&p);
    memset(seen, 0, sizeof(seen));
    seen_count = 0;
    cable.inspect = see;
    for (int i = 0; i < 4; i++) {
        struct soft_send_wr wr = {
            .flags = (uint8_t)(SOFT_SEND_SIGNALED | (i % 2 ? SOFT_SEND_WITH_IMM : 0) |
                               (i == 0 ? SOFT_SEND_SOLICITED : 0)),
            .imm_data = 0x01020304,
            .num_sge = 1,
            .sg = {{out, lengths[i]}},
        };

        receive_one(p.end[1].qp, 0, in, sizeof(in));
        CHECK_EQUAL(soft_qp_post_send(p.end[0].qp, &wr, 1), 1);
        (void)expect_wc(&p, 1);
        (void)expect_wc(&p, 0);
    }
    CHECK_EQUAL(seen_count, sizeof(opcodes));
    for (unsigned int i = 0; i < seen_count; i++) {
        const uint8_t *b = seen[i].data;
        bool ack = b[0] == 0x11;

        CHECK_EQUAL(b[0], opcodes[i]);
        CHECK_EQUAL(soft_roce_get32(b) & 0xffff, 0xffff);
        CHECK_EQUAL(soft_roce_get32(b + 4), soft_qp_qpn(p.end[ack ? 0 : 1].qp));
        if (ack) {
            msn++;
            CHECK_EQUAL(seen[i].bytes, 12 + 4 + 4);
            CHECK_EQUAL(b[1], 0);
            CHECK_EQUAL(soft_roce_get32(b + 8), (psn - 1) & SOFT_PSN_MASK); /* no ack request */
            CHECK_EQUAL(soft_roce_get32(b + 12), 0x1f000000 | msn);
        } else {
            bool last = opcodes[i + 1] == 0x11;

            CHECK_EQUAL(b[1] & 0x8f, i == 0 ? 0x80 : 0); /* solicited, and version 0 */
            CHECK_EQUAL(soft_roce_get32(b + 8), (last ? 0x80000000u : 0) | psn);
            CHECK_EQUAL(seen[i].bytes % 4, 0);
            psn = (psn + 1) & SOFT_PSN_MASK;
        }
        CHECK(soft_icrc_check(
            soft_icrc_seed(&seen[i].src, &seen[i].dst, 4791, 4791, (uint16_t)seen[i].bytes), b,
            seen[i].bytes));
    }
    CHECK_EQUAL(seen[0].data[1] >> 4 & 3, 1); /* 3 bytes of data */
    CHECK_EQUAL(seen[0].bytes, 12 + 4 + 4);
    CHECK_EQUAL(soft_roce_get32(seen[2].data + 12), 0x01020304);
    CHECK_EQUAL(seen[4].bytes, 12 + MTU + 4);
    CHECK_EQUAL(seen[6].data[1] >> 4 & 3, 3);
    close_pair(&p);
}

/* ---- packets of others ----------------------------------------------------------------------- */

static void requests_nobody_serves_are_refused_and_end_the_connection(void)
{
    static const struct {
        uint8_t opcode;
        uint16_t bytes;
    } bad[] = {
        {SOFT_ROCE_RC_WRITE_FIRST, 16 + MTU}, /* RDMA, atomics, invalidation */
        {SOFT_ROCE_RC_WRITE_MIDDLE, MTU},     {SOFT_ROCE_RC_WRITE_LAST, 4},
        {SOFT_ROCE_RC_WRITE_LAST_IMM, 4},     {SOFT_ROCE_RC_WRITE_ONLY, 20},
        {SOFT_ROCE_RC_WRITE_ONLY_IMM, 20},    {SOFT_ROCE_RC_READ_REQUEST, 16},
        {SOFT_ROCE_RC_COMPARE_SWAP, 28},      {SOFT_ROCE_RC_FETCH_ADD, 28},
        {SOFT_ROCE_RC_SEND_LAST_INV, 8},      {SOFT_ROCE_RC_SEND_ONLY_INV, 8},
        {SOFT_ROCE_RC_SEND_MIDDLE, MTU}, /* out of sequence */
        {SOFT_ROCE_RC_SEND_LAST, 4},          {SOFT_ROCE_RC_SEND_LAST_IMM, 4},
        {SOFT_ROCE_RC_SEND_FIRST, MTU - 4}, /* too short, too long */
        {SOFT_ROCE_RC_SEND_FIRST, MTU + 4},   {SOFT_ROCE_RC_SEND_ONLY, MTU + 4},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pair p;
        struct soft_roce roce;

        open_pair(&p);
        receive_one(p.end[1].qp, 9, in, sizeof(in));
        memset(seen, 0, sizeof(seen));
        seen_count = 0;
        cable.inspect = see;
        roce = request(&p, bad[i].opcode, 0xfffff0);
        put_in(&p, 1, &roce, bad[i].bytes, &p.end[0].hca->attr.gid);
        CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_REFUSALS), 1);
        CHECK_EQUAL(soft_qp_state(p.end[1].qp), SOFT_QPS_ERR);
        CHECK_EQUAL(seen_count, 1);
        CHECK_EQUAL(seen[0].data[0], 0x11);
        CHECK_EQUAL(soft_roce_get32(seen[0].data + 8), 0xfffff0);
        CHECK_EQUAL(seen[0].data[12], 0x61);
        expect_status(&p, 1, 9, SOFT_WC_WR_FLUSH_ERR);
        close_pair(&p);
    }
}

static void a_gap_is_reported_once_and_a_duplicate_acknowledged_again(void)
{
    struct pair p;
    struct soft_roce roce;

    open_pair(&p);
    for (uint64_t i = 0; i < 8; i++)
        receive_one(p.end[1].qp, i, in, 100);
    memset(seen, 0, sizeof(seen));
    seen_count = 0;
    cable.inspect = see;
    for (uint32_t i = 1; i < 4; i++) {
        roce = request(&p, SOFT_ROCE_RC_SEND_ONLY, 0xfffff0 + i);
        put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    }
    CHECK_EQUAL(seen_count, 1);
    CHECK_EQUAL(seen[0].data[12], 0x60);
    CHECK_EQUAL(soft_roce_get32(seen[0].data + 8), 0xfffff0);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_GAPS), 3);
    roce.psn = 0xfffff1; /* the requester went back, and the packet got lost again */
    put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    CHECK_EQUAL(seen_count, 2);
    roce.psn = 0xfffff0;
    put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    put_in(&p, 1, &roce, 4, &p.end[0].hca->attr.gid);
    CHECK_EQUAL(seen_count, 4);
    CHECK_EQUAL(soft_roce_get32(seen[2].data + 12), 0x1f000001);
    CHECK_EQUAL(soft_roce_get32(seen[3].data + 12), 0x1f000001);
    CHECK_EQUAL(soft_roce_get32(seen[3].data + 8), 0xfffff0);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_RC_DUPLICATES), 1);
    CHECK_EQUAL(soft_cq_count(p.end[1].cq), 1);
    close_pair(&p);
}

static void the_errors_of_the_peer_have_their_own_codes(void)
{
    static const uint8_t status[] = {0, SOFT_WC_REM_INV_REQ_ERR, SOFT_WC_REM_ACCESS_ERR,
                                     SOFT_WC_REM_OP_ERR};

    for (uint8_t code = 1; code < 4; code++) {
        struct soft_roce ack = {
            .opcode = SOFT_ROCE_RC_ACK, .pkey = 0xffff, .syndrome = 0x60 | code, .psn = 0xfffff1};
        struct pair p;

        open_pair(&p);
        cable_part(p.end[0].hca->udp);
        for (uint64_t i = 0; i < 3; i++)
            post_one(p.end[0].qp, i, out, 4);
        ack.dest_qpn = soft_qp_qpn(p.end[0].qp);
        put_in(&p, 0, &ack, 0, &p.end[1].hca->attr.gid);
        expect_status(&p, 0, 0, SOFT_WC_SUCCESS);
        expect_status(&p, 0, 1, status[code]);
        expect_status(&p, 0, 2, SOFT_WC_WR_FLUSH_ERR);
        close_pair(&p);
    }
}

/* Damages the second packet of a message the first time, and looks where its data went when it
 * comes again. */
static struct {
    uint8_t buffer[4096];
    unsigned int seen;
    bool damage_in_place;
} placing;

static bool damage_second(struct soft_udp *from, struct cable_packet *packet)
{
    uint8_t *byte = packet->data + SOFT_ROCE_BTH_BYTES + 100;

    (void)from;
    if (packet->data[0] != SOFT_ROCE_RC_SEND_MIDDLE ||
        soft_roce_get32(packet->data + 8) % SOFT_PSN_HALF != 0x7ffff1)
        return true;
    if (placing.seen++ == 0)
        *byte ^= 1;
    else
        placing.damage_in_place = placing.buffer[1024 + 100] == (*byte ^ 1);
    return true;
}

static void a_packet_is_checked_while_it_is_copied_to_its_place(void)
{
    struct pair p;

    memset(&placing, 0, sizeof(placing));
    open_pair(&p);
    cable.inspect = damage_second;
    receive_one(p.end[1].qp, 9, placing.buffer, sizeof(placing.buffer));
    post_one(p.end[0].qp, 1, out, 4096);
    expect_status(&p, 1, 9, SOFT_WC_SUCCESS);
    expect_status(&p, 0, 1, SOFT_WC_SUCCESS);
    CHECK_EQUAL(placing.seen, 2);
    CHECK(placing.damage_in_place);
    CHECK_EQUAL(counted(&p.end[1], SOFT_C_DROP_ICRC), 1);
    CHECK(memcmp(placing.buffer, out, sizeof(placing.buffer)) == 0);
    close_pair(&p);
}

/* Turns bits of the headers, mostly with a correct ICRC, on connections that carry traffic; makes a
 * connection anew when it breaks. */
static uint64_t fuzz_random = 4755;

static bool turn_bits(struct soft_udp *from, struct cable_packet *packet)
{
    size_t n = packet->bytes;
    uint32_t crc;

    (void)from;
    if (next_random(&fuzz_random) % 4 != 0)
        return true;
    for (uint64_t bits = next_random(&fuzz_random) % 3 + 1; bits > 0; bits--) {
        size_t at = next_random(&fuzz_random) % (n < 24 ? n : 24);

        packet->data[at] ^= (uint8_t)(1 << next_random(&fuzz_random) % 8);
    }
    if (next_random(&fuzz_random) % 8 == 0)
        packet->bytes = n = next_random(&fuzz_random) % n / 4 * 4;
    if (n < SOFT_ICRC_BYTES + SOFT_ROCE_BTH_BYTES || next_random(&fuzz_random) % 8 == 0)
        return true;
    crc = soft_icrc_seed(&packet->src, &packet->dst, SOFT_UDP_PORT, SOFT_UDP_PORT, (uint16_t)n);
    {
        uint8_t bth[SOFT_ROCE_BTH_BYTES];

        memcpy(bth, packet->data, sizeof(bth));
        bth[SOFT_ROCE_MASKED_BYTE] = 0xff;
        crc = soft_crc32_update(crc, bth, sizeof(bth));
        crc = soft_crc32_update(crc, packet->data + sizeof(bth), n - sizeof(bth) - SOFT_ICRC_BYTES);
    }
    soft_roce_put32le(packet->data + n - SOFT_ICRC_BYTES, crc);
    return true;
}

static void a_connection_survives_or_ends_cleanly_whatever_comes(void)
{
    struct pair p;
    uint64_t broken = 0, delivered = 0;

    open_pair(&p);
    cable.inspect = turn_bits;
    for (int round = 0; round < 4000; round++) {
        uint8_t *buffer[2] = {malloc(9000), malloc(9000)};
        bool over = false;

        for (int i = 0; i < 2; i++) {
            receive_one(p.end[i].qp, 100, buffer[i], 9000);
            post_one(p.end[i].qp, 1, out, (uint32_t)(next_random(&fuzz_random) % 9000));
        }
        /* A turned bit may acknowledge a packet that never came: then one side waits for ever. */
        for (int done = 0, turns = 0; done < 4 && !over; turns++) {
            struct soft_wc wc;

            over = turns == 1000;
            (void)turn(&p);
            for (int i = 0; i < 2; i++)
                while (soft_cq_poll(p.end[i].cq, 1, &wc) == 1) {
                    done++;
                    delivered += wc.opcode == SOFT_WC_RECV && wc.status == SOFT_WC_SUCCESS;
                    CHECK(wc.byte_len <= 9000);
                    over |= wc.status != SOFT_WC_SUCCESS;
                }
        }
        for (int i = 0; i < 2; i++)
            over |= soft_qp_state(p.end[i].qp) == SOFT_QPS_ERR;
        if (over) { /* the test makes both anew, as a connection manager would */
            struct soft_wc wc;

            broken++;
            for (int i = 0; i < 2; i++)
                soft_qp_destroy(p.end[i].qp);
            for (int i = 0; i < 2; i++) {
                while (soft_cq_poll(p.end[i].cq, 1, &wc) == 1)
                    continue;
                p.end[i].qp = create_rc(&p.end[i], NULL);
            }
            connect_pair(&p);
        }
        free(buffer[0]);
        free(buffer[1]);
    }
    CHECK(broken > 100 && delivered > 1000);
    close_pair(&p);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_stream_is_whole_on_a_good_cable),
        TEST(a_stream_is_whole_where_the_socket_is_often_full),
        TEST(a_stream_is_whole_at_one_percent_loss),
        TEST(a_stream_is_whole_at_five_percent_loss),
        TEST(a_stream_is_whole_at_twenty_percent_loss),
        TEST(a_silent_peer_ends_the_connection_after_its_retries),
        TEST(a_peer_without_buffers_is_waited_for),
        TEST(a_limit_ends_the_wait_for_buffers),
        TEST(a_message_longer_than_the_buffer_ends_the_connection),
        TEST(a_peer_that_starts_anew_is_noticed_and_reconnected),
        TEST(a_peer_that_vanishes_under_load_costs_one_connection_only),
        TEST(packets_are_as_the_architecture_says),
        TEST(requests_nobody_serves_are_refused_and_end_the_connection),
        TEST(a_gap_is_reported_once_and_a_duplicate_acknowledged_again),
        TEST(the_errors_of_the_peer_have_their_own_codes),
        TEST(a_packet_is_checked_while_it_is_copied_to_its_place),
        TEST(a_connection_survives_or_ends_cleanly_whatever_comes),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
