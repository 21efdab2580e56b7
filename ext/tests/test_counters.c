/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>

#include "check.h"
#include "core/counter.h"
#include "pump/records/counters.h"

static void names_and_values_come_in_the_same_order(void)
{
    struct ipu_counters counters = {0};
    uint64_t values[IPU_COUNTERS_N];
    ipu_counter_add(&counters.tx_packets, 3);
    ipu_counter_add(&counters.tx_packets, 4);
    ipu_counter_add(&counters.rx_short, 1);
    ipu_counters_read(&counters, values);
    uint64_t total = 0;
    for (int i = 0; i < IPU_COUNTERS_N; i++) {
        uint64_t wanted = strcmp(ipu_counters_names[i], "tx_packets") == 0 ? 7
                          : strcmp(ipu_counters_names[i], "rx_short") == 0 ? 1
                                                                           : 0;
        CHECK_EQ(values[i], wanted);
        total += values[i];
    }
    CHECK_EQ(total, 8);
}

static void names_are_distinct_lower_case_words(void)
{
    CHECK_EQ(sizeof(struct ipu_counters), IPU_COUNTERS_N * sizeof(uint64_t));
    for (int i = 0; i < IPU_COUNTERS_N; i++) {
        const char *name = ipu_counters_names[i];
        CHECK(name[0] != '\0');
        CHECK_EQ(strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789"), strlen(name));
        for (int j = 0; j < i; j++)
            CHECK(strcmp(name, ipu_counters_names[j]) != 0);
    }
}

enum { ADDITIONS = 100000 };

static void *add(void *argument)
{
    struct ipu_counters *counters = argument;
    for (int i = 0; i < ADDITIONS; i++)
        ipu_counter_add(&counters->wakeups, 1);
    return NULL;
}

static void another_thread_reads_while_the_pump_counts(void)
{
    struct ipu_counters counters = {0};
    uint64_t values[IPU_COUNTERS_N], last = 0;
    pthread_t pump;
    CHECK_EQ(pthread_create(&pump, NULL, add, &counters), 0);
    while (last < ADDITIONS) {
        uint64_t total = 0;
        ipu_counters_read(&counters, values);
        for (int i = 0; i < IPU_COUNTERS_N; i++)
            total += values[i];
        CHECK(total >= last);
        last = total;
    }
    CHECK_EQ(pthread_join(pump, NULL), 0);
    CHECK_EQ(last, ADDITIONS);
}

int main(void)
{
    RUN(names_and_values_come_in_the_same_order);
    RUN(names_are_distinct_lower_case_words);
    RUN(another_thread_reads_while_the_pump_counts);
}
