/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_CHECK_H
#define IPU_TESTS_CHECK_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A failed check ends the program with status 1; SIGALRM ends a test that hangs. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(got, wanted)                                                                      \
    do {                                                                                           \
        long long got_ = (long long)(got), wanted_ = (long long)(wanted);                          \
        if (got_ != wanted_) {                                                                     \
            fprintf(stderr, "%s:%d: %s is %lld (0x%llx), not %lld (0x%llx)\n", __FILE__, __LINE__, \
                    #got, got_, (unsigned long long)got_, wanted_, (unsigned long long)wanted_);   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define TIME_LIMIT_S 600u

/* Returns whether to run a test: every one, or only the one that the environment's ONLY names. */
static inline int check_is_wanted(const char *test)
{
    const char *only = getenv("ONLY");
    return only == NULL || strcmp(only, test) == 0;
}

#define RUN(test)                                                                                  \
    do {                                                                                           \
        if (!check_is_wanted(#test))                                                               \
            break;                                                                                 \
        alarm(TIME_LIMIT_S);                                                                       \
        test();                                                                                    \
        printf("ok %s\n", #test);                                                                  \
        fflush(stdout);                                                                            \
    } while (0)

/* Tests an assert of misuse: returns the signal that ends a child which runs misuse(), or 0. */
static inline int check_signal_of(void (*misuse)(void))
{
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        misuse();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

#endif
