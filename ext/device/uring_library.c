/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/uring_library.h"

#include <stddef.h>

#ifndef IPU_HAVE_URING

const char *ipu_uring_missing(void)
{
    return "built without liburing";
}

#else

#include <dlfcn.h>
#include <stdio.h>

/* Another name is another layout of struct io_uring than that of the header. */
#define LIBRARY "liburing.so.2"

struct ipu_uring_library ipu_uring;
static char missing[256];

const char *ipu_uring_missing(void)
{
    return missing[0] != '\0' ? missing : NULL;
}

/* Before a process gives up the right to read files. The library stays loaded. */
__attribute__((constructor)) static void load(void)
{
    const struct {
        const char *name;
        void *function; /* where the address goes; POSIX lets dlsym return functions as objects */
    } wanted[] = {
        {"io_uring_queue_init", &ipu_uring.queue_init},
        {"io_uring_queue_exit", &ipu_uring.queue_exit},
        {"io_uring_submit", &ipu_uring.submit},
        {"io_uring_submit_and_wait", &ipu_uring.submit_and_wait},
        {"io_uring_wait_cqe_timeout", &ipu_uring.wait_cqe_timeout},
    };
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        (void)snprintf(missing, sizeof(missing), "%s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *found = dlsym(library, wanted[i].name);

        if (found == NULL)
            (void)snprintf(missing, sizeof(missing), LIBRARY ": no %s", wanted[i].name);
        *(void **)wanted[i].function = found;
    }
}

#endif
