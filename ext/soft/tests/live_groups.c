/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast. */
#include <errno.h>

#include "live.h"

/* ---- groups ---------------------------------------------------------------------------------- */

static void a_group_reaches_all_members_and_the_sender(void)
{
    struct in6_addr group = group_number(0);
    struct soft_qp *second;
    struct soft_ah *ah;
    struct soft_wc wc[2];
    struct end a, b;

    open_both(&a, &b);
    ah = ah_to(a.hca, group);
    second = qp_on(b.hca, b.cq, 4);
    enter(place[1].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    CHECK_EQUAL(soft_qp_attach_mcast(second, &group), 0);
    post(second, 7777, b.frame[RING - 1], FRAME);
    send_to(&a, ah, SOFT_QPN_MCAST, "all", 3);
    await(b.cq, 2, wc);
    CHECK(wc[0].qp_num != wc[1].qp_num);
    CHECK_EQUAL(wc[0].byte_len, 43);
    CHECK_EQUAL(wc[1].src_qp, soft_qp_qpn(a.qp));
    CHECK(memcmp(b.frame[0] + 24, &group, 16) == 0);

    enter(place[0].netns);
    CHECK_EQUAL(soft_qp_attach_mcast(a.qp, &group), 0);
    CHECK_EQUAL(soft_qp_detach_mcast(second, &group), 0);
    send_to(&a, ah, SOFT_QPN_MCAST, "me too", 6);
    await(a.cq, 1, wc);
    CHECK_EQUAL(wc[0].src_qp, soft_qp_qpn(a.qp)); /* our own echo, by which a consumer knows it */
    CHECK_EQUAL(wc[0].byte_len, 46);
    await(b.cq, 1, wc);
    CHECK_EQUAL(wc[0].qp_num, soft_qp_qpn(b.qp));

    /* The last member at B leaves: B receives no more, but A, which is still attached, does. */
    CHECK_EQUAL(soft_qp_detach_mcast(b.qp, &group), 0);
    send_to(&a, ah, SOFT_QPN_MCAST, "gone", 4);
    await(a.cq, 1, wc);
    exchange(&a, &b);
    CHECK_EQUAL(counter(b.hca, SOFT_C_RX_DELIVERED), 4);
    leave();
    close_both(&a, &b);
}

/* Attaches `count` groups at B and sends to each from A, in bursts that the socket buffer holds. */
static void reach_groups(int count)
{
    static struct soft_wc wc[64];
    struct end a, b;
    int64_t start = now_ms();

    open_both(&a, &b);
    enter(place[1].netns);
    for (int i = 0; i < count; i++) {
        struct in6_addr group = group_number(i);

        CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    }
    printf("%d groups attached in %lld ms\n", count, (long long)(now_ms() - start));
    for (int i = 0; i < count; i++) {
        struct in6_addr group = group_number(i);
        struct soft_ah *ah = ah_to(a.hca, group);

        send_to(&a, ah, SOFT_QPN_MCAST, &i, sizeof(i));
        soft_ah_destroy(ah);
    }
    for (int i = 0; i < count; i++) {
        struct in6_addr group = group_number(i);
        int got;

        await(b.cq, 1, wc);
        memcpy(&got, b.frame[wc[0].wr_id] + 40, sizeof(got));
        CHECK_EQUAL(got, i);
        CHECK(memcmp(b.frame[wc[0].wr_id] + 24, &group, 16) == 0);
    }
    for (int i = 0; i < count; i++) {
        struct in6_addr group = group_number(i);

        CHECK_EQUAL(soft_qp_detach_mcast(b.qp, &group), 0);
    }
    for (int i = 1; i < SOFT_MEMBERSHIP_SOCKETS; i++)
        CHECK_EQUAL(b.hca->membership.fd[i], -1); /* all but the first are closed again */
    leave();
    close_both(&a, &b);
}

static void a_hundred_groups_are_reached(void)
{
    reach_groups(100);
}

static void a_thousand_groups_are_reached(void)
{
    reach_groups(1000);
}

static void joining_from_another_namespace_is_refused_not_misplaced(void)
{
    struct end b = open_end(1);

    for (int i = 0; i < SOFT_MEMBERSHIP_PER_SOCKET; i++) { /* by the socket of open time */
        struct in6_addr group = group_number(i);

        CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
    }
    for (int i = 0; i < 3; i++) {
        struct in6_addr group = group_number(5000 + i);

        CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), -EXDEV);
        enter(place[1].netns);
        CHECK_EQUAL(soft_qp_attach_mcast(b.qp, &group), 0);
        CHECK_EQUAL(soft_qp_detach_mcast(b.qp, &group), 0);
        leave();
    }
    close_end(&b);
}

const struct test live_groups[] = {
    TEST(a_group_reaches_all_members_and_the_sender),
    TEST(a_hundred_groups_are_reached),
    TEST(a_thousand_groups_are_reached),
    TEST(joining_from_another_namespace_is_refused_not_misplaced),
    {NULL, NULL},
};
