/* SPDX-License-Identifier: BSD-2-Clause */
#include "patience.h"

#include "check.h"

enum { US = 1000, SOON = 50 * US, WORD = 100 };

static struct ipu_patience patience;
static struct ipu_patience_total total;
static uint64_t now_ns;

static void begin(void)
{
    patience = (struct ipu_patience){.way = IPU_PATIENCE_NONE};
    total = (struct ipu_patience_total){.tx_packets = 0};
    now_ns = 7;
}

/* For how long to look, `after_ns` later, these packets having moved since. */
static uint64_t heard(uint64_t after_ns, unsigned int sent, unsigned int received,
                      unsigned int bytes)
{
    now_ns += after_ns;
    total.tx_packets += sent;
    total.rx_packets += received;
    total.bytes += bytes;
    return ipu_patience_look_ns(&patience, total, now_ns);
}

static uint64_t out(uint64_t after_ns)
{
    return heard(after_ns, 1, 0, WORD);
}

static uint64_t in(uint64_t after_ns)
{
    return heard(after_ns, 0, 1, WORD);
}

/* Two words out, each answered soon; the last answer was just heard. */
static void learn(void)
{
    begin();
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(out(1000 * US), 0);
        CHECK_EQ(in(SOON), 0);
    }
}

static void the_third_answer_is_looked_for(void)
{
    learn();
    CHECK_EQ(out(1000 * US), IPU_PATIENCE_NS);
    /* and only for so long */
    CHECK_EQ(heard(SOON, 0, 0, 0), IPU_PATIENCE_NS - SOON);
    CHECK_EQ(heard(IPU_PATIENCE_NS - SOON, 0, 0, 0), 0);
    CHECK_EQ(heard(1, 0, 0, 0), 0);
}

static void what_comes_in_is_another_question(void)
{
    learn();
    CHECK_EQ(in(1000 * US), 0); /* those before had no answer */
    begin();
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(in(1000 * US), 0);
        CHECK_EQ(out(SOON), 0);
    }
    CHECK_EQ(in(1000 * US), IPU_PATIENCE_NS);
}

static void an_answer_that_is_late_or_missing_takes_the_trust(void)
{
    learn();
    CHECK_EQ(out(1000 * US), IPU_PATIENCE_NS);
    CHECK_EQ(in(IPU_PATIENCE_NS), 0);
    CHECK_EQ(out(1000 * US), 0);
    CHECK_EQ(in(SOON), 0);
    CHECK_EQ(out(1000 * US), 0);
    CHECK_EQ(in(SOON), 0);
    CHECK_EQ(out(1000 * US), IPU_PATIENCE_NS);
    CHECK_EQ(out(IPU_PATIENCE_NS), 0);
}

static void both_in_one_go_are_an_answer_and_the_next_word(void)
{
    learn();
    CHECK_EQ(out(1000 * US), IPU_PATIENCE_NS);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(heard(SOON, 1, 1, 2 * WORD), IPU_PATIENCE_NS);
}

static void a_word_may_come_in_parts(void)
{
    learn();
    for (int i = 0; i < 8; i++)
        CHECK_EQ(out(SOON), IPU_PATIENCE_NS);
    CHECK_EQ(out(SOON), 0); /* nine: a stream */
    CHECK_EQ(in(SOON), 0);
    CHECK_EQ(out(1000 * US), IPU_PATIENCE_NS); /* which says nothing of words */
}

static void one_way_traffic_is_never_looked_for(void)
{
    begin();
    for (int i = 0; i < 100; i++)
        CHECK_EQ(out(SOON), 0);
    begin();
    for (int i = 0; i < 100; i++)
        CHECK_EQ(in(SOON), 0);
}

static void a_stream_and_its_acknowledgements_are_slept_on(void)
{
    begin();
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(heard(SOON, 32, 0, 65536), 0);
        CHECK_EQ(in(SOON), 0);
    }
    begin(); /* one message of 64 KiB: a packet */
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(heard(SOON, 1, 0, 65536), 0);
        CHECK_EQ(in(SOON), 0);
    }
}

static void counters_of_an_earlier_life_are_no_word(void)
{
    learn();
    patience = (struct ipu_patience){.way = IPU_PATIENCE_NONE};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(out(1000 * US), 0);
        CHECK_EQ(in(SOON), 0);
    }
    CHECK_EQ(out(1000 * US), IPU_PATIENCE_NS);
}

int main(void)
{
    RUN(the_third_answer_is_looked_for);
    RUN(what_comes_in_is_another_question);
    RUN(an_answer_that_is_late_or_missing_takes_the_trust);
    RUN(both_in_one_go_are_an_answer_and_the_next_word);
    RUN(a_word_may_come_in_parts);
    RUN(one_way_traffic_is_never_looked_for);
    RUN(a_stream_and_its_acknowledgements_are_slept_on);
    RUN(counters_of_an_earlier_life_are_no_word);
    return 0;
}
