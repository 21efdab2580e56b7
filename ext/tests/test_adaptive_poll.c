/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/loop/adaptive_poll.h"

#include "check.h"

enum { US = 1000, SOON = 50 * US, BYTES = 100 };

static struct ipu_adaptive_poll poll;
static struct ipu_adaptive_poll_total total;
static uint64_t now_ns;

static void begin(void)
{
    poll = (struct ipu_adaptive_poll){.direction = IPU_ADAPTIVE_POLL_NONE};
    total = (struct ipu_adaptive_poll_total){.tx_packets = 0};
    now_ns = 7;
}

/* Returns the time to poll, after_ns later, when so many packets have moved since. */
static uint64_t after(uint64_t after_ns, unsigned int sent, unsigned int received,
                      unsigned int bytes)
{
    now_ns += after_ns;
    total.tx_packets += sent;
    total.rx_packets += received;
    total.bytes += bytes;
    return ipu_adaptive_poll_ns(&poll, total, now_ns);
}

static uint64_t out(uint64_t after_ns)
{
    return after(after_ns, 1, 0, BYTES);
}

static uint64_t in(uint64_t after_ns)
{
    return after(after_ns, 0, 1, BYTES);
}

/* Sends two requests, each with a reply in time; the last reply has just come. */
static void learn(void)
{
    begin();
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(out(1000 * US), 0);
        CHECK_EQ(in(SOON), 0);
    }
}

static void the_third_reply_is_polled_for(void)
{
    learn();
    CHECK_EQ(out(1000 * US), IPU_ADAPTIVE_POLL_NS);
    /* and only for so long */
    CHECK_EQ(after(SOON, 0, 0, 0), IPU_ADAPTIVE_POLL_NS - SOON);
    CHECK_EQ(after(IPU_ADAPTIVE_POLL_NS - SOON, 0, 0, 0), 0);
    CHECK_EQ(after(1, 0, 0, 0), 0);
}

static void the_other_direction_counts_by_itself(void)
{
    learn();
    CHECK_EQ(in(1000 * US), 0); /* the requests before had no reply */
    begin();
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(in(1000 * US), 0);
        CHECK_EQ(out(SOON), 0);
    }
    CHECK_EQ(in(1000 * US), IPU_ADAPTIVE_POLL_NS);
}

static void a_reply_that_is_late_or_missing_ends_the_polling(void)
{
    learn();
    CHECK_EQ(out(1000 * US), IPU_ADAPTIVE_POLL_NS);
    CHECK_EQ(in(IPU_ADAPTIVE_POLL_NS), 0);
    CHECK_EQ(out(1000 * US), 0);
    CHECK_EQ(in(SOON), 0);
    CHECK_EQ(out(1000 * US), 0);
    CHECK_EQ(in(SOON), 0);
    CHECK_EQ(out(1000 * US), IPU_ADAPTIVE_POLL_NS);
    CHECK_EQ(out(IPU_ADAPTIVE_POLL_NS), 0);
}

static void packets_both_ways_at_once_are_a_reply_and_the_next_request(void)
{
    learn();
    CHECK_EQ(out(1000 * US), IPU_ADAPTIVE_POLL_NS);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(after(SOON, 1, 1, 2 * BYTES), IPU_ADAPTIVE_POLL_NS);
}

static void a_request_may_come_in_parts(void)
{
    learn();
    for (int i = 0; i < 8; i++)
        CHECK_EQ(out(SOON), IPU_ADAPTIVE_POLL_NS);
    CHECK_EQ(out(SOON), 0); /* nine: a stream */
    CHECK_EQ(in(SOON), 0);
    CHECK_EQ(out(1000 * US), IPU_ADAPTIVE_POLL_NS); /* a stream leaves the hits as they are */
}

static void one_way_traffic_is_never_polled_for(void)
{
    begin();
    for (int i = 0; i < 100; i++)
        CHECK_EQ(out(SOON), 0);
    begin();
    for (int i = 0; i < 100; i++)
        CHECK_EQ(in(SOON), 0);
}

static void a_stream_and_its_acknowledgements_are_not_polled_for(void)
{
    begin();
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(after(SOON, 32, 0, 65536), 0);
        CHECK_EQ(in(SOON), 0);
    }
    begin(); /* one message of 64 KiB: a packet */
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(after(SOON, 1, 0, 65536), 0);
        CHECK_EQ(in(SOON), 0);
    }
}

static void counters_of_an_earlier_life_are_no_request(void)
{
    learn();
    poll = (struct ipu_adaptive_poll){.direction = IPU_ADAPTIVE_POLL_NONE};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(out(1000 * US), 0);
        CHECK_EQ(in(SOON), 0);
    }
    CHECK_EQ(out(1000 * US), IPU_ADAPTIVE_POLL_NS);
}

int main(void)
{
    RUN(the_third_reply_is_polled_for);
    RUN(the_other_direction_counts_by_itself);
    RUN(a_reply_that_is_late_or_missing_ends_the_polling);
    RUN(packets_both_ways_at_once_are_a_reply_and_the_next_request);
    RUN(a_request_may_come_in_parts);
    RUN(one_way_traffic_is_never_polled_for);
    RUN(a_stream_and_its_acknowledgements_are_not_polled_for);
    RUN(counters_of_an_earlier_life_are_no_request);
    return 0;
}
