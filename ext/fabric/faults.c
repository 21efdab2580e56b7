/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/faults.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/random.h"
#include "core/slab.h"

/*
 * The walk of a datagram: send() copies it to a frame of the pool and puts the frame's index on the
 * ready queue, or into the held list. A due datagram moves from held to ready. flush() posts ready
 * to the inner fabric, in order, with the index as cookie. The inner sent() frees the frame.
 */

#define DEFAULT_POOL_FRAMES    1024u
#define MAX_POOL_FRAMES        65536u
#define DEFAULT_REORDER_MAX_US 2000u
#define MAX_OVERTAKERS         4u
#define MAX_FLIPS              4u
#define BATCH                  64
#define NS_PER_US              UINT64_C(1000)
#define CERTAIN                (UINT64_C(1) << 32) /* probability 1 as a threshold for 32 bits */

/* The inner handle lives until the last held datagram that uses it is posted. */
struct handle {
    void *inner;
    uint32_t users;
    bool dropped;
};

struct copy {
    struct handle *handle;
    int64_t due_ns;
    uint32_t len;
    uint32_t qpn, source_qpn;
    uint32_t overtakers; /* how many later sends must overtake the copy; 0: only the time counts */
};

struct settings {
    _Atomic uint64_t loss, duplicate, corrupt, reorder, delay;
    _Atomic uint64_t delay_min_ns, delay_span_ns, reorder_max_ns;
};

struct ipu_faults {
    struct ipu_fabric fabric;
    const struct ipu_fabric *inner;
    struct settings settings;
    struct ipu_faults_counters counters;
    uint64_t random;

    struct ipu_slab pool;
    struct copy *copies; /* by frame index */
    uint32_t *held;      /* frame indices, oldest first */
    uint32_t n_held;
    int64_t next_due_ns; /* when the first held one is due; INT64_MAX: none is held */

    /* Circular queues of pool.frames entries; head and tail count on. */
    uint32_t *ready;
    uint64_t ready_first, ready_end;
    uint64_t *cookies;
    uint64_t cookies_first, cookies_end;
};

static void count(_Atomic uint64_t *counter)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

static uint64_t setting(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void change(_Atomic uint64_t *setting, uint64_t value)
{
    atomic_store_explicit(setting, value, memory_order_relaxed);
}

static bool drawn(struct ipu_faults *faults, const _Atomic uint64_t *threshold)
{
    return ipu_random_next(&faults->random) >> 32 < setting(threshold);
}

/* --- Held, ready, posted --- */

static void release_handle(struct ipu_faults *faults, struct handle *handle)
{
    handle->users--;
    if (handle->dropped && handle->users == 0) {
        faults->inner->ops->ah_destroy(faults->inner->self, handle->inner);
        free(handle);
    }
}

static void make_ready(struct ipu_faults *faults, uint32_t index)
{
    faults->ready[faults->ready_end++ % faults->pool.frames] = index;
}

/* Moves due datagrams to the ready queue; one_passed: one more datagram has overtaken the held
 * ones. */
static void release_held(struct ipu_faults *faults, bool one_passed)
{
    if (faults->n_held == 0)
        return;
    int64_t now = (int64_t)ipu_clock_ns();
    if (!one_passed && now < faults->next_due_ns)
        return;
    uint32_t kept = 0;
    int64_t next_due_ns = INT64_MAX;
    for (uint32_t i = 0; i < faults->n_held; i++) {
        uint32_t index = faults->held[i];
        struct copy *copy = &faults->copies[index];
        bool last_passed = one_passed && copy->overtakers > 0 && --copy->overtakers == 0;
        if (last_passed || copy->due_ns <= now) {
            make_ready(faults, index);
            continue;
        }
        faults->held[kept++] = index;
        if (copy->due_ns < next_due_ns)
            next_due_ns = copy->due_ns;
    }
    faults->n_held = kept;
    faults->next_due_ns = next_due_ns;
}

static void hold(struct ipu_faults *faults, uint32_t index, uint64_t for_ns, uint32_t overtakers)
{
    struct copy *copy = &faults->copies[index];
    copy->due_ns = (int64_t)(ipu_clock_ns() + for_ns);
    copy->overtakers = overtakers;
    faults->held[faults->n_held++] = index;
    if (copy->due_ns < faults->next_due_ns)
        faults->next_due_ns = copy->due_ns;
}

/* Returns 0 or the inner fabric's error; datagrams that it does not take stay ready. */
static int flush(struct ipu_faults *faults)
{
    while (faults->ready_first != faults->ready_end) {
        struct ipu_send sends[BATCH];
        int n = 0;
        uint64_t at = faults->ready_first;
        for (; n < BATCH && at != faults->ready_end; at++, n++) {
            uint32_t index = faults->ready[at % faults->pool.frames];
            const struct copy *copy = &faults->copies[index];
            sends[n] = (struct ipu_send){.addr = ipu_slab_at(&faults->pool, index),
                                         .len = copy->len,
                                         .qpn = copy->qpn,
                                         .source_qpn = copy->source_qpn,
                                         .ah = copy->handle->inner,
                                         .cookie = index};
        }
        int taken = faults->inner->ops->send(faults->inner->self, sends, n);
        if (taken < 0)
            return taken;
        for (int i = 0; i < taken; i++) {
            release_handle(faults, faults->copies[sends[i].cookie].handle);
            count(&faults->counters.sent);
        }
        faults->ready_first += (uint64_t)taken;
        if (taken < n)
            return 0;
    }
    return 0;
}

/* Takes back the frames that the inner fabric has sent; 0 or its error. */
static int reap(struct ipu_faults *faults)
{
    uint64_t cookies[BATCH];
    int n;
    do {
        n = faults->inner->ops->sent(faults->inner->self, cookies, BATCH);
        for (int i = 0; i < n; i++)
            ipu_slab_put(&faults->pool, (uint32_t)cookies[i]);
    } while (n == BATCH);
    return n < 0 ? n : 0;
}

/* --- Fates --- */

static void corrupt(struct ipu_faults *faults, uint32_t index)
{
    uint32_t len = faults->copies[index].len;
    uint8_t *data = ipu_slab_at(&faults->pool, index);
    uint32_t flips = 1 + ipu_random_below(&faults->random, MAX_FLIPS);
    for (uint32_t i = 0; len > 0 && i < flips; i++) {
        uint32_t bit = ipu_random_below(&faults->random, 8 * len);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    count(&faults->counters.corrupted);
}

static void launch(struct ipu_faults *faults, const struct ipu_send *send)
{
    struct settings *settings = &faults->settings;
    uint32_t index = ipu_slab_get(&faults->pool);
    struct handle *handle = send->ah;
    handle->users++;
    uint8_t *data = ipu_slab_at(&faults->pool, index);
    faults->copies[index] = (struct copy){.handle = handle,
                                          .len = send->head_len + send->len,
                                          .qpn = send->qpn,
                                          .source_qpn = send->source_qpn};
    if (send->head_len > 0)
        memcpy(data, send->head, send->head_len);
    if (send->len > 0)
        memcpy(data + send->head_len, send->addr, send->len);

    if (drawn(faults, &settings->corrupt))
        corrupt(faults, index);
    if (drawn(faults, &settings->delay)) {
        uint64_t span_ns = setting(&settings->delay_span_ns);
        uint64_t for_ns = setting(&settings->delay_min_ns);
        for_ns += ipu_random_next(&faults->random) % (span_ns + 1);
        count(&faults->counters.delayed);
        hold(faults, index, for_ns, 0);
    } else if (drawn(faults, &settings->reorder)) {
        uint32_t overtakers = 1 + ipu_random_below(&faults->random, MAX_OVERTAKERS);
        count(&faults->counters.reordered);
        /* Adds one, because release_held() counts the datagram itself when this send is over. */
        hold(faults, index, setting(&settings->reorder_max_ns), overtakers + 1);
    } else {
        make_ready(faults, index);
    }
}

/* A send that has to wait draws no fate yet: it must draw the same fate later. */
static bool has_room(struct ipu_faults *faults)
{
    uint64_t cookies = faults->cookies_end - faults->cookies_first;
    if (faults->pool.free_frames > 0 && cookies < faults->pool.frames)
        return true;
    count(&faults->counters.pool_full);
    return false;
}

static void meet_fate(struct ipu_faults *faults, const struct ipu_send *send)
{
    if ((uint64_t)send->head_len + send->len > faults->inner->mtu) {
        count(&faults->counters.too_big);
        return;
    }
    if (drawn(faults, &faults->settings.loss)) {
        count(&faults->counters.lost);
        return;
    }
    bool twice = drawn(faults, &faults->settings.duplicate);
    launch(faults, send);
    if (twice && faults->pool.free_frames == 0) {
        count(&faults->counters.pool_full);
    } else if (twice) {
        count(&faults->counters.duplicated);
        launch(faults, send);
    }
    release_held(faults, true);
}

/* --- The packet face --- */

static int faults_memory(void *self, void *base, size_t len)
{
    const struct ipu_fabric *inner = ((struct ipu_faults *)self)->inner;
    return inner->ops->memory(inner->self, base, len);
}

static void *faults_ah_create(void *self, const struct ipu_dest *dest)
{
    const struct ipu_fabric *inner = ((struct ipu_faults *)self)->inner;
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle)
        return NULL;
    handle->inner = inner->ops->ah_create(inner->self, dest);
    if (!handle->inner) {
        int error = errno;
        free(handle);
        errno = error;
        return NULL;
    }
    return handle;
}

static void faults_ah_destroy(void *self, void *ah)
{
    struct handle *handle = ah;
    handle->dropped = true;
    handle->users++;
    release_handle(self, handle);
}

static int faults_send(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_faults *faults = self;
    release_held(faults, false);
    int error = flush(faults);
    if (error)
        return error;
    if (faults->pool.free_frames < (uint32_t)n)
        (void)reap(faults); /* an error comes again, in sent() */
    int taken = 0;
    for (; taken < n && has_room(faults); taken++) {
        meet_fate(faults, &sends[taken]);
        faults->cookies[faults->cookies_end++ % faults->pool.frames] = sends[taken].cookie;
    }
    /* We have taken these sends, even if flush() fails; an error comes again with the next call. */
    (void)flush(faults);
    return taken;
}

static int faults_post(void *self, const struct ipu_recv *recvs, int n)
{
    const struct ipu_fabric *inner = ((struct ipu_faults *)self)->inner;
    return inner->ops->post(inner->self, recvs, n);
}

static int faults_sent(void *self, uint64_t *cookies, int max)
{
    struct ipu_faults *faults = self;
    int error = reap(faults);
    release_held(faults, false);
    int flush_error = flush(faults);
    int n = 0;
    while (n < max && faults->cookies_first != faults->cookies_end)
        cookies[n++] = faults->cookies[faults->cookies_first++ % faults->pool.frames];
    if (n > 0)
        return n;
    return error ? error : flush_error;
}

static int faults_received(void *self, struct ipu_received *done, int max)
{
    const struct ipu_fabric *inner = ((struct ipu_faults *)self)->inner;
    return inner->ops->received(inner->self, done, max);
}

static int faults_arm(void *self)
{
    struct ipu_faults *faults = self;
    release_held(faults, false);
    (void)flush(faults); /* an error comes again, in sent() */
    if (faults->cookies_first != faults->cookies_end)
        return 1;
    const struct ipu_fabric *inner = faults->inner;
    int waits = inner->ops->arm(inner->self);
    if (inner->ops->arm_sends != NULL)
        waits |= inner->ops->arm_sends(inner->self);
    return waits;
}

static int faults_fd(void *self)
{
    const struct ipu_fabric *inner = ((struct ipu_faults *)self)->inner;
    return inner->ops->fd(inner->self);
}

/* Returns the deadline of the held datagrams, or that of the inner fabric if it is earlier. */
static int64_t faults_deadline_ns(void *self)
{
    const struct ipu_faults *faults = self;
    const struct ipu_fabric *inner = faults->inner;
    int64_t inner_ns = INT64_MAX;
    if (inner->ops->deadline_ns)
        inner_ns = inner->ops->deadline_ns(inner->self);
    return faults->next_due_ns < inner_ns ? faults->next_due_ns : inner_ns;
}

static int faults_recover(void *self)
{
    const struct ipu_fabric *inner = ((struct ipu_faults *)self)->inner;
    return inner->ops->recover(inner->self);
}

#define OPS(recover_or_null)                                                                       \
    {                                                                                              \
        .memory = faults_memory, .ah_create = faults_ah_create, .ah_destroy = faults_ah_destroy,   \
        .send = faults_send, .post = faults_post, .sent = faults_sent,                             \
        .received = faults_received, .arm = faults_arm, .fd = faults_fd,                           \
        .deadline_ns = faults_deadline_ns, .recover = (recover_or_null),                           \
    }

static const struct ipu_fabric_ops recoverable_ops = OPS(faults_recover);
static const struct ipu_fabric_ops unbreakable_ops = OPS(NULL);

/* --- Life and settings --- */

static bool is_probability(double p)
{
    return p >= 0 && p <= 1; /* not a NaN either */
}

int ipu_faults_set(struct ipu_faults *faults, const struct ipu_faults_config *config)
{
    struct settings *settings = &faults->settings;
    if (!is_probability(config->loss) || !is_probability(config->duplicate) ||
        !is_probability(config->corrupt) || !is_probability(config->reorder) ||
        !is_probability(config->delay) || config->delay_min_us > config->delay_max_us)
        return -EINVAL;
    uint64_t span_us = config->delay_max_us - config->delay_min_us;
    uint64_t reorder_us = config->reorder_max_us ? config->reorder_max_us : DEFAULT_REORDER_MAX_US;
    change(&settings->loss, (uint64_t)(config->loss * CERTAIN));
    change(&settings->duplicate, (uint64_t)(config->duplicate * CERTAIN));
    change(&settings->corrupt, (uint64_t)(config->corrupt * CERTAIN));
    change(&settings->reorder, (uint64_t)(config->reorder * CERTAIN));
    change(&settings->delay, (uint64_t)(config->delay * CERTAIN));
    change(&settings->delay_min_ns, config->delay_min_us * NS_PER_US);
    change(&settings->delay_span_ns, span_us * NS_PER_US);
    change(&settings->reorder_max_ns, reorder_us * NS_PER_US);
    return 0;
}

/* Returns 0 or a negative errno; the caller then releases what set_up() has made. */
static int set_up(struct ipu_faults *faults, const struct ipu_faults_config *config,
                  uint32_t pool_frames)
{
    const struct ipu_fabric *inner = faults->inner;
    int error = ipu_faults_set(faults, config);
    if (error)
        return error;
    error = ipu_slab_init(&faults->pool, pool_frames, inner->mtu);
    if (error)
        return error;
    faults->copies = calloc(pool_frames, sizeof *faults->copies);
    faults->held = calloc(pool_frames, sizeof *faults->held);
    faults->ready = calloc(pool_frames, sizeof *faults->ready);
    faults->cookies = calloc(pool_frames, sizeof *faults->cookies);
    if (!faults->copies || !faults->held || !faults->ready || !faults->cookies)
        return -ENOMEM;
    return inner->ops->memory(inner->self, faults->pool.base, faults->pool.len);
}

static void release(struct ipu_faults *faults)
{
    ipu_slab_free(&faults->pool);
    free(faults->copies);
    free(faults->held);
    free(faults->ready);
    free(faults->cookies);
    free(faults);
}

struct ipu_faults *ipu_faults_create(const struct ipu_fabric *inner,
                                     const struct ipu_faults_config *config, uint32_t pool_frames,
                                     uint64_t seed)
{
    if (pool_frames == 0)
        pool_frames = DEFAULT_POOL_FRAMES;
    if (pool_frames > MAX_POOL_FRAMES) {
        errno = EINVAL;
        return NULL;
    }
    struct ipu_faults *faults = calloc(1, sizeof *faults);
    if (!faults)
        return NULL;
    faults->inner = inner;
    faults->fabric = *inner;
    faults->fabric.ops = inner->ops->recover ? &recoverable_ops : &unbreakable_ops;
    faults->fabric.self = faults;
    faults->fabric.cuts = false;          /* the faults spoil datagrams, not super-frames */
    faults->fabric.one_piece = false;     /* copying gathers the pieces */
    faults->fabric.spreads_flows = false; /* copies leave in whatever order the faults give them */
    faults->random = seed;
    faults->next_due_ns = INT64_MAX;
    int error = set_up(faults, config, pool_frames);
    if (error) {
        release(faults);
        errno = -error;
        return NULL;
    }
    return faults;
}

void ipu_faults_destroy(struct ipu_faults *faults)
{
    if (!faults)
        return;
    for (uint32_t i = 0; i < faults->n_held; i++)
        release_handle(faults, faults->copies[faults->held[i]].handle);
    for (; faults->ready_first != faults->ready_end; faults->ready_first++) {
        uint32_t index = faults->ready[faults->ready_first % faults->pool.frames];
        release_handle(faults, faults->copies[index].handle);
    }
    release(faults);
}

struct ipu_fabric *ipu_faults_fabric(struct ipu_faults *faults)
{
    return &faults->fabric;
}

const struct ipu_faults_counters *ipu_faults_counters(const struct ipu_faults *faults)
{
    return &faults->counters;
}
