/* SPDX-License-Identifier: BSD-2-Clause */
/* The in-process fabric: what it delivers, to whom, and the life of its ports. */
#include <arpa/inet.h>
#include <errno.h>

#include "memory_world.h"
#include "refuse.h"
#include "core/frame.h"
#include "core/random.h"

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
    RUN(random_numbers_are_free_ones_and_follow_from_the_seed);
    RUN(bad_configurations_and_taken_addresses_are_refused);
    RUN(every_refused_resource_is_an_error_that_leaves_nothing);
    return 0;
}
