/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_MEMORY_WORLD_H
#define IPU_TESTS_MEMORY_WORLD_H

/* Ports of the in-process fabric, and what a test does with one. */
#include <poll.h>

#include "check.h"
#include "fabric/memory.h"

enum { SLOT = 512, SLOTS = 64 };

/* A port with its memory: cookies and slots have the same numbers. */
struct host {
    struct ipu_memory_port *port;
    struct ipu_fabric *fabric;
    uint8_t buffer[SLOTS][SLOT];
};

static inline struct in6_addr gid(uint8_t number)
{
    return (struct in6_addr){.s6_addr = {0xFE, 0x80, [15] = number}};
}

static inline struct in6_addr mgid(uint8_t number)
{
    return (struct in6_addr){.s6_addr = {0xFF, 0x12, 0x40, 0x1B, 0xFF, 0xFF, [15] = number}};
}

static inline void open_with(struct host *host, struct ipu_memory_switch *sw,
                             struct ipu_memory_config config)
{
    host->port = ipu_memory_port_create(sw, &config);
    CHECK(host->port);
    host->fabric = ipu_memory_port_fabric(host->port);
    CHECK_EQ(host->fabric->ops->memory(host->fabric->self, host->buffer, sizeof host->buffer), 0);
}

static inline void open_host(struct host *host, struct ipu_memory_switch *sw, uint8_t number)
{
    open_with(host, sw, (struct ipu_memory_config){.gid = gid(number), .mtu = 256});
}

static inline void *handle(struct host *host, struct in6_addr to, uint32_t qpn)
{
    struct ipu_dest dest = {
        .gid = to, .qpn = qpn, .hop_limit = 64, .traffic_class = 0xA5, .flow_label = 0x12345};
    void *ah = host->fabric->ops->ah_create(host->fabric->self, &dest);
    CHECK(ah);
    return ah;
}

static inline int post(struct host *host, uint32_t slot, uint32_t len)
{
    struct ipu_recv recv = {.addr = host->buffer[slot], .len = len, .cookie = slot};
    return host->fabric->ops->post(host->fabric->self, &recv, 1);
}

static inline int send_text(struct host *host, uint32_t slot, const char *text, void *ah,
                            uint32_t qpn)
{
    memcpy(host->buffer[slot], text, strlen(text));
    struct ipu_send send = {.addr = host->buffer[slot],
                            .len = (uint32_t)strlen(text),
                            .qpn = qpn,
                            .ah = ah,
                            .cookie = 1000 + slot};
    return host->fabric->ops->send(host->fabric->self, &send, 1);
}

static inline int send_unicast(struct host *from, const char *text, const struct host *to)
{
    void *ah = handle(from, to->fabric->gid, to->fabric->qpn);
    int result = send_text(from, 63, text, ah, to->fabric->qpn);
    from->fabric->ops->ah_destroy(from->fabric->self, ah);
    return result;
}

static inline int receive(struct host *host, struct ipu_received *received)
{
    return host->fabric->ops->received(host->fabric->self, received, 1);
}

static inline int reap(struct host *host, uint64_t *cookie)
{
    return host->fabric->ops->sent(host->fabric->self, cookie, 1);
}

static inline int arm(struct host *host)
{
    return host->fabric->ops->arm(host->fabric->self);
}

static inline int is_readable(struct host *host)
{
    struct pollfd fd = {.fd = host->fabric->ops->fd(host->fabric->self), .events = POLLIN};
    return poll(&fd, 1, 0);
}

static inline struct ipu_memory_switch *new_switch(void)
{
    struct ipu_memory_switch *sw = ipu_memory_switch_create(42);
    CHECK(sw);
    return sw;
}

#endif
