/* SPDX-License-Identifier: BSD-2-Clause */
/* A full connection: how long the pump holds packets for it, and what it leaves to the others. */
#include "connected_world.h"

enum { FREE_LOOKS = 16 };

/* Shows a sign of life now, however slow this machine is. */
static void moves(void)
{
    connection.hold_left_ns = UINT64_MAX / 2;
}

static void stands_still(void)
{
    connection.hold_left_ns = 0;
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

/* A few looks are free: to ask the clock costs more where it is a system call. */
static void some_looks_are_free_and_no_more(void)
{
    enum { HOLD_NS = 20000000 };
    fill_connection();
    offer(200);
    for (int i = 0; i <= FREE_LOOKS; i++) {
        step();
        usleep(100);
    }
    CHECK_EQ(connection.hold_left_ns, HOLD_NS);
    usleep(2000);
    step();
    CHECK(connection.hold_left_ns <= HOLD_NS - 2000000);
    end();
}

/* A pump that runs sleeps after a look or two. */
static void a_sleep_is_not_free(void)
{
    fill_connection();
    offer(200);
    CHECK_EQ(ipu_pump_start(pump), 0);
    for (int i = 0; i < 5000 && counter("tx_connection_full") == 0; i++)
        usleep(1000);
    ipu_pump_stop(pump);
    CHECK_EQ(counter("tx_connection_full"), 1);
    CHECK_EQ(connection.hold_left_ns, 0);
    end();
}

/* A wait of 20 ms uses up all the time that a connection has; a full window of long messages
 * restores it. */
static void waiting_uses_up_the_time_that_ended_messages_restore(void)
{
    enum { HOLD_NS = 20000000, MESSAGE_NS = 4096 * (HOLD_NS / (1 << 20)) };
    fill_connection();
    CHECK_EQ(connection.hold_left_ns, HOLD_NS);
    offer(200);
    step();
    CHECK_EQ(device_state.len, 0);
    for (int i = 0; i < FREE_LOOKS; i++)
        step();
    usleep(2000);
    step();
    CHECK(connection.hold_left_ns <= HOLD_NS - 2000000);
    usleep(HOLD_NS / 1000);
    step();
    CHECK_EQ(connection.hold_left_ns, 0);
    CHECK_EQ(counter("tx_connection_full"), 1);
    fabric_state.holds = false;
    step();
    CHECK_EQ(connection.hold_left_ns, 64 * MESSAGE_NS);
    for (int i = 0; i < 17; i++) {
        offer(60000);
        step();
    }
    CHECK(connection.hold_left_ns > HOLD_NS * 9 / 10);
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

static void the_rest_of_a_super_frame_waits_too_and_is_lost_when_its_time_is_up(void)
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

/* A burst that waited for the neighbour is longer than the window, and nothing overtakes it. */
static void packets_of_the_engine_wait_for_a_full_connection_and_come_first(void)
{
    fill_connection();
    moves();
    for (uint32_t i = 0; i < 100; i++)
        release_packet(200 + i);
    offer(500);
    step();
    CHECK(device_state.len > 0);
    CHECK_EQ(counter("tx_connected_packets"), 64);
    fabric_state.holds = false;
    step();
    CHECK_EQ(counter("tx_connected_packets"), 64 + 100 + 1);
    CHECK_EQ(counter("tx_connection_full") + counter("commands_bad"), 0);
    end();
}

static void packets_of_the_engine_to_a_peer_that_does_not_answer_are_lost_and_counted(void)
{
    fill_connection();
    stands_still();
    for (uint32_t i = 0; i < 10; i++)
        release_packet(200);
    step();
    CHECK_EQ(counter("tx_connection_full"), 10);
    end();
}

static void packets_of_the_engine_wait_for_frames(void)
{
    begin_with(&device, FEW_FRAMES);
    neighbour();
    uint64_t commands = counter("commands");
    fabric_state.holds_datagrams = true;
    for (uint32_t i = 0; i < 3 * FEW_FRAMES; i++)
        release_packet(200);
    offer(500);
    step();
    CHECK_EQ(counter("tx_packets"), FEW_FRAMES);
    CHECK(device_state.len > 0);
    fabric_state.holds_datagrams = false;
    step();
    step();
    CHECK_EQ(counter("tx_packets"), 3 * FEW_FRAMES + 1);
    CHECK_EQ(counter("commands") - commands, 3 * FEW_FRAMES);
    CHECK_EQ(counter("commands_bad"), 0);
    end();
}

/* The first packet waits; the others do not wait after it, so that commands behind them are soon
 * carried out. */
static void a_fabric_that_ends_no_send_delays_the_engine_once(void)
{
    begin_with(&device, FEW_FRAMES);
    neighbour();
    fabric_state.holds_datagrams = true;
    for (uint32_t i = 0; i < 3 * FEW_FRAMES; i++)
        release_packet(200);
    step();
    CHECK_EQ(counter("commands_bad"), 0);
    usleep(25000);
    step();
    CHECK_EQ(counter("commands_bad"), 2 * FEW_FRAMES);
    fabric_state.holds_datagrams = false;
    step();
    for (uint32_t i = 0; i < 2 * FEW_FRAMES; i++)
        release_packet(200);
    step();
    CHECK_EQ(counter("tx_packets"), 3 * FEW_FRAMES);
    end();
}

int main(void)
{
    RUN(a_peer_that_does_not_answer_holds_so_many_frames_and_no_more);
    RUN(a_full_connection_that_moves_is_waited_for_and_nothing_is_lost);
    RUN(some_looks_are_free_and_no_more);
    RUN(a_sleep_is_not_free);
    RUN(waiting_uses_up_the_time_that_ended_messages_restore);
    RUN(a_peer_that_does_not_answer_leaves_frames_to_the_others);
    RUN(packets_of_the_engine_wait_for_a_full_connection_and_come_first);
    RUN(packets_of_the_engine_to_a_peer_that_does_not_answer_are_lost_and_counted);
    RUN(packets_of_the_engine_wait_for_frames);
    RUN(a_fabric_that_ends_no_send_delays_the_engine_once);
    RUN(long_messages_under_way_are_bounded_by_their_bytes);
    RUN(a_packet_that_waits_goes_where_it_should_go_by_then);
    RUN(the_rest_of_a_super_frame_waits_too_and_is_lost_when_its_time_is_up);
    return 0;
}
