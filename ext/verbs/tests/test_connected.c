/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of an RDMA device: numbered sends, shared queues, and the completions of a failed
 * connection.
 */
#include <errno.h>
#include <poll.h>

#include "fake_rc.h"

static struct ipu_fabric *fabric;
static const struct ipu_connected_ops *ops;
static char message[60000];

static void begin(void)
{
    fabric = fake_open(false);
    CHECK(fabric->connected == NULL);
    CHECK_EQ(fabric->ops->memory(fabric->self, message, sizeof message), 0);
    fake_rc_open(fabric, true);
    ops = fabric->connected;
    CHECK(ops != NULL);
}

static void end(void)
{
    ipu_verbs_free(fake_verbs);
    fake_rc_close();
    fake_close();
}

static struct ipu_connection *connection(int i)
{
    return &fake_rc.connection[i].connection;
}

static int send_some(int i, uint64_t first, int n, uint32_t len)
{
    struct ipu_send sends[FAKE_QUEUE];
    for (int k = 0; k < n; k++)
        sends[k] = (struct ipu_send){.addr = message, .len = len, .cookie = first + (uint64_t)k};
    return ops->send(fabric->connected_self, connection(i), sends, n);
}

/* sent() must report exactly these cookies of this connection, in order. */
static void expect_sent(int i, uint64_t first, int n, bool failed)
{
    struct ipu_connection_sent sent[FAKE_QUEUE];
    int count_sent = 0;
    for (int more = 1; more > 0 && count_sent < FAKE_QUEUE - 8; count_sent += more)
        more = ops->sent(fabric->connected_self, sent + count_sent, 7);
    CHECK_EQ(count_sent, n);
    for (int k = 0; k < n; k++) {
        CHECK(sent[k].connection == connection(i));
        CHECK_EQ(sent[k].cookie, first + (uint64_t)k);
        CHECK_EQ(sent[k].failed, failed);
    }
}

static void a_batch_is_one_doorbell_and_few_completions(void)
{
    begin();
    CHECK_EQ(send_some(0, 10, 40, 1000), 40);
    CHECK_EQ(fake_rc.doorbells, 1);
    int signalled = 0;
    for (int k = 0; k < 40; k++)
        signalled += (fake_rc.sends[k].wr.send_flags & IBV_SEND_SIGNALED) != 0;
    CHECK_EQ(signalled, 3); /* the 16th, the 32nd, the last */
    CHECK(fake_rc.sends[39].wr.send_flags & IBV_SEND_SIGNALED);
    fake_rc_complete(15);
    expect_sent(0, 0, 0, false);
    fake_rc_complete(20);
    expect_sent(0, 10, 32, false);
    fake_rc_complete(5);
    expect_sent(0, 42, 8, false);
    end();
}

static void small_messages_are_inline_and_two_pieces_are_gathered(void)
{
    begin();
    struct ipu_send sends[2] = {
        {.head = message, .head_len = 40, .addr = message + 100, .len = 50000, .cookie = 1},
        {.head = message, .head_len = 40, .addr = message + 100, .len = 24, .cookie = 2}};
    CHECK_EQ(ops->send(fabric->connected_self, connection(0), sends, 2), 2);
    CHECK_EQ(fake_rc.sends[0].wr.num_sge, 2);
    CHECK_EQ(fake_rc.sends[0].sge[0].length, 40);
    CHECK_EQ(fake_rc.sends[0].sge[1].length, 50000);
    CHECK_EQ(fake_rc.sends[0].sge[1].lkey, 101); /* of the second region */
    CHECK(!(fake_rc.sends[0].wr.send_flags & IBV_SEND_INLINE));
    CHECK(fake_rc.sends[1].wr.send_flags & IBV_SEND_INLINE);
    fake_rc_complete(2);
    expect_sent(0, 1, 2, false);
    end();
}

static void connections_end_their_sends_apart(void)
{
    begin();
    CHECK_EQ(send_some(0, 100, 5, 1000), 5);
    CHECK_EQ(send_some(1, 200, 5, 1000), 5);
    fake_rc_fail(&fake_rc.qp[0], IBV_WC_RETRY_EXC_ERR);
    expect_sent(0, 100, 5, true);
    fake_rc_complete(5);
    expect_sent(1, 200, 5, false);
    CHECK_EQ(send_some(1, 300, 1, 1000), 1); /* and it still works */
    fake_rc_complete(1);
    expect_sent(1, 300, 1, false);
    end();
}

static void sends_before_the_failing_one_have_arrived(void)
{
    begin();
    CHECK_EQ(send_some(0, 0, 10, 1000), 10);
    fake_rc_complete(4); /* unsignalled: no completion reports them */
    expect_sent(0, 0, 0, false);
    fake_rc_fail(&fake_rc.qp[0], IBV_WC_RNR_RETRY_EXC_ERR);
    struct ipu_connection_sent sent[64];
    CHECK_EQ(ops->sent(fabric->connected_self, sent, 64), 10);
    for (int k = 0; k < 10; k++) {
        CHECK_EQ(sent[k].cookie, (uint64_t)k);
        CHECK_EQ(sent[k].failed, k >= 4);
    }
    CHECK_EQ(send_some(0, 20, 3, 1000), 3); /* taken, and failed */
    fake_rc_fail(&fake_rc.qp[0], IBV_WC_WR_FLUSH_ERR);
    expect_sent(0, 20, 3, true);
    end();
}

static void a_full_queue_takes_no_more(void)
{
    begin();
    CHECK_EQ(send_some(0, 0, 100, 1000), 64); /* a chain */
    CHECK_EQ(send_some(0, 64, 100, 1000), 64);
    CHECK_EQ(send_some(0, 128, 1, 1000), 0); /* FAKE_RC_DEPTH */
    CHECK_EQ(send_some(1, 500, 100, 1000), 64);
    CHECK_EQ(send_some(1, 564, 100, 1000), FAKE_RC_SENDS - 3 * 64); /* of the completion queue */
    CHECK_EQ(send_some(2, 900, 1, 1000), 0);
    fake_rc_fail(&fake_rc.qp[0], IBV_WC_RETRY_EXC_ERR); /* a completion each, and none is lost */
    expect_sent(0, 0, 128, true);
    CHECK_EQ(send_some(2, 900, 1, 1000), 1);
    end();
}

static void what_a_device_refuses_stays_the_callers(void)
{
    begin();
    fake_rc.refuse_send_after = 3;
    CHECK_EQ(send_some(0, 0, 5, 1000), 3);
    fake_rc.refuse_send_after = 0;
    CHECK_EQ(send_some(0, 3, 5, 1000), -EIO);
    fake_rc_fail(&fake_rc.qp[0],
                 IBV_WC_WR_FLUSH_ERR); /* what it took without a signal comes back */
    expect_sent(0, 0, 3, true);
    end();
}

static int post_some(uint64_t first, int n)
{
    struct ipu_recv recvs[FAKE_QUEUE];
    for (int k = 0; k < n; k++)
        recvs[k] = (struct ipu_recv){.addr = message, .len = 60000, .cookie = first + (uint64_t)k};
    return ops->post(fabric->connected_self, recvs, n);
}

static void one_queue_receives_for_all(void)
{
    begin();
    CHECK_EQ(post_some(0, 100), 64);
    CHECK_EQ(post_some(64, 1), 0); /* FAKE_SRQ_DEPTH */
    fake_rc_arrive(&fake_rc.qp[2], 60000, IBV_WC_SUCCESS);
    fake_rc_arrive(&fake_rc.qp[0], 5, IBV_WC_SUCCESS);
    fake_rc_arrive(&fake_rc.qp[1], 0, IBV_WC_WR_FLUSH_ERR);
    fake_rc_arrive(&fake_rc.qp[1], 0, IBV_WC_LOC_LEN_ERR);
    struct ipu_connection_received done[8];
    CHECK_EQ(ops->received(fabric->connected_self, done, 3), 3); /* the rest waits */
    CHECK(done[0].connection == connection(2) && done[0].byte_len == 60000 && !done[0].failed);
    CHECK(done[1].connection == connection(0) && done[1].byte_len == 5 && !done[1].failed);
    CHECK(done[2].connection == connection(1) && done[2].failed && done[2].cookie == 2);
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1);
    CHECK(done[0].failed && done[0].cookie == 3);
    CHECK_EQ(post_some(64, 10), 4);
    fake_rc.refuse_recv_after = 1;
    fake_rc_arrive(&fake_rc.qp[0], 5, IBV_WC_SUCCESS);
    fake_rc_arrive(&fake_rc.qp[0], 5, IBV_WC_SUCCESS);
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 2);
    CHECK_EQ(post_some(70, 2), 1);
    end();
}

static void what_comes_for_a_connection_given_up_is_nobodys(void)
{
    begin();
    CHECK_EQ(post_some(0, 4), 4);
    ops->remove(fabric->connected_self, connection(1));
    fake_rc_arrive(&fake_rc.qp[1], 100, IBV_WC_SUCCESS);
    struct ipu_connection_received done[8];
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1);
    CHECK(done[0].connection == NULL);
    ops->remove(fabric->connected_self, connection(1)); /* again: nothing happens */
    CHECK_EQ(ops->add(fabric->connected_self, connection(1)), 0);
    end();
}

/* sent() has reported all its sends, and filled the array exactly: the connection may end. */
static void a_connection_without_sends_is_forgotten(void)
{
    begin();
    struct ipu_connection_sent sent[3];
    CHECK_EQ(send_some(0, 0, 5, 1000), 5);
    CHECK_EQ(send_some(1, 10, 1, 1000), 1);
    fake_rc_complete(6);
    CHECK_EQ(ops->sent(fabric->connected_self, sent, 3), 3);
    CHECK_EQ(ops->sent(fabric->connected_self, sent, 2), 2);
    ops->remove(fabric->connected_self, connection(0));
    memset(&fake_rc.connection[0].queue.posted, 0xff, 3 * sizeof(uint64_t)); /* and destroyed */
    CHECK_EQ(ops->sent(fabric->connected_self, sent, 1), 1);
    CHECK(sent[0].connection == connection(1) && sent[0].cookie == 10);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0); /* the pump may sleep */
    end();
}

static bool readable_now(void)
{
    struct pollfd entry = {.fd = fabric->ops->fd(fabric->self), .events = POLLIN};
    return poll(&entry, 1, 0) == 1;
}

static void a_completion_wakes_the_pump(void)
{
    begin();
    struct ipu_connection_received done[8];
    CHECK_EQ(post_some(0, 4), 4);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK(!readable_now());
    fake_rc_arrive(&fake_rc.qp[0], 5, IBV_WC_SUCCESS);
    CHECK(readable_now());
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK(!readable_now());
    CHECK_EQ(send_some(0, 1, 1, 1000), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    fake_rc_complete(1);
    CHECK(!readable_now()); /* the pump does not wait for the end of a send */
    expect_sent(0, 1, 1, false);
    CHECK_EQ(send_some(0, 2, 1, 1000), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK_EQ(fabric->ops->arm_sends(fabric->self), 0);
    fake_rc_complete(1);
    CHECK(readable_now()); /* unless asked to */
    expect_sent(0, 2, 1, false);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK(!readable_now());
    CHECK_EQ(send_some(0, 3, 1, 1000), 1);
    fake_rc_complete(1);
    CHECK_EQ(fabric->ops->arm_sends(fabric->self), 1); /* it had ended before */
    expect_sent(0, 3, 1, false);
    /* The fabric sees a message that arrives between the last poll and the arming. */
    fake_rc_arrive(&fake_rc.qp[0], 5, IBV_WC_SUCCESS);
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1);
    fake_rc_arrive(&fake_rc.qp[0], 5, IBV_WC_SUCCESS);
    CHECK_EQ(fabric->ops->arm(fabric->self), 1);
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    end();
}

static void a_channel_in_error_is_not_watched_any_more(void)
{
    begin();
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    close(fake_rc.channel_pipe[1]); /* read() ends at once from now on */
    fake_rc.channel_pipe[1] = -1;
    CHECK(readable_now());
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK(!readable_now());
    end();
}

static void only_a_pattern_with_shared_queues_will_do(void)
{
    fabric = fake_open(false);
    struct ibv_qp lone = fake.qp;
    CHECK_EQ(ipu_verbs_connect(fake_verbs, &lone, false), -EINVAL); /* no shared receive queue */
    CHECK(fabric->connected == NULL);
    fake_close();
}

int main(void)
{
    RUN(a_batch_is_one_doorbell_and_few_completions);
    RUN(small_messages_are_inline_and_two_pieces_are_gathered);
    RUN(connections_end_their_sends_apart);
    RUN(sends_before_the_failing_one_have_arrived);
    RUN(a_full_queue_takes_no_more);
    RUN(what_a_device_refuses_stays_the_callers);
    RUN(one_queue_receives_for_all);
    RUN(what_comes_for_a_connection_given_up_is_nobodys);
    RUN(a_connection_without_sends_is_forgotten);
    RUN(a_completion_wakes_the_pump);
    RUN(a_channel_in_error_is_not_watched_any_more);
    RUN(only_a_pattern_with_shared_queues_will_do);
    return 0;
}
