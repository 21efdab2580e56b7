/* SPDX-License-Identifier: BSD-2-Clause */
/* How many messages the HCA fetches from its socket at once: those are how much memory it fills. */
#include "udp.c"

#include "check.h"

#define LONG_BYTES  60000
#define SHORT_BYTES 100

struct link {
    struct soft_count count;
    struct soft_udp udp;
    int sender;
};

static void open_link(struct link *link)
{
    int ends[2], room = 1 << 20;

    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    CHECK_EQUAL(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    memset(link, 0, sizeof(*link));
    link->udp.fd = ends[1];
    link->udp.count = &link->count;
    link->udp.rx_wanted = RX_SOME;
    CHECK_EQUAL(prepare_messages(&link->udp), 0);
    link->sender = ends[0];
}

static void close_link(struct link *link)
{
    close(link->sender);
    close(link->udp.fd);
    munmap(link->udp.rx_memory, (size_t)RX_MESSAGES * RX_STRIDE_BYTES);
}

static void send_message(struct link *link, size_t bytes)
{
    static uint8_t data[LONG_BYTES];

    CHECK_EQUAL(send(link->sender, data, bytes, 0), (ssize_t)bytes);
}

/* Sends so many messages one by one, and fetches each before the next comes. */
static void exchange(struct link *link, int messages, size_t bytes)
{
    for (int i = 0; i < messages; i++) {
        send_message(link, bytes);
        CHECK(soft_udp_receive(&link->udp));
        CHECK_EQUAL(link->udp.rx_count, 1);
    }
}

/* The stream has trains with their rests. */
static void a_stream_fills_the_memory_of_some_messages(void)
{
    struct link link;

    open_link(&link);
    exchange(&link, 100, SHORT_BYTES);
    CHECK_EQUAL(link.udp.rx_wanted, RX_SOME);
    for (int i = 0; i < 8; i++) {
        exchange(&link, 1, LONG_BYTES);
        CHECK_EQUAL(link.udp.rx_wanted, RX_FEW);
        send_message(&link, LONG_BYTES);
        send_message(&link, SHORT_BYTES);
        send_message(&link, LONG_BYTES);
        CHECK(soft_udp_receive(&link.udp));
        CHECK_EQUAL(link.udp.rx_count, RX_FEW);
        CHECK_EQUAL(link.udp.rx_wanted, RX_SOME);
        CHECK(soft_udp_receive(&link.udp));
        CHECK_EQUAL(link.udp.rx_count, 1);
        CHECK(!soft_udp_receive(&link.udp));
    }
    close_link(&link);
}

/* A Unix socket holds fewer messages than a flood has, so the test says how many came. */
static void a_flood_is_fetched_in_batches_that_double(void)
{
    struct link link;

    open_link(&link);
    exchange(&link, 1, SHORT_BYTES);
    for (unsigned int i = 0; i < RX_MESSAGES; i++)
        link.udp.rx_message[i].msg_len = SHORT_BYTES;
    for (unsigned int wanted = RX_SOME; wanted < RX_MESSAGES; wanted *= 2) {
        link.udp.rx_wanted = wanted;
        CHECK_EQUAL(next_wanted(&link.udp, wanted), 2 * wanted);
        CHECK_EQUAL(next_wanted(&link.udp, wanted - 1), RX_SOME);
    }
    link.udp.rx_wanted = RX_MESSAGES;
    CHECK_EQUAL(next_wanted(&link.udp, RX_MESSAGES), RX_MESSAGES);
    link.udp.rx_wanted = RX_FEW;
    CHECK_EQUAL(next_wanted(&link.udp, RX_FEW), RX_SOME);
    close_link(&link);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_stream_fills_the_memory_of_some_messages),
        TEST(a_flood_is_fetched_in_batches_that_double),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
