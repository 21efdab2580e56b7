/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "refuse.h"
#include "core/frame.h"
#include "core/random.h"
#include "fabric/memory.h"

enum { SLOT = 512, SLOTS = 64 };

/* A port with its memory: cookies and slots have the same numbers. */
struct host {
    struct ipu_memory_port *port;
    struct ipu_fabric *fabric;
    uint8_t buffer[SLOTS][SLOT];
};

static struct in6_addr gid(uint8_t number)
{
    return (struct in6_addr){.s6_addr = {0xFE, 0x80, [15] = number}};
}

static struct in6_addr mgid(uint8_t number)
{
    return (struct in6_addr){.s6_addr = {0xFF, 0x12, 0x40, 0x1B, 0xFF, 0xFF, [15] = number}};
}

static void open_with(struct host *host, struct ipu_memory_switch *sw,
                      struct ipu_memory_config config)
{
    host->port = ipu_memory_port_create(sw, &config);
    CHECK(host->port);
    host->fabric = ipu_memory_port_fabric(host->port);
    CHECK_EQ(host->fabric->ops->memory(host->fabric->self, host->buffer, sizeof host->buffer), 0);
}

static void open_host(struct host *host, struct ipu_memory_switch *sw, uint8_t number)
{
    open_with(host, sw, (struct ipu_memory_config){.gid = gid(number), .mtu = 256});
}

static void *handle(struct host *host, struct in6_addr to, uint32_t qpn)
{
    struct ipu_dest dest = {
        .gid = to, .qpn = qpn, .hop_limit = 64, .traffic_class = 0xA5, .flow_label = 0x12345};
    void *ah = host->fabric->ops->ah_create(host->fabric->self, &dest);
    CHECK(ah);
    return ah;
}

static int post(struct host *host, uint32_t slot, uint32_t len)
{
    struct ipu_recv recv = {.addr = host->buffer[slot], .len = len, .cookie = slot};
    return host->fabric->ops->post(host->fabric->self, &recv, 1);
}

static int send_text(struct host *host, uint32_t slot, const char *text, void *ah, uint32_t qpn)
{
    memcpy(host->buffer[slot], text, strlen(text));
    struct ipu_send send = {.addr = host->buffer[slot],
                            .len = (uint32_t)strlen(text),
                            .qpn = qpn,
                            .ah = ah,
                            .cookie = 1000 + slot};
    return host->fabric->ops->send(host->fabric->self, &send, 1);
}

static int send_unicast(struct host *from, const char *text, const struct host *to)
{
    void *ah = handle(from, to->fabric->gid, to->fabric->qpn);
    int result = send_text(from, 63, text, ah, to->fabric->qpn);
    from->fabric->ops->ah_destroy(from->fabric->self, ah);
    return result;
}

static int receive(struct host *host, struct ipu_received *received)
{
    return host->fabric->ops->received(host->fabric->self, received, 1);
}

static int reap(struct host *host, uint64_t *cookie)
{
    return host->fabric->ops->sent(host->fabric->self, cookie, 1);
}

static int arm(struct host *host)
{
    return host->fabric->ops->arm(host->fabric->self);
}

static int is_readable(struct host *host)
{
    struct pollfd fd = {.fd = host->fabric->ops->fd(host->fabric->self), .events = POLLIN};
    return poll(&fd, 1, 0);
}

static struct ipu_memory_switch *new_switch(void)
{
    struct ipu_memory_switch *sw = ipu_memory_switch_create(42);
    CHECK(sw);
    return sw;
}

static void a_datagram_arrives_with_its_grh_and_both_cookies_come_back(void)
{
    static struct host a, b;
    struct ipu_memory_switch *sw = new_switch();
    open_host(&a, sw, 1);
    open_host(&b, sw, 2);
    CHECK_EQ(post(&b, 5, SLOT), 1);
    CHECK_EQ(send_unicast(&a, "hello", &b), 1);

    uint64_t cookie;
    CHECK_EQ(reap(&a, &cookie), 1);
    CHECK_EQ(cookie, 1063);
    CHECK_EQ(reap(&a, &cookie), 0);
    struct ipu_received received;
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(received.cookie, 5);
    CHECK_EQ(received.byte_len, 45);
    CHECK_EQ(received.src_qpn, a.fabric->qpn);
    CHECK_EQ(received.flags, IPU_RECEIVED_GRH);
    CHECK(memcmp(b.buffer[5] + 40, "hello", 5) == 0);
    /* Version 6, class A5, flow 12345; payload: BTH 12, DETH 8, 5 padded to 8, ICRC 4. */
    static const uint8_t grh[8] = {0x6A, 0x51, 0x23, 0x45, 0, 32, 0x1B, 64};
    CHECK(memcmp(b.buffer[5], grh, 8) == 0);
    CHECK(memcmp(b.buffer[5] + 8, &a.fabric->gid, 16) == 0);
    CHECK(memcmp(b.buffer[5] + 24, &b.fabric->gid, 16) == 0);
    CHECK_EQ(receive(&b, &received), 0);
    CHECK_EQ(ipu_memory_port_counters(a.port)->tx_packets, 1);
    CHECK_EQ(ipu_memory_port_counters(b.port)->rx_packets, 1);
    ipu_memory_port_destroy(a.port);
    ipu_memory_port_destroy(b.port);
    ipu_memory_switch_destroy(sw);
}

static void a_port_may_send_to_itself(void)
{
    static struct host a;
    struct ipu_memory_switch *sw = new_switch();
    struct ipu_received received;
    open_host(&a, sw, 1);
    CHECK_EQ(post(&a, 0, SLOT), 1);
    CHECK_EQ(send_unicast(&a, "echo", &a), 1);
    CHECK_EQ(receive(&a, &received), 1);
    CHECK(memcmp(a.buffer[0] + 40, "echo", 4) == 0);
    ipu_memory_port_destroy(a.port);
    ipu_memory_switch_destroy(sw);
}

static void multicast_reaches_all_that_are_attached_the_sender_too(void)
{
    static struct host a, b, c;
    struct ipu_memory_switch *sw = new_switch();
    struct in6_addr group = mgid(1), other = mgid(2);
    struct ipu_received received;
    open_host(&a, sw, 1);
    open_host(&b, sw, 2);
    open_host(&c, sw, 3);
    CHECK_EQ(ipu_memory_attach(a.port, &group), 0);
    CHECK_EQ(ipu_memory_attach(b.port, &group), 0);
    CHECK_EQ(ipu_memory_attach(c.port, &other), 0);
    CHECK_EQ(post(&a, 0, SLOT), 1);
    CHECK_EQ(post(&b, 0, SLOT), 1);
    CHECK_EQ(post(&c, 0, SLOT), 1);
    void *ah = handle(&a, group, IPU_MULTICAST_QPN);
    CHECK_EQ(send_text(&a, 1, "all", ah, IPU_MULTICAST_QPN), 1);
    CHECK_EQ(receive(&a, &received), 1);
    CHECK_EQ(received.src_qpn, a.fabric->qpn); /* E8 recognises it by this */
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(received.flags, IPU_RECEIVED_GRH);
    CHECK(memcmp(b.buffer[0] + 24, &group, 16) == 0);
    CHECK_EQ(receive(&c, &received), 0);

    CHECK_EQ(ipu_memory_detach(b.port, &group), 0);
    CHECK_EQ(ipu_memory_detach(a.port, &group), 0);
    CHECK_EQ(post(&b, 0, SLOT), 1);
    CHECK_EQ(send_text(&a, 1, "all", ah, IPU_MULTICAST_QPN), 1);
    CHECK_EQ(receive(&b, &received), 0);
    CHECK_EQ(ipu_memory_port_counters(a.port)->tx_nobody, 1);
    a.fabric->ops->ah_destroy(a.fabric->self, ah);
    ipu_memory_port_destroy(a.port);
    ipu_memory_port_destroy(b.port);
    ipu_memory_port_destroy(c.port);
    ipu_memory_switch_destroy(sw);
}

static void attaching_and_detaching_answer_misuse(void)
{
    static struct host a;
    struct ipu_memory_switch *sw = new_switch();
    struct in6_addr group = mgid(1), unicast = gid(1);
    open_host(&a, sw, 1);
    CHECK_EQ(ipu_memory_attach(a.port, &unicast), -EINVAL);
    CHECK_EQ(ipu_memory_detach(a.port, &unicast), -EINVAL);
    CHECK_EQ(ipu_memory_detach(a.port, &group), -ENOENT);
    CHECK_EQ(ipu_memory_attach(a.port, &group), 0);
    CHECK_EQ(ipu_memory_attach(a.port, &group), -EEXIST);
    refuse_after(0);
    CHECK_EQ(ipu_memory_attach(a.port, &group), -ENOMEM);
    CHECK(refuse_stop());
    ipu_memory_port_destroy(a.port); /* takes its attachment along */
    ipu_memory_switch_destroy(sw);
}

static void only_the_multicast_queue_pair_number_reaches_groups(void)
{
    static struct host a;
    struct ipu_memory_switch *sw = new_switch();
    struct in6_addr group = mgid(1);
    struct ipu_received received;
    open_host(&a, sw, 1);
    CHECK_EQ(ipu_memory_attach(a.port, &group), 0);
    CHECK_EQ(post(&a, 0, SLOT), 1);
    void *to_group = handle(&a, group, a.fabric->qpn);
    void *to_port = handle(&a, a.fabric->gid, IPU_MULTICAST_QPN);
    CHECK_EQ(send_text(&a, 1, "x", to_group, a.fabric->qpn), 1);
    CHECK_EQ(send_text(&a, 1, "x", to_port, IPU_MULTICAST_QPN), 1);
    CHECK_EQ(receive(&a, &received), 0);
    CHECK_EQ(ipu_memory_port_counters(a.port)->tx_nobody, 2);
    a.fabric->ops->ah_destroy(a.fabric->self, to_group);
    a.fabric->ops->ah_destroy(a.fabric->self, to_port);
    ipu_memory_port_destroy(a.port);
    ipu_memory_switch_destroy(sw);
}

static void bare_unicast_comes_without_a_grh_but_multicast_with_one(void)
{
    static struct host a;
    struct ipu_memory_switch *sw = new_switch();
    struct in6_addr group = mgid(1);
    struct ipu_received received;
    open_with(&a, sw, (struct ipu_memory_config){.gid = gid(1), .mtu = 256, .bare_unicast = true});
    CHECK_EQ(ipu_memory_attach(a.port, &group), 0);
    memset(a.buffer, 0xEE, sizeof a.buffer);
    CHECK_EQ(post(&a, 0, SLOT), 1);
    CHECK_EQ(send_unicast(&a, "bare", &a), 1);
    CHECK_EQ(receive(&a, &received), 1);
    CHECK_EQ(received.flags, 0);
    CHECK_EQ(received.byte_len, 44); /* the GRH space is counted all the same (E4) */
    for (int i = 0; i < 40; i++)
        CHECK_EQ(a.buffer[0][i], 0xEE);
    CHECK_EQ(post(&a, 0, SLOT), 1);
    void *ah = handle(&a, group, IPU_MULTICAST_QPN);
    CHECK_EQ(send_text(&a, 1, "all", ah, IPU_MULTICAST_QPN), 1);
    CHECK_EQ(receive(&a, &received), 1);
    CHECK_EQ(received.flags, IPU_RECEIVED_GRH);
    a.fabric->ops->ah_destroy(a.fabric->self, ah);
    ipu_memory_port_destroy(a.port);
    ipu_memory_switch_destroy(sw);
}

static void what_cannot_be_delivered_is_dropped_and_counted(void)
{
    static struct host a, b;
    struct ipu_memory_switch *sw = new_switch();
    struct ipu_received received;
    open_host(&a, sw, 1);
    open_host(&b, sw, 2);
    const struct ipu_memory_counters *at_a = ipu_memory_port_counters(a.port);
    const struct ipu_memory_counters *at_b = ipu_memory_port_counters(b.port);

    CHECK_EQ(send_unicast(&a, "no buffer", &b), 1);
    CHECK_EQ(at_b->rx_no_buffer, 1);
    CHECK_EQ(post(&b, 0, 39), 1);
    CHECK_EQ(send_unicast(&a, "", &b), 1);
    CHECK_EQ(at_b->rx_too_long, 1);
    ipu_memory_port_destroy(b.port); /* that buffer with it */
    open_host(&b, sw, 2);
    at_b = ipu_memory_port_counters(b.port);
    CHECK_EQ(post(&b, 0, 43), 1);
    CHECK_EQ(send_unicast(&a, "four", &b), 1);
    CHECK_EQ(at_b->rx_too_long, 1);
    CHECK_EQ(send_unicast(&a, "all", &b), 1); /* the buffer stayed */
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(received.byte_len, 43);

    char long_text[258];
    memset(long_text, 'x', 257);
    long_text[257] = '\0';
    CHECK_EQ(post(&b, 0, SLOT), 1);
    CHECK_EQ(send_unicast(&a, long_text, &b), 1); /* success is reported all the same (T1) */
    CHECK_EQ(at_a->tx_too_big, 1);
    CHECK_EQ(receive(&b, &received), 0);
    long_text[256] = '\0';
    CHECK_EQ(send_unicast(&a, long_text, &b), 1);
    CHECK_EQ(receive(&b, &received), 1);
    CHECK_EQ(received.byte_len, 296);

    void *ah = handle(&a, gid(77), 99);
    CHECK_EQ(send_text(&a, 0, "nobody", ah, 99), 1);
    CHECK_EQ(at_a->tx_nobody, 1);
    a.fabric->ops->ah_destroy(a.fabric->self, ah);
    ipu_memory_port_destroy(a.port);
    ipu_memory_port_destroy(b.port);
    ipu_memory_switch_destroy(sw);
}

static void memory_that_was_not_registered_is_refused(void)
{
    static struct host a;
    static uint8_t elsewhere[64];
    struct ipu_memory_switch *sw = new_switch();
    open_host(&a, sw, 1);
    const struct ipu_fabric_ops *ops = a.fabric->ops;
    void *self = a.fabric->self, *ah = handle(&a, gid(1), a.fabric->qpn);
    struct ipu_send sends[2] = {{.addr = a.buffer, .len = 4, .ah = ah, .qpn = 5},
                                {.addr = elsewhere, .len = 4, .ah = ah, .qpn = 5}};
    CHECK_EQ(ops->send(self, sends, 2), 1);
    CHECK_EQ(ops->send(self, sends + 1, 1), -EFAULT);
    sends[1].addr = a.buffer[SLOTS - 1] + SLOT - 3; /* one byte beyond the end */
    CHECK_EQ(ops->send(self, sends + 1, 1), -EFAULT);
    struct ipu_recv recv = {.addr = elsewhere, .len = 64};
    CHECK_EQ(ops->post(self, &recv, 1), -EFAULT);
    CHECK_EQ(ops->memory(self, elsewhere, sizeof elsewhere), 0); /* a second region */
    CHECK_EQ(ops->post(self, &recv, 1), 1);
    for (int i = 2; i < 8; i++)
        CHECK_EQ(ops->memory(self, elsewhere, 1), 0);
    CHECK_EQ(ops->memory(self, elsewhere, 1), -ENOSPC);
    ops->ah_destroy(self, ah);
    ipu_memory_port_destroy(a.port);
    ipu_memory_switch_destroy(sw);
}

static void a_message_in_two_pieces_arrives_as_one(void)
{
    static struct host a, b;
    struct ipu_memory_switch *sw = new_switch();
    open_host(&a, sw, 1);
    open_host(&b, sw, 2);
    const struct ipu_fabric_ops *ops = a.fabric->ops;
    void *self = a.fabric->self, *ah = handle(&a, gid(2), b.fabric->qpn);
    memset(a.buffer[0], 'h', 256);
    memset(a.buffer[1], 'p', 256);
    struct ipu_send send = {
        .head = a.buffer[0], .addr = a.buffer[1], .qpn = b.fabric->qpn, .ah = ah};
    struct ipu_received received;
    static const uint32_t lengths[][2] = {{3, 5}, {0, 5}, {3, 0}, {100, 156}, {0, 0}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t head_len = send.head_len = lengths[i][0], len = send.len = lengths[i][1];
        uint8_t wanted[512];
        memset(wanted, 'h', head_len);
        memset(wanted + head_len, 'p', len);
        CHECK_EQ(post(&b, 0, SLOT), 1);
        CHECK_EQ(ops->send(self, &send, 1), 1);
        CHECK_EQ(receive(&b, &received), 1);
        CHECK_EQ(received.byte_len, 40 + head_len + len);
        CHECK(memcmp(b.buffer[0] + 40, wanted, head_len + len) == 0);
    }
    send.head_len = 101, send.len = 156; /* together above the MTU */
    CHECK_EQ(ops->send(self, &send, 1), 1);
    CHECK_EQ(ipu_memory_port_counters(a.port)->tx_too_big, 1);
    uint8_t elsewhere[8];
    send.head = elsewhere, send.head_len = 8;
    CHECK_EQ(ops->send(self, &send, 1), -EFAULT);
    ops->ah_destroy(self, ah);
    ipu_memory_port_destroy(a.port);
    ipu_memory_port_destroy(b.port);

    open_with(&a, sw, (struct ipu_memory_config){.gid = gid(1), .mtu = 256, .one_piece = true});
    CHECK(a.fabric->one_piece);
    ops = a.fabric->ops, self = a.fabric->self;
    ah = handle(&a, gid(2), 5);
    send = (struct ipu_send){.head = a.buffer[0], .addr = a.buffer[1], .len = 4, .ah = ah};
    CHECK_EQ(ops->send(self, &send, 1), 1);
    send.head_len = 1;
    CHECK_EQ(ops->send(self, &send, 1), -EFAULT);
    ops->ah_destroy(self, ah);
    ipu_memory_port_destroy(a.port);
    ipu_memory_switch_destroy(sw);
}

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

static void random_numbers_are_free_ones_and_follow_from_the_seed(void)
{
    uint32_t numbers[2][50];
    for (int run = 0; run < 2; run++) {
        struct ipu_memory_switch *sw = ipu_memory_switch_create(7);
        struct ipu_memory_port *ports[50];
        for (int i = 0; i < 50; i++) {
            struct ipu_memory_config config = {.gid = gid(1), .mtu = 2048};
            ports[i] = ipu_memory_port_create(sw, &config);
            CHECK(ports[i]);
            numbers[run][i] = ipu_memory_port_fabric(ports[i])->qpn;
            CHECK(numbers[run][i] >= 2 && numbers[run][i] < IPU_MULTICAST_QPN);
            for (int j = 0; j < i; j++)
                CHECK(numbers[run][i] != numbers[run][j]);
        }
        for (int i = 0; i < 50; i++)
            ipu_memory_port_destroy(ports[i]);
        ipu_memory_switch_destroy(sw);
    }
    CHECK(memcmp(numbers[0], numbers[1], sizeof numbers[0]) == 0);
}

static void bad_configurations_and_taken_addresses_are_refused(void)
{
    struct ipu_memory_switch *sw = new_switch();
    struct ipu_memory_config good = {.gid = gid(1), .qpn = 5, .mtu = 2048};
    struct ipu_memory_config bad[] = {good, good, good, good, good, good};
    bad[0].mtu = 0;
    bad[1].mtu = 8192;
    bad[2].mtu = 1500;
    bad[3].qpn = 1;
    bad[4].qpn = IPU_MULTICAST_QPN;
    bad[5].gid = mgid(1);
    for (int i = 0; i < 6; i++) {
        errno = 0;
        CHECK(!ipu_memory_port_create(sw, &bad[i]));
        CHECK_EQ(errno, EINVAL);
    }
    struct ipu_memory_port *port = ipu_memory_port_create(sw, &good);
    CHECK(port);
    CHECK(!ipu_memory_port_create(sw, &good));
    CHECK_EQ(errno, EADDRINUSE);
    ipu_memory_port_destroy(port);
    port = ipu_memory_port_create(sw, &good); /* free again */
    CHECK(port);
    ipu_memory_port_destroy(port);
    ipu_memory_port_destroy(NULL);
    ipu_memory_switch_destroy(sw);
    ipu_memory_switch_destroy(NULL);
}

static void every_refused_resource_is_an_error_that_leaves_nothing(void)
{
    for (int n = 0; n < 2; n++) { /* memory, mutex */
        refuse_after(n);
        CHECK(!ipu_memory_switch_create(1));
        CHECK(refuse_stop());
        CHECK_EQ(errno, ENOMEM);
    }
    struct ipu_memory_switch *sw = new_switch();
    struct ipu_memory_config config = {.gid = gid(1), .mtu = 2048};
    int n = 0;
    for (;; n++) {
        errno = 0;
        refuse_after(n);
        struct ipu_memory_port *port = ipu_memory_port_create(sw, &config);
        if (!refuse_stop()) {
            struct ipu_fabric *fabric = ipu_memory_port_fabric(port);
            struct ipu_dest dest = {.qpn = 1};
            refuse_after(0);
            CHECK(!fabric->ops->ah_create(fabric->self, &dest));
            CHECK(refuse_stop());
            CHECK_EQ(errno, ENOMEM);
            ipu_memory_port_destroy(port);
            break;
        }
        CHECK(!port);
        CHECK(errno == ENOMEM || errno == EMFILE);
    }
    CHECK_EQ(n, 5); /* the port, three queues, eventfd */
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
    RUN(a_datagram_arrives_with_its_grh_and_both_cookies_come_back);
    RUN(a_port_may_send_to_itself);
    RUN(multicast_reaches_all_that_are_attached_the_sender_too);
    RUN(attaching_and_detaching_answer_misuse);
    RUN(only_the_multicast_queue_pair_number_reaches_groups);
    RUN(bare_unicast_comes_without_a_grh_but_multicast_with_one);
    RUN(what_cannot_be_delivered_is_dropped_and_counted);
    RUN(memory_that_was_not_registered_is_refused);
    RUN(a_message_in_two_pieces_arrives_as_one);
    RUN(full_queues_take_no_more_until_they_are_reaped);
    RUN(an_armed_port_becomes_readable_at_the_next_completion);
    RUN(a_broken_port_returns_everything_and_then_recovers);
    RUN(breaking_wakes_an_armed_port);
    RUN(random_numbers_are_free_ones_and_follow_from_the_seed);
    RUN(bad_configurations_and_taken_addresses_are_refused);
    RUN(every_refused_resource_is_an_error_that_leaves_nothing);
    RUN(ports_of_one_switch_are_driven_by_different_threads);
}
