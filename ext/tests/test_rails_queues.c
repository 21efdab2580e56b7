/* SPDX-License-Identifier: BSD-2-Clause */
/* Queues of rails: what fills them, and what comes back of a queue pair that breaks. */
#include <errno.h>

#include "fake_fabric.h"
#include "rails_world.h"

static void a_full_queue_holds_messages_in_order(void)
{
    begin();
    add_host(0, 0);
    add_host(1, 0);
    const struct ipu_dest dest = address_of(1, 0);
    void *ah = handle_to(0, &dest);
    const struct ipu_fabric *fabric = hosts[0].fabric;
    int sent = 0, over = 0;
    struct ipu_send send = {.addr = frames[0], .len = FRAME, .qpn = dest.qpn, .ah = ah};
    for (int i = 0; i < 2000; i++) { /* nobody takes the ended ones: the port's queue fills up */
        send.cookie = (uint64_t)i;
        if (fabric->ops->send(fabric->self, &send, 1) == 0)
            over++;
        else
            sent++;
    }
    CHECK(sent > 512 && over > 0);
    uint64_t cookies[64], next = 0;
    for (int idle = 0; idle < 3;) {
        int n = fabric->ops->sent(fabric->self, cookies, 64);
        CHECK(n >= 0);
        idle = n == 0 ? idle + 1 : 0;
        for (int i = 0; i < n; i++)
            CHECK_EQ(cookies[i], next++);
    }
    CHECK_EQ(next, (uint64_t)sent);
    fabric->ops->ah_destroy(fabric->self, ah);
    finish();
}

static void a_handle_that_goes_takes_its_waiting_messages_along(void)
{
    begin();
    add_host(0, 0);
    add_host(1, 0);
    const struct ipu_dest dest = address_of(1, 0);
    void *ah = handle_to(0, &dest);
    const struct ipu_fabric *fabric = hosts[0].fabric;
    struct ipu_send send = {
        .addr = frames[0], .len = FRAME, .qpn = dest.qpn, .ah = ah, .cookie = 9};
    int sent = 0;
    while (fabric->ops->send(fabric->self, &send, 1) == 1)
        sent++;
    fabric->ops->ah_destroy(fabric->self, ah);
    CHECK(counted(&hosts[0], "tx_abandoned") > 0);
    uint64_t cookies[64];
    for (int n; (n = fabric->ops->sent(fabric->self, cookies, 64)) > 0;)
        sent -= n;
    CHECK_EQ(sent, 0);
    finish();
}

static void a_broken_queue_pair_gives_every_cookie_back_and_recovers(void)
{
    uint64_t split[WIRES];
    begin_pair();
    const struct ipu_dest dest = address_of(1, 0);
    const struct ipu_fabric *fabric = hosts[0].fabric;
    void *ah = handle_to(0, &dest);
    ipu_memory_break(hosts[0].ports[0], 0);
    ipu_memory_break(hosts[0].ports[1], 0);
    int owed = 0, error = 0;
    for (uint32_t i = 0; i < 20; i++) {
        struct ipu_send send = {.addr = frames[0],
                                .len = FRAME,
                                .qpn = dest.qpn,
                                .ah = ah,
                                .cookie = 9,
                                .flow = flow_of(3 * i)};
        owed += fabric->ops->send(fabric->self, &send, 1);
    }
    uint64_t cookies[64];
    while ((error = fabric->ops->sent(fabric->self, cookies, 64)) > 0)
        owed -= error;
    CHECK_EQ(error, -EIO);
    CHECK_EQ(owed, 0);
    struct ipu_received done[RECVS];
    for (int n; (n = fabric->ops->received(fabric->self, done, RECVS)) > 0;)
        for (int i = 0; i < n; i++)
            post(&hosts[0], hosts[0].recv[done[i].cookie - 1000]);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    pass(500);
    CHECK_EQ(usable(0, 1), 3);
    CHECK_EQ(spread(0, 1, split), 64);
    fabric->ops->ah_destroy(fabric->self, ah);
    finish();
}

/* A fabric whose queue pair fails before its sends have ended, as those of verbs do. */
static struct late {
    struct ipu_fabric fabric;
    uint64_t cookies[8];
    int held;
    bool failed;
} lates[WIRES];

static int late_send(void *self, const struct ipu_send *sends, int n)
{
    struct late *late = self;
    for (int i = 0; i < n; i++)
        late->cookies[late->held++] = sends[i].cookie;
    return n;
}

static int late_sent(void *self, uint64_t *cookies, int max)
{
    struct late *late = self;
    if (!late->failed) {
        late->failed = late->held > 0;
        return late->failed ? -EIO : 0;
    }
    int n = late->held < max ? late->held : max;
    for (int i = 0; i < n; i++)
        cookies[i] = late->cookies[--late->held];
    return n > 0 ? n : -EIO;
}

static int late_fd(void *self)
{
    const struct ipu_fabric *wire = hosts[0].wires[(struct late *)self - lates];
    return wire->ops->fd(wire->self);
}

static int late_recover(void *self)
{
    return ((struct late *)self)->held > 0 ? -EBUSY : 0;
}

static void sends_that_end_after_the_failure_end_before_the_recovery(void)
{
    static const struct ipu_fabric_ops ops = {
        .memory = fake_memory,
        .ah_create = fake_ah_create,
        .ah_destroy = fake_ah_destroy,
        .send = late_send,
        .post = fake_post,
        .sent = late_sent,
        .received = fake_received,
        .arm = fake_arm_none,
        .fd = late_fd,
        .recover = late_recover,
    };
    begin();
    add_single(1);
    plug_in(0, WIRES, 0);
    struct ipu_rails_config config = config_of(&hosts[0], 0);
    for (int w = 0; w < WIRES; w++) {
        lates[w] = (struct late){.fabric = *hosts[0].wires[w]};
        lates[w].fabric.ops = &ops;
        lates[w].fabric.self = &lates[w];
        config.inner[w] = &lates[w].fabric;
    }
    struct ipu_rails *rails = ipu_rails_create(&config);
    CHECK(rails);
    const struct ipu_fabric *fabric = ipu_rails_fabric(rails);
    const struct ipu_dest dest = address_of(1, 0);
    void *ah = fabric->ops->ah_create(fabric->self, &dest);
    struct ipu_send send = {
        .addr = frames[0], .len = FRAME, .qpn = dest.qpn, .ah = ah, .cookie = 9};
    CHECK_EQ(fabric->ops->send(fabric->self, &send, 1), 1);
    uint64_t cookies[8];
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 8), -EIO);
    CHECK_EQ(fabric->ops->recover(fabric->self), -EBUSY);
    CHECK_EQ(fabric->ops->sent(fabric->self, cookies, 8), 1);
    CHECK_EQ(cookies[0], 9);
    CHECK_EQ(fabric->ops->recover(fabric->self), 0);
    fabric->ops->ah_destroy(fabric->self, ah);
    ipu_rails_destroy(rails);
    finish();
}

int main(void)
{
    RUN(a_full_queue_holds_messages_in_order);
    RUN(a_handle_that_goes_takes_its_waiting_messages_along);
    RUN(a_broken_queue_pair_gives_every_cookie_back_and_recovers);
    RUN(sends_that_end_after_the_failure_end_before_the_recovery);
    return 0;
}
