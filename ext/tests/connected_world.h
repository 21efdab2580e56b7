/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_CONNECTED_WORLD_H
#define IPU_TESTS_CONNECTED_WORLD_H

/* A pump in connected mode, stepped by hand: its fabric's connections lead back to itself, and the
 * test gives the device one packet at a time. */
#include <arpa/inet.h>
#include <errno.h>

#include "fake_fabric.h"
#include "stepped_pump.h"
#include "core/frame.h"
#include "device/vnet.h"

enum {
    DATAGRAM_MTU = 2044,
    CONNECTED_MTU = 65520,
    SUPERFRAME = 16 + 65536,
    FRAMES = 32,     /* shared receives */
    TX_FRAMES = 192, /* more than enough for a full connection */
    FEW_FRAMES = 16,
    DATAGRAM_FRAMES = 8,
    QUEUE = 512, /* messages under way in the fake fabric */
    ID = 7,
};

struct message {
    uint64_t cookie;
    uint32_t len;
};

static struct {
    int datagrams;
    struct ipu_send last;
    uint64_t ud_cookies[QUEUE];
    int ud_sent;
    struct ipu_recv posted[QUEUE];
    int posted_count;
    struct ipu_connection *known;
    struct ipu_connection_sent sent[QUEUE];
    int sent_count;
    struct message arrived[QUEUE];
    int arrived_count;
    bool refuses, holds; /* sends fail; sends do not end */
    bool holds_datagrams;
} fabric_state;

static struct {
    uint8_t frame[IPU_VNET_LEN + IPU_VNET_PACKET_MAX]; /* to be read */
    size_t len;
    uint8_t out[IPU_VNET_LEN + IPU_VNET_PACKET_MAX]; /* written last */
    size_t out_len;
    int writes;
} device_state;

static inline int fake_send(void *self, const struct ipu_send *sends, int n)
{
    (void)self;
    for (int i = 0; i < n; i++)
        fabric_state.ud_cookies[fabric_state.ud_sent++] = sends[i].cookie;
    fabric_state.last = sends[n - 1];
    fabric_state.datagrams += n;
    return n;
}

static inline int fake_sent(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = fabric_state.ud_sent < max ? fabric_state.ud_sent : max;
    n = fabric_state.holds_datagrams ? 0 : n;
    for (int i = 0; i < n; i++)
        cookies[i] = fabric_state.ud_cookies[--fabric_state.ud_sent];
    return n;
}

static const struct ipu_fabric_ops fake_ops = {
    FAKE_FABRIC_OPS,   .send = fake_send,         .post = fake_post,
    .sent = fake_sent, .received = fake_received, .fd = the_fabric_fd,
};

static inline int loop_add(void *self, struct ipu_connection *connection)
{
    (void)self;
    fabric_state.known = connection;
    return 0;
}

static inline void loop_remove(void *self, struct ipu_connection *connection)
{
    (void)self;
    CHECK(fabric_state.known == connection);
    CHECK_EQ(connection->sending, 0);
    fabric_state.known = NULL;
}

/* Puts the message into the next shared receive; without one the message is lost. */
static inline void arrive(const void *head, uint32_t head_len, const void *data, uint32_t len)
{
    if (fabric_state.posted_count == 0)
        return;
    struct ipu_recv to = fabric_state.posted[--fabric_state.posted_count];
    CHECK(head_len + len <= to.len);
    if (head_len > 0)
        memcpy(to.addr, head, head_len);
    if (len > 0)
        memcpy((uint8_t *)to.addr + head_len, data, len);
    fabric_state.arrived[fabric_state.arrived_count++] =
        (struct message){.cookie = to.cookie, .len = head_len + len};
}

static inline int loop_send(void *self, struct ipu_connection *connection,
                            const struct ipu_send *sends, int n)
{
    (void)self;
    for (int i = 0; i < n; i++) {
        fabric_state.sent[fabric_state.sent_count++] = (struct ipu_connection_sent){
            .cookie = sends[i].cookie, .connection = connection, .failed = fabric_state.refuses};
        if (!fabric_state.refuses)
            arrive(sends[i].head, sends[i].head_len, sends[i].addr, sends[i].len);
    }
    return n;
}

static inline int loop_post(void *self, const struct ipu_recv *recvs, int n)
{
    (void)self;
    for (int i = 0; i < n; i++)
        fabric_state.posted[fabric_state.posted_count++] = recvs[i];
    return n;
}

static inline int loop_sent(void *self, struct ipu_connection_sent *sent, int max)
{
    (void)self;
    int n = 0;
    while (!fabric_state.holds && n < max && fabric_state.sent_count > 0) {
        sent[n] = fabric_state.sent[--fabric_state.sent_count];
        if (sent[n].connection != fabric_state.known)
            sent[n].connection = NULL;
        n++;
    }
    return n;
}

static inline int loop_received(void *self, struct ipu_connection_received *done, int max)
{
    (void)self;
    int n = 0;
    while (n < max && fabric_state.arrived_count > 0) {
        struct message message = fabric_state.arrived[--fabric_state.arrived_count];
        done[n++] = (struct ipu_connection_received){
            .cookie = message.cookie, .connection = fabric_state.known, .byte_len = message.len};
    }
    return n;
}

static const struct ipu_connected_ops loop_ops = {
    .add = loop_add,
    .remove = loop_remove,
    .send = loop_send,
    .post = loop_post,
    .sent = loop_sent,
    .received = loop_received,
};

static inline ssize_t device_read(void *self, void *buf, size_t cap)
{
    (void)self;
    size_t len = device_state.len;
    if (len == 0)
        return -EAGAIN;
    CHECK(len <= cap);
    memcpy(buf, device_state.frame, len);
    device_state.len = 0;
    return (ssize_t)len;
}

static inline int device_write(void *self, const void *buf, size_t len)
{
    (void)self;
    CHECK(len <= sizeof device_state.out);
    memcpy(device_state.out, buf, len);
    device_state.out_len = len;
    device_state.writes++;
    return 0;
}

static inline int device_writev(void *self, const struct iovec *iov, int n)
{
    size_t len = 0;
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    (void)self;
    CHECK(len <= sizeof device_state.out);
    device_state.writes++;
    return 0;
}

static const struct ipu_device_ops device_ops = {
    .read = device_read, .write = device_write, .writev = device_writev, .fd = the_device_fd};

static struct ipu_fabric fabric = {
    .ops = &fake_ops, .connected = &loop_ops, .qpn = 0x48, .mtu = DATAGRAM_MTU + IPU_ENCAP_LEN};
static struct ipu_device device = {.ops = &device_ops, .offload = IPU_DEVICE_TCP | IPU_DEVICE_UDP};
static struct ipu_connection connection;

static const struct ipu_dest peer = {.qpn = 0x55, .gid = {{{0xfe, 0x80, [15] = 2}}}};

static inline void begin_with(struct ipu_device *packets, uint32_t tx_frames)
{
    struct ipu_pump_config config = {
        .tx_frames = tx_frames,
        .fabric = &fabric,
        .device = packets,
        .mtu = DATAGRAM_MTU,
        .device_mtu = CONNECTED_MTU,
        .connected_frames = FRAMES,
        .rx_frames = DATAGRAM_FRAMES,
        .neigh_max = 16,
        .route_max = 16,
        .ah_max = 16,
        .command_bytes = 1 << 17,
        .event_bytes = 1 << 17,
        .capture_bytes = 1 << 17,
    };
    memset(&fabric_state, 0, sizeof fabric_state);
    memset(&device_state, 0, sizeof device_state);
    memset(&connection, 0, sizeof connection);
    open_descriptors();
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
}

static inline void begin(void)
{
    begin_with(&device, TX_FRAMES);
}

static inline void end(void)
{
    destroy_pump();
}

static inline void step(void)
{
    step_until_idle();
}

static inline void command(struct ipu_command given)
{
    give(given, NULL);
    step();
}

/* Returns the type of the next event, and its token in *token; 0: none. */
static inline uint32_t next_event(uint64_t *token)
{
    uint32_t len;
    const struct ipu_event *event = ipu_ring_peek(ipu_pump_events(pump), &len);
    if (event == NULL)
        return 0;
    uint32_t type = event->type;
    *token = event->connection.id;
    ipu_ring_release(ipu_pump_events(pump));
    return type;
}

static inline struct in6_addr hop(void)
{
    struct in6_addr address = {{{[10] = 0xff, [11] = 0xff, 10, 0, 0, 2}}};
    return address;
}

static inline void neighbour(void)
{
    command(
        (struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                             .neigh_set = {.next_hop = hop(), .dest = peer, .mtu = DATAGRAM_MTU}});
}

static inline void route(enum ipu_tx_mode mode)
{
    command((struct ipu_command){.type = IPU_COMMAND_TX_MODE_SET,
                                 .tx_mode_set = {.dest = peer,
                                                 .mode = mode,
                                                 .id = ID,
                                                 .mtu = CONNECTED_MTU,
                                                 .superframe_bytes = SUPERFRAME}});
}

static inline void connect_peer(bool superframes)
{
    neighbour();
    command((struct ipu_command){
        .type = IPU_COMMAND_CONNECTION_ADD,
        .connection_add = {.id = ID, .native = &connection, .superframes = superframes}});
    route(IPU_TX_RC);
}

/* Puts an IPv4 packet of `len` bytes to 10.0.0.2 into the device; nobody looks into its
 * protocol. */
static inline void offer(uint32_t len)
{
    uint8_t *ip = device_state.frame + IPU_VNET_LEN;
    memset(device_state.frame, 0, IPU_VNET_LEN + len);
    ip[0] = 0x45, ip[2] = (uint8_t)(len >> 8), ip[3] = (uint8_t)len;
    ip[8] = 64, ip[9] = 253, ip[12] = 10, ip[15] = 1, ip[16] = 10, ip[19] = 2;
    memset(ip + 20, 0xa5, len - 20);
    device_state.len = IPU_VNET_LEN + len;
}

/* The engine sends such a packet, which has waited for the neighbour. */
static inline void release_packet(uint32_t len)
{
    offer(len);
    give((struct ipu_command){.type = IPU_COMMAND_SEND_PACKET, .len = len},
         device_state.frame + IPU_VNET_LEN);
    device_state.len = 0;
}

/* Puts such a packet in as a TCP super-frame, with segments of `size` bytes. */
static inline void offer_super(uint32_t len, uint16_t size)
{
    offer(len);
    uint8_t *ip = device_state.frame + IPU_VNET_LEN;
    ip[9] = IPPROTO_TCP;
    memset(ip + 20, 0, 20);
    ip[32] = 5 << 4, ip[33] = 0x10;
    ipu_vnet_write(device_state.frame, (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                                               .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                                               .gso_size = size,
                                                               .csum_start = 20,
                                                               .csum_offset = 16});
}

#endif
