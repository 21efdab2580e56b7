/* SPDX-License-Identifier: BSD-2-Clause */
/* The ARP and ND messages that the pump gives to the engine: a fabric delivers them to a pump that
 * is stepped by hand. */
#include <errno.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "device/device.h"
#include "fake_fabric.h"
#include "stepped_pump.h"
#include "pump/tables/admission.h"

enum { MTU = 2044, GRH = 40, ARP_LEN = 56, ND_LEN = 64, FRAMES = 16, OURS = 1, OTHER = 2 };

static struct {
    struct ipu_received arrived[FRAMES];
    int arrived_count;
} fabric_state;

static int give_arrived(void *self, struct ipu_received *done, int max)
{
    int n = fabric_state.arrived_count < max ? fabric_state.arrived_count : max;
    (void)self;
    for (int i = 0; i < n; i++)
        done[i] = fabric_state.arrived[--fabric_state.arrived_count];
    return n;
}

static const struct ipu_fabric_ops fabric_ops = {
    FAKE_FABRIC_OPS,        .send = fake_send_all,    .post = fake_post_kept,
    .sent = fake_none_sent, .received = give_arrived, .fd = the_fabric_fd,
};
static const struct ipu_device_ops device_ops = {
    .read = read_no_packet, .write = write_to_nobody, .fd = the_device_fd};
static struct ipu_fabric fabric = {.ops = &fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};
static struct ipu_device device = {.ops = &device_ops};

static struct in6_addr address4(uint8_t last)
{
    return (struct in6_addr){{{[10] = 0xff, [11] = 0xff, 10, 0, 0, last}}};
}

static struct in6_addr address6(uint8_t last)
{
    return (struct in6_addr){{{0xfe, 0x80, [15] = last}}};
}

static void run(struct ipu_command given)
{
    give(given, NULL);
    step_until_idle();
}

static void own(struct in6_addr ip, bool ours)
{
    run((struct ipu_command){.type = IPU_COMMAND_OWN_SET, .own_set = {.ip = ip, .ours = ours}});
}

/* `action` is that of a neighbour which has answered (SEND), or has only asked (NOTIFY). */
static void know_as(struct in6_addr ip, enum ipu_neigh_action action)
{
    run((struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                             .neigh_set = {.next_hop = ip,
                                           .dest = {.qpn = 0x55, .gid = {{{0xfe, 0x80}}}},
                                           .mtu = MTU,
                                           .action = action}});
}

static void know(struct in6_addr ip)
{
    know_as(ip, IPU_NEIGH_SEND);
}

static void begin(uint32_t event_bytes)
{
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = &device,
        .mtu = MTU,
        .rx_frames = FRAMES,
        .tx_frames = FRAMES,
        .neigh_max = 64,
        .route_max = 16,
        .ah_max = 16,
        .command_bytes = 1 << 17,
        .event_bytes = event_bytes,
        .capture_bytes = 1 << 12,
    };
    memset(&fabric_state, 0, sizeof fabric_state);
    fake_posted.count = 0;
    open_descriptors();
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    own(address4(OURS), true);
    own(address6(OURS), true);
}

static void end(void)
{
    destroy_pump();
}

/* A datagram of the queue pair `qpn`, with a GRH if `grh`. */
static void arrive(const uint8_t *frame, size_t len, uint32_t qpn, bool grh)
{
    struct ipu_recv to = fake_take_posted();
    memset(to.addr, 0, GRH);
    ((uint8_t *)to.addr)[23] = (uint8_t)qpn;
    memcpy((uint8_t *)to.addr + GRH, frame, len);
    fabric_state.arrived[fabric_state.arrived_count++] =
        (struct ipu_received){.cookie = to.cookie,
                              .byte_len = (uint32_t)(GRH + len),
                              .src_qpn = qpn,
                              .flags = grh ? IPU_RECEIVED_GRH : 0};
    step_until_idle();
}

/* An ARP request of 10.0.0.`sender` for 10.0.0.`target`. */
static void ask4(uint8_t sender, uint8_t target, uint32_t qpn)
{
    uint8_t frame[IPU_ENCAP_LEN + ARP_LEN] = {0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 1};
    memcpy(frame + IPU_ENCAP_LEN + 28, (uint8_t[]){10, 0, 0, sender}, 4);
    memcpy(frame + IPU_ENCAP_LEN + 52, (uint8_t[]){10, 0, 0, target}, 4);
    if (sender == 0) /* a probe */
        memset(frame + IPU_ENCAP_LEN + 28, 0, 4);
    arrive(frame, sizeof frame, qpn, true);
}

/* An ND message of type `type` from fe80::`sender` about fe80::`target`. */
static void nd(uint8_t type, uint8_t sender, uint8_t target, uint32_t qpn, bool grh)
{
    uint8_t frame[IPU_ENCAP_LEN + ND_LEN] = {0x86, 0xdd, 0, 0, 0x60, [9] = ND_LEN - 40, 58, 255};
    struct in6_addr from = address6(sender), about = address6(target);
    memcpy(frame + IPU_ENCAP_LEN + 8, &from, 16);
    memcpy(frame + IPU_ENCAP_LEN + 24, &(struct in6_addr){{{0xff, 2, [15] = 1}}}, 16);
    frame[IPU_ENCAP_LEN + 40] = type;
    memcpy(frame + IPU_ENCAP_LEN + 48, &about, 16);
    arrive(frame, sizeof frame, qpn, grh);
}

static void drain(void)
{
    uint32_t len;
    while (ipu_ring_peek(ipu_pump_events(pump), &len) != NULL)
        ipu_ring_release(ipu_pump_events(pump));
}

static void a_question_for_others_of_a_stranger_is_dropped(void)
{
    begin(1 << 17);
    ask4(9, OTHER, 7);
    nd(135, 9, OTHER, 7, true);
    CHECK_EQ(counter("rx_unconcerned"), 2);
    CHECK_EQ(counter("rx_control"), 0);
    ask4(9, OURS, 7);
    nd(135, 9, OURS, 7, false);
    CHECK_EQ(counter("rx_control"), 2);
    own(address4(OURS), false);
    ask4(9, OURS, 7);
    CHECK_EQ(counter("rx_unconcerned"), 3);
    end();
}

static void what_a_neighbour_says_concerns_us(void)
{
    begin(1 << 17);
    know(address4(9));
    know(address6(9));
    ask4(9, OTHER, 7);
    nd(135, 9, OTHER, 7, true);
    nd(136, 8, 9, 7, true); /* an advertisement about the neighbour */
    ask4(0, 9, 7);          /* a probe for the neighbour's address */
    CHECK_EQ(counter("rx_control"), 4);
    CHECK_EQ(counter("rx_unconcerned"), 0);
    end();
}

static void one_sender_and_all_strangers_together_have_a_bound(void)
{
    begin(1 << 20);
    for (int i = 0; i < 2000; i++) {
        ask4(9, OURS, 7);
        drain();
    }
    uint64_t passed = counter("rx_control");
    CHECK(passed >= IPU_ADMISSION_PER_SENDER); /* the clock's second may change meanwhile */
    CHECK_EQ(passed + counter("rx_control_limited"), 2000);
    CHECK(counter("rx_control_limited") > 0);
    for (uint32_t i = 0; i < 2000; i++) {
        ask4(9, OURS, 100 + i);
        drain();
    }
    CHECK_EQ(counter("rx_control") + counter("rx_control_limited"), 4000);
    CHECK(counter("rx_control") - passed >= IPU_ADMISSION_STRANGERS - IPU_ADMISSION_PER_SENDER);
    end();
}

/* Its questions for others say where it is; most of them would say so again. */
static void a_neighbour_that_scans_the_link_still_reaches_us(void)
{
    begin(1 << 20);
    know(address4(9));
    for (int i = 0; i < 2000; i++) {
        ask4(9, OTHER, 7);
        drain();
    }
    uint64_t overheard = counter("rx_control");
    CHECK(overheard >= IPU_ADMISSION_OVERHEARD);
    CHECK(overheard <= 3 * IPU_ADMISSION_OVERHEARD); /* the clock's second may change meanwhile */
    CHECK_EQ(overheard + counter("rx_unconcerned"), 2000);
    for (int i = 0; i < IPU_ADMISSION_PER_SENDER - IPU_ADMISSION_OVERHEARD; i++) {
        ask4(9, OURS, 7);
        drain();
    }
    CHECK_EQ(counter("rx_control") - overheard, IPU_ADMISSION_PER_SENDER - IPU_ADMISSION_OVERHEARD);
    CHECK_EQ(counter("rx_control_limited"), 0);
    end();
}

/* An unknown router is as good as the invented ones, and gets the same share. */
static void a_router_that_is_a_neighbour_is_heard_beside_invented_ones(void)
{
    begin(1 << 20);
    know(address6(9));
    for (uint32_t i = 0; i < 4000; i++) {
        nd(134, 10, 0, 100 + i, true);
        drain();
    }
    uint64_t passed = counter("rx_control");
    CHECK(passed < 4000);
    for (int i = 0; i < 16; i++) {
        nd(134, 9, 0, 7, true);
        drain();
    }
    CHECK_EQ(counter("rx_control") - passed, 16);
    end();
}

/* Nobody reads the events: the strangers leave room for answers that the engine asked for. */
/* Whoever asks us becomes a neighbour, and gets no share of those that have answered by it. */
static void a_neighbour_that_has_answered_is_heard_beside_those_that_have_not(void)
{
    begin(1 << 20);
    know(address4(9));
    for (uint8_t host = 100; host < 110; host++)
        know_as(address4(host), IPU_NEIGH_NOTIFY);
    for (uint32_t i = 0; i < 8000; i++) {
        ask4((uint8_t)(100 + i % 10), i % 2 ? OURS : OTHER, 100 + i);
        drain();
    }
    uint64_t passed = counter("rx_control");
    CHECK(passed < 8000);
    for (int i = 0; i < 16; i++) {
        ask4(9, OURS, 7);
        drain();
    }
    CHECK_EQ(counter("rx_control") - passed, 16);
    know_as(address4(9), IPU_NEIGH_NOTIFY); /* it has answered long ago */
    ask4(9, OURS, 7);
    CHECK_EQ(counter("rx_control") - passed, 17);
    end();
}

static void an_answer_finds_room_that_strangers_leave(void)
{
    begin(1 << 13);
    for (uint32_t i = 0; i < 200; i++)
        ask4(9, OURS, i);
    uint64_t passed = counter("rx_control");
    CHECK(passed < 200);
    CHECK_EQ(counter("rx_event_ring_full"), 0);
    uint8_t question[sizeof(struct ipu_command) + IPU_ENCAP_LEN + ARP_LEN] = {0};
    uint8_t *frame = question + sizeof(struct ipu_command);
    memcpy(frame, (uint8_t[]){0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 1}, 12);
    memcpy(frame + IPU_ENCAP_LEN + 52, (uint8_t[]){10, 0, 0, 77}, 4);
    struct ipu_command command = {.type = IPU_COMMAND_SEND_FRAME,
                                  .len = IPU_ENCAP_LEN + ARP_LEN,
                                  .send_frame.dest = {.qpn = 0x55}};
    memcpy(question, &command, sizeof command);
    void *record = ipu_ring_reserve(ipu_pump_commands(pump), sizeof question);
    CHECK(record != NULL);
    memcpy(record, question, sizeof question);
    ipu_ring_commit(ipu_pump_commands(pump), sizeof question);
    ask4(77, OURS, 7);
    CHECK_EQ(counter("rx_control"), passed + 1);
    end();
}

int main(void)
{
    RUN(a_question_for_others_of_a_stranger_is_dropped);
    RUN(what_a_neighbour_says_concerns_us);
    RUN(one_sender_and_all_strangers_together_have_a_bound);
    RUN(a_neighbour_that_scans_the_link_still_reaches_us);
    RUN(a_router_that_is_a_neighbour_is_heard_beside_invented_ones);
    RUN(a_neighbour_that_has_answered_is_heard_beside_those_that_have_not);
    RUN(an_answer_finds_room_that_strangers_leave);
    return 0;
}
