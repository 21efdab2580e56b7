/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "fake.h"

static struct ipu_fabric *fabric;
static char region[64];

static int post(uint64_t first, int n)
{
    struct ipu_recv recvs[128];
    CHECK(n <= 128);
    for (int i = 0; i < n; i++)
        recvs[i] = (struct ipu_recv){.addr = region, .len = 64, .cookie = first + (uint64_t)i};
    return fabric->ops->post(fabric->self, recvs, n);
}

static void open_fabric(void)
{
    fabric = fake_open(true);
    CHECK_EQ(fabric->ops->memory(fabric->self, region, sizeof region), 0);
}

static void receives_are_posted_in_chains_up_to_the_queues_depth(void)
{
    open_fabric();
    CHECK_EQ(post(0, 100), 64);
    CHECK_EQ(post(64, 64), 36); /* the device reports 100 */
    CHECK_EQ(post(100, 1), 0);
    CHECK_EQ(fake.recvs[99].wr_id, 99);
    CHECK_EQ(fake.recv_sges[0].lkey, 101); /* of the second region */
    CHECK_EQ(fake.recv_sges[0].length, 64);
    struct ipu_received done[2];
    fake_arrive(44, 9, 0);
    CHECK_EQ(fabric->ops->received(fabric->self, done, 2), 1);
    CHECK_EQ(post(100, 2), 1);
    fake_close();
}

/* E4: without a GRH the first 40 bytes mean nothing. */
static void a_completion_has_length_source_and_grh_of_its_datagram(void)
{
    open_fabric();
    CHECK_EQ(post(10, 3), 3);
    fake_arrive(104, 0x654321, IBV_WC_GRH);
    fake_arrive(60, 2, 0);
    struct ipu_received done[4];
    CHECK_EQ(fabric->ops->received(fabric->self, done, 4), 2);
    CHECK_EQ(done[0].cookie, 10);
    CHECK_EQ(done[0].byte_len, 104);
    CHECK_EQ(done[0].src_qpn, 0x654321);
    CHECK_EQ(done[0].flags, IPU_RECEIVED_GRH);
    CHECK_EQ(done[1].cookie, 11);
    CHECK_EQ(done[1].flags, 0);
    CHECK_EQ(fabric->min_recv, 40 + FAKE_MTU);
    fake_close();
}

static void completions_are_handed_out_in_as_many_pieces_as_asked_for(void)
{
    open_fabric();
    CHECK_EQ(post(0, 10), 10);
    for (int i = 0; i < 10; i++)
        fake_arrive(44, 1, 0);
    struct ipu_received done[4];
    uint64_t next = 0;
    int n;
    while ((n = fabric->ops->received(fabric->self, done, 4)) > 0)
        for (int i = 0; i < n; i++)
            CHECK_EQ(done[i].cookie, next++);
    CHECK_EQ(next, 10);
    fake_close();
}

static void a_failed_receive_breaks_the_queue_pair_and_all_come_back(void)
{
    open_fabric();
    CHECK_EQ(post(0, 5), 5);
    fake_arrive(44, 1, IBV_WC_GRH);
    fake_fail_recv(IBV_WC_LOC_LEN_ERR);
    struct ipu_received done[8];
    CHECK_EQ(fabric->ops->received(fabric->self, done, 8), 2);
    CHECK_EQ(done[0].flags, IPU_RECEIVED_GRH);
    CHECK_EQ(done[1].flags, IPU_RECEIVED_FAILED);
    CHECK_EQ(post(5, 1), -EIO);
    CHECK_EQ(fabric->ops->arm(fabric->self), 1); /* the pump does not know yet */
    uint64_t cookie;
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), -EIO);
    CHECK_EQ(fabric->ops->recover(fabric->self), -EBUSY);
    CHECK_EQ(fabric->ops->received(fabric->self, done, 8), 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(done[i].flags, IPU_RECEIVED_FAILED);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    CHECK_EQ(post(0, 5), 5);
    fake_close();
}

static void what_the_device_refuses_stays_the_callers(void)
{
    open_fabric();
    fake.refuse_recv_after = 3;
    CHECK_EQ(post(0, 5), 3);
    CHECK_EQ(post(3, 2), -EIO);
    struct ipu_received done[8];
    CHECK_EQ(fabric->ops->received(fabric->self, done, 8), 3);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    fake_close();
}

static void memory_beyond_the_last_region_is_refused(void)
{
    open_fabric(); /* two by now */
    for (int i = 2; i < 8; i++)
        CHECK_EQ(fabric->ops->memory(fabric->self, region, sizeof region), 0);
    CHECK_EQ(fabric->ops->memory(fabric->self, region, sizeof region), -ENOSPC);
    CHECK_EQ(fake.regions, 8);
    fake_close();
}

static void waiting_asks_once_for_one_event(void)
{
    open_fabric();
    struct ipu_received done[4];
    int fd = fabric->ops->fd(fabric->self);
    CHECK_EQ(post(0, 4), 4);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK_EQ(fake.notify_calls, 1); /* for the receive queue; no send is under way */
    fake_arrive(44, 1, 0);
    fake_arrive(44, 1, 0);
    CHECK(fake_readable(fd));
    CHECK_EQ(fabric->ops->received(fabric->self, done, 4), 2);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0); /* reads the event, asks again */
    CHECK_EQ(fake.unacked, 0);
    CHECK_EQ(fake.notify_calls, 2);
    fake_close();
}

static void what_came_before_the_request_is_not_slept_on(void)
{
    open_fabric();
    struct ipu_received done[4];
    CHECK_EQ(post(0, 4), 4);
    fake_arrive(44, 1, 0);
    CHECK_EQ(fabric->ops->arm(fabric->self), 1);
    CHECK_EQ(fabric->ops->received(fabric->self, done, 4), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    fake_close();
}

static void the_send_queue_is_asked_while_something_is_being_sent(void)
{
    open_fabric();
    struct ipu_dest dest = fake_dest(0x80);
    void *group = fabric->ops->ah_create(fabric->self, &dest);
    uint64_t cookie;
    CHECK_EQ(fake_send(fabric, group, 0, 1, 60), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK(fake.recv_armed && !fake.send_armed); /* the pump does not wait for its end */
    fake_complete_sends(1);
    CHECK(!fake_readable(fabric->ops->fd(fabric->self)));
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 1);
    CHECK_EQ(fake_send(fabric, group, 0, 1, 60), 1);
    CHECK_EQ(fabric->ops->arm_sends(fabric->self), 0);
    CHECK(fake.send_armed);
    fake_complete_sends(1);
    CHECK(fake_readable(fabric->ops->fd(fabric->self)));
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK(!fake_readable(fabric->ops->fd(fabric->self)));
    CHECK_EQ(fabric->ops->arm_sends(fabric->self), 0);
    CHECK(!fake.send_armed); /* there is nothing to wait for */
    CHECK_EQ(fake_send(fabric, group, 1, 1, 60), 1);
    fake_complete_sends(1);
    CHECK_EQ(fabric->ops->arm_sends(fabric->self), 1); /* the poll after the arming finds it */
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 1);
    fake_close();
}

static void an_event_that_comes_late_wakes_the_pump_but_once(void)
{
    open_fabric();
    struct ipu_received done[4];
    int fd = fabric->ops->fd(fabric->self);
    CHECK_EQ(post(0, 4), 4);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    fake.recv_armed = false; /* the completion is there, its event is on the way */
    fake_arrive(44, 1, 0);
    CHECK_EQ(fabric->ops->received(fabric->self, done, 4), 1);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK_EQ(write(fake.channel_pipe[1], "r", 1), 1);
    CHECK(fake_readable(fd));
    CHECK_EQ(fabric->ops->received(fabric->self, done, 4), 0);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    CHECK(!fake_readable(fd));
    CHECK_EQ(fake.unacked, 0);
    fake_arrive(44, 1, 0);
    CHECK(fake_readable(fd)); /* and it still wakes for the next */
    fake_close();
}

static void a_channel_in_error_is_not_watched_any_more(void)
{
    open_fabric();
    CHECK_EQ(fabric->ops->arm(fabric->self), 0);
    close(fake.channel_pipe[1]); /* read() ends at once from now on */
    fake.channel_pipe[1] = -1;
    int fd = fabric->ops->fd(fabric->self);
    CHECK(fake_readable(fd));
    CHECK_EQ(fabric->ops->arm(fabric->self), 1);
    uint64_t cookie;
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), -EIO);
    CHECK_EQ(fabric->ops->arm(fabric->self), 0); /* and the pump does not spin: */
    struct ipu_verbs *verbs = fake_verbs;
    ipu_verbs_break(verbs);
    CHECK(fake_readable(fd));
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), -EIO);
    fake_close();
}

static void asynchronous_events_report_the_port_and_the_device(void)
{
    open_fabric();
    CHECK_EQ(ipu_verbs_events(fake_verbs), 0);
    fake_say(IBV_EVENT_PORT_ERR, 2); /* of another port */
    CHECK_EQ(ipu_verbs_events(fake_verbs), 0);
    fake_say(IBV_EVENT_PORT_ERR, 1);
    fake_say(IBV_EVENT_GID_CHANGE, 1);
    CHECK_EQ(ipu_verbs_events(fake_verbs), IPU_VERBS_PORT_DOWN | IPU_VERBS_PORT_CHANGED);
    CHECK_EQ(ipu_verbs_events(fake_verbs), 0);
    fake_say(IBV_EVENT_PKEY_CHANGE, 1);
    CHECK_EQ(ipu_verbs_events(fake_verbs), IPU_VERBS_PKEYS_CHANGED);
    fake_say(IBV_EVENT_SM_CHANGE, 1);
    fake_say(IBV_EVENT_LID_CHANGE, 1);
    CHECK_EQ(ipu_verbs_events(fake_verbs), IPU_VERBS_SUBNET_CHANGED | IPU_VERBS_PORT_CHANGED);
    fake_say(IBV_EVENT_CLIENT_REREGISTER, 1);
    fake_say(IBV_EVENT_CLIENT_REREGISTER, 2);
    CHECK_EQ(ipu_verbs_events(fake_verbs), IPU_VERBS_SUBNET_CHANGED);
    fake_say(IBV_EVENT_DEVICE_FATAL, 0);
    CHECK_EQ(ipu_verbs_events(fake_verbs), IPU_VERBS_FATAL);
    CHECK_EQ(fake.unacked, 0);
    fake_say(IBV_EVENT_QP_FATAL, 0);
    CHECK_EQ(ipu_verbs_events(fake_verbs), 0);
    uint64_t cookie;
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), -EIO);
    fake_close();
}

/* Opens a TX queue whose queue pair shares the leader's channel, which does not matter here. */
static struct ipu_verbs *open_tx_queue(struct ibv_qp *qp, uint32_t qpn)
{
    struct ipu_verbs *tx_queue;
    *qp = fake.qp;
    qp->qp_num = qpn;
    struct ipu_verbs_config config = {.qp = qp,
                                      .gid = fake_dest(1).gid,
                                      .mtu = FAKE_MTU,
                                      .max_ah = 500,
                                      .port = 1,
                                      .leader = fake_verbs};
    CHECK_EQ(ipu_verbs_create(&config, &tx_queue), 0);
    return tx_queue;
}

static void say_fatal(struct ibv_qp *qp)
{
    fake_say(IBV_EVENT_QP_FATAL, 0);
    fake.async[fake.async_count - 1].element.qp = qp;
}

static void a_tx_queues_queue_pair_is_our_own_and_its_events_are_its_own(void)
{
    struct ibv_qp qps[2];
    uint64_t cookie;
    open_fabric();
    CHECK(!ipu_fabric_sends_as(fabric, 0x77));
    struct ipu_verbs *first = open_tx_queue(&qps[0], 0x77), *second = open_tx_queue(&qps[1], 0x78);
    struct ipu_fabric *tx_queue = ipu_verbs_fabric(first);
    CHECK(ipu_fabric_sends_as(fabric, 0x77));
    CHECK(ipu_fabric_sends_as(fabric, 0x78));
    CHECK(ipu_fabric_sends_as(fabric, fake.qp.qp_num));
    CHECK(!ipu_fabric_sends_as(tx_queue, fake.qp.qp_num));
    CHECK_EQ(fabric->max_ah, 500);

    say_fatal(&qps[0]);
    CHECK_EQ(ipu_verbs_events(first), 0); /* the leader reads the events */
    CHECK_EQ(ipu_verbs_events(fake_verbs), 0);
    CHECK_EQ(fake.unacked, 0);
    CHECK_EQ(tx_queue->ops->sent(tx_queue->self, &cookie, 1), -EIO);
    CHECK_EQ(fabric->ops->sent(fabric->self, &cookie, 1), 0);
    CHECK_EQ(tx_queue->ops->recover(tx_queue->self), 0);
    CHECK_EQ(tx_queue->ops->sent(tx_queue->self, &cookie, 1), 0);

    ipu_verbs_free(first);
    say_fatal(&qps[0]); /* of a TX queue that has ended meanwhile */
    say_fatal(&qps[1]);
    CHECK_EQ(ipu_verbs_events(fake_verbs), 0);
    tx_queue = ipu_verbs_fabric(second);
    CHECK_EQ(tx_queue->ops->sent(tx_queue->self, &cookie, 1), -EIO);
    ipu_verbs_destroy(first);
    ipu_verbs_destroy(second);
    fake_close();
}

static void there_are_only_so_many_tx_queues(void)
{
    struct ibv_qp qps[IPU_TX_QUEUES_MAX];
    struct ipu_verbs *tx_queues[IPU_TX_QUEUES_MAX];
    open_fabric();
    for (uint32_t i = 0; i < IPU_TX_QUEUES_MAX - 1; i++)
        tx_queues[i] = open_tx_queue(&qps[i], 0x77 + i);
    qps[IPU_TX_QUEUES_MAX - 1] = fake.qp;
    struct ipu_verbs_config config = {.qp = &qps[IPU_TX_QUEUES_MAX - 1],
                                      .gid = fake_dest(1).gid,
                                      .mtu = FAKE_MTU,
                                      .port = 1,
                                      .leader = fake_verbs};
    CHECK_EQ(ipu_verbs_create(&config, &tx_queues[IPU_TX_QUEUES_MAX - 1]), -ENOSPC);
    for (uint32_t i = 0; i < IPU_TX_QUEUES_MAX - 1; i++)
        ipu_verbs_destroy(tx_queues[i]);
    fake_close();
}

int main(void)
{
    RUN(receives_are_posted_in_chains_up_to_the_queues_depth);
    RUN(a_completion_has_length_source_and_grh_of_its_datagram);
    RUN(completions_are_handed_out_in_as_many_pieces_as_asked_for);
    RUN(a_failed_receive_breaks_the_queue_pair_and_all_come_back);
    RUN(what_the_device_refuses_stays_the_callers);
    RUN(memory_beyond_the_last_region_is_refused);
    RUN(waiting_asks_once_for_one_event);
    RUN(what_came_before_the_request_is_not_slept_on);
    RUN(an_event_that_comes_late_wakes_the_pump_but_once);
    RUN(the_send_queue_is_asked_while_something_is_being_sent);
    RUN(a_channel_in_error_is_not_watched_any_more);
    RUN(asynchronous_events_report_the_port_and_the_device);
    RUN(a_tx_queues_queue_pair_is_our_own_and_its_events_are_its_own);
    RUN(there_are_only_so_many_tx_queues);
    return 0;
}
