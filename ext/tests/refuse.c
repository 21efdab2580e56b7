/* SPDX-License-Identifier: BSD-2-Clause */
#include "refuse.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>

/* Thread-local, so that it does not disturb other threads of a test. -1: off. */
static _Thread_local int left = -1;
static _Thread_local bool refused;

void refuse_after(int n)
{
    left = n;
    refused = false;
}

bool refuse_stop(void)
{
    left = -1;
    return refused;
}

static bool refuse(void)
{
    if (left < 0 || left-- > 0)
        return false;
    refused = true;
    return true;
}

/* Uses the linker's names for the wrapper and for the wrapped function (ld --wrap). */
#define WRAP(type, name, parameters, arguments, failure, error)                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (refuse()) {                                                                            \
            errno = error;                                                                         \
            return failure;                                                                        \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }

WRAP(void *, malloc, (size_t size), (size), NULL, ENOMEM)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL, ENOMEM)
WRAP(void *, realloc, (void *old, size_t size), (old, size), NULL, ENOMEM)
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), NULL, ENOMEM)
WRAP(void *, mmap, (void *at, size_t len, int prot, int flags, int fd, off_t offset),
     (at, len, prot, flags, fd, offset), MAP_FAILED, ENOMEM)
WRAP(ssize_t, getrandom, (void *buffer, size_t len, unsigned flags), (buffer, len, flags), -1,
     ENOSYS)
WRAP(int, eventfd, (unsigned count, int flags), (count, flags), -1, EMFILE)
WRAP(int, pthread_mutex_init, (pthread_mutex_t * mutex, const pthread_mutexattr_t *attributes),
     (mutex, attributes), ENOMEM, ENOMEM)
