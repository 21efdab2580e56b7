/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_COALESCE_FRAMES_H
#define IPU_TESTS_COALESCE_FRAMES_H

/* Packets that a test gives to the merger in one batch, and the frames that come out. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "segment_frames.h"
#include "core/csum.h"
#include "pump/packets/coalesce.h"

enum { BOTH = IPU_COALESCE_TCP | IPU_COALESCE_UDP };
enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32, ECE = 64, CWR = 128 };

/* ---- frames that come out
 * -------------------------------------------------------------------------- */

enum { OUT_MAX = 4096 };

static struct {
    struct frame frames[OUT_MAX];
    uint32_t packets[OUT_MAX];
    int n;
} out;

static void collect(void *context, const struct iovec *iov, uint32_t packets, size_t bytes)
{
    size_t len = 0, headers = 0;
    CHECK(context == &out);
    CHECK(out.n < OUT_MAX);
    for (uint32_t i = 0; i < packets; i++)
        len += iov[i].iov_len;
    struct frame frame = {malloc(len), len};
    CHECK(frame.bytes);
    len = 0;
    for (uint32_t i = 0; i < packets; i++) {
        memcpy(frame.bytes + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    if (packets > 1)
        headers = ipu_vnet_read(frame.bytes).hdr_len;
    CHECK_EQ(bytes, len - IPU_VNET_LEN + (packets - 1) * headers);
    out.packets[out.n] = packets;
    out.frames[out.n++] = frame;
}

/* Refuses what is not merged of the senders from `refused` on. */
static uint32_t refused = UINT32_MAX;

static bool admit(void *context, uint32_t sender, uint32_t packets)
{
    CHECK(context == &out);
    return packets > 1 || sender < refused;
}

static void forget(void)
{
    while (out.n > 0)
        free(out.frames[--out.n].bytes);
}

/* ---- packets that go in
 * ---------------------------------------------------------------------------- */

struct tcp {
    bool v6;
    uint16_t id; /* without DF */
    bool df;
    uint8_t tos, ttl;
    uint16_t port;
    uint32_t seq, ack;
    uint8_t flags;
    uint16_t window, urgent;
    uint32_t timestamp; /* 0: no options */
    uint32_t payload;
};

/* Given fields replace the usual ones. */
#pragma GCC diagnostic ignored "-Woverride-init"
#define TCP(...) ((struct tcp){.ttl = 64, .port = 1000, .flags = ACK, .window = 500, __VA_ARGS__})

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xFFFF);
}

static void complete(uint8_t *ip, uint32_t len, uint32_t offset)
{
    bool v4 = ip[0] >> 4 == 4;
    uint32_t start = v4 ? 20 : 40;
    uint16_t csum;
    if (v4) {
        put16(ip + 10, 0);
        csum = ipu_csum_finish(ipu_csum_add(0, ip, 20));
        memcpy(ip + 10, &csum, 2);
    }
    put16(ip + start + offset, 0);
    uint64_t sum = ipu_csum_pseudo(ip, v4 ? ip[9] : ip[6], len - start);
    csum = ipu_csum_finish(ipu_csum_add(sum, ip + start, len - start));
    memcpy(ip + start + offset, &csum, 2);
}

/* The IP header; returns its length. */
static uint32_t put_ip(uint8_t *ip, bool v6, uint32_t len, uint8_t protocol)
{
    if (v6) {
        put32(ip, 0x60000000);
        put16(ip + 4, len - 40);
        ip[6] = protocol;
        ip[7] = 64;
        ip[8] = ip[24] = 0xFD;
        ip[23] = 1;
        ip[39] = 2;
        return 40;
    }
    ip[0] = 0x45;
    put16(ip + 2, len);
    ip[8] = 64;
    ip[9] = protocol;
    put32(ip + 12, 0x0A000001);
    put32(ip + 16, 0x0A000002);
    return 20;
}

/* The payload at sequence number s is the byte s, so that wrong merges show. */
static struct frame tcp_packet(struct tcp tcp)
{
    uint32_t header = tcp.timestamp ? 32 : 20;
    uint32_t start = tcp.v6 ? 40 : 20;
    uint32_t len = start + header + tcp.payload;
    struct frame frame = frame_new(NULL, 0);
    frame.bytes = realloc(frame.bytes, IPU_VNET_LEN + len);
    CHECK(frame.bytes);
    frame.len = IPU_VNET_LEN + len;
    memset(frame.bytes, 0xEE, IPU_VNET_LEN);
    uint8_t *ip = frame_ip(frame);
    memset(ip, 0, len);
    put_ip(ip, tcp.v6, len, 6);
    if (tcp.v6) {
        put32(ip, 0x60000000 | (uint32_t)tcp.tos << 20);
        ip[7] = tcp.ttl;
    } else {
        ip[1] = tcp.tos;
        put16(ip + 4, tcp.id);
        put16(ip + 6, tcp.df ? 0x4000 : 0);
        ip[8] = tcp.ttl;
    }
    uint8_t *at = ip + start;
    put16(at, tcp.port);
    put16(at + 2, 2000);
    put32(at + 4, tcp.seq);
    put32(at + 8, tcp.ack);
    at[12] = (uint8_t)(header / 4 << 4);
    at[13] = tcp.flags;
    put16(at + 14, tcp.window);
    put16(at + 18, tcp.urgent);
    if (tcp.timestamp) {
        put32(at + 20, 0x0101080A);
        put32(at + 24, tcp.timestamp);
    }
    for (uint32_t i = 0; i < tcp.payload; i++)
        at[header + i] = (uint8_t)(tcp.seq + i);
    complete(ip, len, 16);
    return frame;
}

static inline struct frame udp_packet(bool v6, uint16_t id, uint16_t port, uint32_t payload)
{
    uint32_t start = v6 ? 40 : 20, len = start + 8 + payload;
    struct frame frame = frame_new(NULL, 0);
    frame.bytes = realloc(frame.bytes, IPU_VNET_LEN + len);
    CHECK(frame.bytes);
    frame.len = IPU_VNET_LEN + len;
    uint8_t *ip = frame_ip(frame);
    memset(ip, 0, len);
    put_ip(ip, v6, len, 17);
    if (!v6)
        put16(ip + 4, id);
    put16(ip + start, port);
    put16(ip + start + 2, 2000);
    put16(ip + start + 4, 8 + payload);
    for (uint32_t i = 0; i < payload; i++)
        ip[start + 8 + i] = (uint8_t)(id + i);
    complete(ip, len, 6);
    return frame;
}

/* Packets that go through as one batch. */
struct batch {
    struct frame frames[512];
    int n;
};

static inline void put(struct batch *batch, struct frame frame)
{
    CHECK(batch->n < 512);
    batch->frames[batch->n++] = frame;
}

static inline void run(struct batch *batch, uint32_t kinds)
{
    static struct ipu_coalesce coalesce;
    forget();
    ipu_coalesce_init(&coalesce, kinds, collect, admit, &out);
    for (int i = 0; i < batch->n; i++)
        ipu_coalesce_add_untrusted(&coalesce, 0, frame_ip(batch->frames[i]),
                                   batch->frames[i].len - IPU_VNET_LEN);
    ipu_coalesce_flush(&coalesce);
    while (batch->n > 0)
        free(batch->frames[--batch->n].bytes);
}

#endif
