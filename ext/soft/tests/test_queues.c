/* SPDX-License-Identifier: BSD-2-Clause */
/* Send, receive and completion queues: limits, flushing, waiting, waking. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "bench.h"

static const struct in6_addr peer_gid = {{{0xfe, 0x80, [8] = 2, [15] = 2}}};
/* ---- queues ---------------------------------------------------------------------------------- */

static void a_full_cq_drops_receives_and_holds_sends_back(void)
{
    struct bench b = open_bench(3);
    struct soft_cq *send_cq;
    struct soft_qp_attr attr = {SOFT_QPT_UD, NULL, b.cq, 8, 8, QKEY, 0, NULL, 0, 0};
    struct soft_qp *qp;
    struct soft_send_wr wr[10];
    static uint8_t buffer[8][64];
    struct soft_wc wc[8];

    CHECK_EQUAL(soft_cq_create(b.hca, 2, &send_cq), 0);
    attr.send_cq = send_cq;
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    for (int i = 0; i < 8; i++) {
        post_recv(qp, 100 + i, buffer[i], 64);
        wr[i] = send_wr(&b, qp, i, "abcdefgh", (uint32_t)i);
    }
    /* Eight fit into the queue, two of them complete, and the others wait for room. */
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 8), 8);
    CHECK_EQUAL(counter(&b, SOFT_C_TX_PACKETS), 2);
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 8), 2);
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 1), 0);
    CHECK_EQUAL(soft_cq_poll(send_cq, 8, wc), 4); /* room was made, and used at once */
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(wc[i].wr_id, i);
    CHECK_EQUAL(counter(&b, SOFT_C_TX_PACKETS), 4);
    CHECK_EQUAL(counter(&b, SOFT_C_DROP_CQ_FULL), 1);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 5); /* 0, 1, 2; 3 was dropped; and 4, 5 by a retry */
    CHECK_EQUAL(wc[2].wr_id, 102);
    CHECK_EQUAL(wc[2].byte_len, 42);
    CHECK_EQUAL(wc[3].wr_id, 103);
    CHECK_EQUAL(wc[3].byte_len, 44);
    CHECK_EQUAL(soft_cq_poll(send_cq, 2, wc), 2);
    CHECK_EQUAL(wc[1].wr_id, 5);
    while (soft_cq_poll(send_cq, 8, wc) > 0)
        ;
    CHECK_EQUAL(counter(&b, SOFT_C_TX_PACKETS), 10);
    soft_hca_close(b.hca);
}

static void invalid_requests_are_refused_where_they_stand(void)
{
    struct bench a = open_bench(DEPTH), b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&a);
    struct soft_send_wr wr[3];
    struct soft_recv_wr in[2] = {{.num_sge = 0}, {.num_sge = SOFT_MAX_SGE + 1}};
    struct soft_wc wc[4];

    for (int fault = 0; fault < 4; fault++) {
        wr[0] = wr[1] = wr[2] = send_wr(&a, qp, 1, "x", 1);
        if (fault == 0)
            wr[1].ah = NULL;
        if (fault == 1)
            wr[1].ah = b.self;
        if (fault == 2)
            wr[1].num_sge = SOFT_MAX_SGE + 1;
        if (fault == 3)
            wr[1].remote_qpn = 0x1000000;
        CHECK_EQUAL(soft_qp_post_send(qp, wr, 3), 1);
        CHECK_EQUAL(soft_qp_post_send(qp, wr + 1, 2), -EINVAL);
        CHECK_EQUAL(soft_cq_poll(a.cq, 4, wc), 1);
    }
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 0), 0);
    CHECK_EQUAL(soft_qp_post_recv(qp, in, 2), 1);
    CHECK_EQUAL(soft_qp_post_recv(qp, in + 1, 1), -EINVAL);
    for (int i = 0; i < 15; i++)
        CHECK_EQUAL(soft_qp_post_recv(qp, in, 1), 1);
    CHECK_EQUAL(soft_qp_post_recv(qp, in, 1), 0);
    soft_hca_close(a.hca);
    soft_hca_close(b.hca);
}

static void creation_checks_its_limits(void)
{
    struct bench a = open_bench(DEPTH), b = open_bench(DEPTH);
    struct soft_qp_attr good = {SOFT_QPT_UD, a.cq, a.cq, 1, 1, 0, 0, NULL, 0, 0};
    struct soft_ah_attr ah_attr = {.dgid = IN6ADDR_ANY_INIT};
    struct soft_qp_attr bad[8];
    struct soft_qp *qp;
    struct soft_cq *cq;
    struct soft_ah *ah;

    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].type = 3; /* UC: not there */
    bad[1].send_cq = NULL;
    bad[2].recv_cq = b.cq;
    bad[3].max_send_wr = 0;
    bad[4].max_send_wr = SOFT_MAX_WR + 1;
    bad[5].max_recv_wr = 0;
    bad[6].max_recv_wr = SOFT_MAX_WR + 1;
    bad[7].pkey_index = SOFT_MAX_PKEYS;
    for (int i = 0; i < 8; i++)
        CHECK_EQUAL(soft_qp_create(a.hca, &bad[i], &qp), -EINVAL);
    CHECK_EQUAL(soft_cq_create(a.hca, 0, &cq), -EINVAL);
    CHECK_EQUAL(soft_cq_create(a.hca, SOFT_MAX_CQE + 1, &cq), -EINVAL);
    CHECK_EQUAL(soft_ah_create(a.hca, &ah_attr, &ah), -EINVAL);
    CHECK(inet_pton(AF_INET6, "::ffff:10.0.0.1", &ah_attr.dgid) == 1);
    CHECK_EQUAL(soft_ah_create(a.hca, &ah_attr, &ah), -EINVAL);
    ah_attr.dgid = peer_gid;
    ah_attr.flow_label = 0x100000;
    CHECK_EQUAL(soft_ah_create(a.hca, &ah_attr, &ah), -EINVAL);
    CHECK_EQUAL(soft_qp_create(a.hca, &good, &qp), 0);
    CHECK_EQUAL(soft_cq_destroy(a.cq), -EBUSY);
    soft_qp_destroy(qp);
    CHECK_EQUAL(soft_cq_destroy(a.cq), 0);
    soft_hca_close(a.hca);
    soft_hca_close(b.hca);
}

static void destroying_a_qp_flushes_what_is_posted(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_cq *narrow;
    struct soft_qp_attr attr = {SOFT_QPT_UD, NULL, b.cq, 8, 8, QKEY, 0, NULL, 0, 0};
    struct soft_send_wr wr[3];
    struct soft_qp *qp;
    uint8_t buffer[64];
    struct soft_wc wc[8];

    CHECK_EQUAL(soft_cq_create(b.hca, 2, &narrow), 0);
    attr.send_cq = narrow;
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    post_recv(qp, 50, buffer, 10);
    post_recv(qp, 51, buffer, 10);
    for (int i = 0; i < 3; i++)
        wr[i] = send_wr(&b, qp, i, "x", 1);
    CHECK_EQUAL(soft_qp_post_send(qp, wr, 3), 3); /* two complete, the third waits */
    soft_ah_destroy(b.self);                      /* still held by the third */
    CHECK_EQUAL(soft_cq_poll(narrow, 1, wc), 1);
    CHECK_EQUAL(soft_cq_poll(narrow, 1, wc), 1);
    soft_qp_destroy(qp);
    CHECK_EQUAL(soft_cq_poll(narrow, 8, wc), 1); /* the HCA sent it when there was room */
    CHECK_EQUAL(wc[0].wr_id, 2);
    CHECK_EQUAL(wc[0].status, SOFT_WC_SUCCESS);
    CHECK_EQUAL(soft_cq_poll(b.cq, 8, wc), 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(wc[i].wr_id, 50 + i);
        CHECK_EQUAL(wc[i].status, SOFT_WC_WR_FLUSH_ERR);
        CHECK_EQUAL(wc[i].opcode, SOFT_WC_RECV);
    }
    soft_hca_close(b.hca);
}

static void destroying_a_qp_flushes_sends_that_wait(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_cq *narrow;
    struct soft_qp_attr attr = {SOFT_QPT_UD, NULL, b.cq, 8, 8, QKEY, 0, NULL, 0, 0};
    struct soft_send_wr wr[4];
    struct soft_qp *first, *second;
    struct soft_wc wc[8];

    CHECK_EQUAL(soft_cq_create(b.hca, 2, &narrow), 0);
    attr.send_cq = narrow;
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &first), 0);
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &second), 0);
    for (int i = 0; i < 4; i++)
        wr[i] = send_wr(&b, first, i, "x", 1);
    CHECK_EQUAL(soft_qp_post_send(first, wr, 4), 4);
    CHECK_EQUAL(soft_qp_post_send(second, wr, 4), 4); /* both wait now */
    soft_ah_destroy(b.self);
    soft_qp_destroy(
        first); /* the CQ is full: its flush is lost, as documented, and nothing leaks */
    CHECK_EQUAL(soft_cq_poll(narrow, 2, wc), 2);
    soft_qp_destroy(second);
    CHECK_EQUAL(soft_cq_poll(narrow, 8, wc), 2);
    CHECK_EQUAL(wc[0].qp_num, wc[1].qp_num);
    CHECK_EQUAL(wc[0].status, SOFT_WC_SUCCESS); /* the retry of the poll above */
    soft_hca_close(b.hca);
}

static void a_send_without_a_device_is_lost_and_counted(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, qp, 5, "x", 1);
    struct soft_ah_attr attr = {.dgid = peer_gid};

    CHECK_EQUAL(soft_ah_create(b.hca, &attr, &wr.ah), 0);
    send_one(&b, qp, &wr);
    expect_empty(&b);
    CHECK_EQUAL(counter(&b, SOFT_C_TX_UNREACHABLE), 1);
    soft_hca_close(b.hca);
}

static void qp_numbers_start_at_random_and_skip_the_reserved(void)
{
    struct bench a = open_bench(DEPTH), b = open_bench(DEPTH), c = open_bench(DEPTH);
    struct soft_qp *in_use;

    /* Two of three equal by chance: once in five million runs. */
    CHECK(a.hca->next_qpn != b.hca->next_qpn || b.hca->next_qpn != c.hca->next_qpn);
    a.hca->next_qpn = 3;
    in_use = create_ud(&a);
    CHECK_EQUAL(soft_qp_qpn(in_use), 3);
    a.hca->next_qpn = 0xfffffe;
    CHECK_EQUAL(soft_qp_qpn(create_ud(&a)), 0xfffffe);
    CHECK_EQUAL(soft_qp_qpn(create_ud(&a)), 2);
    CHECK_EQUAL(soft_qp_qpn(create_ud(&a)), 4);
    soft_qp_destroy(in_use);
    CHECK_EQUAL(soft_qp_qpn(create_ud(&a)), 5); /* a freed number is not given again at once */
    soft_hca_close(a.hca);
    soft_hca_close(b.hca);
    soft_hca_close(c.hca);
}

static void the_qp_table_ends_at_its_limit(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp_attr attr = {SOFT_QPT_UD, b.cq, b.cq, 1, 1, QKEY, 0, NULL, 0, 0};
    struct soft_qp *qp = NULL;

    for (int i = 0; i < SOFT_MAX_QP; i++)
        CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    CHECK(soft_qp_create(b.hca, &attr, &qp) == -ENOSPC);
    soft_qp_destroy(qp);
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    soft_hca_close(b.hca);
}

static void address_handles_end_at_their_limit(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_ah_attr attr = {.dgid = peer_gid};
    struct soft_ah *ah;

    CHECK_EQUAL(b.hca->ah_count, 1);
    b.hca->ah_count = SOFT_MAX_AH - 1; /* a million of them take too long */
    CHECK_EQUAL(soft_ah_create(b.hca, &attr, &ah), 0);
    CHECK_EQUAL(soft_ah_create(b.hca, &attr, &ah), -ENOSPC);
    soft_ah_destroy(b.self);
    CHECK_EQUAL(soft_ah_create(b.hca, &attr, &ah), 0);
    CHECK_EQUAL(soft_ah_create(b.hca, &attr, &ah), -ENOSPC);
    soft_hca_close(b.hca);
}

/* ---- queues that wait for the kernel --------------------------------------------------------- */

static enum soft_stall next_stall;
static int attempts;
static struct soft_qp *attempted[8];

static enum soft_stall attempt(struct soft_qp *qp)
{
    attempted[attempts++ % 8] = qp;
    return next_stall;
}

static const struct soft_transport stalling = {.send = attempt};

static void a_queue_without_kernel_memory_is_retried_at_its_deadline(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, qp, 1, "x", 1);

    qp->transport = &stalling;
    attempts = 0;
    next_stall = SOFT_STALL_MEMORY;
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    CHECK_EQUAL(attempts, 1);
    CHECK(soft_hca_deadline_ns(b.hca) != SOFT_NO_DEADLINE_NS);
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1); /* queued behind the first, without a try */
    b.hca->deadline_ns = INT64_MAX - 1;
    expect_empty(&b);
    CHECK_EQUAL(attempts, 1); /* no attempt before the deadline */
    b.hca->deadline_ns = 0;
    expect_empty(&b);
    CHECK_EQUAL(attempts, 2);
    CHECK(soft_hca_deadline_ns(b.hca) > 0); /* still no memory: another deadline */
    b.hca->deadline_ns = 0;
    next_stall = SOFT_STALL_NONE;
    soft_hca_progress(b.hca);
    CHECK_EQUAL(attempts, 3);
    CHECK_EQUAL(soft_hca_deadline_ns(b.hca), SOFT_NO_DEADLINE_NS);
    expect_empty(&b);
    CHECK_EQUAL(attempts, 3);
    soft_hca_close(b.hca);
}

static void queues_that_wait_take_turns(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp[3];

    attempts = 0;
    next_stall = SOFT_STALL_MEMORY;
    for (int i = 0; i < 3; i++) {
        struct soft_send_wr wr;

        qp[i] = create_ud(&b);
        qp[i]->transport = &stalling;
        wr = send_wr(&b, qp[i], 1, "x", 1);
        CHECK_EQUAL(soft_qp_post_send(qp[i], &wr, 1), 1);
    }
    attempts = 0;
    for (int i = 0; i < 4;
         i++) { /* the first failure ends a round, and goes to the end of the queue */
        b.hca->deadline_ns = 0;
        expect_empty(&b);
        CHECK_EQUAL(attempts, i + 1);
        CHECK(attempted[i] == qp[i % 3]);
    }
    soft_qp_destroy(qp[1]); /* out of the middle */
    attempts = 0;
    next_stall = SOFT_STALL_NONE;
    b.hca->deadline_ns = 0;
    soft_hca_progress(b.hca);
    CHECK_EQUAL(attempts, 2);
    CHECK(attempted[0] == qp[2] && attempted[1] == qp[0]);
    soft_hca_close(b.hca);
}

/* ---- sleeping and waking --------------------------------------------------------------------- */

static bool readable(const struct soft_cq *cq)
{
    struct pollfd p = {.fd = soft_cq_fd(cq), .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static void an_armed_cq_wakes_once_for_a_completion(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, qp, 1, "x", 1);
    struct soft_wc wc;

    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    CHECK(!readable(b.cq)); /* not armed */
    soft_cq_arm(b.cq);
    CHECK(readable(b.cq)); /* a completion is there already */
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    soft_cq_arm(b.cq);
    CHECK(!readable(b.cq));
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
    CHECK(readable(b.cq));
    CHECK_EQUAL(soft_cq_poll(b.cq, 1, &wc), 1);
    CHECK(readable(b.cq)); /* until it is armed again */
    soft_cq_arm(b.cq);
    CHECK(!readable(b.cq));
    CHECK_EQUAL(soft_hca_deadline_ns(b.hca), SOFT_NO_DEADLINE_NS);
    soft_qp_destroy(qp);
    CHECK_EQUAL(soft_cq_destroy(b.cq), 0); /* armed as it is */
    CHECK_EQUAL(b.hca->channels_armed, 0);
    soft_hca_close(b.hca);
}

static void queues_side_by_side_are_armed_and_wake_together(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_qp *qp = create_ud(&b);
    struct soft_send_wr wr = send_wr(&b, qp, 1, "x", 1);
    struct soft_cq *beside;
    struct soft_wc wc;

    CHECK_EQUAL(soft_cq_create_beside(b.cq, 0, &beside), -EINVAL);
    CHECK_EQUAL(soft_cq_create_beside(b.cq, 4, &beside), 0);
    CHECK_EQUAL(soft_cq_fd(beside), soft_cq_fd(b.cq));
    soft_cq_arm(beside);
    CHECK_EQUAL(b.hca->channels_armed, 1);
    CHECK(!readable(beside));
    CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1); /* completes into the other one */
    CHECK(readable(beside));
    CHECK_EQUAL(soft_cq_take(beside, 1, &wc), 0);
    CHECK_EQUAL(soft_cq_take(b.cq, 4, &wc), 1);
    soft_cq_arm(b.cq);
    soft_cq_arm(beside);
    CHECK_EQUAL(b.hca->channels_armed, 1);
    soft_cq_disarm(b.cq);
    CHECK_EQUAL(b.hca->channels_armed, 0);
    soft_qp_destroy(qp);
    soft_cq_arm(b.cq);
    CHECK_EQUAL(soft_cq_destroy(b.cq), 0); /* the first of them: the descriptor is the other's */
    CHECK(!readable(beside));
    CHECK_EQUAL(b.hca->channels_armed, 1);
    CHECK_EQUAL(soft_cq_destroy(beside), 0);
    CHECK_EQUAL(b.hca->channels_armed, 0);
    CHECK(LIST_EMPTY(&b.hca->channels));
    soft_hca_close(b.hca);
}

struct sleeper {
    struct soft_cq *cq;
    _Atomic int woken;
};

static void *sleep_on_cq(void *argument)
{
    struct sleeper *s = argument;
    struct pollfd p = {.fd = soft_cq_fd(s->cq), .events = POLLIN};
    struct soft_wc wc;

    while (s->woken < 1000) {
        if (soft_cq_poll(s->cq, 1, &wc) == 1) {
            s->woken++;
            continue;
        }
        soft_cq_arm(s->cq);
        if (soft_cq_poll(s->cq, 1, &wc) == 1)
            s->woken++;
        else
            CHECK_EQUAL(poll(&p, 1, 60000), 1); /* a lost wake-up ends here */
    }
    return NULL;
}

static void completions_made_by_one_thread_wake_another(void)
{
    struct bench b = open_bench(DEPTH);
    struct soft_cq *own;
    struct soft_qp_attr attr = {SOFT_QPT_UD, NULL, b.cq, 8, 16, QKEY, 0, NULL, 0, 0};
    struct soft_qp *qp;
    struct sleeper sleeper = {.cq = b.cq};
    pthread_t thread;
    uint8_t buffer[64];
    struct soft_wc wc;

    CHECK_EQUAL(soft_cq_create(b.hca, 1, &own), 0);
    attr.send_cq = own;
    CHECK_EQUAL(soft_qp_create(b.hca, &attr, &qp), 0);
    CHECK_EQUAL(pthread_create(&thread, NULL, sleep_on_cq, &sleeper), 0);
    for (int i = 0; i < 1000; i++) {
        struct soft_send_wr wr = send_wr(&b, qp, i, "x", 1);
        struct soft_recv_wr in = {.num_sge = 1, .sg = {{buffer, sizeof(buffer)}}};

        CHECK_EQUAL(soft_qp_post_recv(qp, &in, 1), 1);
        CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
        CHECK_EQUAL(soft_cq_poll(own, 1, &wc), 1);
        while (i - sleeper.woken >= 16) /* the CQ must not overflow */
            sched_yield();
    }
    pthread_join(thread, NULL);
    CHECK_EQUAL(sleeper.woken, 1000);
    soft_hca_close(b.hca);
}

static void every_counter_has_a_name_of_its_own(void)
{
    for (int i = 0; i < SOFT_C_COUNT; i++) {
        CHECK(soft_counter_names[i] != NULL && soft_counter_names[i][0] != '\0');
        for (int j = 0; j < i; j++)
            CHECK(strcmp(soft_counter_names[i], soft_counter_names[j]) != 0);
    }
}

static void opening_a_device_that_cannot_be_says_so(void)
{
    struct soft_hca *hca;

    CHECK_EQUAL(soft_hca_open("nosuchdevice0", NULL, &hca), -ENODEV);
    CHECK_EQUAL(soft_hca_open("", NULL, &hca), -ENODEV);
    CHECK_EQUAL(soft_hca_open("a-name-longer-than-any-device-has", NULL, &hca), -ENODEV);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_full_cq_drops_receives_and_holds_sends_back),
        TEST(invalid_requests_are_refused_where_they_stand),
        TEST(creation_checks_its_limits),
        TEST(destroying_a_qp_flushes_what_is_posted),
        TEST(destroying_a_qp_flushes_sends_that_wait),
        TEST(a_send_without_a_device_is_lost_and_counted),
        TEST(qp_numbers_start_at_random_and_skip_the_reserved),
        TEST(the_qp_table_ends_at_its_limit),
        TEST(address_handles_end_at_their_limit),
        TEST(a_queue_without_kernel_memory_is_retried_at_its_deadline),
        TEST(queues_that_wait_take_turns),
        TEST(an_armed_cq_wakes_once_for_a_completion),
        TEST(queues_side_by_side_are_armed_and_wake_together),
        TEST(completions_made_by_one_thread_wake_another),
        TEST(every_counter_has_a_name_of_its_own),
        TEST(opening_a_device_that_cannot_be_says_so),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
