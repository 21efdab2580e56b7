/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine's commands beside a device that always has another frame, on fabrics that take all,
 * some or none of the sends: the pump is stepped by hand. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>

#include "fake_fabric.h"
#include "stepped_pump.h"
#include "core/csum.h"
#include "core/frame.h"
#include "device/vnet.h"

enum {
    MTU = 2044,
    ROUND = 256,
    SEGMENT = 1400,
    HEADERS = 28, /* IPv4 and UDP */
    SEGMENTS_MAX = 44,
    TOKEN = 4711,
    ALL = 1 << 20,
    QUEUE = 4096,
};

static struct {
    int takes; /* of each call of send */
    int ends;  /* of each call of sent; the others stay under way */
    uint64_t cookies[QUEUE];
    int under_way;
    int frames; /* of the engine, among those taken */
    int handles;
} fabric_state;

static struct {
    int segments;  /* of each frame; 1: no super-frame */
    int reads;     /* frames read since the step began */
    int sync_at;   /* the read during which the engine asks for a SYNC; 0: none */
    int read_us;   /* how long a read takes */
    bool is_empty; /* has no frame any more */
} device_state;

static const struct ipu_dest peer = {.qpn = 0x55, .gid = {{{0xfe, 0x80, [15] = 2}}}};
static const struct ipu_dest other = {.qpn = 0x56, .gid = {{{0xfe, 0x80, [15] = 3}}}};
static const uint8_t frame_of_engine[60] = {0x08, 0x06, 0, 0, 0xaa};

/* ---- a fabric that takes as much as the test says */

static void *count_ah_create(void *self, const struct ipu_dest *dest)
{
    fabric_state.handles++;
    return fake_ah_create(self, dest);
}

static void count_ah_destroy(void *self, void *ah)
{
    fabric_state.handles--;
    fake_ah_destroy(self, ah);
}

static int some_send(void *self, const struct ipu_send *sends, int n)
{
    (void)self;
    int taken = n < fabric_state.takes ? n : fabric_state.takes;
    for (int i = 0; i < taken; i++) {
        *(volatile char *)sends[i].ah = 1; /* under AddressSanitizer: it is still there */
        fabric_state.frames += memcmp(sends[i].addr, frame_of_engine, 5) == 0;
        fabric_state.cookies[fabric_state.under_way++] = sends[i].cookie;
        CHECK(fabric_state.under_way < QUEUE);
    }
    return taken;
}

static int some_sent(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = max < fabric_state.ends ? max : fabric_state.ends;
    n = n < fabric_state.under_way ? n : fabric_state.under_way;
    for (int i = 0; i < n; i++)
        cookies[i] = fabric_state.cookies[--fabric_state.under_way];
    return n;
}

static const struct ipu_fabric_ops fabric_ops = {
    .memory = fake_memory,
    .ah_create = count_ah_create,
    .ah_destroy = count_ah_destroy,
    .send = some_send,
    .post = fake_post,
    .sent = some_sent,
    .received = fake_received,
    .arm = fake_arm_none,
    .fd = the_fabric_fd,
};

/* ---- the engine */

static void give_sync(void)
{
    give((struct ipu_command){.type = IPU_COMMAND_SYNC, .sync.token = TOKEN}, NULL);
}

static void give_frame(void)
{
    give((struct ipu_command){.type = IPU_COMMAND_SEND_FRAME,
                              .len = sizeof frame_of_engine,
                              .send_frame.dest = other},
         frame_of_engine);
}

static struct in6_addr hop(void)
{
    struct in6_addr address = {{{[10] = 0xff, [11] = 0xff, 10, 0, 0, 2}}};
    return address;
}

static bool is_answered(void)
{
    uint32_t len;
    bool answered = false;
    const struct ipu_event *event;
    while ((event = ipu_ring_peek(ipu_pump_events(pump), &len)) != NULL) {
        answered |= event->type == IPU_EVENT_SYNC && event->sync.token == TOKEN;
        ipu_ring_release(ipu_pump_events(pump));
    }
    return answered;
}

/* ---- a device that always has a frame */

static void write_packet(uint8_t *frame, size_t payload)
{
    uint8_t *ip = frame + IPU_VNET_LEN;
    size_t udp_len = sizeof(struct udphdr) + payload, len = 20 + udp_len;
    memset(frame, 0, IPU_VNET_LEN + HEADERS);
    memcpy(ip, (uint8_t[]){0x45, 0, (uint8_t)(len >> 8), (uint8_t)len}, 4);
    memcpy(ip + 8, (uint8_t[]){64, IPPROTO_UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 12);
    memcpy(ip + 24, (uint8_t[]){(uint8_t)(udp_len >> 8), (uint8_t)udp_len}, 2);
    if (device_state.segments > 1)
        ipu_vnet_write(frame, (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                                      .gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
                                                      .gso_size = SEGMENT,
                                                      .csum_start = 20,
                                                      .csum_offset = 6});
}

static ssize_t device_read(void *self, void *buf, size_t cap)
{
    (void)self;
    size_t payload = (size_t)device_state.segments * SEGMENT;
    if (device_state.is_empty)
        return -EAGAIN;
    CHECK(IPU_VNET_LEN + HEADERS + payload <= cap);
    if (++device_state.reads == device_state.sync_at)
        give_sync();
    if (device_state.read_us > 0)
        usleep((useconds_t)device_state.read_us);
    write_packet(buf, payload);
    return (ssize_t)(IPU_VNET_LEN + HEADERS + payload);
}

static const struct ipu_device_ops device_ops = {
    .read = device_read, .write = write_to_nobody, .fd = the_device_fd};

/* ---- */

static struct ipu_fabric fabric = {.ops = &fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};
static struct ipu_device device = {.ops = &device_ops, .offload = IPU_DEVICE_TCP | IPU_DEVICE_UDP};

static int step(void)
{
    device_state.reads = 0;
    return ipu_pump_step(pump, ROUND);
}

/* A pump with one neighbour, whose device is saturated from now on. */
static void begin(int segments, uint32_t ah_max)
{
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = &device,
        .mtu = MTU,
        .rx_frames = 8,
        .neigh_max = 16,
        .route_max = 16,
        .ah_max = ah_max,
        .command_bytes = 1 << 17,
        .event_bytes = 1 << 17,
        .capture_bytes = 1 << 12,
    };
    memset(&fabric_state, 0, sizeof fabric_state);
    memset(&device_state, 0, sizeof device_state);
    fabric_state.takes = fabric_state.ends = ALL;
    device_state.segments = segments;
    open_descriptors();
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    give((struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                              .neigh_set = {.next_hop = hop(), .dest = peer, .mtu = MTU}},
         NULL);
    CHECK(step() > 0);
    CHECK(device_state.reads > 0);
}

static void end(void)
{
    destroy_pump();
    CHECK_EQ(fabric_state.handles, 0);
}

static void a_command_runs_in_the_next_round_however_many_segments(void)
{
    static const int takes[] = {ALL, 64, 13, 1, 0};
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++)
        for (int segments = 1; segments <= SEGMENTS_MAX; segments++) {
            begin(segments, 16);
            fabric_state.takes = takes[i];
            fabric_state.ends = takes[i];
            step();
            for (int round = 0; round < 5; round++) {
                give_sync();
                step();
                CHECK(is_answered());
            }
            end();
        }
}

static void a_new_neighbour_is_asked_for_and_resolved_beside_a_flood(void)
{
    begin(SEGMENTS_MAX, 16);
    fabric_state.takes = fabric_state.ends = 20;
    for (int round = 0; round < 20; round++)
        step();
    give_frame();
    for (int round = 0; round < 10 && fabric_state.frames == 0; round++)
        step();
    CHECK_EQ(fabric_state.frames, 1);
    CHECK_EQ(counter("commands_bad"), 0);
    end();
}

static void frames_of_the_engine_have_room_where_the_device_finds_none(void)
{
    begin(1, 16);
    fabric_state.takes = 0;
    for (int round = 0; round < 20; round++)
        step();
    for (int i = 0; i < 17; i++)
        give_frame();
    step();
    CHECK_EQ(counter("commands"), 1 + 17);
    uint64_t refused = counter("commands_bad");
    CHECK(refused >= 1 && refused <= 13); /* 16 have room in the batch; a few have a frame */
    fabric_state.takes = ALL;
    step();
    step();
    CHECK_EQ((uint64_t)fabric_state.frames, 17 - refused);
    end();
}

static void commands_leave_what_the_batch_names(void)
{
    for (int segments = 1; segments <= SEGMENTS_MAX; segments++) {
        begin(segments, 1); /* no handle may stay idle, and another one needs the room */
        fabric_state.takes = 0;
        step();
        give((struct ipu_command){.type = IPU_COMMAND_NEIGH_DEL, .neigh_del.next_hop = hop()},
             NULL);
        give_frame();
        step();
        CHECK_EQ(fabric_state.handles, 1);
        CHECK_EQ(counter("commands_bad"), 1);
        fabric_state.takes = ALL;
        device_state.is_empty = true;
        while (step() > 0)
            continue;
        give_frame();
        step();
        CHECK_EQ(fabric_state.frames, 1);
        CHECK_EQ(fabric_state.handles, 0);
        end();
    }
}

/* A round of 256 slow reads would take 26 ms. */
static void a_command_ends_a_round_that_is_slow(void)
{
    static const int segments[] = {1, SEGMENTS_MAX};
    for (int i = 0; i < 2; i++) {
        begin(segments[i], 16);
        device_state.sync_at = 2;
        device_state.read_us = 100;
        step();
        CHECK(device_state.reads < 8);
        device_state.sync_at = 0;
        step();
        CHECK(is_answered());
        end();
    }
}

static void a_flood_of_commands_leaves_the_device_its_turn(void)
{
    begin(1, 16);
    for (int i = 0; i < 500; i++)
        give_sync();
    device_state.read_us = 300;
    for (int round = 0; round < 5; round++) {
        step();
        CHECK(device_state.reads > 0);
    }
    end();
}

int main(void)
{
    RUN(a_command_runs_in_the_next_round_however_many_segments);
    RUN(a_new_neighbour_is_asked_for_and_resolved_beside_a_flood);
    RUN(frames_of_the_engine_have_room_where_the_device_finds_none);
    RUN(commands_leave_what_the_batch_names);
    RUN(a_command_ends_a_round_that_is_slow);
    RUN(a_flood_of_commands_leaves_the_device_its_turn);
    return 0;
}
