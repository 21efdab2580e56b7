/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "fake.h"

static struct ipu_fabric *fabric;
static void *group; /* a multicast handle: there at once */

static void open_fabric(void)
{
    struct ipu_dest dest = fake_dest(0x80);
    fabric = fake_open(true);
    group = fabric->ops->ah_create(fabric->self, &dest);
    CHECK(group != NULL);
}

static void close_fabric(void)
{
    fabric->ops->ah_destroy(fabric->self, group);
    fake_close();
}

/* Returns how many cookies come back now; they must count up from `first`. */
static int returned(uint64_t first)
{
    uint64_t cookies[512];
    int n = fabric->ops->sent(fabric->self, cookies, 512);
    for (int i = 0; i < n; i++)
        CHECK_EQ(cookies[i], first + (uint64_t)i);
    return n;
}

static void a_chain_is_one_doorbell_with_every_sixteenth_signalled(void)
{
    open_fabric();
    CHECK_EQ(fake_send(fabric, group, 100, 40, 60), 40);
    CHECK_EQ(fake.doorbells, 1);
    CHECK_EQ(fake.send_count, 40);
    for (int i = 0; i < 40; i++) {
        bool signalled = fake.sends[i].wr.send_flags & IBV_SEND_SIGNALED;
        CHECK_EQ(signalled, i == 15 || i == 31 || i == 39);
    }
    CHECK_EQ(fake_counter("tx_doorbells"), 1);
    CHECK_EQ(fake_counter("tx_posted"), 40);
    CHECK_EQ(fake_counter("tx_signalled"), 3);
    fake_complete_sends(40);
    CHECK_EQ(returned(100), 40);
    close_fabric();
}

static void an_unsignalled_send_comes_back_with_the_signalled_one_behind_it(void)
{
    open_fabric();
    CHECK_EQ(fake_send(fabric, group, 0, 40, 60), 40);
    fake_complete_sends(15);
    CHECK_EQ(returned(0), 0);
    fake_complete_sends(1);
    CHECK_EQ(returned(0), 16);
    fake_complete_sends(23);
    CHECK_EQ(returned(16), 16);
    fake_complete_sends(1);
    CHECK_EQ(returned(32), 8);
    close_fabric();
}

/* E6. */
static void a_work_request_has_the_fields_of_its_link(void)
{
    open_fabric();
    CHECK_EQ(fake_send(fabric, group, 7, 1, 64), 1);
    CHECK_EQ(fake_send(fabric, group, 8, 1, 65), 1);
    const struct fake_send *small = &fake.sends[0], *large = &fake.sends[1];
    CHECK_EQ(small->wr.opcode, IBV_WR_SEND);
    CHECK_EQ(small->wr.wr.ud.remote_qpn, 5);
    CHECK_EQ(small->wr.wr.ud.remote_qkey, 0x0b1b);
    CHECK_EQ(small->sge.lkey, 100);
    CHECK_EQ(small->sge.length, 64);
    CHECK(small->wr.send_flags & IBV_SEND_INLINE); /* the device takes 64 bytes so */
    CHECK(!(large->wr.send_flags & IBV_SEND_INLINE));
    CHECK_EQ(fake_counter("tx_inline"), 1);
    fake_complete_sends(2);
    CHECK_EQ(returned(7), 2);
    close_fabric();
}

static void no_more_is_taken_than_the_queue_holds(void)
{
    open_fabric();
    CHECK_EQ(fake_send(fabric, group, 0, 100, 60), 64); /* one chain */
    CHECK_EQ(fake_send(fabric, group, 64, 64, 60), 64);
    CHECK_EQ(fake_send(fabric, group, 128, 10, 60), 0); /* FAKE_SEND_DEPTH */
    fake_complete_sends(16);
    CHECK_EQ(fake_send(fabric, group, 128, 10, 60), 0); /* none has come back yet */
    CHECK_EQ(returned(0), 16);
    CHECK_EQ(fake_send(fabric, group, 128, 20, 60), 16);
    fake_complete_sends(128);
    CHECK_EQ(returned(16), 128);
    close_fabric();
}

static void an_oversize_send_is_lost_and_never_posted(void)
{
    open_fabric();
    CHECK_EQ(fake_send(fabric, group, 1, 1, FAKE_MTU + 1), 1);
    CHECK_EQ(fake.send_count, 0);
    CHECK_EQ(fake_counter("tx_too_big"), 1);
    CHECK_EQ(returned(1), 1);
    CHECK_EQ(fake_send(fabric, group, 2, 1, FAKE_MTU), 1);
    CHECK_EQ(fake.send_count, 1);
    fake_complete_sends(1);
    CHECK_EQ(returned(2), 1);
    close_fabric();
}

static void lost_sends_are_bounded_too(void)
{
    open_fabric();
    CHECK_EQ(fake_send(fabric, group, 0, 200, FAKE_MTU + 1), 200);
    CHECK_EQ(fake_send(fabric, group, 200, 100, FAKE_MTU + 1), 56); /* 256 in all */
    CHECK_EQ(fake_send(fabric, group, 256, 1, FAKE_MTU + 1), 0);
    uint64_t cookies[512];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 512), 256);
    CHECK_EQ(fake_send(fabric, group, 256, 1, FAKE_MTU + 1), 1);
    CHECK_EQ(returned(256), 1);
    close_fabric();
}

/* Every cookie of [0, total) comes back once. */
static void all_return(int total)
{
    uint64_t cookies[512];
    bool seen[512] = {false};
    int count = 0, n;
    while ((n = fabric->ops->sent(fabric->self, cookies, 512)) > 0)
        for (int i = 0; i < n; i++, count++) {
            CHECK(cookies[i] < (uint64_t)total && !seen[cookies[i]]);
            seen[cookies[i]] = true;
        }
    CHECK_EQ(n, -EIO);
    CHECK_EQ(count, total);
}

static void what_the_device_refuses_breaks_the_queue_pair_and_comes_back(void)
{
    open_fabric();
    fake.refuse_send_after = 20;
    CHECK_EQ(fake_send(fabric, group, 0, 40, 60), 40);
    CHECK_EQ(fake.send_count, 20);
    CHECK_EQ(fake.states[fake.state_count - 1], IBV_QPS_ERR);
    CHECK_EQ(fake_send(fabric, group, 40, 1, 60), -EIO);
    all_return(40);
    CHECK_EQ(fake_counter("tx_errors"), 1);
    fake.refuse_send_after = -1;
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    CHECK_EQ(fake_send(fabric, group, 0, 1, 60), 1);
    fake_complete_sends(1);
    CHECK_EQ(returned(0), 1);
    close_fabric();
}

static void a_completion_error_ends_in_recovery(void)
{
    open_fabric();
    const int raised[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    CHECK(memcmp(fake.states, raised, sizeof raised) == 0);
    CHECK_EQ(fake.init_attr.qkey, 0x0b1b);
    CHECK_EQ(fake.init_attr.pkey_index, 2);
    CHECK_EQ(fake.init_attr.port_num, 1);

    CHECK_EQ(fake_send(fabric, group, 0, 30, 60), 30);
    fake_complete_sends(3);
    fake_fail_send(IBV_WC_LOC_QP_OP_ERR); /* unsignalled: completes all the same */
    uint64_t cookies[2];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 2), 2);
    CHECK_EQ(fabric->ops->recover(fabric->self), -EBUSY); /* 28 have yet to come back */
    uint64_t rest[64];
    CHECK_EQ(fabric->ops->sent(fabric->self, rest, 64), 28);
    CHECK_EQ(rest[0], 2);
    CHECK_EQ(fabric->ops->sent(fabric->self, rest, 64), -EIO);
    CHECK_EQ(fake_counter("tx_errors"), 1);
    CHECK_EQ(fake_counter("flushed"), 26);

    fake.refuse_state = IBV_QPS_RTR;
    CHECK_EQ(fabric->ops->recover(fabric->self), -EINVAL); /* tried again later */
    fake.refuse_state = -1;
    fake.state_count = 0;
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    const int recovered[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    CHECK_EQ(fake.state_count, 4);
    CHECK(memcmp(fake.states, recovered, sizeof recovered) == 0);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0); /* nothing to do */
    CHECK_EQ(fake_counter("recoveries"), 1);
    CHECK_EQ(fake_send(fabric, group, 50, 1, 60), 1);
    fake_complete_sends(1);
    CHECK_EQ(returned(50), 1);
    close_fabric();
}

static void a_break_from_elsewhere_reaches_the_pump(void)
{
    open_fabric();
    CHECK_EQ(fake_send(fabric, group, 0, 10, 60), 10);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK_EQ(fabric->ops->arm_sends(fabric->self), 0);
    ipu_verbs_break(fake_verbs);
    CHECK(fake_readable(fabric->ops->fd(fabric->self)));
    CHECK_EQ(fabric->ops->arm(fabric->self), 1);
    all_return(10);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    close_fabric();
}

static void a_completion_queue_that_cannot_be_polled_is_a_break(void)
{
    open_fabric();
    CHECK_EQ(fake_send(fabric, group, 0, 1, 60), 1);
    fake.poll_fails = true;
    CHECK_EQ(returned(0), -EIO);
    fake.poll_fails = false;
    all_return(1);
    close_fabric();
}

int main(void)
{
    RUN(a_chain_is_one_doorbell_with_every_sixteenth_signalled);
    RUN(an_unsignalled_send_comes_back_with_the_signalled_one_behind_it);
    RUN(a_work_request_has_the_fields_of_its_link);
    RUN(no_more_is_taken_than_the_queue_holds);
    RUN(an_oversize_send_is_lost_and_never_posted);
    RUN(lost_sends_are_bounded_too);
    RUN(what_the_device_refuses_breaks_the_queue_pair_and_comes_back);
    RUN(a_completion_error_ends_in_recovery);
    RUN(a_break_from_elsewhere_reaches_the_pump);
    RUN(a_completion_queue_that_cannot_be_polled_is_a_break);
    return 0;
}
