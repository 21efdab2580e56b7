/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A traffic generator above the packet queue: one thread sends UDP as fast as the data path takes
 * it, another counts what comes back.
 *
 * build.sh compiles it, and traffic.py runs it.
 */
#include <ipoibu/packet_device.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, HEAD_BYTES = 28, LOOK_MS = 50 };

struct generator {
    const struct ipoibu_packet_queue_v1 *queue;
    uint8_t packet[HEAD_BYTES]; /* the headers */
    uint32_t bytes;
    atomic_bool ends;
    _Atomic uint64_t sent, received, sleeps;
    pthread_t sender, receiver;
};

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void write_headers(struct generator *generator, const uint8_t *source,
                          const uint8_t *destination, uint16_t port)
{
    uint8_t *ip = generator->packet, *udp = ip + 20;
    uint32_t sum = 0;
    memcpy(ip, (uint8_t[]){0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17}, 10);
    put16(ip + 2, generator->bytes);
    memcpy(ip + 12, source, 4);
    memcpy(ip + 16, destination, 4);
    for (int i = 0; i < 20; i += 2)
        sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
    sum = (sum & 0xffff) + (sum >> 16);
    put16(ip + 10, ~(sum + (sum >> 16)));
    put16(udp, 40000);
    put16(udp + 2, port);
    put16(udp + 4, generator->bytes - 20); /* the checksum is 0: none, which IPv4 allows */
}

/* Sleeps until the descriptor is readable; looks up now and then, since the program may end. */
static void sleep_on(struct generator *generator, int fd)
{
    atomic_fetch_add_explicit(&generator->sleeps, 1, memory_order_relaxed);
    (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, LOOK_MS);
}

static void *send_packets(void *arg)
{
    struct generator *generator = arg;
    const struct ipoibu_packet_queue_v1 *queue = generator->queue;
    struct ipoibu_packet_v1 packets[BATCH];
    uint64_t number = 0;
    while (!atomic_load_explicit(&generator->ends, memory_order_relaxed)) {
        int n = queue->reserve(queue->self, packets, BATCH);
        if (n <=
            0) { /* all frames are under way, or the endpoint is down: both end with a wake-up */
            if (queue->await_frames(queue->self) == 0)
                sleep_on(generator, queue->send_fd);
            continue;
        }
        if (packets[0].bytes < generator->bytes) { /* the MTU is smaller now */
            queue->cancel(queue->self, packets, n);
            break;
        }
        for (int i = 0; i < n; i++, number++) {
            memcpy(packets[i].data, generator->packet, HEAD_BYTES);
            memcpy(packets[i].data + HEAD_BYTES, &number, sizeof number);
            packets[i].bytes = generator->bytes;
        }
        int sent = queue->send(queue->self, packets, n);
        atomic_fetch_add_explicit(&generator->sent, (uint64_t)sent, memory_order_relaxed);
    }
    return NULL;
}

static void *count_packets(void *arg)
{
    struct generator *generator = arg;
    const struct ipoibu_packet_queue_v1 *queue = generator->queue;
    struct ipoibu_packet_v1 packets[BATCH];
    while (!atomic_load_explicit(&generator->ends, memory_order_relaxed)) {
        int n = queue->receive(queue->self, packets, BATCH);
        if (n == 0) {
            if (queue->await_packets(queue->self) == 0)
                sleep_on(generator, queue->receive_fd);
            continue;
        }
        uint64_t mine = 0;
        for (int i = 0; i < n; i++) /* 17: UDP; the packet may be anything */
            mine += packets[i].bytes >= HEAD_BYTES && packets[i].data[9] == 17;
        queue->release(queue->self, packets, n);
        atomic_fetch_add_explicit(&generator->received, mine, memory_order_relaxed);
    }
    return NULL;
}

/* Sends packets of `bytes` (36 or more) from one IPv4 address to another. NULL: no memory or no
 * thread. The caller keeps the queue's capsule until generator_stop(). */
struct generator *generator_start(const struct ipoibu_packet_queue_v1 *queue, const uint8_t *source,
                                  const uint8_t *destination, uint16_t port, uint32_t bytes)
{
    struct generator *generator = calloc(1, sizeof *generator);
    if (generator == NULL)
        return NULL;
    generator->queue = queue;
    generator->bytes = bytes < 36 ? 36 : bytes;
    write_headers(generator, source, destination, port);
    if (pthread_create(&generator->receiver, NULL, count_packets, generator) != 0) {
        free(generator);
        return NULL;
    }
    if (pthread_create(&generator->sender, NULL, send_packets, generator) != 0) {
        atomic_store(&generator->ends, true);
        pthread_join(generator->receiver, NULL);
        free(generator);
        return NULL;
    }
    return generator;
}

uint64_t generator_sent(struct generator *generator)
{
    return atomic_load_explicit(&generator->sent, memory_order_relaxed);
}

uint64_t generator_received(struct generator *generator)
{
    return atomic_load_explicit(&generator->received, memory_order_relaxed);
}

uint64_t generator_sleeps(struct generator *generator)
{
    return atomic_load_explicit(&generator->sleeps, memory_order_relaxed);
}

void generator_stop(struct generator *generator)
{
    atomic_store(&generator->ends, true);
    pthread_join(generator->sender, NULL);
    pthread_join(generator->receiver, NULL);
    free(generator);
}
