/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/tun_ring.h"

#include <errno.h>

#ifndef IPU_HAVE_URING

int ipu_tun_ring_create(const int *fds, uint32_t count, uint32_t offload, bool always,
                        struct ipu_tun_ring **out)
{
    (void)fds;
    (void)count;
    (void)offload;
    (void)always;
    (void)out;
    return -ENOSYS;
}

void ipu_tun_ring_destroy(struct ipu_tun_ring *tun)
{
    (void)tun;
}

struct ipu_device *ipu_tun_ring_device(struct ipu_tun_ring *tun)
{
    (void)tun;
    return NULL;
}

#else

#include "device/uring_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
    READS = 32,              /* reads under way at once, at most */
    LENT_BYTES = 64 * 65536, /* bytes of frames to read into, with those in sending */
    PIECES = 4096,
    ENTRIES = 512, /* READS, IPU_DEVICE_WRITES and cancellations */
    CANCEL_S = 2,  /* longer than the kernel ever takes */

    /* The bounds on a machine with cheap system calls: */
    FLOOD_FRAMES = 16,  /* after so many frames in a row, reads go through the ring, */
    CALM_READS = 2,     /* until frames fill at most so many reads; */
    LONG_FRAME = 16384, /* the copy of such a frame takes much longer than its system call; */
    LONG_PIECES = 8,    /* and so does that of a merged frame of so many pieces; */
    AT_ONCE = 16,       /* the first writes after a flush take a system call each */
};

/* The user data of a request: WRITE and the write's number, a read's frame, or CANCEL. */
#define WRITE  (UINT64_C(1) << 32)
#define CANCEL (UINT64_C(1) << 33)

/* The oldest kernel that we tried is 6.1; these features came with 6.0. */
#define NEEDED (IORING_FEAT_FAST_POLL | IORING_FEAT_LINKED_FILE)

struct filled {
    uint32_t index;
    int32_t result; /* length or negative errno */
};

struct ipu_tun_ring {
    struct ipu_device device;
    struct io_uring ring; /* open from the creation on, and later while a pump is attached */
    bool open;
    bool failed; /* the ring has failed: the device reads and writes no more */
    struct ipu_tun_queues queues;
    bool nowait;  /* the kernel takes RWF_NOWAIT for a TUN: Linux 6.4 */
    bool always;  /* all reads and writes go through the ring: system calls are slow */
    bool flood;   /* reads go through the ring */
    uint32_t run; /* frames read one by one since the last read that got none */

    struct ipu_slab frames; /* a view */
    uint32_t frame_count;
    uint32_t *idle; /* frames to read into; the last one is next */
    uint32_t idle_count;
    bool *reading;
    uint32_t reads, wanted;
    struct filled *filled; /* a ring of frame_count */
    uint32_t filled_head, filled_tail;

    uint32_t at_once; /* writes since flush() that were system calls, */
    uint32_t writes;  /* writes since then that were queued, */
    uint32_t ended;   /* and how many of the queued ones have ended */
    int results[IPU_DEVICE_WRITES];
    uint32_t pieces; /* entries of `piece` in use by writes that are not submitted yet */
    struct iovec piece[PIECES];
};

static void fill(struct ipu_tun_ring *tun, uint32_t index, int32_t result)
{
    tun->filled[tun->filled_tail++ % tun->frame_count] =
        (struct filled){.index = index, .result = result};
    if (result >= LONG_FRAME && !tun->always)
        tun->flood = false;
}

static void reap(struct ipu_tun_ring *tun)
{
    struct io_uring_cqe *cqe;
    unsigned int head, n = 0;
    io_uring_for_each_cqe(&tun->ring, head, cqe)
    {
        n++;
        if (cqe->user_data & CANCEL)
            continue;
        if (cqe->user_data & WRITE) {
            tun->results[(uint32_t)cqe->user_data] = cqe->res < 0 ? cqe->res : 0;
            tun->ended++;
            continue;
        }
        uint32_t index = (uint32_t)cqe->user_data;
        tun->reading[index] = false;
        tun->reads--;
        /* The read's thread has ended, or the kernel woke the read too often for nothing: read
         * anew. */
        if (cqe->res == -ECANCELED || cqe->res == -EAGAIN || cqe->res == -EINTR) {
            tun->idle[tun->idle_count++] = index;
            continue;
        }
        fill(tun, index, cqe->res);
    }
    io_uring_cq_advance(&tun->ring, n);
}

/* Evaluates the result of io_uring_enter(). Requests that find no room in the kernel stay queued.
 */
static void note(struct ipu_tun_ring *tun, int taken)
{
    if (taken < 0 && taken != -EBUSY && taken != -EAGAIN && taken != -EINTR && taken != -ENOMEM)
        tun->failed = true;
    if (io_uring_sq_ready(&tun->ring) == 0)
        tun->pieces = 0;
    reap(tun);
}

static void submit(struct ipu_tun_ring *tun)
{
    note(tun, io_uring_sq_ready(&tun->ring) > 0 ? ipu_uring.submit(&tun->ring) : 0);
}

/* Queues reads: twice as many as last time if frames filled all of those. */
static void queue_reads(struct ipu_tun_ring *tun)
{
    if (tun->reads == 0)
        tun->wanted = tun->wanted < READS / 2 ? tun->wanted * 2 : READS;
    while (tun->reads < tun->wanted && tun->idle_count > 0) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&tun->ring);
        if (sqe == NULL)
            return;
        uint32_t index = tun->idle[--tun->idle_count];
        io_uring_prep_read(sqe, tun->queues.fds[0], ipu_slab_at(&tun->frames, index),
                           tun->frames.stride_bytes, 0);
        io_uring_sqe_set_data64(sqe, index);
        tun->reading[index] = true;
        tun->reads++;
    }
}

/* The caller makes sure that no read of the ring is under way, which this read could overtake. */
static void read_one(struct ipu_tun_ring *tun)
{
    if (tun->idle_count == 0)
        return;
    uint32_t index = tun->idle[tun->idle_count - 1];
    ssize_t n =
        read(tun->queues.fds[0], ipu_slab_at(&tun->frames, index), tun->frames.stride_bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        tun->run = 0;
        return;
    }
    tun->idle_count--;
    tun->run = n < LONG_FRAME ? tun->run + 1 : 0;
    if (tun->run == FLOOD_FRAMES) {
        tun->flood = true;
        tun->wanted = FLOOD_FRAMES;
        tun->run = 0;
    }
    fill(tun, index, n < 0 ? -errno : (int32_t)n);
}

/* Closes the ring's descriptor at once, even if an application still refers to the device. */
static void close_ring(struct ipu_tun_ring *tun)
{
    if (tun->open)
        ipu_uring.queue_exit(&tun->ring);
    tun->open = false;
}

/* COOP_TASKRUN (Linux 5.19): the kernel does not interrupt the pump, which enters it soon
 * anyway. */
static int open_ring(struct ipu_tun_ring *tun)
{
    int error;

    if (ipu_uring_missing() != NULL)
        return -ENOSYS;
    error = ipu_uring.queue_init(ENTRIES, &tun->ring, IORING_SETUP_COOP_TASKRUN);
    if (error < 0)
        return error == -EINVAL ? -ENOSYS : error;
    tun->open = true;
    if ((tun->ring.features & NEEDED) == NEEDED)
        return 0;
    close_ring(tun);
    return -ENOSYS;
}

/* ---- functions that the pump calls */

static void forget_frames(struct ipu_tun_ring *tun)
{
    free(tun->idle);
    free(tun->filled);
    free(tun->reading);
    tun->idle = NULL;
    tun->filled = NULL;
    tun->reading = NULL;
    tun->idle_count = tun->frame_count = tun->filled_head = tun->filled_tail = 0;
}

/* Cancels all reads, waits for their ends, and forgets the frames. */
static void end_reads(struct ipu_tun_ring *tun)
{
    struct __kernel_timespec wait = {.tv_sec = CANCEL_S};
    struct io_uring_cqe *cqe;
    if (tun->frame_count == 0)
        return;
    submit(tun);
    for (uint32_t i = 0; i < tun->frame_count; i++) {
        struct io_uring_sqe *sqe = tun->reading[i] ? io_uring_get_sqe(&tun->ring) : NULL;
        if (sqe == NULL)
            continue;
        io_uring_prep_cancel64(sqe, i, 0);
        io_uring_sqe_set_data64(sqe, CANCEL);
    }
    submit(tun);
    while (tun->reads > 0 && ipu_uring.wait_cqe_timeout(&tun->ring, &cqe, &wait) == 0)
        reap(tun);
    if (tun->reads == 0)
        ipu_slab_unshare(&tun->frames); /* else the kernel may write there: the mapping stays */
    forget_frames(tun);
    close_ring(tun);
    tun->reads = tun->writes = tun->ended = tun->pieces = 0;
    tun->failed = false;
}

static void ring_detach(void *self, const struct ipu_slab *tx)
{
    struct ipu_tun_ring *tun = self;
    if (tun->frames.base == tx->base)
        end_reads(tun);
}

static int ring_attach(void *self, const struct ipu_device_frames *frames)
{
    struct ipu_tun_ring *tun = self;
    end_reads(tun); /* reads of the former pump */
    int error = tun->open ? 0 : open_ring(tun);
    if (error < 0)
        return error;
    tun->idle = calloc(frames->lent, sizeof *tun->idle);
    tun->filled = calloc(frames->lent, sizeof *tun->filled);
    tun->reading = calloc(frames->lent, sizeof *tun->reading);
    if (tun->idle == NULL || tun->filled == NULL || tun->reading == NULL) {
        forget_frames(tun);
        return -ENOMEM;
    }
    ipu_slab_share(frames->tx, &tun->frames);
    tun->frame_count = frames->lent;
    for (uint32_t i = 0; i < frames->lent; i++)
        tun->idle[tun->idle_count++] = ipu_slab_get(frames->tx);
    tun->wanted = 1;
    tun->flood = tun->always;
    tun->run = 0;
    return 0;
}

static bool is_filled(const struct ipu_tun_ring *tun)
{
    return tun->filled_head != tun->filled_tail;
}

/* Returns true when a frame is there or the ring has failed; otherwise, in a flood, leaves reads
 * under way. */
static bool look(struct ipu_tun_ring *tun)
{
    if (!is_filled(tun))
        reap(tun);
    if (!is_filled(tun) && tun->reads == 0) {
        if (tun->flood) {
            queue_reads(tun);
            submit(tun);
        } else {
            read_one(tun);
        }
    } else if (!is_filled(tun) && io_uring_sq_ready(&tun->ring) > 0 && tun->writes == tun->ended) {
        submit(tun); /* reads for which the kernel had no room */
    }
    return is_filled(tun) || tun->failed;
}

static ssize_t ring_give(void *self, uint32_t *index)
{
    struct ipu_tun_ring *tun = self;
    if (!look(tun))
        return -EAGAIN;
    if (!is_filled(tun))
        return -EBADFD;
    struct filled filled = tun->filled[tun->filled_head++ % tun->frame_count];
    if (filled.result <= 0) {
        tun->idle[tun->idle_count++] = filled.index;
        return filled.result < 0 ? filled.result : -EAGAIN;
    }
    *index = filled.index;
    return filled.result;
}

static void ring_ended(void *self, uint32_t index)
{
    struct ipu_tun_ring *tun = self;
    tun->idle[tun->idle_count++] = index;
}

/* Returns whether the next write takes a system call of its own: the first few writes and long ones
 * do. */
static bool is_at_once(struct ipu_tun_ring *tun, int pieces)
{
    if (tun->always || tun->writes > 0 || tun->failed)
        return false;
    return tun->at_once++ < AT_ONCE || pieces >= LONG_PIECES;
}

/* Returns a request for the next write, or NULL. */
static struct io_uring_sqe *next_write(struct ipu_tun_ring *tun, uint32_t pieces)
{
    if (tun->pieces + pieces > PIECES || io_uring_sq_space_left(&tun->ring) == 0)
        submit(tun);
    if (tun->failed || tun->writes == IPU_DEVICE_WRITES || tun->pieces + pieces > PIECES)
        return NULL;
    return io_uring_get_sqe(&tun->ring);
}

static int queue_write(struct ipu_tun_ring *tun, struct io_uring_sqe *sqe)
{
    if (tun->nowait)
        sqe->rw_flags = RWF_NOWAIT;
    tun->results[tun->writes] = -EBADFD; /* until the write has ended */
    io_uring_sqe_set_data64(sqe, WRITE | tun->writes++);
    return IPU_DEVICE_QUEUED;
}

static int ring_write(void *self, const void *buf, size_t len)
{
    struct ipu_tun_ring *tun = self;
    int fd = ipu_tun_queues_fd(&tun->queues, buf, len);
    if (is_at_once(tun, 1))
        return write(fd, buf, len) < 0 ? -errno : 0;
    struct io_uring_sqe *sqe = next_write(tun, 0);
    if (sqe == NULL)
        return -ENOBUFS;
    io_uring_prep_write(sqe, fd, buf, (unsigned int)len, 0);
    return queue_write(tun, sqe);
}

static int ring_writev(void *self, const struct iovec *iov, int n)
{
    struct ipu_tun_ring *tun = self;
    int fd = ipu_tun_queues_fd(&tun->queues, iov->iov_base, iov->iov_len);
    if (is_at_once(tun, n))
        return writev(fd, iov, n) < 0 ? -errno : 0;
    struct io_uring_sqe *sqe = next_write(tun, (uint32_t)n);
    if (sqe == NULL)
        return -ENOBUFS;
    struct iovec *own = &tun->piece[tun->pieces];
    memcpy(own, iov, sizeof *iov * (size_t)n);
    tun->pieces += (uint32_t)n;
    io_uring_prep_writev(sqe, fd, own, (unsigned int)n, 0);
    return queue_write(tun, sqe);
}

/* Most writes end as we submit them. If a write waits for room, we wait for it, because its buffer
 * is the pump's. A ring that failed makes no writes. */
static void ring_flush(void *self)
{
    struct ipu_tun_ring *tun = self;
    tun->at_once = 0;
    if (tun->writes == tun->ended)
        return;
    if (tun->flood)
        queue_reads(tun); /* the same system call submits them */
    submit(tun);
    while (tun->ended < tun->writes && !tun->failed)
        note(tun, ipu_uring.submit_and_wait(&tun->ring, 1));
}

static void ring_written(void *self, int *errors, int n)
{
    struct ipu_tun_ring *tun = self;
    memcpy(errors, tun->results, sizeof *errors * (size_t)n);
    tun->writes = tun->ended = 0;
}

static int ring_arm(void *self)
{
    struct ipu_tun_ring *tun = self;
    submit(tun); /* what the kernel had no room for */
    if (tun->reads > tun->wanted / 2 && tun->wanted > 1)
        tun->wanted--; /* most reads still wait when the pump goes to sleep */
    if (tun->wanted <= CALM_READS && !tun->always)
        tun->flood = false;
    return tun->flood ? look(tun) : is_filled(tun) || tun->failed;
}

static int ring_fd(void *self)
{
    struct ipu_tun_ring *tun = self;
    return tun->always ? tun->ring.ring_fd : tun->queues.fds[0];
}

/* A packet makes the TUN readable, unless a waiting read takes it: then the ring is readable. */
static int ring_ahead_fd(void *self)
{
    struct ipu_tun_ring *tun = self;
    return tun->always ? -1 : tun->ring.ring_fd;
}

static const struct ipu_device_ops ring_ops = {
    .write = ring_write,
    .writev = ring_writev,
    .flush = ring_flush,
    .written = ring_written,
    .arm = ring_arm,
    .fd = ring_fd,
    .ahead_fd = ring_ahead_fd,
    .attach = ring_attach,
    .detach = ring_detach,
    .give = ring_give,
    .ended = ring_ended,
};

/* ---- life */

/* Decides by the kernel's version (Linux 6.4): a trial call would read or write a packet. */
static bool takes_nowait(void)
{
    struct utsname name;
    int major, minor;
    return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 4));
}

int ipu_tun_ring_create(const int *fds, uint32_t count, uint32_t offload, bool always,
                        struct ipu_tun_ring **out)
{
    struct ipu_tun_ring *tun = calloc(1, sizeof *tun);
    if (tun == NULL)
        return -ENOMEM;
    int error = ipu_tun_queues_init(&tun->queues, fds, count);
    if (error == 0)
        error = open_ring(tun);
    if (error < 0) {
        free(tun);
        return error;
    }
    tun->nowait = takes_nowait();
    tun->always = always;
    tun->device = (struct ipu_device){
        .ops = &ring_ops, .self = tun, .offload = offload, .lent_bytes = LENT_BYTES};
    *out = tun;
    return 0;
}

void ipu_tun_ring_destroy(struct ipu_tun_ring *tun)
{
    end_reads(tun);
    close_ring(tun);
    free(tun);
}

struct ipu_device *ipu_tun_ring_device(struct ipu_tun_ring *tun)
{
    return &tun->device;
}

#endif
