/* SPDX-License-Identifier: BSD-2-Clause */
/* A packet device over io_uring, with one end of a socket pair in the place of a TUN. */
#include "tun_ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "check.h"

enum { FRAMES = 64, FRAME = 2048, ROUNDS = 300, PATIENCE_MS = 5000 };

struct bed {
    int ends[2]; /* the device's, and the world's */
    struct ipu_slab tx, rx;
    struct ipu_tun_ring *tun;
    struct ipu_device *device;
};

static struct bed make(void)
{
    struct bed bed;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, bed.ends), 0);
    CHECK_EQ(ipu_slab_init(&bed.tx, FRAMES + 1, FRAME), 0);
    CHECK_EQ(ipu_slab_init(&bed.rx, 1, FRAME), 0);
    CHECK_EQ(ipu_tun_ring_create(&bed.ends[0], 1, 0, &bed.tun), 0);
    bed.device = ipu_tun_ring_device(bed.tun);
    CHECK_EQ(bed.device->ops->attach(bed.tun, &bed.tx, &bed.rx, FRAMES, FRAME), 0);
    return bed;
}

static void end(struct bed *bed)
{
    bed->device->ops->detach(bed->tun, &bed->tx);
    ipu_slab_free(&bed->tx);
    ipu_slab_free(&bed->rx);
    ipu_tun_ring_destroy(bed->tun);
    close(bed->ends[0]);
    close(bed->ends[1]);
}

static void say(const struct bed *bed, uint32_t number)
{
    CHECK_EQ(write(bed->ends[1], &number, sizeof number), sizeof number);
}

/* As the pump: ask, arm, sleep, ask again. The length, or negative errno. */
static ssize_t await(const struct bed *bed, uint32_t *index)
{
    const struct ipu_device_ops *ops = bed->device->ops;
    for (;;) {
        ssize_t n = ops->give(bed->tun, index);
        if (n != -EAGAIN)
            return n;
        if (ops->arm(bed->tun))
            continue;
        struct pollfd poll_fd = {.fd = ops->fd(bed->tun), .events = POLLIN};
        int ready = poll(&poll_fd, 1, PATIENCE_MS);
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
    char got[16] = {0};
    CHECK_EQ(read(bed->ends[1], got, sizeof got), strlen(text));
    CHECK(strcmp(got, text) == 0);
}

static void writes_are_queued_and_flushed_in_their_order(void)
{
    struct bed bed = make();
    const struct ipu_device_ops *ops = bed.device->ops;
    struct iovec pieces[] = {{.iov_base = (char[]){"two "}, .iov_len = 4},
                             {.iov_base = (char[]){"pieces"}, .iov_len = 6}};
    int errors[3];
    CHECK_EQ(ops->write(bed.tun, "one", 3), IPU_DEVICE_QUEUED);
    CHECK_EQ(ops->writev(bed.tun, pieces, 2), IPU_DEVICE_QUEUED);
    CHECK_EQ(ops->write(bed.tun, "last", 4), IPU_DEVICE_QUEUED);
    ops->flush(bed.tun);
    ops->written(bed.tun, errors, 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(errors[i], 0);
    heard_by_the_world(&bed, "one");
    heard_by_the_world(&bed, "two pieces");
    heard_by_the_world(&bed, "last");
    end(&bed);
}

/* More pieces than are kept, and as many writes as may be queued, none of which waits for room. */
static void a_full_batch_of_long_lists_is_written(void)
{
    struct bed bed = make();
    struct iovec pieces[64];
    int errors[IPU_DEVICE_WRITES], full = 0, good = 0;
    for (int i = 0; i < 64; i++)
        pieces[i] = (struct iovec){.iov_base = (char[]){"x"}, .iov_len = 1};
    for (int i = 0; i < IPU_DEVICE_WRITES; i++)
        CHECK_EQ(bed.device->ops->writev(bed.tun, pieces, 64), IPU_DEVICE_QUEUED);
    CHECK_EQ(bed.device->ops->writev(bed.tun, pieces, 64), -ENOBUFS);
    bed.device->ops->flush(bed.tun);
    bed.device->ops->written(bed.tun, errors, IPU_DEVICE_WRITES);
    for (int i = 0; i < IPU_DEVICE_WRITES; i++) {
        good += errors[i] == 0;
        full += errors[i] == -EAGAIN;
    }
    CHECK_EQ(good + full, IPU_DEVICE_WRITES);
    char got[65];
    int heard = 0;
    while (read(bed.ends[1], got, sizeof got) == 64)
        heard++;
    CHECK(heard > 0);
    CHECK_EQ(heard, good);
    end(&bed);
}

static void what_becomes_of_a_write_is_said(void)
{
    struct bed bed = make();
    int error;
    signal(SIGPIPE, SIG_IGN);
    close(bed.ends[1]);
    CHECK_EQ(bed.device->ops->write(bed.tun, "nobody", 6), IPU_DEVICE_QUEUED);
    bed.device->ops->flush(bed.tun);
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
    CHECK_EQ(dup2(bed.ends[1], bed.device->ops->fd(bed.tun)), bed.device->ops->fd(bed.tun));
    CHECK_EQ(bed.device->ops->write(bed.tun, "nobody", 6), IPU_DEVICE_QUEUED);
    bed.device->ops->flush(bed.tun);
    bed.device->ops->written(bed.tun, &error, 1);
    CHECK_EQ(error, -EBADFD);
    CHECK_EQ(bed.device->ops->write(bed.tun, "nobody", 6), -ENOBUFS);
    CHECK_EQ(bed.device->ops->arm(bed.tun), 1);
    CHECK_EQ(bed.device->ops->give(bed.tun, &index), -EBADFD);
    static struct ipu_slab kept; /* for ever: nobody knows what the kernel still does with it */
    kept = bed.tx;
    end(&bed);
    CHECK(kept.base != NULL);
}

static void another_pump_reads_on(void)
{
    struct bed bed = make();
    say(&bed, 1);
    expect(&bed, 1);
    CHECK(is_silent(&bed)); /* a read is under way */
    struct ipu_slab before = bed.tx;
    CHECK_EQ(ipu_slab_init(&bed.tx, FRAMES + 1, FRAME), 0);
    CHECK_EQ(bed.device->ops->attach(bed.tun, &bed.tx, &bed.rx, FRAMES, FRAME), 0);
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
    CHECK_EQ(bed.device->ops->attach(bed.tun, &bed.tx, &bed.rx, FRAMES, FRAME), 0);
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
    RUN(frames_come_in_their_order_however_many_wait);
    RUN(a_frame_that_was_given_is_not_read_into);
    RUN(writes_are_queued_and_flushed_in_their_order);
    RUN(a_full_batch_of_long_lists_is_written);
    RUN(what_becomes_of_a_write_is_said);
    RUN(a_ring_that_fails_is_a_device_that_is_gone);
    RUN(another_pump_reads_on);
    RUN(reads_of_a_thread_that_has_ended_are_made_anew);
    return 0;
}
