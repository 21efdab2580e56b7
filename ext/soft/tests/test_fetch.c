/* SPDX-License-Identifier: BSD-2-Clause */
/* How many messages the HCA fetches from its socket at once: those are how much memory it fills. */
#include "../udp.c"

#include "check.h"

#define LONG_BYTES  60000
#define SHORT_BYTES 100

/* A Unix socket holds this many messages on every machine. */
#define SOCKET_MESSAGES 8

static struct soft_count count;
static struct soft_udp udp;
static int sender;

static void begin(void)
{
    int ends[2], room = 1 << 20;

    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    CHECK_EQUAL(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    udp = (struct soft_udp){.fd = ends[1], .count = &count, .rx_wanted = RX_FEW};
    CHECK_EQUAL(prepare_messages(&udp), 0);
    sender = ends[0];
}

static void finish(void)
{
    close(sender);
    close(udp.fd);
    munmap(udp.rx_memory, (size_t)RX_MESSAGES * RX_STRIDE_BYTES);
}

static void send_message(size_t bytes)
{
    static uint8_t data[LONG_BYTES];

    CHECK_EQUAL(send(sender, data, bytes, 0), (ssize_t)bytes);
}

/* Sends so many messages one by one, and fetches each before the next comes. */
static void exchange(int messages, size_t bytes)
{
    for (int i = 0; i < messages; i++) {
        send_message(bytes);
        CHECK(soft_udp_receive(&udp));
        CHECK_EQUAL(udp.rx_count, 1);
    }
}

/* The stream has trains with their rests, and comes faster than the HCA fetches. */
static void a_stream_fills_the_memory_of_a_few_messages(void)
{
    begin();
    exchange(100, SHORT_BYTES);
    for (int i = 0; i < 8; i++) {
        send_message(LONG_BYTES);
        send_message(SHORT_BYTES);
        send_message(LONG_BYTES);
        send_message(SHORT_BYTES);
        CHECK(soft_udp_receive(&udp));
        CHECK_EQUAL(udp.rx_count, RX_FEW);
        CHECK(soft_udp_receive(&udp));
        CHECK_EQUAL(udp.rx_count, RX_FEW);
        CHECK(!soft_udp_receive(&udp));
    }
    finish();
}

static void a_flood_is_fetched_in_batches_that_double(void)
{
    begin();
    for (unsigned int wanted = RX_FEW; wanted <= SOCKET_MESSAGES; wanted *= 2) {
        for (unsigned int sent = 0; sent < wanted; sent++)
            send_message(SHORT_BYTES);
        CHECK(soft_udp_receive(&udp));
        CHECK_EQUAL(udp.rx_count, wanted);
        CHECK(!soft_udp_receive(&udp));
    }
    CHECK_EQUAL(udp.rx_wanted, 2 * SOCKET_MESSAGES);
    udp.rx_wanted = RX_MESSAGES;
    CHECK_EQUAL(next_wanted(&udp, RX_MESSAGES), RX_MESSAGES);
    send_message(LONG_BYTES);
    CHECK(soft_udp_receive(&udp));
    CHECK_EQUAL(udp.rx_wanted, RX_FEW);
    finish();
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_stream_fills_the_memory_of_a_few_messages),
        TEST(a_flood_is_fetched_in_batches_that_double),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
