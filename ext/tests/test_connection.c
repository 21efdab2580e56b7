/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected mode in the pump: on a fabric whose connections lead back to itself, stepped by hand.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/eventfd.h>

#include "check.h"
#include "fake_fabric.h"
#include "core/frame.h"
#include "device/queue.h"
#include "device/vnet.h"
#include "pump/pump.h"
#include "pump/pump_abi.h"

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
} fabric_state;

static struct {
    uint8_t frame[IPU_VNET_LEN + IPU_VNET_PACKET_MAX]; /* to be read */
    size_t len;
    uint8_t out[IPU_VNET_LEN + IPU_VNET_PACKET_MAX]; /* written last */
    size_t out_len;
    int writes;
} device_state;

static int fabric_fd, device_fd;

static int fake_send(void *self, const struct ipu_send *sends, int n)
{
    (void)self;
    for (int i = 0; i < n; i++)
        fabric_state.ud_cookies[fabric_state.ud_sent++] = sends[i].cookie;
    fabric_state.last = sends[n - 1];
    fabric_state.datagrams += n;
    return n;
}

static int fake_sent(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = fabric_state.ud_sent < max ? fabric_state.ud_sent : max;
    for (int i = 0; i < n; i++)
        cookies[i] = fabric_state.ud_cookies[--fabric_state.ud_sent];
    return n;
}

static int fake_arm(void *self)
{
    (void)self;
    return 0;
}

static int fake_fd(void *self)
{
    (void)self;
    return fabric_fd;
}

static const struct ipu_fabric_ops fake_ops = {
    .memory = fake_memory,
    .ah_create = fake_ah_create,
    .ah_destroy = fake_ah_destroy,
    .send = fake_send,
    .post = fake_post,
    .sent = fake_sent,
    .received = fake_received,
    .arm = fake_arm,
    .fd = fake_fd,
};

static int loop_add(void *self, struct ipu_connection *connection)
{
    (void)self;
    fabric_state.known = connection;
    return 0;
}

static void loop_remove(void *self, struct ipu_connection *connection)
{
    (void)self;
    CHECK(fabric_state.known == connection);
    CHECK_EQ(connection->sending, 0);
    fabric_state.known = NULL;
}

/* Puts the message into the next shared receive; without one the message is lost. */
static void arrive(const void *head, uint32_t head_len, const void *data, uint32_t len)
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

static int loop_send(void *self, struct ipu_connection *connection, const struct ipu_send *sends,
                     int n)
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

static int loop_post(void *self, const struct ipu_recv *recvs, int n)
{
    (void)self;
    for (int i = 0; i < n; i++)
        fabric_state.posted[fabric_state.posted_count++] = recvs[i];
    return n;
}

static int loop_sent(void *self, struct ipu_connection_sent *sent, int max)
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

static int loop_received(void *self, struct ipu_connection_received *done, int max)
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

static ssize_t device_read(void *self, void *buf, size_t cap)
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

static int device_write(void *self, const void *buf, size_t len)
{
    (void)self;
    CHECK(len <= sizeof device_state.out);
    memcpy(device_state.out, buf, len);
    device_state.out_len = len;
    device_state.writes++;
    return 0;
}

static int device_writev(void *self, const struct iovec *iov, int n)
{
    size_t len = 0;
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    (void)self;
    CHECK(len <= sizeof device_state.out);
    device_state.writes++;
    return 0;
}

static int the_device_fd(void *self)
{
    (void)self;
    return device_fd;
}

static const struct ipu_device_ops device_ops = {
    .read = device_read, .write = device_write, .writev = device_writev, .fd = the_device_fd};

static struct ipu_fabric fabric = {
    .ops = &fake_ops, .connected = &loop_ops, .qpn = 0x48, .mtu = DATAGRAM_MTU + IPU_ENCAP_LEN};
static struct ipu_device device = {.ops = &device_ops, .offload = IPU_DEVICE_TCP | IPU_DEVICE_UDP};
static struct ipu_connection connection;
static struct ipu_pump *pump;

static const struct ipu_dest peer = {.qpn = 0x55, .gid = {{{0xfe, 0x80, [15] = 2}}}};

static void begin_with(struct ipu_device *packets, uint32_t tx_frames)
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
    fabric_fd = eventfd(0, EFD_NONBLOCK);
    device_fd = eventfd(0, EFD_NONBLOCK);
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
}

static void begin(void)
{
    begin_with(&device, TX_FRAMES);
}

static void end(void)
{
    ipu_pump_destroy(pump);
    close(fabric_fd);
    close(device_fd);
}

static void step(void)
{
    while (ipu_pump_step(pump, 64) > 0)
        continue;
}

static void command(struct ipu_command given)
{
    struct ipu_command *record = ipu_ring_reserve(ipu_pump_commands(pump), sizeof *record);
    CHECK(record != NULL);
    *record = given;
    ipu_ring_commit(ipu_pump_commands(pump), sizeof *record);
    step();
}

/* Returns the type of the next event, and its token in *token; 0: none. */
static uint32_t next_event(uint64_t *token)
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

static uint64_t counter(const char *name)
{
    uint64_t values[IPU_COUNTERS_N];
    ipu_counters_read(ipu_pump_counters(pump), values);
    for (int i = 0; i < IPU_COUNTERS_N; i++)
        if (strcmp(ipu_counters_names[i], name) == 0)
            return values[i];
    CHECK(!"a counter of that name");
    return 0;
}

static struct in6_addr hop(void)
{
    struct in6_addr address = {{{[10] = 0xff, [11] = 0xff, 10, 0, 0, 2}}};
    return address;
}

static void neighbour(void)
{
    command(
        (struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                             .neigh_set = {.next_hop = hop(), .dest = peer, .mtu = DATAGRAM_MTU}});
}

static void route(enum ipu_tx_mode mode)
{
    command((struct ipu_command){.type = IPU_COMMAND_TX_MODE_SET,
                                 .tx_mode_set = {.dest = peer,
                                                 .mode = mode,
                                                 .id = ID,
                                                 .mtu = CONNECTED_MTU,
                                                 .superframe_bytes = SUPERFRAME}});
}

static void connect_peer(bool superframes)
{
    neighbour();
    command((struct ipu_command){
        .type = IPU_COMMAND_CONNECTION_ADD,
        .connection_add = {.id = ID, .native = &connection, .superframes = superframes}});
    route(IPU_TX_RC);
}

/* Puts an IPv4 packet of `len` bytes to 10.0.0.2 into the device; nobody looks into its
 * protocol. */
static void offer(uint32_t len)
{
    uint8_t *ip = device_state.frame + IPU_VNET_LEN;
    memset(device_state.frame, 0, IPU_VNET_LEN + len);
    ip[0] = 0x45, ip[2] = (uint8_t)(len >> 8), ip[3] = (uint8_t)len;
    ip[8] = 64, ip[9] = 253, ip[12] = 10, ip[15] = 1, ip[16] = 10, ip[19] = 2;
    memset(ip + 20, 0xa5, len - 20);
    device_state.len = IPU_VNET_LEN + len;
}

/* Puts such a packet in as a TCP super-frame, with segments of `size` bytes. */
static void offer_super(uint32_t len, uint16_t size)
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

static void a_watched_handle_reports_its_first_packet_only(void)
{
    uint64_t token;
    begin();
    neighbour();
    route(IPU_TX_UD_NOTIFY);
    for (int i = 0; i < 3; i++) {
        offer(100);
        step();
    }
    CHECK_EQ(fabric_state.datagrams, 3);
    CHECK_EQ(next_event(&token), IPU_EVENT_RC_WANTED);
    CHECK_EQ(next_event(&token), 0);
    end();
}

static void large_packets_cross_by_the_connection_and_are_delivered(void)
{
    begin();
    connect_peer(false);
    offer(CONNECTED_MTU);
    step();
    CHECK_EQ(fabric_state.datagrams, 0);
    CHECK_EQ(counter("tx_connected_packets"), 1);
    CHECK_EQ(device_state.out_len, IPU_VNET_LEN + CONNECTED_MTU);
    CHECK(memcmp(device_state.out, device_state.frame, device_state.out_len) == 0);
    CHECK_EQ(connection.tx_messages, 1);
    CHECK_EQ(connection.rx_bytes, CONNECTED_MTU);
    end();
}

static void without_a_connection_the_datagram_s_mtu_holds(void)
{
    uint64_t token;
    begin();
    connect_peer(false);
    route(IPU_TX_UD);
    offer(DATAGRAM_MTU + 1);
    step();
    CHECK_EQ(counter("tx_too_big"), 1);
    CHECK_EQ(next_event(&token), IPU_EVENT_TOO_BIG);
    offer(DATAGRAM_MTU);
    step();
    CHECK_EQ(fabric_state.datagrams, 1);
    end();
}

static void a_super_frame_crosses_whole_where_both_agree(void)
{
    begin();
    connect_peer(true);
    offer_super(60000, 1400);
    step();
    CHECK_EQ(counter("tx_connected_packets"), 1);
    CHECK_EQ(counter("rx_superframes"), 1);
    CHECK_EQ(device_state.out_len, IPU_VNET_LEN + 60000);
    CHECK_EQ(ipu_vnet_read(device_state.out).gso_size, 1400);
    CHECK_EQ(ipu_vnet_read(device_state.out).hdr_len, 40);
    CHECK(memcmp(device_state.out + IPU_VNET_LEN, device_state.frame + IPU_VNET_LEN, 60000) == 0);
    end();
}

/* A router forwards such packets: its adapter has verified the checksum, and its kernel says so. */
static void a_packet_whose_checksum_was_seen_to_be_right_crosses(void)
{
    begin();
    connect_peer(true);
    offer(1000);
    ipu_vnet_write(device_state.frame,
                   (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_DATA_VALID});
    step();
    CHECK_EQ(counter("tx_connected_packets"), 1);
    CHECK_EQ(counter("rx_bad_superframe"), 0);
    CHECK_EQ(counter("rx_packets"), 1);
    CHECK_EQ(device_state.out_len, IPU_VNET_LEN + 1000);
    CHECK_EQ(ipu_vnet_read(device_state.out).flags, 0);
    CHECK(memcmp(device_state.out + IPU_VNET_LEN, device_state.frame + IPU_VNET_LEN, 1000) == 0);
    end();
}

static void a_super_frame_is_cut_where_they_do_not(void)
{
    begin();
    connect_peer(false);
    offer_super(4040, 1000);
    step();
    CHECK_EQ(counter("tx_connected_packets"), 4);
    CHECK_EQ(counter("rx_connected_messages"), 4);
    CHECK_EQ(counter("rx_superframes"), 0);
    end();
}

/* As many packets as one message may become, and one more; as small as they may be, and smaller. */
static void a_peer_gets_so_many_segments_for_a_message_and_no_more(void)
{
    static const struct {
        uint16_t size;
        uint32_t segments;
        bool crosses;
    } cases[] = {{500, 128, true}, {500, 129, false}, {48, 128, true},
                 {47, 2, false},   {1, 1, true},      {1, 20000, false}};
    static uint8_t message[SUPERFRAME];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t packets = cases[i].segments;
        begin();
        connect_peer(true);
        offer_super(40 + packets * cases[i].size, cases[i].size);
        size_t len = device_state.len;
        memcpy(message, device_state.frame, len);
        message[IPU_TX_ENCAP] = 0x08, message[IPU_TX_ENCAP + 1] = 0;
        step(); /* our own pump cuts what a peer would drop */
        CHECK_EQ(counter("rx_superframes"), cases[i].crosses ? 1 : 0);
        CHECK_EQ(counter("rx_too_many_segments"), 0);
        CHECK_EQ(counter("tx_connected_packets"), cases[i].crosses ? 1 : packets);
        uint64_t before = counter("rx_packets");
        arrive(NULL, 0, message, (uint32_t)len);
        step();
        CHECK_EQ(counter("rx_packets") - before, cases[i].crosses ? packets : 0);
        CHECK_EQ(counter("rx_too_many_segments"), cases[i].crosses ? 0 : 1);
        end();
    }
}

static void a_broken_connection_is_reported_once_and_datagrams_go_on(void)
{
    uint64_t token;
    begin();
    connect_peer(false);
    fabric_state.refuses = true;
    for (int i = 0; i < 3; i++) {
        offer(100);
        step();
    }
    CHECK_EQ(counter("tx_connection_failed"), 1);
    CHECK_EQ(fabric_state.datagrams, 2);
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTION_BROKEN);
    CHECK_EQ(token, ID);
    CHECK_EQ(next_event(&token), 0);
    end();
}

static void a_connection_is_let_go_when_its_sends_have_ended(void)
{
    uint64_t token;
    begin();
    connect_peer(false);
    fabric_state.holds = true;
    offer(100);
    step();
    command((struct ipu_command){.type = IPU_COMMAND_CONNECTION_DEL, .connection_del.id = ID});
    CHECK_EQ(next_event(&token), 0);
    fabric_state.holds = false;
    step();
    step();
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTION_GONE);
    CHECK_EQ(token, ID);
    CHECK(fabric_state.known == NULL);
    command((struct ipu_command){.type = IPU_COMMAND_CONNECTION_DEL, .connection_del.id = ID + 1});
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTION_GONE); /* the pump never knew it */
    end();
}

/* Shows a sign of life now, however slow this machine is. */
static void moves(void)
{
    connection.patience_ns = UINT64_MAX / 2;
}

static void stands_still(void)
{
    connection.patience_ns = 0;
}

static void fill_connection(void)
{
    begin();
    connect_peer(false);
    fabric_state.holds = true;
    for (int i = 0; i < 64; i++) {
        offer(100);
        step();
    }
    CHECK_EQ(counter("tx_connected_packets"), 64);
}

static void a_peer_that_does_not_answer_holds_so_many_frames_and_no_more(void)
{
    fill_connection();
    stands_still();
    for (int i = 0; i < 36; i++) {
        offer(100);
        step();
    }
    CHECK_EQ(counter("tx_connected_packets"), 64);
    CHECK_EQ(counter("tx_connection_full"), 36);
    end();
}

static void a_full_connection_that_moves_is_waited_for_and_nothing_is_lost(void)
{
    fill_connection();
    moves();
    offer(200);
    step();
    CHECK_EQ(device_state.len, 0);
    offer(300);
    step();
    CHECK(device_state.len > 0); /* the pump has not read it: it stays in the device */
    CHECK_EQ(counter("tx_connected_packets"), 64);
    fabric_state.holds = false;
    step();
    step();
    CHECK_EQ(device_state.len, 0);
    CHECK_EQ(counter("tx_connected_packets"), 66);
    CHECK_EQ(counter("tx_connection_full"), 0);
    end();
}

static void a_packet_that_waits_goes_where_it_should_go_by_then(void)
{
    fill_connection();
    moves();
    offer(200);
    step();
    int datagrams = fabric_state.datagrams;
    route(IPU_TX_UD);
    CHECK_EQ(fabric_state.datagrams, datagrams + 1);
    CHECK_EQ(fabric_state.last.len, 4 + 200);
    CHECK_EQ(counter("tx_connection_full"), 0);
    end();
}

/* A wait of 20 ms uses up all patience; a full window of long messages restores it. */
static void waiting_uses_up_the_patience_that_ended_messages_restore(void)
{
    enum { PATIENCE_NS = 20000000, MESSAGE_NS = 4096 * (PATIENCE_NS / (1 << 20)) };
    fill_connection();
    CHECK_EQ(connection.patience_ns, PATIENCE_NS);
    offer(200);
    step();
    CHECK_EQ(device_state.len, 0);
    usleep(2000);
    step();
    CHECK(connection.patience_ns <= PATIENCE_NS - 2000000);
    usleep(PATIENCE_NS / 1000);
    step();
    CHECK_EQ(connection.patience_ns, 0);
    CHECK_EQ(counter("tx_connection_full"), 1);
    fabric_state.holds = false;
    step();
    CHECK_EQ(connection.patience_ns, 64 * MESSAGE_NS);
    for (int i = 0; i < 17; i++) {
        offer(60000);
        step();
    }
    CHECK(connection.patience_ns > PATIENCE_NS * 9 / 10);
    end();
}

static void a_peer_that_does_not_answer_leaves_frames_to_the_others(void)
{
    begin_with(&device, FEW_FRAMES);
    connect_peer(false);
    fabric_state.holds = true;
    stands_still();
    for (int i = 0; i < 3 * FEW_FRAMES; i++) {
        offer(100);
        step();
        CHECK_EQ(device_state.len, 0);
    }
    CHECK(counter("tx_connected_packets") <= FEW_FRAMES / 2);
    route(IPU_TX_UD);
    for (int i = 0; i < FEW_FRAMES; i++) {
        offer(100);
        step();
    }
    CHECK_EQ(fabric_state.datagrams, FEW_FRAMES);
    end();
}

/* 1 MiB is reached by the eighteenth. */
static void long_messages_under_way_are_bounded_by_their_bytes(void)
{
    begin();
    connect_peer(false);
    fabric_state.holds = true;
    for (int i = 0; i < 24; i++) {
        offer(60000);
        step();
        moves();
    }
    CHECK_EQ(counter("tx_connected_packets"), 18);
    CHECK_EQ(connection.sending_bytes, 18 * 60004);
    fabric_state.holds = false;
    step();
    step();
    CHECK_EQ(connection.sending_bytes, 0);
    CHECK_EQ(counter("tx_connection_full"), 0);
    end();
}

/* 36 of 100 segments too many: one message and 63 of them are under way. */
static void fill_with_segments(void)
{
    uint64_t before = counter("tx_connected_packets");
    fabric_state.holds = true;
    offer(100);
    step();
    moves();
    offer_super(40 + 99 * 10, 10);
    step();
    CHECK_EQ(counter("tx_connected_packets"), before + 64);
    CHECK_EQ(counter("tx_connection_full"), 0);
}

static void the_rest_of_a_super_frame_waits_too_and_is_lost_with_patience(void)
{
    begin();
    connect_peer(false);
    fill_with_segments();
    fabric_state.holds = false;
    step();
    CHECK_EQ(counter("tx_connected_packets"), 100);
    fill_with_segments();
    stands_still();
    step();
    CHECK_EQ(counter("tx_connected_packets"), 164);
    CHECK_EQ(counter("tx_connection_full"), 36);
    end();
}

static void whatever_a_peer_sends_ends_in_a_counter(void)
{
    enum { MESSAGES = 20000 };
    static uint8_t message[SUPERFRAME];
    uint32_t random = 1;
    for (int superframes = 0; superframes <= 1; superframes++) {
        begin();
        connect_peer(superframes);
        for (int i = 0; i < MESSAGES; i++) {
            uint32_t len = 0;
            random = random * 1103515245u + 12345u;
            if (random & 0x10000) { /* a good one, with something spoiled */
                offer_super(40 + (random >> 17) % 3000, 500);
                len = (uint32_t)device_state.len;
                device_state.len = 0;
                memcpy(message, device_state.frame, len);
                message[IPU_TX_ENCAP] = 0x08, message[IPU_TX_ENCAP + 1] = 0;
                message[random % 60 % len] ^= (uint8_t)(random >> 8);
            } else {
                len = (random >> 17) % 200;
                for (uint32_t j = 0; j < len; j++)
                    message[j] = (uint8_t)(random >> (j % 24));
            }
            arrive(NULL, 0, message, len);
            step();
        }
        uint64_t counted = counter("rx_packets") + counter("rx_short") +
                           counter("rx_bad_superframe") + counter("rx_too_many_segments") +
                           counter("rx_type") + counter("rx_malformed") + counter("rx_control") +
                           counter("rx_event_ring_full");
        CHECK(counted >= MESSAGES); /* a super-frame counts as its packets */
        end();
    }
}

/* C9 */
static void arp_by_a_connection_is_not_taken(void)
{
    uint64_t token;
    begin();
    connect_peer(false);
    uint8_t message[4 + 56] = {0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 2};
    arrive(NULL, 0, message, sizeof message);
    step();
    CHECK_EQ(counter("rx_type"), 1);
    CHECK_EQ(next_event(&token), 0);
    end();
}

static void arrive_numbered(uint8_t number, bool superframes)
{
    uint8_t message[IPU_VNET_LEN + 1000] = {
        0}; /* the pad of a vnet header is where the encapsulation is */
    uint8_t *ip = message + IPU_VNET_LEN;
    memcpy(message + IPU_TX_ENCAP, (uint8_t[]){0x08, 0x00, 0, 0}, IPU_ENCAP_LEN);
    memcpy(ip, (uint8_t[]){0x45, 0, 1000 >> 8, 1000 & 255, 0, 0, 0, 0, 64, 253}, 10);
    ip[999] = number;
    uint32_t skip = superframes ? 0 : IPU_TX_ENCAP;
    arrive(NULL, 0, message + skip, sizeof message - skip);
}

/* The fabric never runs out of receives, and it uses the held frames again. */
static void an_application_reads_what_came_where_it_is(void)
{
    for (int superframes = 0; superframes <= 1; superframes++) {
        struct ipu_queue queue;
        uint32_t index[FRAMES], len;
        CHECK_EQ(ipu_queue_init(&queue, 1 << 16, 1 << 16), 0);
        begin_with(&queue.device, 0);
        connect_peer(superframes);
        for (int round = 0; round < 3; round++) {
            for (uint8_t n = 0; n < FRAMES; n++) {
                arrive_numbered(n, superframes);
                step();
                const uint8_t *packet = ipu_queue_peek(&queue, &index[n], &len);
                CHECK(packet != NULL);
                CHECK_EQ(len, 1000);
                CHECK_EQ(packet[0], 0x45);
                CHECK_EQ(packet[999], n);
                CHECK_EQ(index[n] == IPU_INDEX_NONE, n >= FRAMES / 2);
                CHECK(n >= FRAMES / 2 || index[n] >= DATAGRAM_FRAMES);
                ipu_ring_release(&queue.from_pump);
            }
            CHECK_EQ(queue.loan->connected.held, FRAMES / 2);
            for (int n = 0; n < FRAMES / 2; n++)
                ipu_index_ring_push(&queue.loan->returned, index[n]);
            step();
            CHECK_EQ(queue.loan->connected.held, 0);
        }
        CHECK_EQ(counter("rx_packets"), 3 * FRAMES);
        CHECK_EQ(counter("rx_copied"), 3 * FRAMES / 2);
        end();
        ipu_queue_free(&queue);
    }
}

int main(void)
{
    RUN(an_application_reads_what_came_where_it_is);
    RUN(a_watched_handle_reports_its_first_packet_only);
    RUN(large_packets_cross_by_the_connection_and_are_delivered);
    RUN(without_a_connection_the_datagram_s_mtu_holds);
    RUN(a_super_frame_crosses_whole_where_both_agree);
    RUN(a_packet_whose_checksum_was_seen_to_be_right_crosses);
    RUN(a_super_frame_is_cut_where_they_do_not);
    RUN(a_peer_gets_so_many_segments_for_a_message_and_no_more);
    RUN(a_broken_connection_is_reported_once_and_datagrams_go_on);
    RUN(a_connection_is_let_go_when_its_sends_have_ended);
    RUN(a_peer_that_does_not_answer_holds_so_many_frames_and_no_more);
    RUN(a_full_connection_that_moves_is_waited_for_and_nothing_is_lost);
    RUN(waiting_uses_up_the_patience_that_ended_messages_restore);
    RUN(a_peer_that_does_not_answer_leaves_frames_to_the_others);
    RUN(long_messages_under_way_are_bounded_by_their_bytes);
    RUN(a_packet_that_waits_goes_where_it_should_go_by_then);
    RUN(the_rest_of_a_super_frame_waits_too_and_is_lost_with_patience);
    RUN(arp_by_a_connection_is_not_taken);
    RUN(whatever_a_peer_sends_ends_in_a_counter);
    return 0;
}
