/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No memory, no randomness, no descriptors: whichever call of an HCA's life is refused, the result
 * is an error, and the objects made before work and can be closed. The linker puts these functions
 * in front of the real ones (--wrap; see the Makefile).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "bench.h"

static int calls_left = -1; /* calls until one is refused; negative: never */
static int refusals;

static bool refused(void)
{
    if (calls_left < 0 || calls_left-- > 0)
        return false;
    refusals++;
    return true;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
ssize_t __real_getrandom(void *buffer, size_t bytes, unsigned int flags);
ssize_t __wrap_getrandom(void *buffer, size_t bytes, unsigned int flags);
int __real_eventfd(unsigned int value, int flags);
int __wrap_eventfd(unsigned int value, int flags);
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

void *__wrap_malloc(size_t size)
{
    return refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return refused() ? NULL : __real_realloc(old, size);
}

/* Replaces getrandom; fails on demand, as getrandom does when it would wait early after boot. */
static bool no_randomness;

ssize_t __wrap_getrandom(void *buffer, size_t bytes, unsigned int flags)
{
    CHECK(flags & GRND_NONBLOCK);
    return no_randomness ? -1 : __real_getrandom(buffer, bytes, flags);
}

static int refuse_descriptor(void)
{
    errno = EMFILE;
    return -1;
}

int __wrap_eventfd(unsigned int value, int flags)
{
    return refused() ? refuse_descriptor() : __real_eventfd(value, flags);
}

int __wrap_epoll_create1(int flags)
{
    return refused() ? refuse_descriptor() : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    return refused() ? refuse_descriptor() : __real_epoll_ctl(epoll, operation, fd, event);
}

static bool is_scarcity(int error)
{
    return error == -ENOMEM || error == -EMFILE;
}

/* Runs an HCA's whole life; returns false when a refused call cut it short, which must return the
 * right error. */
static bool live(void)
{
    struct soft_hca_attr attr = {.gid = own_gid, .active_mtu_bytes = MTU, .datagram_bytes = MTU};
    struct soft_ah_attr to_self = {.dgid = own_gid};
    struct in6_addr group = {{{0xff, 0x12, [15] = 1}}};
    struct soft_hca *hca = NULL;
    struct bench b;
    struct soft_qp_attr qp_attr = {SOFT_QPT_UD, NULL, NULL, 8, 8, QKEY, 0, NULL, 0, 0};
    struct soft_send_wr wr;
    struct soft_srq *srq;
    struct soft_qp *qp;
    uint8_t buffer[64];
    struct soft_wc wc[2];
    int error = soft_hca_create(&attr, &hca);

    if (error == 0) {
        b.hca = hca;
        error = soft_cq_create(hca, 8, &b.cq);
    }
    if (error == 0) {
        qp_attr.send_cq = qp_attr.recv_cq = b.cq;
        error = soft_qp_create(hca, &qp_attr, &qp);
    }
    if (error == 0)
        error = soft_ah_create(hca, &to_self, &b.self);
    if (error == 0) {
        error = soft_qp_attach_mcast(qp, &group);
        if (error != 0)
            CHECK_EQUAL(hca->group_count, 0);
    }
    if (error == 0)
        error = soft_srq_create(hca, 8, &srq);
    if (error == 0) {
        struct soft_qp_attr rc_attr = {SOFT_QPT_RC, b.cq, b.cq, 8, 8, 0, 0, NULL, 0, 0};
        struct soft_qp *rc;

        error = soft_qp_create(hca, &rc_attr, &rc);
        rc_attr.srq = srq;
        if (error == 0)
            error = soft_qp_create(hca, &rc_attr, &rc);
    }
    if (error == 0) {
        post_recv(qp, 1, buffer, sizeof(buffer));
        wr = send_wr(&b, qp, 2, "x", 1);
        CHECK_EQUAL(soft_qp_post_send(qp, &wr, 1), 1);
        CHECK_EQUAL(soft_cq_poll(b.cq, 2, wc), 2);
    }
    if (hca != NULL)
        soft_hca_close(hca);
    CHECK(error == 0 || is_scarcity(error));
    return error == 0;
}

static void a_refusal_anywhere_is_an_error_and_leaks_nothing(void)
{
    int n = 0;

    for (;; n++) {
        calls_left = n;
        refusals = 0;
        if (live()) {
            CHECK_EQUAL(refusals, 0); /* every refused call gave an error */
            break;
        }
        CHECK_EQUAL(refusals, 1);
    }
    calls_left = -1;
    CHECK(n >= 10);
}

static void numbers_differ_even_where_there_is_no_randomness(void)
{
    uint32_t first, different = 0;

    no_randomness = true;
    first = soft_random() & SOFT_ROCE_QPN_MASK;
    for (int i = 0; i < 1000; i++)
        different += (soft_random() & SOFT_ROCE_QPN_MASK) != first;
    no_randomness = false;
    CHECK(different > 900);
}

int main(void)
{
    static const struct test tests[] = {
        TEST(a_refusal_anywhere_is_an_error_and_leaks_nothing),
        TEST(numbers_differ_even_where_there_is_no_randomness),
    };

    return run_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
