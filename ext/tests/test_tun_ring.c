/* SPDX-License-Identifier: BSD-2-Clause */
/* A packet device over io_uring, with one end of a socket pair in the place of a TUN. */
#include "device/tun_ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "check.h"

enum { FRAMES = 64, FRAME = 20000, ROUNDS = 300, TIMEOUT_MS = 5000, AT_ONCE = 16 };

static bool always; /* all through the ring, as where system calls are slow */

struct bed {
    int ends[2]; /* the device's end, and the test's */
    struct ipu_slab tx;
    struct ipu_tun_ring *tun;
    struct ipu_device *device;
};

static int attach(struct bed *bed)
{
    const struct ipu_device_frames frames = {.tx = &bed->tx, .lent = FRAMES, .packet_bytes = FRAME};
    return bed->device->ops->attach(bed->tun, &frames);
}

static struct bed make(void)
{
    struct bed bed;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, bed.ends), 0);
    CHECK_EQ(ipu_slab_init(&bed.tx, FRAMES + 1, FRAME), 0);
    CHECK_EQ(ipu_tun_ring_create(&bed.ends[0], 1, 0, always, &bed.tun), 0);
    bed.device = ipu_tun_ring_device(bed.tun);
    CHECK_EQ(attach(&bed), 0);
    return bed;
}

static void end(struct bed *bed)
{
    bed->device->ops->detach(bed->tun, &bed->tx);
    ipu_slab_free(&bed->tx);
    ipu_tun_ring_destroy(bed->tun);
    close(bed->ends[0]);
    close(bed->ends[1]);
}

static void say(const struct bed *bed, uint32_t number)
{
    CHECK_EQ(write(bed->ends[1], &number, sizeof number), sizeof number);
}

/* Does as the pump: asks, arms, sleeps, asks again. Returns the length, or a negative errno. */
static ssize_t await(const struct bed *bed, uint32_t *index)
{
    const struct ipu_device_ops *ops = bed->device->ops;
    for (;;) {
        ssize_t n = ops->give(bed->tun, index);
        if (n != -EAGAIN)
            return n;
        if (ops->arm(bed->tun))
            continue;
        struct pollfd fds[] = {{.fd = ops->fd(bed->tun), .events = POLLIN},
                               {.fd = ops->ahead_fd(bed->tun), .events = POLLIN}};
        int ready = poll(fds, 2, TIMEOUT_MS);
        CHECK(ready > 0 || (ready < 0 && errno == EINTR));
    }
}

static void expect(const struct bed *bed, uint32_t number)
{
    uint32_t index, got;
    CHECK_EQ(await(bed, &index), sizeof number);
    CHECK(index < FRAMES);
    memcpy(&got, ipu_slab_at(&bed->tx, index), sizeof got);
    CHECK_EQ(got, number);
    bed->device->ops->ended(bed->tun, index);
}

static bool is_silent(const struct bed *bed)
{
    uint32_t index;
    return bed->device->ops->give(bed->tun, &index) == -EAGAIN && !bed->device->ops->arm(bed->tun);
}

static void frames_come_in_their_order_however_many_wait(void)
{
    struct bed bed = make();
    uint32_t said = 0, heard = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t burst = 0; burst < 1 + round % 40; burst++)
            say(&bed, said++);
        while (heard < said)
            expect(&bed, heard++);
        CHECK(is_silent(&bed));
    }
    end(&bed);
}

static void a_frame_that_was_given_is_not_read_into(void)
{
    struct bed bed = make();
    uint32_t held[FRAMES];
    for (uint32_t i = 0; i < FRAMES; i++) {
        say(&bed, i);
        CHECK_EQ(await(&bed, &held[i]), sizeof i);
    }
    say(&bed, FRAMES);
    CHECK(is_silent(&bed)); /* no frame is left */
    for (uint32_t i = 0; i < FRAMES; i++) {
        uint32_t got;
        memcpy(&got, ipu_slab_at(&bed.tx, held[i]), sizeof got);
        CHECK_EQ(got, i);
        bed.device->ops->ended(bed.tun, held[i]);
    }
    expect(&bed, FRAMES);
    end(&bed);
}

static void heard_by_the_world(const struct bed *bed, const char *text)
{
    char got[24] = {0};
    CHECK_EQ(read(bed->ends[1], got, sizeof got), strlen(text));
    CHECK(strcmp(got, text) == 0);
}

static int ring_fd(const struct bed *bed)
{
    const struct ipu_device_ops *ops = bed->device->ops;
    return always ? ops->fd(bed->tun) : ops->ahead_fd(bed->tun);
}

/* Returns how many requests the ring has had. */
static unsigned int requests(const struct bed *bed)
{
    char path[64], line[128];
    unsigned int tail = 0, lines = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", ring_fd(bed));
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        lines += sscanf(line, "SqTail: %u", &tail) == 1;
    fclose(file);
    CHECK_EQ(lines, 1);
    return tail;
}

static void writes_end_in_their_order(void)
{
    enum { WRITES = 40 };
    struct bed bed = make();
    const struct ipu_device_ops *ops = bed.device->ops;
    int errors[WRITES];
    for (int round = 0; round < 3; round++) {
        int queued = 0;
        char text[24];
        char numbers[WRITES][24];
        for (int i = 0; i < WRITES; i++) {
            int len = snprintf(numbers[i], sizeof numbers[i], "number %d", i);
            struct iovec pieces[] = {{.iov_base = numbers[i], .iov_len = 7},
                                     {.iov_base = numbers[i] + 7, .iov_len = (size_t)len - 7}};
            int done = i % 2 == 0 ? ops->write(bed.tun, numbers[i], (size_t)len)
                                  : ops->writev(bed.tun, pieces, 2);
            CHECK_EQ(done, always || i >= AT_ONCE ? IPU_DEVICE_QUEUED : 0);
            queued += done;
        }
        ops->flush(bed.tun);
        ops->written(bed.tun, errors, queued);
        for (int i = 0; i < queued; i++)
            CHECK_EQ(errors[i], 0);
        for (int i = 0; i < WRITES; i++) {
            snprintf(text, sizeof text, "number %d", i);
            heard_by_the_world(&bed, text);
        }
    }
    end(&bed);
}

/* Queues the most writes, none of which waits for room, with more pieces than the device keeps,
 * where it does not write them at once. */
static void a_full_batch_of_lists_is_written(void)
{
    struct bed bed = make();
    static char byte = 'x';
    struct iovec pieces[64];
    int n = always ? 64 : 7;
    int errors[IPU_DEVICE_WRITES], full = 0, good = 0, queued = 0, done;
    for (int i = 0; i < n; i++)
        pieces[i] = (struct iovec){.iov_base = &byte, .iov_len = 1};
    while ((done = bed.device->ops->writev(bed.tun, pieces, n)) != -ENOBUFS) {
        queued += done == IPU_DEVICE_QUEUED;
        good += done == 0;
        full += done == -EAGAIN;
    }
    CHECK_EQ(queued, IPU_DEVICE_WRITES);
    CHECK(always ? good == 0 : good > 0);
    bed.device->ops->flush(bed.tun);
    bed.device->ops->written(bed.tun, errors, queued);
    for (int i = 0; i < queued; i++) {
        good += errors[i] == 0;
        full += errors[i] == -EAGAIN;
    }
    CHECK_EQ(good + full, queued + (always ? 0 : AT_ONCE));
    char got[65];
    int heard = 0;
    while (read(bed.ends[1], got, sizeof got) == n)
        heard++;
    CHECK(heard > 0);
    CHECK_EQ(heard, good);
    end(&bed);
}

static void the_result_of_a_write_is_reported(void)
{
    struct bed bed = make();
    signal(SIGPIPE, SIG_IGN);
    close(bed.ends[1]);
    int error = bed.device->ops->write(bed.tun, "nobody", 6);
    CHECK_EQ(error, always ? IPU_DEVICE_QUEUED : -EPIPE);
    bed.device->ops->flush(bed.tun);
    if (always)
        bed.device->ops->written(bed.tun, &error, 1);
    CHECK_EQ(error, -EPIPE);
    bed.ends[1] = dup(bed.ends[0]);
    end(&bed);
}

static void a_ring_that_fails_is_a_device_that_is_gone(void)
{
    struct bed bed = make();
    uint32_t index;
    int error;
    CHECK_EQ(dup2(bed.ends[1], ring_fd(&bed)), ring_fd(&bed));
    while (bed.device->ops->write(bed.tun, "nobody", 6) != IPU_DEVICE_QUEUED)
        continue;
    bed.device->ops->flush(bed.tun);
    bed.device->ops->written(bed.tun, &error, 1);
    CHECK_EQ(error, -EBADFD);
    CHECK_EQ(bed.device->ops->write(bed.tun, "nobody", 6), -ENOBUFS);
    CHECK_EQ(bed.device->ops->arm(bed.tun), 1);
    CHECK_EQ(bed.device->ops->give(bed.tun, &index), -EBADFD);
    static struct ipu_slab kept; /* never freed: the kernel may still use it */
    kept = bed.tx;
    end(&bed);
    CHECK(kept.base != NULL);
}

/* Sends frames one by one, and sleeps for each; returns how many requests they take. */
static unsigned int alone(const struct bed *bed, uint32_t frames)
{
    unsigned int before = requests(bed);
    for (uint32_t i = 0; i < frames; i++) {
        CHECK(is_silent(bed));
        say(bed, i);
        expect(bed, i);
    }
    return requests(bed) - before;
}

static void flood(const struct bed *bed)
{
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 40; i++)
            say(bed, i);
        for (uint32_t i = 0; i < 40; i++)
            expect(bed, i);
    }
}

static void only_a_flood_is_read_through_the_ring(void)
{
    struct bed bed = make();
    unsigned int before;
    CHECK_EQ(alone(&bed, 100), always ? 100 : 0);
    before = requests(&bed);
    flood(&bed);
    CHECK(requests(&bed) - before > 400);
    alone(&bed, 40); /* it is over */
    CHECK_EQ(alone(&bed, 100), always ? 100 : 0);
    end(&bed);
}

static void a_long_frame_ends_a_flood(void)
{
    static char frame[FRAME];
    struct bed bed = make();
    uint32_t index;
    flood(&bed);
    CHECK_EQ(write(bed.ends[1], frame, sizeof frame), sizeof frame);
    CHECK_EQ(await(&bed, &index), sizeof frame);
    bed.device->ops->ended(bed.tun, index);
    alone(&bed, 40); /* as many as wait at most */
    CHECK_EQ(alone(&bed, 10), always ? 10 : 0);
    end(&bed);
}

static void another_pump_reads_on(void)
{
    struct bed bed = make();
    say(&bed, 1);
    expect(&bed, 1);
    CHECK(is_silent(&bed)); /* a read is under way, perhaps */
    struct ipu_slab before = bed.tx;
    CHECK_EQ(ipu_slab_init(&bed.tx, FRAMES + 1, FRAME), 0);
    CHECK_EQ(attach(&bed), 0);
    say(&bed, 2);
    expect(&bed, 2);
    bed.device->ops->detach(bed.tun, &before); /* late, and not the other's */
    ipu_slab_free(&before);
    say(&bed, 3);
    expect(&bed, 3);
    bed.device->ops->detach(bed.tun, &bed.tx);
    ipu_slab_free(&bed.tx);
    say(&bed, 4); /* for the next one */
    CHECK_EQ(ipu_slab_init(&bed.tx, FRAMES + 1, FRAME), 0);
    CHECK_EQ(attach(&bed), 0);
    expect(&bed, 4);
    end(&bed);
}

static void *read_once(void *arg)
{
    expect(arg, 1);
    CHECK(is_silent(arg)); /* asked for one more */
    return NULL;
}

static void reads_of_a_thread_that_has_ended_are_made_anew(void)
{
    struct bed bed = make();
    pthread_t thread;
    say(&bed, 1);
    CHECK_EQ(pthread_create(&thread, NULL, read_once, &bed), 0);
    pthread_join(thread, NULL);
    for (uint32_t i = 2; i < 50; i++) {
        say(&bed, i);
        expect(&bed, i);
    }
    end(&bed);
}

int main(void)
{
    for (int i = 0; i < 2; i++) {
        always = i == 1;
        RUN(frames_come_in_their_order_however_many_wait);
        RUN(a_frame_that_was_given_is_not_read_into);
        RUN(writes_end_in_their_order);
        RUN(a_full_batch_of_lists_is_written);
        RUN(the_result_of_a_write_is_reported);
        RUN(a_ring_that_fails_is_a_device_that_is_gone);
        RUN(only_a_flood_is_read_through_the_ring);
        RUN(a_long_frame_ends_a_flood);
        RUN(another_pump_reads_on);
        RUN(reads_of_a_thread_that_has_ended_are_made_anew);
    }
    return 0;
}
