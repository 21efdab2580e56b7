/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump_world.h"

#include <errno.h>
#include <sanitizer/asan_interface.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/frame.h"
#include "device/vnet.h"
#include "pump/state/pump_state.h"

enum {
    DATAGRAMS = 8,
    MESSAGES = 6,
    TX_FRAMES = 6,
    DEPTH = 2048, /* of each queue of the fabric: more than the pump has frames and heads */
    REGIONS = 8,
    ROUNDS_MAX = 64,
    FRAME_MAX = IPU_VNET_LEN + IPU_VNET_PACKET_MAX,
};

struct arrival {
    uint64_t cookie;
    uint32_t len, flags, src_qpn, qpn;
    struct ipu_connection *connection;
};

struct posts {
    struct ipu_recv recv[DEPTH];
    uint32_t head, tail;
    struct arrival arrived[DEPTH];
    uint32_t arrived_head, arrived_tail;
};

struct world world;

static struct {
    struct posts datagrams, messages;
    uint64_t sent[DEPTH];
    uint32_t sent_count;
    struct ipu_connection_sent messages_sent[DEPTH];
    uint32_t messages_sent_count;
    struct ipu_connection connection[WORLD_CONNECTIONS];
    bool known[WORLD_CONNECTIONS];
    struct {
        void *base;
        size_t len;
    } region[REGIONS];
    uint32_t regions;
    int fd;
} lines;

static struct {
    uint8_t frame[IPU_ETHERNET_LEN + FRAME_MAX];
    size_t len;
    const void *queued[IPU_DEVICE_WRITES];
    int queued_count;
    int fd;
} device_state;

/* ---- the fabric: datagrams ------------------------------------------------------------------- */

static int fault(void)
{
    int error = world.faults.error;
    world.faults.error = 0;
    return -error;
}

static int fabric_memory(void *self, void *base, size_t len)
{
    (void)self;
    MUST(lines.regions < REGIONS);
    lines.region[lines.regions].base = base;
    lines.region[lines.regions++].len = len;
    return 0;
}

static void *fabric_ah_create(void *self, const struct ipu_dest *dest)
{
    (void)self;
    if (dest->sl == 15) { /* a destination that the device refuses */
        errno = EINVAL;
        return NULL;
    }
    return malloc(1);
}

static void fabric_ah_destroy(void *self, void *ah)
{
    (void)self;
    free(ah);
}

static int taken_of(int n)
{
    int take = world.faults.take;
    world.faults.take = -1;
    return take >= 0 && take < n ? take : n;
}

/* Makes the packets of a super-frame, each in memory of exactly its length. */
static void check_cut(const struct ipu_send *send)
{
    const struct ipu_cut *cut = send->cut;
    MUST(cut->packets >= 1 && cut->packets <= IPU_CUT_PACKETS);
    for (uint32_t k = 0; k < cut->packets; k++) {
        uint32_t at = k * cut->size_bytes, rest = send->len - at;
        uint32_t len = send->head_len + (rest < cut->size_bytes ? rest : cut->size_bytes);
        uint8_t *packet = malloc(len);
        MUST(packet != NULL && at <= send->len && len <= IPU_ENCAP_LEN + WORLD_MTU);
        MUST(cut->make(cut->context, k, packet) == len);
        free(packet);
    }
}

static int fabric_send(void *self, const struct ipu_send *sends, int n)
{
    int error = fault();
    (void)self;
    if (error < 0)
        return error;
    n = taken_of(n);
    for (int i = 0; i < n; i++) {
        MUST(sends[i].head_len + sends[i].len >= IPU_ENCAP_LEN);
        if (sends[i].cut != NULL)
            check_cut(&sends[i]);
        else
            MUST(sends[i].head_len + sends[i].len <= IPU_ENCAP_LEN + WORLD_MTU);
        MUST(sends[i].source_qpn == 0 || sends[i].source_qpn - WORLD_GUEST_QPN < WORLD_MACS);
        (void)input_touch(sends[i].head, sends[i].head_len);
        (void)input_touch(sends[i].addr, sends[i].len);
        (void)input_touch(sends[i].ah, 1);
        MUST(lines.sent_count < DEPTH);
        lines.sent[lines.sent_count++] = sends[i].cookie;
    }
    return n;
}

static int fabric_sent(void *self, uint64_t *cookies, int max)
{
    int n = 0;
    (void)self;
    while (!world.faults.holds && n < max && lines.sent_count > 0)
        cookies[n++] = lines.sent[--lines.sent_count];
    return n;
}

static int keep_posts(struct posts *posts, const struct ipu_recv *recvs, int n)
{
    for (int i = 0; i < n; i++) {
        MUST(posts->tail - posts->head < DEPTH);
        ASAN_UNPOISON_MEMORY_REGION(recvs[i].addr, recvs[i].len);
        posts->recv[posts->tail++ % DEPTH] = recvs[i];
    }
    return n;
}

static int fabric_post(void *self, const struct ipu_recv *recvs, int n)
{
    int error = fault();
    (void)self;
    return error < 0 ? error : keep_posts(&lines.datagrams, recvs, taken_of(n));
}

static int fabric_received(void *self, struct ipu_received *done, int max)
{
    struct posts *posts = &lines.datagrams;
    int n = 0, error = fault();
    (void)self;
    if (error < 0)
        return error;
    for (; n < max && posts->arrived_head != posts->arrived_tail; n++) {
        const struct arrival *arrival = &posts->arrived[posts->arrived_head++ % DEPTH];
        done[n] = (struct ipu_received){.cookie = arrival->cookie,
                                        .byte_len = arrival->len,
                                        .src_qpn = arrival->src_qpn,
                                        .qpn = arrival->qpn,
                                        .flags = arrival->flags};
    }
    return n;
}

static int fabric_arm(void *self)
{
    (void)self;
    return 0;
}

static int fabric_fd(void *self)
{
    (void)self;
    return lines.fd;
}

static int fabric_recover(void *self)
{
    (void)self;
    return fault();
}

static const struct ipu_fabric_ops fabric_ops = {
    .memory = fabric_memory,
    .ah_create = fabric_ah_create,
    .ah_destroy = fabric_ah_destroy,
    .send = fabric_send,
    .post = fabric_post,
    .sent = fabric_sent,
    .received = fabric_received,
    .arm = fabric_arm,
    .fd = fabric_fd,
    .recover = fabric_recover,
};

/* ---- the fabric: connections ----------------------------------------------------------------- */

static uint32_t which_of(const struct ipu_connection *connection)
{
    uint32_t which = (uint32_t)(connection - lines.connection);
    MUST(which < WORLD_CONNECTIONS);
    return which;
}

static int connected_add(void *self, struct ipu_connection *connection)
{
    (void)self;
    MUST(!lines.known[which_of(connection)]);
    lines.known[which_of(connection)] = true;
    return 0;
}

static void connected_remove(void *self, struct ipu_connection *connection)
{
    (void)self;
    MUST(lines.known[which_of(connection)]);
    MUST(connection->sending == 0);
    lines.known[which_of(connection)] = false;
}

static int connected_send(void *self, struct ipu_connection *connection,
                          const struct ipu_send *sends, int n)
{
    (void)self;
    MUST(lines.known[which_of(connection)]);
    n = taken_of(n);
    for (int i = 0; i < n; i++) {
        MUST(sends[i].head_len + sends[i].len <= FRAME_MAX);
        (void)input_touch(sends[i].head, sends[i].head_len);
        (void)input_touch(sends[i].addr, sends[i].len);
        MUST(lines.messages_sent_count < DEPTH);
        lines.messages_sent[lines.messages_sent_count++] =
            (struct ipu_connection_sent){.cookie = sends[i].cookie, .connection = connection};
    }
    return n;
}

static int connected_post(void *self, const struct ipu_recv *recvs, int n)
{
    (void)self;
    return keep_posts(&lines.messages, recvs, n);
}

static int connected_sent(void *self, struct ipu_connection_sent *sent, int max)
{
    int n = 0;
    (void)self;
    while (!world.faults.holds && n < max && lines.messages_sent_count > 0) {
        sent[n] = lines.messages_sent[--lines.messages_sent_count];
        sent[n].failed = world.faults.fails;
        if (!lines.known[which_of(sent[n].connection)])
            sent[n].connection = NULL;
        n++;
    }
    return n;
}

static int connected_received(void *self, struct ipu_connection_received *done, int max)
{
    struct posts *posts = &lines.messages;
    int n = 0;
    (void)self;
    for (; n < max && posts->arrived_head != posts->arrived_tail; n++) {
        const struct arrival *arrival = &posts->arrived[posts->arrived_head++ % DEPTH];
        bool known = lines.known[which_of(arrival->connection)];
        done[n] = (struct ipu_connection_received){.cookie = arrival->cookie,
                                                   .connection = known ? arrival->connection : NULL,
                                                   .byte_len = arrival->len,
                                                   .failed = arrival->flags != 0};
    }
    return n;
}

static const struct ipu_connected_ops connected_ops = {
    .add = connected_add,
    .remove = connected_remove,
    .send = connected_send,
    .post = connected_post,
    .sent = connected_sent,
    .received = connected_received,
};

/* ---- the device ------------------------------------------------------------------------------ */

static struct ipu_device device;

/* The Ethernet header of a guest's frame is apart, in front of the buffer. */
static size_t ethernet_len(void)
{
    return device.ethernet ? IPU_ETHERNET_LEN : 0;
}

static ssize_t device_read(void *self, void *buf, size_t cap)
{
    size_t len = device_state.len, head = ethernet_len();
    int error = world.faults.device;
    (void)self;
    world.faults.device = 0;
    if (error != 0 || len == 0)
        return error != 0 ? -error : -EAGAIN;
    device_state.len = 0;
    if (len < head)
        return 0;
    len -= head;
    if (len > cap)
        len = cap;
    memcpy((uint8_t *)buf - head, device_state.frame, head);
    memcpy(buf, device_state.frame + head, len);
    return (ssize_t)len;
}

/* A frame for the kernel: a super-frame must be one that can be cut, and a checksum that the kernel
 * is to complete must lie inside. */
static void check_frame(uint8_t *frame, size_t len)
{
    struct ipu_segment segment;
    MUST(len >= IPU_VNET_LEN + 20 && len <= FRAME_MAX);
    struct virtio_net_hdr vnet = ipu_vnet_read(frame);
    (void)input_touch(frame, len);
    if (vnet.gso_type != VIRTIO_NET_HDR_GSO_NONE)
        MUST(ipu_segment_init(&segment, frame, len, IPU_VNET_PACKET_MAX) == 0);
    else if (vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
        MUST(vnet.csum_start + vnet.csum_offset + 2u <= len - IPU_VNET_LEN);
    else
        MUST(vnet.flags == 0);
}

static int outcome(const void *buf)
{
    if (world.faults.is_full)
        return -EAGAIN;
    if (!world.faults.queues)
        return 0;
    MUST(device_state.queued_count < IPU_DEVICE_WRITES);
    device_state.queued[device_state.queued_count++] = buf;
    return IPU_DEVICE_QUEUED;
}

static int device_write(void *self, const void *buf, size_t len)
{
    (void)self;
    (void)input_touch((const uint8_t *)buf - ethernet_len(), ethernet_len());
    check_frame((uint8_t *)(uintptr_t)buf, len);
    return outcome(buf);
}

static int device_write_frame(void *self, const void *frame, size_t len)
{
    (void)self;
    MUST(len <= IPU_ETHERNET_LEN + WORLD_DEVICE_MTU);
    (void)input_touch(frame, len);
    return world.faults.is_full ? -EAGAIN : 0;
}

static int device_writev(void *self, const struct iovec *iov, int n)
{
    uint8_t *frame = malloc(FRAME_MAX);
    size_t len = 0;
    (void)self;
    MUST(frame != NULL && n > 1 && n <= 64);
    (void)input_touch((const uint8_t *)iov[0].iov_base - ethernet_len(), ethernet_len());
    for (int i = 0; i < n; i++) {
        MUST(len + iov[i].iov_len <= FRAME_MAX);
        memcpy(frame + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    check_frame(frame, len);
    free(frame);
    return outcome(iov[0].iov_base);
}

static void device_written(void *self, int *errors, int n)
{
    (void)self;
    MUST(n == device_state.queued_count);
    for (int i = 0; i < n; i++) {
        (void)input_touch(device_state.queued[i], IPU_VNET_LEN);
        errors[i] = i % 3 == 2 ? -EIO : 0;
    }
    device_state.queued_count = 0;
}

static int the_device_fd(void *self)
{
    (void)self;
    return device_state.fd;
}

static const struct ipu_device_ops device_ops = {
    .read = device_read,
    .write = device_write,
    .write_frame = device_write_frame,
    .writev = device_writev,
    .written = device_written,
    .fd = the_device_fd,
};

/* ---- the world ------------------------------------------------------------------------------- */

struct ipu_dest world_dest(uint32_t i)
{
    return (struct ipu_dest){.gid = {{{0xfe, 0x80, [15] = (uint8_t)i}}}, .qpn = 0x100 + i};
}

struct in6_addr world_hop(uint32_t i, bool v6)
{
    uint8_t last = (uint8_t)(1 + i % WORLD_HOPS);
    if (v6)
        return (struct in6_addr){{{0xfd, [15] = last}}};
    return (struct in6_addr){{{[10] = 0xff, [11] = 0xff, 10, 0, 0, last}}};
}

struct ipu_connection *world_connection(uint32_t which)
{
    return &lines.connection[which % WORLD_CONNECTIONS];
}

static struct ipu_fabric fabric = {
    .ops = &fabric_ops,
    .connected = &connected_ops,
    .gid = {{{0xfe, 0x80, [15] = 0x99}}},
    .qpn = 0x99,
    .mtu = WORLD_MTU + IPU_ENCAP_LEN,
};
static struct ipu_device device = {.ops = &device_ops};

static void set_neighbours(void)
{
    for (uint32_t i = 0; i < 2 * (WORLD_HOPS - 1); i++) {
        struct ipu_command command = {.type = IPU_COMMAND_NEIGH_SET,
                                      .neigh_set = {.next_hop = world_hop(i / 2, i % 2),
                                                    .dest = world_dest(i / 2),
                                                    .mtu = WORLD_MTU}};
        world_command(&command, NULL, 0);
    }
}

void world_open(uint32_t offload, bool one_piece, bool ethernet, bool cuts)
{
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = &device,
        .mtu = WORLD_MTU,
        .device_mtu = WORLD_DEVICE_MTU,
        .tcp_packet_bytes = WORLD_MTU,
        .tx_frames = TX_FRAMES,
        .rx_frames = DATAGRAMS,
        .connected_frames = MESSAGES,
        .neigh_max = 16,
        .route_max = 16,
        .route_answer_max = 8,
        .ah_max = 8,
        .command_bytes = 1 << 17,
        .event_bytes = 1 << 17,
        .capture_bytes = 1 << 14,
    };
    memset(&lines, 0, sizeof lines);
    device_state.len = 0;
    device_state.queued_count = 0;
    world.faults = (struct world_faults){.take = -1};
    device.offload = offload;
    device.ethernet = ethernet;
    fabric.one_piece = one_piece;
    fabric.cuts = cuts;
    lines.fd = eventfd(0, EFD_NONBLOCK);
    device_state.fd = eventfd(0, EFD_NONBLOCK);
    MUST(ipu_pump_create(&config, &world.pump) == 0);
    set_neighbours();
}

void world_close(void)
{
    for (uint32_t i = 0; i < lines.regions; i++)
        ASAN_UNPOISON_MEMORY_REGION(lines.region[i].base, lines.region[i].len);
    ipu_pump_destroy(world.pump);
    close(lines.fd);
    close(device_state.fd);
}

void world_step(void)
{
    uint32_t len;
    for (int i = 0; i < ROUNDS_MAX && ipu_pump_step(world.pump, 64) > 0; i++)
        while (ipu_ring_peek(ipu_pump_events(world.pump), &len) != NULL)
            ipu_ring_release(ipu_pump_events(world.pump));
    while (ipu_ring_peek(ipu_pump_captured(world.pump), &len) != NULL)
        ipu_ring_release(ipu_pump_captured(world.pump));
}

static uint32_t posted(const struct posts *posts)
{
    return posts->tail - posts->head + posts->arrived_tail - posts->arrived_head;
}

bool world_is_whole(void)
{
    const struct ipu_pump *pump = world.pump;
    uint32_t held = pump->held.index != IPU_SLAB_NONE || pump->cut.segment.left > 0;
    return pump->tx.free_frames + held == pump->tx.frames &&
           (held || pump->heads.free_frames == pump->heads.frames) &&
           (held || pump->uncut_packets == 0) &&
           pump->idle_rx.count + posted(&lines.datagrams) == pump->rx.frames &&
           pump->connected.idle_count + posted(&lines.messages) == pump->connected.rx.frames;
}

void world_command(const struct ipu_command *command, const void *data, uint32_t len)
{
    struct ipu_command *record =
        ipu_ring_reserve(ipu_pump_commands(world.pump), (uint32_t)sizeof *record + len);
    if (record == NULL)
        return;
    *record = *command;
    if (len > 0)
        memcpy(record + 1, data, len);
    ipu_ring_commit(ipu_pump_commands(world.pump), (uint32_t)sizeof *record + len);
    world_step();
}

/* Poisons the memory behind the bytes of a message: the pump may not read it. */
static void arrive(struct posts *posts, const uint8_t *bytes, size_t len, struct arrival arrival)
{
    if (posts->head == posts->tail)
        return;
    struct ipu_recv recv = posts->recv[posts->head++ % DEPTH];
    arrival.cookie = recv.cookie;
    arrival.len = (uint32_t)(len < recv.len ? len : recv.len);
    if (arrival.len > 0)
        memcpy(recv.addr, bytes, arrival.len);
    ASAN_POISON_MEMORY_REGION((uint8_t *)recv.addr + arrival.len, recv.len - arrival.len);
    posts->arrived[posts->arrived_tail++ % DEPTH] = arrival;
}

void world_datagram(const uint8_t *bytes, size_t len, uint32_t flags, uint32_t src_qpn,
                    uint32_t qpn)
{
    arrive(&lines.datagrams, bytes, len,
           (struct arrival){.flags = flags, .src_qpn = src_qpn, .qpn = qpn});
}

void world_message(uint32_t which, const uint8_t *bytes, size_t len)
{
    struct ipu_connection *connection = world_connection(which);
    arrive(&lines.messages, bytes, len,
           (struct arrival){.connection = connection, .flags = which / 128});
}

void world_frame(const uint8_t *bytes, size_t len)
{
    if (len > 0)
        memcpy(device_state.frame, bytes, len);
    device_state.len = len;
}
