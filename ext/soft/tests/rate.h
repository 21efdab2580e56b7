/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_RATE_H
#define SOFT_RATE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hca.h"

/* What measures between two devices: each has an HCA in its network namespace, and a thread. Only
 * one C file of a program includes this header. */
static _Atomic bool stop;

static inline void fail(const char *what, int error)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(-error));
    exit(1);
}

static inline double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The calling thread stays in the network namespace. */
static inline struct soft_hca *open_hca_in(const char *netns, const char *netdev,
                                           const struct soft_hca_options *options)
{
    struct soft_hca *hca;
    int fd = open(netns, O_RDONLY | O_CLOEXEC);
    int error;

    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) {
        perror(netns);
        exit(1);
    }
    close(fd);
    error = soft_hca_open(netdev, options, &hca);
    if (error != 0)
        fail(netdev, error);
    return hca;
}

/* Runs both threads until `stop` is set; returns for how many seconds. */
static inline double run_threads(void *(*send)(void *), void *from, void *(*receive)(void *),
                                 void *to, double duration_s)
{
    pthread_t threads[2];
    double start;

    stop = false;
    start = seconds(CLOCK_MONOTONIC);
    pthread_create(&threads[0], NULL, send, from);
    pthread_create(&threads[1], NULL, receive, to);
    usleep((useconds_t)(duration_s * 1e6));
    stop = true;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return seconds(CLOCK_MONOTONIC) - start;
}

#endif
