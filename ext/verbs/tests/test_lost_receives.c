/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives that a device took for a message and never completes, because the queue pair failed
 * within the message: the fabric gives back those, and no others.
 */
#include "fake_rc.h"
#include "verbs/receive_order.h"

enum { LATE = IPU_RECEIVE_ORDER_LAG * FAKE_SRQ_DEPTH, QUIET = 0, BUSY = 1, ENDING = 2 };

static struct ipu_fabric *fabric;
static const struct ipu_connected_ops *ops;
static char message[60000];
static uint64_t next_cookie;
static int lost;             /* receives that came back without a message */
static uint64_t cookie_lost; /* the last one */

static int post(int n)
{
    struct ipu_recv recvs[FAKE_SRQ_DEPTH];
    for (int i = 0; i < n; i++)
        recvs[i] = (struct ipu_recv){
            .addr = message, .len = sizeof message, .cookie = next_cookie + (uint64_t)i};
    int taken = ops->post(fabric->connected_self, recvs, n);
    next_cookie += (uint64_t)taken;
    return taken;
}

static void begin(bool loses)
{
    next_cookie = cookie_lost = 0;
    lost = 0;
    fabric = fake_open(false);
    CHECK_EQ(fabric->ops->memory(fabric->self, message, sizeof message), 0);
    fake_rc_open(fabric, loses);
    ops = fabric->connected;
    CHECK_EQ(post(FAKE_SRQ_DEPTH), FAKE_SRQ_DEPTH);
}

static void end(void)
{
    ipu_verbs_free(fake_verbs);
    fake_rc_close();
    fake_close();
}

/* Polls once, and posts what came back; returns the number of messages. */
static int poll_once(void)
{
    struct ipu_connection_received done[FAKE_SRQ_DEPTH];
    int messages = 0;
    int n = ops->received(fabric->connected_self, done, FAKE_SRQ_DEPTH);
    for (int i = 0; i < n; i++) {
        if (!done[i].failed) {
            messages++;
            continue;
        }
        CHECK(done[i].connection == NULL);
        cookie_lost = done[i].cookie;
        lost++;
    }
    CHECK_EQ(post(n), n);
    return messages;
}

/* n messages of this connection come, one after the other. */
static void converse(int i, int n, uint32_t len)
{
    for (int k = 0; k < n; k++) {
        fake_rc_arrive(&fake_rc.qp[i], len, IBV_WC_SUCCESS);
        CHECK_EQ(poll_once(), 1);
    }
}

static void leave(int i)
{
    ops->remove(fabric->connected_self, &fake_rc.connection[i].connection);
}

static void destroy(int i)
{
    leave(i);
    ipu_verbs_connection_end(&fake_rc.connection[i]);
    ipu_verbs_connection_end(&fake_rc.connection[i]); /* again: nothing happens */
}

static void a_receive_comes_back_that_a_queue_pair_held_at_its_end(void)
{
    begin(true);
    converse(BUSY, 5, 100);
    fake_rc_begin(&fake_rc.qp[ENDING]); /* takes receive 5 */
    destroy(ENDING);
    converse(BUSY, LATE - 1, 5000);
    CHECK_EQ(lost, 0); /* it is not late yet */
    converse(BUSY, 2, 5000);
    CHECK_EQ(lost, 1);
    CHECK_EQ(cookie_lost, 5);
    CHECK_EQ(fake_counter("rx_lost"), 1);
    converse(BUSY, 2 * LATE, 100);
    CHECK_EQ(lost, 1);
    CHECK_EQ(post(1), 0); /* the queue is full again */
    end();
}

static void all_lost_receives_come_back_while_one_is_left(void)
{
    begin(true);
    for (int i = 0; i < FAKE_SRQ_DEPTH - 1; i++)
        fake_rc_begin(&fake_rc.qp[ENDING]);
    destroy(ENDING);
    converse(BUSY, LATE + FAKE_SRQ_DEPTH, 60000);
    CHECK_EQ(lost, FAKE_SRQ_DEPTH - 1);
    end();
}

static void a_message_under_way_keeps_its_receive(void)
{
    begin(true);
    fake_rc_begin(&fake_rc.qp[QUIET]);
    fake_rc_begin(&fake_rc.qp[ENDING]);
    destroy(ENDING);
    converse(BUSY, 2 * LATE, 100);
    CHECK_EQ(lost, 0); /* nobody knows which of the two the other one has */
    CHECK(fake_rc.asked[QUIET] <= 2);
    destroy(QUIET);
    converse(BUSY, LATE, 100);
    CHECK_EQ(lost, 2);
    end();
}

/* Its PSN passes the end of the 24 bits; a message without data is one packet. */
static void a_connection_between_two_messages_holds_none(void)
{
    begin(true);
    converse(QUIET, 1, 60000);
    converse(QUIET, 1, 0);
    CHECK(fake_rc.psn[QUIET] < FAKE_RC_PSN);
    fake_rc_begin(&fake_rc.qp[ENDING]); /* takes receive 2 */
    destroy(ENDING);
    converse(BUSY, LATE, 100);
    CHECK_EQ(lost, 1);
    CHECK_EQ(cookie_lost, 2);
    CHECK_EQ(fake_rc.asked[QUIET], 1);
    end();
}

static void a_connection_that_went_on_holds_no_older_receive(void)
{
    begin(true);
    fake_rc_begin(&fake_rc.qp[ENDING]); /* takes receive 0 */
    destroy(ENDING);
    converse(QUIET, 1, 0);
    fake_rc_begin(&fake_rc.qp[QUIET]); /* takes receive 2 */
    converse(BUSY, LATE, 100);
    CHECK_EQ(lost, 1);
    CHECK_EQ(cookie_lost, 0);
    end();
}

static void a_queue_pair_that_may_still_write_keeps_all(void)
{
    begin(true);
    fake_rc_begin(&fake_rc.qp[ENDING]);
    leave(ENDING); /* the pump has given it up, and it still exists */
    converse(BUSY, 2 * LATE, 100);
    CHECK_EQ(lost, 0);
    CHECK_EQ(fake_rc.asked[ENDING], 0); /* another thread may destroy it at any time */
    destroy(ENDING);
    converse(BUSY, LATE, 100);
    CHECK_EQ(lost, 1);
    end();
}

static void a_connection_before_its_start_keeps_all(void)
{
    struct ipu_verbs_connection unborn;
    begin(true);
    fake_rc_begin(&fake_rc.qp[ENDING]);
    destroy(ENDING);
    CHECK_EQ(ipu_verbs_connection_init(&unborn, fake_verbs, &fake_rc.qp[ENDING]), 0);
    CHECK_EQ(ops->add(fabric->connected_self, &unborn.connection), 0);
    fake_rc.psn[ENDING] = 0;
    converse(BUSY, 2 * LATE, 100);
    CHECK_EQ(lost, 0); /* we do not know its PSN */
    fake_rc.psn[ENDING] = 77;
    ipu_verbs_connection_program(&unborn, 77, FAKE_RC_MTU);
    converse(BUSY, LATE, 100);
    CHECK_EQ(lost, 1);
    ops->remove(fabric->connected_self, &unborn.connection);
    ipu_verbs_connection_free(&unborn);
    end();
}

static void no_queue_pair_is_asked_while_no_receive_is_late(void)
{
    begin(true);
    converse(BUSY, 3 * LATE, 100);
    CHECK_EQ(fake_rc.asked[QUIET], 0);
    end();
}

static void other_devices_complete_what_they_take(void)
{
    begin(false);
    fake_rc_begin(&fake_rc.qp[ENDING]);
    destroy(ENDING);
    converse(BUSY, 2 * LATE, 100);
    CHECK_EQ(lost, 0);
    CHECK_EQ(fake_rc.asked[QUIET], 0);
    end();
}

int main(void)
{
    RUN(a_receive_comes_back_that_a_queue_pair_held_at_its_end);
    RUN(all_lost_receives_come_back_while_one_is_left);
    RUN(a_message_under_way_keeps_its_receive);
    RUN(a_connection_between_two_messages_holds_none);
    RUN(a_connection_that_went_on_holds_no_older_receive);
    RUN(a_queue_pair_that_may_still_write_keeps_all);
    RUN(a_connection_before_its_start_keeps_all);
    RUN(no_queue_pair_is_asked_while_no_receive_is_late);
    RUN(other_devices_complete_what_they_take);
    return 0;
}
