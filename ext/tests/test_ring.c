/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "check.h"
#include "refuse.h"
#include "core/random.h"
#include "core/ring.h"

static bool is_readable(const struct ipu_ring *ring)
{
    struct pollfd fd = {.fd = ipu_ring_fd(ring), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static void put(struct ipu_ring *ring, const void *data, uint32_t len)
{
    void *record = ipu_ring_reserve(ring, len);
    CHECK(record);
    memcpy(record, data, len);
    ipu_ring_commit(ring, len);
}

/* An empty ring whose positions are at start. */
static void init_at(struct ipu_ring *ring, uint32_t capacity_bytes, uint64_t start)
{
    CHECK_EQ(ipu_ring_init(ring, capacity_bytes), 0);
    atomic_store(&ring->head, start);
    atomic_store(&ring->tail, start);
    ring->head_seen = ring->tail_seen = start;
}

static void records_come_out_in_order_as_they_went_in(void)
{
    struct ipu_ring ring;
    uint32_t len;
    CHECK_EQ(ipu_ring_init(&ring, 256), 0);
    put(&ring, "one", 4);
    put(&ring, "", 0);
    put(&ring, "the third", 10);

    char *record = ipu_ring_peek(&ring, &len);
    CHECK_EQ(len, 4);
    CHECK(memcmp(record, "one", 4) == 0);
    CHECK(ipu_ring_peek(&ring, &len) == record); /* until released */
    ipu_ring_release(&ring);
    CHECK(ipu_ring_peek(&ring, &len));
    CHECK_EQ(len, 0);
    ipu_ring_release(&ring);
    record = ipu_ring_peek(&ring, &len);
    CHECK_EQ(len, 10);
    CHECK(memcmp(record, "the third", 10) == 0);
    ipu_ring_release(&ring);
    CHECK(!ipu_ring_peek(&ring, &len));
    ipu_ring_free(&ring);
}

static void only_powers_of_two_from_64_bytes_to_1_gib_are_capacities(void)
{
    static const uint32_t bad[] = {0, 1, 32, 63, 65, 96, 1000, (1u << 30) + 8, 1u << 31};
    struct ipu_ring ring;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_EQ(ipu_ring_init(&ring, bad[i]), -EINVAL);
        ipu_ring_free(&ring);
    }
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    CHECK_EQ(ipu_ring_max_bytes(&ring), 24);
    ipu_ring_free(&ring);
    ipu_ring_free(&ring);
}

static void an_empty_ring_takes_the_longest_record_at_every_offset(void)
{
    uint8_t data[120];
    memset(data, 0x5A, sizeof data);
    for (uint64_t start = 0; start < 512; start += 8) {
        struct ipu_ring ring;
        uint32_t len;
        init_at(&ring, 256, start);
        CHECK_EQ(ipu_ring_max_bytes(&ring), sizeof data);
        CHECK_EQ(ipu_ring_free_bytes(&ring), sizeof data);
        CHECK(!ipu_ring_reserve(&ring, sizeof data + 1));
        put(&ring, data, sizeof data);
        uint8_t *record = ipu_ring_peek(&ring, &len);
        CHECK(record && (uintptr_t)record % 8 == 0);
        CHECK_EQ(len, sizeof data);
        CHECK(memcmp(record, data, len) == 0);
        CHECK(record + len <= ring.data + 256);
        ipu_ring_release(&ring);
        CHECK(!ipu_ring_peek(&ring, &len));
        ipu_ring_free(&ring);
    }
}

static void nothing_is_visible_before_the_commit_which_may_be_shorter(void)
{
    struct ipu_ring ring;
    uint32_t len;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    CHECK(ipu_ring_reserve(&ring, 24));
    CHECK(!ipu_ring_peek(&ring, &len));
    char *record = ipu_ring_reserve(&ring, 20); /* replaces the first */
    memcpy(record, "short", 5);
    ipu_ring_commit(&ring, 5);
    CHECK(memcmp(ipu_ring_peek(&ring, &len), "short", 5) == 0);
    CHECK_EQ(len, 5);
    ipu_ring_release(&ring);
    CHECK_EQ(atomic_load(&ring.tail), 16);
    ipu_ring_free(&ring);
}

static void a_full_ring_refuses_until_a_record_is_released(void)
{
    struct ipu_ring ring;
    uint32_t len;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    for (int i = 0; i < 4; i++)
        put(&ring, "12345678", 8);
    CHECK(!ipu_ring_reserve(&ring, 0));
    CHECK_EQ(ipu_ring_free_bytes(&ring), 0);
    CHECK(ipu_ring_peek(&ring, &len));
    CHECK(!ipu_ring_reserve(&ring, 0)); /* peek does not release */
    ipu_ring_release(&ring);
    CHECK_EQ(ipu_ring_free_bytes(&ring), 8);
    CHECK(!ipu_ring_reserve(&ring, 9));
    CHECK(ipu_ring_reserve(&ring, 8));
    ipu_ring_free(&ring);
}

static void a_wrap_mark_alone_gives_its_space_back(void)
{
    struct ipu_ring ring;
    uint32_t len;
    init_at(&ring, 64, 56); /* only a header fits before the end */
    put(&ring, "12345678", 8);
    CHECK_EQ(atomic_load(&ring.head), 64 + 16);
    CHECK(ipu_ring_peek(&ring, &len) == ring.data + 8);
    CHECK_EQ(atomic_load(&ring.tail), 64);
    ipu_ring_release(&ring);
    CHECK_EQ(ipu_ring_free_bytes(&ring), 24);
    ipu_ring_free(&ring);
}

static void wake_makes_the_descriptor_readable_only_if_armed(void)
{
    struct ipu_ring ring;
    uint32_t len;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    put(&ring, "a", 1);
    ipu_ring_wake(&ring);
    CHECK(!is_readable(&ring));
    CHECK_EQ(ipu_ring_arm(&ring), 1); /* not empty: not armed */
    ipu_ring_wake(&ring);
    CHECK(!is_readable(&ring));

    CHECK(ipu_ring_peek(&ring, &len));
    ipu_ring_release(&ring);
    CHECK_EQ(ipu_ring_arm(&ring), 0);
    put(&ring, "b", 1);
    CHECK(!is_readable(&ring)); /* the commit alone does not */
    ipu_ring_wake(&ring);
    CHECK(is_readable(&ring));
    ipu_ring_disarm(&ring);
    CHECK(!is_readable(&ring));
    put(&ring, "c", 1);
    ipu_ring_wake(&ring);
    CHECK(!is_readable(&ring)); /* one wake for one arm */
    ipu_ring_free(&ring);
}

static void a_wake_without_a_record_leaves_the_consumer_asleep(void)
{
    struct ipu_ring ring;
    uint32_t len;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    put(&ring, "a", 1);
    CHECK(ipu_ring_peek(&ring, &len));
    ipu_ring_release(&ring);
    CHECK_EQ(ipu_ring_arm(&ring), 0);
    for (int i = 0; i < 3; i++)
        ipu_ring_wake(&ring);
    CHECK(!is_readable(&ring));
    put(&ring, "b", 1); /* and it is still armed */
    ipu_ring_wake(&ring);
    CHECK(is_readable(&ring));
    ipu_ring_free(&ring);
}

static void disarm_without_a_wake_cancels_the_arm(void)
{
    struct ipu_ring ring;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    CHECK_EQ(ipu_ring_arm(&ring), 0);
    ipu_ring_disarm(&ring);
    put(&ring, "a", 1);
    ipu_ring_wake(&ring);
    CHECK(!is_readable(&ring));
    ipu_ring_free(&ring);
}

/* The pump arms again without a disarm when another source had work. */
static void a_wake_between_two_arms_is_read_once(void)
{
    struct ipu_ring ring;
    uint32_t len;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(ipu_ring_arm(&ring), 0);
        put(&ring, "a", 1);
        ipu_ring_wake(&ring);
        CHECK(ipu_ring_peek(&ring, &len));
        ipu_ring_release(&ring);
        CHECK_EQ(ipu_ring_arm(&ring), 0);
        CHECK(is_readable(&ring));
        ipu_ring_disarm(&ring);
        CHECK(!is_readable(&ring));
    }
    ipu_ring_free(&ring);
}

static void without_a_wake_the_descriptor_is_not_read(void)
{
    struct ipu_ring ring;
    uint64_t one = 1;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    CHECK_EQ(write(ipu_ring_fd(&ring), &one, sizeof one), sizeof one); /* another thread's */
    CHECK_EQ(ipu_ring_arm(&ring), 0);
    ipu_ring_disarm(&ring);
    CHECK(is_readable(&ring));
    ipu_ring_drain(&ring);
    CHECK(!is_readable(&ring));
    ipu_ring_free(&ring);
}

static void every_refused_resource_is_an_error_that_leaves_nothing(void)
{
    struct ipu_ring ring;
    refuse_after(0);
    CHECK_EQ(ipu_ring_init(&ring, 64), -ENOMEM);
    CHECK(refuse_stop());
    ipu_ring_free(&ring);
    refuse_after(1);
    CHECK_EQ(ipu_ring_init(&ring, 64), -EMFILE);
    CHECK(refuse_stop());
    CHECK(!ring.data);
    CHECK_EQ(ipu_ring_fd(&ring), -1);
    ipu_ring_free(&ring);
}

static void overcommit(void)
{
    struct ipu_ring ring;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    CHECK(ipu_ring_reserve(&ring, 8));
    ipu_ring_commit(&ring, 9);
}

static void release_nothing(void)
{
    struct ipu_ring ring;
    CHECK_EQ(ipu_ring_init(&ring, 64), 0);
    ipu_ring_release(&ring);
}

static void misuse_is_caught_in_debug_builds(void)
{
    CHECK_EQ(check_signal_of(overcommit), SIGABRT);
    CHECK_EQ(check_signal_of(release_nothing), SIGABRT);
}

/* Lengths and contents follow from the record's number. */
static uint32_t length_of(uint64_t number, uint32_t max)
{
    return ipu_random_below(&number, max + 1);
}

static void fill(uint8_t *record, uint64_t number, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        record[i] = (uint8_t)(number * 7 + i);
}

static bool is_filled(const uint8_t *record, uint64_t number, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        if (record[i] != (uint8_t)(number * 7 + i))
            return false;
    }
    return true;
}

static void a_long_random_run_behaves_like_a_queue(uint32_t capacity_bytes, uint64_t start)
{
    struct ipu_ring ring;
    uint64_t random = capacity_bytes, in = 0, out = 0;
    init_at(&ring, capacity_bytes, start);
    uint32_t max = ipu_ring_max_bytes(&ring);
    for (int step = 0; step < 100000; step++) {
        if (ipu_random_below(&random, 2)) {
            uint32_t room = ipu_ring_free_bytes(&ring);
            CHECK(room <= max);
            CHECK(!ipu_ring_reserve(&ring, room + 1));
            CHECK(room == 0 || ipu_ring_reserve(&ring, room));
            uint32_t len = length_of(in, max);
            uint8_t *record = ipu_ring_reserve(&ring, len);
            if (len > 0) /* no room and room for an empty record look alike */
                CHECK_EQ(record != NULL, len <= room);
            if (record) {
                fill(record, in++, len);
                ipu_ring_commit(&ring, len);
            }
        } else {
            uint32_t len;
            uint8_t *record = ipu_ring_peek(&ring, &len);
            CHECK_EQ(record != NULL, in > out);
            if (record) {
                CHECK_EQ(len, length_of(out, max));
                CHECK(is_filled(record, out, len));
                out++;
                ipu_ring_release(&ring);
            }
        }
    }
    CHECK(out > 10000);
    ipu_ring_free(&ring);
}

static void long_random_runs_behave_like_a_queue(void)
{
    a_long_random_run_behaves_like_a_queue(64, 0);
    a_long_random_run_behaves_like_a_queue(256, UINT32_MAX - 7u - 1024);
    a_long_random_run_behaves_like_a_queue(4096, (UINT64_C(1) << 32) - 4096);
}

/* --- Two threads --- */

enum { BATCH = 16 };

struct stress {
    struct ipu_ring ring;
    uint64_t records;
    uint64_t sleeps;
    bool polling; /* neither side sleeps or wakes: the commit alone publishes */
};

static void *produce(void *argument)
{
    struct stress *stress = argument;
    uint32_t max = ipu_ring_max_bytes(&stress->ring) / 4;
    uint64_t random = 3;
    for (uint64_t number = 0; number < stress->records;) {
        uint32_t batch = 1 + ipu_random_below(&random, BATCH);
        for (uint32_t i = 0; i < batch && number < stress->records; i++) {
            uint32_t len = length_of(number, max);
            uint8_t *record = ipu_ring_reserve(&stress->ring, len);
            if (!record)
                break;
            fill(record, number++, len);
            ipu_ring_commit(&stress->ring, len);
        }
        if (!stress->polling)
            ipu_ring_wake(&stress->ring);
        /* Now and then the consumer empties the ring and sleeps. */
        if (ipu_random_below(&random, 4) == 0)
            sched_yield();
    }
    return NULL;
}

static void consume(struct stress *stress)
{
    uint32_t max = ipu_ring_max_bytes(&stress->ring) / 4;
    for (uint64_t number = 0; number < stress->records;) {
        uint32_t len;
        uint8_t *record = ipu_ring_peek(&stress->ring, &len);
        if (record) {
            CHECK_EQ(len, length_of(number, max));
            CHECK(is_filled(record, number, len));
            number++;
            ipu_ring_release(&stress->ring);
        } else if (stress->polling) {
            sched_yield();
        } else if (ipu_ring_arm(&stress->ring) == 0) {
            struct pollfd fd = {.fd = ipu_ring_fd(&stress->ring), .events = POLLIN};
            CHECK_EQ(poll(&fd, 1, -1), 1); /* a lost wake-up ends by SIGALRM */
            ipu_ring_disarm(&stress->ring);
            stress->sleeps++;
        }
    }
}

static void run_two_threads(struct stress *stress)
{
    CHECK_EQ(ipu_ring_init(&stress->ring, 1024), 0);
    pthread_t producer;
    CHECK_EQ(pthread_create(&producer, NULL, produce, stress), 0);
    consume(stress);
    CHECK_EQ(pthread_join(producer, NULL), 0);
    uint32_t len;
    CHECK(!ipu_ring_peek(&stress->ring, &len));
    ipu_ring_free(&stress->ring);
}

static void two_threads_lose_neither_records_nor_wake_ups(void)
{
    static struct stress stress = {.records = 300000};
    run_two_threads(&stress);
    CHECK(stress.sleeps > 0);
}

static void two_polling_threads_need_no_wake_ups(void)
{
    static struct stress stress = {.records = 100000, .polling = true};
    run_two_threads(&stress);
}

int main(void)
{
    RUN(records_come_out_in_order_as_they_went_in);
    RUN(only_powers_of_two_from_64_bytes_to_1_gib_are_capacities);
    RUN(an_empty_ring_takes_the_longest_record_at_every_offset);
    RUN(nothing_is_visible_before_the_commit_which_may_be_shorter);
    RUN(a_full_ring_refuses_until_a_record_is_released);
    RUN(a_wrap_mark_alone_gives_its_space_back);
    RUN(wake_makes_the_descriptor_readable_only_if_armed);
    RUN(a_wake_without_a_record_leaves_the_consumer_asleep);
    RUN(disarm_without_a_wake_cancels_the_arm);
    RUN(a_wake_between_two_arms_is_read_once);
    RUN(without_a_wake_the_descriptor_is_not_read);
    RUN(every_refused_resource_is_an_error_that_leaves_nothing);
    RUN(misuse_is_caught_in_debug_builds);
    RUN(long_random_runs_behave_like_a_queue);
    RUN(two_threads_lose_neither_records_nor_wake_ups);
    RUN(two_polling_threads_need_no_wake_ups);
}
