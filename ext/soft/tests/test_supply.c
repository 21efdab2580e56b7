/* SPDX-License-Identifier: BSD-2-Clause */
/* Consumers of one HCA that read at different speeds: how long a slow consumer may delay a fast
 * one, and that its packets, and no others, are dropped then. The test sets the clock. */
#include "rc_bench.h"

#define QKEY     0x0b1bu
#define MS       1000000
#define ROUNDS   1000 /* of a ms each */
#define FLOOD    8    /* packets for the slow consumer in each round */
#define FEW      4    /* buffers of the slow consumer */
#define BUCKET   80   /* ms that the HCA waits in a row, and the part of the time in the long run */
#define PART     8
#define OWN_ROOM 64

static uint8_t buffer[SOFT_GRH_BYTES + 64];

/* A consumer at the far end: a QP with a completion queue and a channel of its own. */
struct consumer {
    struct soft_cq *cq;
    struct soft_qp *qp;
};

struct supply {
    struct pair pair;
    struct soft_ah *ah;
    struct consumer fast, slow;
};

static struct soft_qp *create_datagram_qp(struct end *e, struct soft_cq *cq, enum soft_qp_type type)
{
    struct soft_qp_attr attr = {
        .type = type,
        .send_cq = cq,
        .recv_cq = cq,
        .max_send_wr = OWN_ROOM,
        .max_recv_wr = OWN_ROOM,
        .qkey = QKEY,
    };
    struct soft_qp *qp;

    CHECK_EQUAL(soft_qp_create(e->hca, &attr, &qp), 0);
    return qp;
}

static void post(struct soft_qp *qp, int n)
{
    struct soft_recv_wr wr = {.num_sge = 1, .sg = {{buffer, sizeof(buffer)}}};

    while (n-- > 0)
        CHECK_EQUAL(soft_qp_post_recv(qp, &wr, 1), 1);
}

static void open_supply(struct supply *s, enum soft_qp_type slow)
{
    struct end *end = s->pair.end;
    struct soft_ah_attr to;

    calm_cable(1);
    open_hca(&end[0], 1);
    open_hca(&end[1], 2);
    cable_join(end[0].hca->udp, end[1].hca->udp);
    to = (struct soft_ah_attr){.dgid = end[1].hca->attr.gid};
    CHECK_EQUAL(soft_ah_create(end[0].hca, &to, &s->ah), 0);
    end[0].qp = create_datagram_qp(&end[0], end[0].cq, SOFT_QPT_UD);
    end[0].qp->qkey = SOFT_QKEY_GSI; /* a controlled Q_Key is the sender's own */
    s->fast.cq = end[1].cq;
    s->fast.qp = create_datagram_qp(&end[1], s->fast.cq, SOFT_QPT_UD);
    CHECK_EQUAL(soft_cq_create(end[1].hca, OWN_ROOM, &s->slow.cq), 0);
    if (slow == SOFT_QPT_GSI)
        soft_cq_set_background(s->slow.cq);
    s->slow.qp = create_datagram_qp(&end[1], s->slow.cq, slow);
    soft_cq_arm(s->fast.cq);
    soft_cq_disarm(s->fast.cq);
    post(s->fast.qp, OWN_ROOM / 2);
    post(s->slow.qp, FEW);
}

static void close_supply(struct supply *s)
{
    soft_ah_destroy(s->ah);
    close_hca(&s->pair.end[0]);
    close_hca(&s->pair.end[1]);
}

static void send_packet(struct supply *s, const struct consumer *to)
{
    struct soft_send_wr wr = {
        .ah = s->ah,
        .remote_qpn = soft_qp_qpn(to->qp),
        .remote_qkey = to->qp->qkey,
        .num_sge = 1,
        .sg = {{"packet", 6}},
    };

    CHECK_EQUAL(soft_qp_post_send(s->pair.end[0].qp, &wr, 1), 1);
}

/* Takes all that there is, and posts as many buffers. */
static unsigned int poll_fast(struct supply *s)
{
    struct soft_wc wc[OWN_ROOM];
    int n = soft_cq_poll(s->fast.cq, OWN_ROOM, wc);

    post(s->fast.qp, n);
    return (unsigned int)n;
}

/* One buffer at a time: as slow as a round is long. */
static void poll_slow(struct supply *s)
{
    struct soft_wc wc;

    if (soft_cq_take(s->slow.cq, 1, &wc) == 1)
        post(s->slow.qp, 1);
}

static uint64_t count_of(const struct supply *s, enum soft_counter which)
{
    struct soft_hca_counters c;

    soft_hca_counters(s->pair.end[1].hca, &c);
    return c.value[which];
}

/* A flood to the slow consumer and, behind it, one packet a ms to the fast one; how many rounds the
 * fast one waited. */
static unsigned int flood(struct supply *s)
{
    unsigned int waited = 0, arrived = 0, got;

    for (unsigned int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < FLOOD; i++)
            send_packet(s, &s->slow);
        send_packet(s, &s->fast);
        got = poll_fast(s);
        arrived += got;
        waited += got == 0;
        cable_clock_ns += MS;
        poll_slow(s);
    }
    while ((got = poll_fast(s)) > 0)
        arrived += got;
    CHECK_EQUAL(arrived, ROUNDS);
    CHECK_EQUAL(count_of(s, SOFT_C_DROP_SOCKET), 0);
    return waited;
}

static void a_slow_consumer_delays_the_others_for_a_part_of_the_time(void)
{
    struct supply s;

    open_supply(&s, SOFT_QPT_UD);
    CHECK(flood(&s) <= BUCKET + ROUNDS / PART + 1);
    CHECK(count_of(&s, SOFT_C_DROP_NO_BUFFER) > ROUNDS);
    close_supply(&s);
}

static void a_consumer_in_the_background_delays_nobody(void)
{
    struct supply s;

    open_supply(&s, SOFT_QPT_GSI);
    CHECK_EQUAL(flood(&s), 0);
    CHECK(count_of(&s, SOFT_C_DROP_GSI) > ROUNDS);
    CHECK_EQUAL(count_of(&s, SOFT_C_DROP_NO_BUFFER), 0);
    close_supply(&s);
}

static void a_consumer_that_posts_at_once_loses_nothing(void)
{
    struct supply s;
    struct soft_wc wc;

    open_supply(&s, SOFT_QPT_UD);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < FLOOD; i++)
            send_packet(&s, &s.slow);
        for (int i = 0; i < FLOOD; i++) {
            (void)poll_fast(&s);
            while (soft_cq_take(s.slow.cq, 1, &wc) == 1)
                post(s.slow.qp, 1);
            cable_clock_ns += 10000;
        }
        cable_clock_ns += MS;
    }
    CHECK_EQUAL(count_of(&s, SOFT_C_DROP_NO_BUFFER), 0);
    close_supply(&s);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_slow_consumer_delays_the_others_for_a_part_of_the_time),
        TEST(a_consumer_in_the_background_delays_nobody),
        TEST(a_consumer_that_posts_at_once_loses_nothing),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
