/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_FAKE_FABRIC_H
#define IPU_TESTS_FAKE_FABRIC_H

#include <stdlib.h>

#include "check.h"
#include "fabric/fabric.h"

/*
 * The functions of a fake fabric that registers nothing, takes all sends and receives, ends no send
 * and gets no datagrams. FAKE_FABRIC_OPS is what no test needs in another way; the test adds
 * `send`, `post`, `sent`, `received` and `fd`.
 */
#define FAKE_FABRIC_OPS                                                                            \
    .memory = fake_memory, .ah_create = fake_ah_create, .ah_destroy = fake_ah_destroy,             \
    .arm = fake_arm_none

static inline int fake_memory(void *self, void *base, size_t len)
{
    (void)self, (void)base, (void)len;
    return 0;
}

static inline void *fake_ah_create(void *self, const struct ipu_dest *dest)
{
    (void)self, (void)dest;
    return malloc(1);
}

static inline void fake_ah_destroy(void *self, void *ah)
{
    (void)self;
    free(ah);
}

static inline int fake_send_all(void *self, const struct ipu_send *sends, int n)
{
    (void)self, (void)sends;
    return n;
}

static inline int fake_none_sent(void *self, uint64_t *cookies, int max)
{
    (void)self, (void)cookies, (void)max;
    return 0;
}

static inline int fake_arm_none(void *self)
{
    (void)self;
    return 0;
}

static inline int fake_post(void *self, const struct ipu_recv *recvs, int n)
{
    (void)self, (void)recvs;
    return n;
}

static inline int fake_received(void *self, struct ipu_received *done, int max)
{
    (void)self, (void)done, (void)max;
    return 0;
}

/* The receives that fake_post_kept() was given and fake_take_posted() has not taken: the last one
 * on top. */
enum { FAKE_POSTED_MAX = 512 };

static struct {
    struct ipu_recv recv[FAKE_POSTED_MAX];
    int count;
} fake_posted;

static inline int fake_post_kept(void *self, const struct ipu_recv *recvs, int n)
{
    (void)self;
    for (int i = 0; i < n; i++) {
        CHECK(fake_posted.count < FAKE_POSTED_MAX);
        fake_posted.recv[fake_posted.count++] = recvs[i];
    }
    return n;
}

static inline struct ipu_recv fake_take_posted(void)
{
    CHECK(fake_posted.count > 0);
    return fake_posted.recv[--fake_posted.count];
}

#endif
