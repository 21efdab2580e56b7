/* SPDX-License-Identifier: BSD-2-Clause */
/* The in-process fabric: queues that are full, armed and broken, and ports of several threads. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "memory_world.h"

static void full_queues_take_no_more_until_they_are_reaped(void)
{
    static struct host a, b;
    struct ipu_memory_switch *sw = new_switch();
    struct ipu_memory_config config = {.gid = gid(1), .mtu = 256, .queue_depth = 3};
    open_with(&a, sw, config); /* rounded up to 4 */
    config.gid = gid(2);
    open_with(&b, sw, config);
    void *ah = handle(&a, b.fabric->gid, b.fabric->qpn);
    struct ipu_send sends[6];
    struct ipu_recv recvs[6];
    for (uint32_t i = 0; i < 6; i++) {
        sends[i] = (struct ipu_send){
            .addr = a.buffer[i], .len = 4, .qpn = b.fabric->qpn, .ah = ah, .cookie = i};
        recvs[i] = (struct ipu_recv){b.buffer[i], SLOT, i};
    }
    CHECK_EQ(b.fabric->ops->post(b.fabric->self, recvs, 6), 4);
    CHECK_EQ(a.fabric->ops->send(a.fabric->self, sends, 6), 4);
    CHECK_EQ(a.fabric->ops->send(a.fabric->self, sends, 6), 0);
    CHECK_EQ(b.fabric->ops->post(b.fabric->self, recvs, 6), 0); /* done ones count as well */
    uint64_t cookies[6];
    struct ipu_received received[6];
    CHECK_EQ(a.fabric->ops->sent(a.fabric->self, cookies, 6), 4);
    CHECK_EQ(cookies[3], 3);
    CHECK_EQ(b.fabric->ops->received(b.fabric->self, received, 3), 3);
    CHECK_EQ(received[2].cookie, 2);
    CHECK_EQ(b.fabric->ops->post(b.fabric->self, recvs, 6), 3);
    CHECK_EQ(a.fabric->ops->send(a.fabric->self, sends, 6), 4);
    CHECK_EQ(ipu_memory_port_counters(b.port)->rx_no_buffer, 1);
    a.fabric->ops->ah_destroy(a.fabric->self, ah);
    ipu_memory_port_destroy(a.port);
    ipu_memory_port_destroy(b.port);
    ipu_memory_switch_destroy(sw);
}

static void an_armed_port_becomes_readable_at_the_next_completion(void)
{
    static struct host a, b;
    struct ipu_memory_switch *sw = new_switch();
    struct ipu_received received;
    uint64_t cookie;
    open_host(&a, sw, 1);
    open_host(&b, sw, 2);
    CHECK_EQ(post(&b, 0, SLOT), 1);
    CHECK_EQ(post(&b, 1, SLOT), 1);
    CHECK_EQ(arm(&b), 0);
    CHECK_EQ(is_readable(&b), 0);
    CHECK_EQ(send_unicast(&a, "x", &b), 1);
    CHECK_EQ(is_readable(&b), 1);
    CHECK_EQ(arm(&b), 1); /* one is waiting */
    CHECK_EQ(is_readable(&b), 0);
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(send_unicast(&a, "x", &b), 1);
    CHECK_EQ(is_readable(&b), 0); /* not armed */
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(reap(&a, &cookie), 1);
    CHECK_EQ(reap(&a, &cookie), 1);
    CHECK_EQ(arm(&a), 0);
    CHECK_EQ(send_unicast(&a, "x", &b), 1);
    CHECK_EQ(is_readable(&a), 1); /* ends of sends count */
    ipu_memory_port_destroy(a.port);
    ipu_memory_port_destroy(b.port);
    ipu_memory_switch_destroy(sw);
}

static void a_broken_port_returns_everything_and_then_recovers(void)
{
    static struct host a, b;
    struct ipu_memory_switch *sw = new_switch();
    struct ipu_received received;
    uint64_t cookie;
    open_host(&a, sw, 1);
    open_host(&b, sw, 2);
    CHECK_EQ(post(&b, 0, SLOT), 1);
    CHECK_EQ(post(&b, 1, SLOT), 1);
    CHECK_EQ(send_unicast(&a, "whole", &b), 1);
    CHECK_EQ(send_unicast(&b, "gone", &a), 1);
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(reap(&b, &cookie), 1);
    CHECK_EQ(send_unicast(&b, "gone", &a), 1);
    CHECK_EQ(post(&b, 0, SLOT), 1);
    ipu_memory_break(b.port, 1);

    CHECK_EQ(arm(&b), 1);
    CHECK_EQ(send_unicast(&b, "x", &a), -EIO);
    CHECK_EQ(post(&b, 2, SLOT), -EIO);
    CHECK_EQ(send_unicast(&a, "x", &b), 1);
    CHECK_EQ(ipu_memory_port_counters(b.port)->rx_broken, 1);
    CHECK_EQ(b.fabric->ops->recover(b.fabric->self), -EBUSY);
    CHECK_EQ(reap(&b, &cookie), 1); /* a send under way still ends */
    CHECK_EQ(reap(&b, &cookie), -EIO);
    CHECK_EQ(b.fabric->ops->recover(b.fabric->self), -EBUSY);
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(received.cookie, 1);
    CHECK_EQ(received.flags, IPU_RECEIVED_FAILED);
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(received.cookie, 0);
    CHECK_EQ(receive(&b, &received), 0);
    CHECK_EQ(arm(&b), 0); /* reported once: a pump that waits for the next try may sleep */
    CHECK_EQ(b.fabric->ops->recover(b.fabric->self), -EAGAIN);
    CHECK_EQ(b.fabric->ops->recover(b.fabric->self), 0);
    CHECK_EQ(post(&b, 0, SLOT), 1);
    CHECK_EQ(send_unicast(&a, "again", &b), 1);
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(received.flags, IPU_RECEIVED_GRH);
    ipu_memory_port_destroy(a.port);
    ipu_memory_port_destroy(b.port);
    ipu_memory_switch_destroy(sw);
}

static void breaking_wakes_an_armed_port(void)
{
    static struct host a;
    struct ipu_memory_switch *sw = new_switch();
    uint64_t cookie;
    open_host(&a, sw, 1);
    CHECK_EQ(arm(&a), 0);
    ipu_memory_break(a.port, 0);
    CHECK_EQ(is_readable(&a), 1);
    CHECK_EQ(reap(&a, &cookie), -EIO);
    ipu_memory_port_destroy(a.port);
    ipu_memory_switch_destroy(sw);
}

/* --- Four ports, each driven by a thread, sleeping on its descriptor --- */

enum { THREADS = 4, MESSAGES = 4000, WINDOW = 16 };

struct worker {
    struct host host;
    struct worker *peers;
    uint32_t number;
    uint32_t received_from[THREADS];
    uint64_t completed;
    _Atomic int *working;
};

static void drain(struct worker *worker)
{
    struct host *host = &worker->host;
    const struct ipu_fabric_ops *ops = host->fabric->ops;
    struct ipu_received received[8];
    uint64_t cookies[8];
    int n;
    while ((n = ops->received(host->fabric->self, received, 8)) > 0) {
        for (int i = 0; i < n; i++) {
            uint32_t from, number;
            const uint8_t *data = host->buffer[received[i].cookie] + 40;
            memcpy(&from, data, 4);
            memcpy(&number, data + 4, 4);
            CHECK(from < THREADS);
            CHECK(number >= worker->received_from[from]); /* order is kept, losses may be */
            worker->received_from[from] = number + 1;
            CHECK_EQ(post(host, (uint32_t)received[i].cookie, 48), 1);
        }
    }
    CHECK_EQ(n, 0);
    while ((n = ops->sent(host->fabric->self, cookies, 8)) > 0)
        worker->completed += (uint64_t)n;
    CHECK_EQ(n, 0);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct host *host = &worker->host;
    const struct ipu_fabric_ops *ops = host->fabric->ops;
    void *self = host->fabric->self, *handles[THREADS];
    for (int i = 0; i < THREADS; i++) {
        const struct ipu_fabric *peer = worker->peers[i].host.fabric;
        handles[i] = handle(host, peer->gid, peer->qpn);
    }
    for (uint32_t message = 0; message < MESSAGES;) {
        uint32_t to = message % THREADS;
        uint32_t slot = WINDOW + message % WINDOW;
        memcpy(host->buffer[slot], &worker->number, 4);
        memcpy(host->buffer[slot] + 4, &message, 4);
        struct ipu_send send = {.addr = host->buffer[slot],
                                .len = 8,
                                .qpn = worker->peers[to].host.fabric->qpn,
                                .ah = handles[to],
                                .cookie = message};
        int taken = ops->send(self, &send, 1);
        CHECK(taken >= 0);
        message += (uint32_t)taken;
        if (taken == 0 || message % WINDOW == 0)
            drain(worker);
    }
    while (worker->completed < MESSAGES) {
        drain(worker);
        if (worker->completed < MESSAGES && ops->arm(self) == 0) {
            struct pollfd fd = {.fd = ops->fd(self), .events = POLLIN};
            CHECK_EQ(poll(&fd, 1, -1), 1);
        }
    }
    for (int i = 0; i < THREADS; i++)
        ops->ah_destroy(self, handles[i]);
    /* Receive until all have sent. */
    atomic_fetch_sub(worker->working, 1);
    while (atomic_load(worker->working) > 0) {
        drain(worker);
        sched_yield();
    }
    drain(worker);
    return NULL;
}

static void ports_of_one_switch_are_driven_by_different_threads(void)
{
    static struct worker workers[THREADS];
    _Atomic int working = THREADS;
    struct ipu_memory_switch *sw = new_switch();
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].peers = workers;
        workers[i].number = i;
        workers[i].working = &working;
        open_host(&workers[i].host, sw, (uint8_t)i);
        for (uint32_t slot = 0; slot < WINDOW; slot++)
            CHECK_EQ(post(&workers[i].host, slot, 48), 1);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    uint64_t sent = 0, accounted = 0;
    for (int i = 0; i < THREADS; i++) {
        const struct ipu_memory_counters *counters = ipu_memory_port_counters(workers[i].host.port);
        sent += counters->tx_packets;
        accounted += counters->rx_packets + counters->rx_no_buffer;
        CHECK_EQ(counters->tx_nobody, 0);
        CHECK_EQ(workers[i].completed, MESSAGES);
    }
    CHECK_EQ(sent, THREADS * MESSAGES);
    CHECK_EQ(accounted, sent);
    for (int i = 0; i < THREADS; i++)
        ipu_memory_port_destroy(workers[i].host.port);
    ipu_memory_switch_destroy(sw);
}

int main(void)
{
    RUN(full_queues_take_no_more_until_they_are_reaped);
    RUN(an_armed_port_becomes_readable_at_the_next_completion);
    RUN(a_broken_port_returns_everything_and_then_recovers);
    RUN(breaking_wakes_an_armed_port);
    RUN(ports_of_one_switch_are_driven_by_different_threads);
    return 0;
}
