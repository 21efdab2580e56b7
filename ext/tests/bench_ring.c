/* SPDX-License-Identifier: BSD-2-Clause */
/* Measures a record through the ring: on one thread, and between two polling threads. */
#include <pthread.h>
#include <sched.h>

#include "bench.h"
#include "check.h"
#include "core/ring.h"

enum { RECORDS = 10000000, LEN = 64, BATCH = 32 };

static struct ipu_ring ring;

static void *produce(void *argument)
{
    for (uint32_t i = 0; i < RECORDS;) {
        uint64_t *record = ipu_ring_reserve(&ring, LEN);
        if (!record) {
            sched_yield();
            continue;
        }
        *record = i++;
        ipu_ring_commit(&ring, LEN);
        if (i % BATCH == 0)
            ipu_ring_wake(&ring);
    }
    return argument;
}

int main(void)
{
    uint32_t len;
    CHECK(ipu_ring_init(&ring, 1 << 20) == 0);
    double start = bench_now_ns();
    for (uint32_t i = 0; i < RECORDS; i += BATCH) {
        for (uint32_t j = 0; j < BATCH; j++) {
            uint64_t *record = ipu_ring_reserve(&ring, LEN);
            *record = i + j;
            ipu_ring_commit(&ring, LEN);
        }
        ipu_ring_wake(&ring);
        for (uint32_t j = 0; j < BATCH; j++) {
            bench_keep(*(uint64_t *)ipu_ring_peek(&ring, &len));
            ipu_ring_release(&ring);
        }
    }
    printf("one thread, batches of %d: %.1f ns a record\n", BATCH,
           (bench_now_ns() - start) / RECORDS);

    pthread_t producer;
    CHECK(pthread_create(&producer, NULL, produce, NULL) == 0);
    start = bench_now_ns();
    for (uint32_t i = 0; i < RECORDS;) {
        const uint64_t *record = ipu_ring_peek(&ring, &len);
        if (!record) {
            sched_yield();
            continue;
        }
        CHECK(*record == i++);
        ipu_ring_release(&ring);
    }
    printf("two threads: %.1f ns a record, of the consumer\n", (bench_now_ns() - start) / RECORDS);
    pthread_join(producer, NULL);
    ipu_ring_free(&ring);
}
