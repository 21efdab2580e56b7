/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_STEPPED_PUMP_H
#define IPU_TESTS_STEPPED_PUMP_H

/* A pump that a test steps by hand, and the descriptors of its fake fabric and device. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"
#include "pump/loop/pump.h"
#include "pump/records/pump_abi.h"

static struct ipu_pump *pump;
static int fabric_fd, device_fd;

static inline int the_fabric_fd(void *self)
{
    (void)self;
    return fabric_fd;
}

static inline int the_device_fd(void *self)
{
    (void)self;
    return device_fd;
}

/* A device without packets, which takes all. */
static inline ssize_t read_no_packet(void *self, void *buf, size_t cap)
{
    (void)self, (void)buf, (void)cap;
    return -EAGAIN;
}

static inline int write_to_nobody(void *self, const void *buf, size_t len)
{
    (void)self, (void)buf, (void)len;
    return 0;
}

static inline void open_descriptors(void)
{
    fabric_fd = eventfd(0, EFD_NONBLOCK);
    device_fd = eventfd(0, EFD_NONBLOCK);
}

static inline void destroy_pump(void)
{
    ipu_pump_destroy(pump);
    pump = NULL;
    close(fabric_fd);
    close(device_fd);
}

/* Makes rounds until nothing is left to do. */
static inline void step_until_idle(void)
{
    while (ipu_pump_step(pump, 64) > 0)
        continue;
}

/* Puts a command, with `given.len` bytes of data behind it, into the pump's ring. */
static inline void give(struct ipu_command given, const void *data)
{
    uint32_t len = (uint32_t)sizeof given + given.len;
    struct ipu_command *record = ipu_ring_reserve(ipu_pump_commands(pump), len);
    CHECK(record != NULL);
    *record = given;
    if (data != NULL)
        memcpy(record + 1, data, given.len);
    ipu_ring_commit(ipu_pump_commands(pump), len);
}

static inline uint64_t counter(const char *name)
{
    uint64_t values[IPU_COUNTERS_N];
    ipu_counters_read(ipu_pump_counters(pump), values);
    for (int i = 0; i < IPU_COUNTERS_N; i++)
        if (strcmp(ipu_counters_names[i], name) == 0)
            return values[i];
    CHECK(name == NULL); /* there is no counter of that name */
    return 0;
}

#endif
