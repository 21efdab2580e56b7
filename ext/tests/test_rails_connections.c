/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections over rails: each stays on its own, and the rails share out the receives. */
#include "rails_world.h"

/* A shared receive queue and the connections of one rail; the oldest receive takes each message. */
static struct rc_end {
    uint64_t posted[RECVS];
    int first, last, room;
    int known, sends, ended;
    struct ipu_connection *connection; /* whose message arrives */
} ends[WIRES];

static int end_add(void *self, struct ipu_connection *connection)
{
    struct rc_end *end = self;
    end->known++;
    end->connection = connection;
    return 0;
}

static void end_remove(void *self, struct ipu_connection *connection)
{
    struct rc_end *end = self;
    CHECK(connection == end->connection);
    end->known--;
}

static int end_send(void *self, struct ipu_connection *connection, const struct ipu_send *sends,
                    int n)
{
    struct rc_end *end = self;
    CHECK(connection == end->connection && sends != NULL);
    end->sends += n;
    return n;
}

static int end_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct rc_end *end = self;
    int taken = 0;
    for (; taken < n && end->last - end->first < end->room; taken++)
        end->posted[end->last++ % RECVS] = recvs[taken].cookie;
    return taken;
}

static int end_sent(void *self, struct ipu_connection_sent *sent, int max)
{
    struct rc_end *end = self;
    int n = 0;
    for (; n < max && end->ended < end->sends; n++, end->ended++)
        sent[n] = (struct ipu_connection_sent){.connection = end->connection};
    return n;
}

static int end_received(void *self, struct ipu_connection_received *done, int max)
{
    struct rc_end *end = self;
    if (max == 0 || end->first == end->last)
        return 0;
    done[0] = (struct ipu_connection_received){.cookie = end->posted[end->first++ % RECVS],
                                               .connection = end->connection};
    return 1;
}

static const struct ipu_connected_ops end_ops = {
    .add = end_add,
    .remove = end_remove,
    .send = end_send,
    .post = end_post,
    .sent = end_sent,
    .received = end_received,
};

static int in_queue(int wire)
{
    return ends[wire].last - ends[wire].first;
}

static void a_connection_stays_on_its_rail_and_receives_are_shared_out(void)
{
    begin();
    plug_in(0, WIRES, 0);
    struct ipu_fabric inner[WIRES];
    struct ipu_rails_config config = config_of(&hosts[0], 0);
    for (int w = 0; w < WIRES; w++) {
        ends[w] = (struct rc_end){.room = RECVS};
        inner[w] = *hosts[0].wires[w];
        inner[w].connected = &end_ops;
        inner[w].connected_self = &ends[w];
        config.inner[w] = &inner[w];
    }
    CHECK(hosts[0].rails = ipu_rails_create(&config));
    const struct ipu_fabric *fabric = hosts[0].fabric = ipu_rails_fabric(hosts[0].rails);
    const struct ipu_connected_ops *ops = fabric->connected;
    CHECK(ops);
    struct ipu_connection connections[WIRES] = {{.qpn = 7}, {.qpn = 7}};
    for (uint32_t w = 0; w < WIRES; w++)
        ipu_rails_assign(hosts[0].rails, &connections[w], w);
    ipu_rails_assign(hosts[0].rails, &connections[1], WIRES); /* no such rail: nothing changes */
    CHECK_EQ(ops->add(fabric->connected_self, &connections[1]), 0);
    CHECK_EQ(ends[1].known, 1);
    struct ipu_recv recvs[64];
    for (int i = 0; i < 64; i++)
        recvs[i] = (struct ipu_recv){.cookie = (uint64_t)i};
    CHECK_EQ(ops->post(fabric->connected_self, recvs, 40), 40);
    CHECK(in_queue(0) == 20 && in_queue(1) == 20);

    /* Messages come to the connection's rail, whichever is active, and this one gets their frames.
     */
    struct ipu_connection_received done[8];
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1);
        CHECK(done[0].connection == &connections[1]);
    }
    ipu_rails_set(hosts[0].rails, 3, 1);
    CHECK_EQ(ops->post(fabric->connected_self, recvs, 10), 10);
    CHECK(in_queue(0) == 20 && in_queue(1) == 20);
    struct ipu_send send = {.cookie = 3};
    CHECK_EQ(ops->send(fabric->connected_self, &connections[1], &send, 1), 1);
    CHECK(ends[0].sends == 0 && ends[1].sends == 1);
    struct ipu_connection_sent sent[8];
    CHECK_EQ(ops->sent(fabric->connected_self, sent, 8), 1);
    CHECK(sent[0].connection == &connections[1]);

    /* One on the other rail, while the first one leaves. */
    CHECK_EQ(ops->add(fabric->connected_self, &connections[0]), 0);
    CHECK_EQ(ops->send(fabric->connected_self, &connections[0], &send, 1), 1);
    CHECK_EQ(ops->send(fabric->connected_self, &connections[1], &send, 1), 1);
    CHECK_EQ(ops->sent(fabric->connected_self, sent, 8), 2);
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 2);
    ops->remove(fabric->connected_self, &connections[1]);
    CHECK_EQ(ends[1].known, 0);
    CHECK_EQ(ops->received(fabric->connected_self, done, 8), 1); /* of the other one alone */

    /* A queue that is full leaves the receives to the other one, and to the caller. */
    ends[0].room = 25;
    CHECK_EQ(ops->post(fabric->connected_self, recvs, 64), 25 - 18 + RECVS - 19);
    CHECK(in_queue(0) == 25 && in_queue(1) == RECVS);
    inner[1].connected = NULL; /* a rail that makes none */
    struct ipu_rails *mixed = ipu_rails_create(&config);
    CHECK(mixed != NULL && ipu_rails_fabric(mixed)->connected == NULL);
    ipu_rails_destroy(mixed);
    finish();
}

int main(void)
{
    RUN(a_connection_stays_on_its_rail_and_receives_are_shared_out);
    return 0;
}
