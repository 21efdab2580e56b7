/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected mode in the pump: messages, super-frames, and the end of a connection. */
#include "connected_world.h"
#include "device/queue.h"

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

/* C12. */
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

static void one_frame_holds_all_messages_that_come_one_by_one(void)
{
    begin();
    connect_peer(false);
    int posted = fabric_state.posted_count;
    const void *first = fabric_state.posted[posted - 1].addr;
    for (int i = 0; i < 3; i++) {
        offer(CONNECTED_MTU);
        step();
        CHECK_EQ(counter("rx_connected_messages"), i + 1);
        CHECK_EQ(fabric_state.posted_count, posted);
        CHECK(fabric_state.posted[posted - 1].addr == first);
    }
    end();
}

/* C2. */
static void a_group_gets_datagrams_beside_a_connection(void)
{
    static const struct ipu_dest group = {.qpn = 0xFFFFFF, .gid = {{{0xff, 0x12, [15] = 5}}}};
    struct in6_addr address = {{{[10] = 0xff, [11] = 0xff, 224, 0, 0, 5}}};
    begin();
    connect_peer(false);
    command((struct ipu_command){
        .type = IPU_COMMAND_NEIGH_SET,
        .neigh_set = {.next_hop = address, .dest = group, .mtu = DATAGRAM_MTU}});
    offer(100);
    memcpy(device_state.frame + IPU_VNET_LEN + 16, &address.s6_addr[12], 4);
    step();
    CHECK_EQ(fabric_state.datagrams, 1);
    CHECK_EQ(counter("tx_connected_packets"), 0);
    end();
}

/* C2, N6: ARP, for example. */
static void a_frame_of_the_engine_is_a_datagram_beside_a_connection(void)
{
    static const uint8_t frame[4 + 56] = {0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 1};
    begin();
    connect_peer(false);
    give((struct ipu_command){.type = IPU_COMMAND_SEND_FRAME,
                              .send_frame = {.dest = peer},
                              .len = sizeof frame},
         frame);
    step();
    CHECK_EQ(fabric_state.datagrams, 1);
    CHECK_EQ(fabric_state.posted_count, FRAMES);
    end();
}

/* C8. */
static void a_message_is_delivered_to_a_host_that_answers_by_datagram(void)
{
    uint8_t message[IPU_ENCAP_LEN + 20] = {0x08, 0, [4] = 0x45, [7] = 20, 64, [13] = 253};
    begin();
    connect_peer(false);
    route(IPU_TX_UD);
    arrive(NULL, 0, message, sizeof message);
    step();
    CHECK_EQ(counter("rx_packets"), 1);
    CHECK_EQ(device_state.out_len, IPU_VNET_LEN + 20);
    offer(100);
    step();
    CHECK_EQ(fabric_state.datagrams, 1);
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

/* An ICMP error would keep the sender to short packets for ten minutes. */
static void what_is_too_long_for_a_datagram_gets_no_error_while_a_connection_is_made(void)
{
    uint64_t token;
    begin();
    connect_peer(false);
    route(IPU_TX_UD_NOTIFY);
    offer(DATAGRAM_MTU + 1);
    step();
    CHECK_EQ(next_event(&token), IPU_EVENT_RC_WANTED);
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTING);
    offer(DATAGRAM_MTU + 1);
    step();
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTING);
    offer(DATAGRAM_MTU);
    step();
    CHECK_EQ(fabric_state.datagrams, 1);
    route(IPU_TX_UD_CONNECTING);
    release_packet(DATAGRAM_MTU + 1); /* it has waited for the neighbour, and now waits again */
    step();
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTING);
    CHECK_EQ(next_event(&token), 0);
    CHECK_EQ(counter("tx_missed"), 3);
    CHECK_EQ(counter("tx_too_big") + counter("tx_connecting"), 0);
    for (int i = 0; i < 1000; i++) {
        offer(DATAGRAM_MTU + 1);
        step();
    }
    while (next_event(&token) == IPU_EVENT_CONNECTING)
        continue;
    CHECK(counter("tx_connecting") > 1000 - 3 * 100); /* 100 a second may wait */
    CHECK_EQ(counter("tx_missed") + counter("tx_connecting"), 1003);
    route(IPU_TX_RC);
    offer(CONNECTED_MTU);
    step();
    CHECK_EQ(counter("tx_connected_packets"), 1);
    route(IPU_TX_UD_CONNECTING);
    route(IPU_TX_UD); /* there is none */
    offer(DATAGRAM_MTU + 1);
    step();
    CHECK_EQ(counter("tx_too_big"), 1);
    CHECK_EQ(next_event(&token), IPU_EVENT_TOO_BIG);
    end();
}

static void a_connection_that_broke_or_leaves_causes_no_error_before_the_engine_has_decided(void)
{
    uint64_t token;
    begin();
    connect_peer(false);
    fabric_state.refuses = true;
    offer(CONNECTED_MTU);
    step();
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTION_BROKEN);
    offer(DATAGRAM_MTU + 1);
    step();
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTING);
    command((struct ipu_command){.type = IPU_COMMAND_CONNECTION_DEL, .connection_del.id = ID});
    offer(DATAGRAM_MTU + 1);
    step();
    CHECK_EQ(counter("tx_missed"), 2);
    CHECK_EQ(counter("tx_too_big"), 0);
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

/* The host sends the most packets of a message, and one more; the least ones, and smaller ones. */
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

/* C9. */
static void arp_by_a_connection_is_not_taken(void)
{
    uint64_t token;
    begin();
    connect_peer(false);
    uint8_t message[4 + 56] = {0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 2};
    arrive(NULL, 0, message, sizeof message);
    step();
    CHECK_EQ(counter("rx_type"), 1);
    CHECK_EQ(next_event(&token), IPU_EVENT_CONNECTION_DROPPED);
    CHECK_EQ(next_event(&token), 0);
    end();
}

/* Returns the encapsulation's type and the length of the next captured frame, which begins there.
 */
static uint32_t next_captured(uint32_t *ip_len)
{
    uint32_t len;
    const struct ipu_captured *record = ipu_ring_peek(ipu_pump_captured(pump), &len);
    CHECK(record != NULL);
    const uint8_t *encap = (const uint8_t *)(record + 1) + IPU_GRH_LEN;
    *ip_len = record->wire_len - IPU_GRH_LEN - IPU_ENCAP_LEN;
    uint32_t type = (uint32_t)encap[0] << 8 | encap[1];
    ipu_ring_release(ipu_pump_captured(pump));
    return type;
}

static void a_connection_is_added_once(void)
{
    begin();
    connect_peer(false);
    CHECK_EQ(counter("commands_bad"), 0);
    command((struct ipu_command){.type = IPU_COMMAND_CONNECTION_ADD,
                                 .connection_add = {.id = ID, .native = &connection}});
    CHECK_EQ(counter("commands_bad"), 1);
    offer(1500);
    step();
    CHECK_EQ(counter("tx_connected_packets"), 1);
    end();
}

static void a_capture_sees_both_ends_of_a_message_without_its_vnet_header(void)
{
    for (int superframes = 0; superframes <= 1; superframes++) {
        uint32_t len;
        begin();
        connect_peer(superframes);
        command((struct ipu_command){.type = IPU_COMMAND_CAPTURE, .capture.snap_len = 100});
        offer(1500);
        step();
        for (int side = 0; side < 2; side++) {
            CHECK_EQ(next_captured(&len), 0x0800);
            CHECK_EQ(len, 1500);
        }
        end();
    }
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
    RUN(one_frame_holds_all_messages_that_come_one_by_one);
    RUN(a_group_gets_datagrams_beside_a_connection);
    RUN(a_frame_of_the_engine_is_a_datagram_beside_a_connection);
    RUN(a_message_is_delivered_to_a_host_that_answers_by_datagram);
    RUN(without_a_connection_the_datagram_s_mtu_holds);
    RUN(what_is_too_long_for_a_datagram_gets_no_error_while_a_connection_is_made);
    RUN(a_connection_that_broke_or_leaves_causes_no_error_before_the_engine_has_decided);
    RUN(a_super_frame_crosses_whole_where_both_agree);
    RUN(a_packet_whose_checksum_was_seen_to_be_right_crosses);
    RUN(a_super_frame_is_cut_where_they_do_not);
    RUN(a_peer_gets_so_many_segments_for_a_message_and_no_more);
    RUN(a_broken_connection_is_reported_once_and_datagrams_go_on);
    RUN(a_connection_is_let_go_when_its_sends_have_ended);
    RUN(arp_by_a_connection_is_not_taken);
    RUN(a_connection_is_added_once);
    RUN(a_capture_sees_both_ends_of_a_message_without_its_vnet_header);
    RUN(whatever_a_peer_sends_ends_in_a_counter);
    return 0;
}
