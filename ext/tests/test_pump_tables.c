/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of the pump: those that commands and packets fill, by a pump that is stepped by hand. */
#include "pump/state/pump_state.h" /* comes first: it has parameters that are called pump */

#include "fake_fabric.h"
#include "stepped_pump.h"
#include "table_rows.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "pump/tables/admission.h"
#include "pump/tables/resolution.h"
#include "pump/tables/write_share.h"

enum {
    FRAMES = 64,
    MTU = 2044,
    ARP_LEN = 56,
    OURS = 0x0A000001,
    IPV4_BITS = 96,
    BULK = 8, /* packets of a full merge */
};

static struct in6_addr address4(uint32_t number)
{
    struct in6_addr ip = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    number = htonl(0x0A000000 + number);
    memcpy(ip.s6_addr + 12, &number, sizeof number);
    return ip;
}

/* ---- a pump: its fabric delivers one frame, and its device one packet, that the test gives */

static struct {
    uint8_t arriving[IPU_ENCAP_LEN + ARP_LEN];
    uint32_t arriving_from; /* 0: nothing arrives */
    uint8_t leaving[IPU_IPV4_HEADER + IPU_UDP_HEADER];
    bool has_leaving;
    uint64_t refused; /* events */
} world;

static int give_arriving(void *self, struct ipu_received *done, int max)
{
    (void)self, (void)max;
    if (world.arriving_from == 0)
        return 0;
    struct ipu_recv to = fake_take_posted();
    struct in6_addr gid = address(world.arriving_from);
    memset(to.addr, 0, IPU_GRH_LEN);
    memcpy((uint8_t *)to.addr + 8, &gid, sizeof gid);
    memcpy((uint8_t *)to.addr + IPU_GRH_LEN, world.arriving, sizeof world.arriving);
    done[0] = (struct ipu_received){.cookie = to.cookie,
                                    .byte_len = IPU_GRH_LEN + sizeof world.arriving,
                                    .src_qpn = world.arriving_from,
                                    .flags = IPU_RECEIVED_GRH};
    world.arriving_from = 0;
    return 1;
}

static ssize_t device_read(void *self, void *buf, size_t cap)
{
    (void)self, (void)cap;
    if (!world.has_leaving)
        return -EAGAIN;
    memset(buf, 0, IPU_VNET_LEN);
    memcpy((uint8_t *)buf + IPU_VNET_LEN, world.leaving, sizeof world.leaving);
    world.has_leaving = false;
    return (ssize_t)(IPU_VNET_LEN + sizeof world.leaving);
}

static const struct ipu_fabric_ops pump_fabric_ops = {
    FAKE_FABRIC_OPS,        .send = fake_send_all,     .post = fake_post_kept,
    .sent = fake_none_sent, .received = give_arriving, .fd = the_fabric_fd,
};
static const struct ipu_device_ops device_ops = {
    .read = device_read, .write = write_to_nobody, .fd = the_device_fd};
static struct ipu_fabric pump_fabric = {
    .ops = &pump_fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};
static struct ipu_device device = {.ops = &device_ops};

static void settle(void)
{
    uint32_t len;
    step_until_idle();
    for (const struct ipu_event *event;
         (event = ipu_ring_peek(ipu_pump_events(pump), &len)) != NULL;
         ipu_ring_release(ipu_pump_events(pump)))
        world.refused += event->type == IPU_EVENT_NEIGH_REFUSED;
}

static void run_with(struct ipu_command command, const void *data)
{
    give(command, data);
    settle();
}

static void run(struct ipu_command command)
{
    run_with(command, NULL);
}

static void open_pump_with(uint32_t handles)
{
    struct ipu_pump_config config = {
        .fabric = &pump_fabric,
        .device = &device,
        .mtu = MTU,
        .rx_frames = FRAMES,
        .tx_frames = FRAMES,
        .neigh_max = CAP,
        .route_max = CAP,
        .route_answer_max = CAP,
        .ah_max = handles,
        .command_bytes = 1 << 16,
        .event_bytes = 1 << 16,
        .capture_bytes = 1 << 12,
    };
    memset(&world, 0, sizeof world);
    fake_posted.count = 0;
    open_descriptors();
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    settle();
}

static void open_pump(void)
{
    open_pump_with(2 * CAP);
}

static struct ipu_command next_hop_of(uint32_t number, enum ipu_neigh_action action)
{
    return (struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                                .neigh_set = {.next_hop = address4(number),
                                              .dest = {.gid = address(number), .qpn = number + 1},
                                              .action = action,
                                              .mtu = MTU}};
}

static void forget_next_hop(uint32_t number)
{
    run((struct ipu_command){.type = IPU_COMMAND_NEIGH_DEL,
                             .neigh_del = {.next_hop = address4(number)}});
}

static const struct ipu_neigh *next_hop(uint32_t number)
{
    struct in6_addr ip = address4(number);
    return ipu_neigh_find(&pump->neigh, &ip);
}

/* The engine counts each event as neigh_refused. */
static uint64_t refused(void)
{
    return world.refused;
}

static uint64_t bad_commands(void)
{
    return counter("commands_bad");
}

static void add_next_hop(uint32_t number)
{
    run(next_hop_of(number, IPU_NEIGH_HOLD));
}

static uint32_t count_next_hops(void)
{
    return pump->neigh.count;
}

/* The engine makes room, and tries again. */
static bool admits_next_hop(void)
{
    forget_next_hop(0);
    add_next_hop(HONEST);
    return next_hop(HONEST) != NULL;
}

static void open_handles(void)
{
    open_pump_with(CAP / 2);
}

static void add_handle(uint32_t number)
{
    run(next_hop_of(number, IPU_NEIGH_SEND));
}

static uint32_t count_handles(void)
{
    return pump->ahs.count;
}

static bool admits_handle(void)
{
    forget_next_hop(0);
    add_handle(HONEST);
    return next_hop(HONEST) != NULL && next_hop(HONEST)->ah != NULL;
}

static void add_route(uint32_t number)
{
    run((struct ipu_command){.type = IPU_COMMAND_ROUTE_SET,
                             .route_set = {.prefix = address4(number),
                                           .prefix_len = 128,
                                           .kind = IPU_ROUTE_UNREACHABLE}});
}

static uint32_t count_routes(void)
{
    return pump->route.count;
}

static bool admits_route(void)
{
    struct in6_addr ip = address4(HONEST);
    run((struct ipu_command){.type = IPU_COMMAND_ROUTE_DEL,
                             .route_del = {.prefix = address4(0), .prefix_len = 128}});
    add_route(HONEST);
    return ipu_route_match(&pump->route, &ip) != NULL;
}

/* A UDP packet of ours to a host; each host gets another program's. */
static void write_packet(uint8_t *ip, uint32_t number)
{
    struct in6_addr to = address4(number);
    memset(ip, 0, sizeof world.leaving);
    memcpy(ip, (uint8_t[]){0x45, 0, 0, sizeof world.leaving, 0, 0, 0x40, 0, 64, IPPROTO_UDP}, 10);
    ipu_ip_put16(ip + 12, OURS >> 16);
    ipu_ip_put16(ip + 14, OURS & 0xffff);
    memcpy(ip + 16, to.s6_addr + 12, 4);
    ipu_ip_put16(ip + IPU_IPV4_HEADER, number & 0xffff);
    ipu_ip_put16(ip + IPU_IPV4_HEADER + 2, number >> 4 & 0xffff);
    ip[IPU_IPV4_HEADER + 5] = IPU_UDP_HEADER;
}

static void open_answers(void)
{
    open_pump();
    run((struct ipu_command){.type = IPU_COMMAND_ROUTE_SET,
                             .route_set = {.prefix = {.s6_addr = {[10] = 0xff, [11] = 0xff}},
                                           .prefix_len = IPV4_BITS,
                                           .kind = IPU_ROUTE_ASK,
                                           .fields = IPU_ROUTE_FIELD_PORTS}});
}

static void add_answer(uint32_t number)
{
    uint8_t packet[sizeof world.leaving];
    write_packet(packet, number);
    run_with((struct ipu_command){.type = IPU_COMMAND_ROUTE_ANSWER,
                                  .len = sizeof packet,
                                  .route_answer = {.kind = IPU_ROUTE_ON_LINK}},
             packet);
}

static uint32_t count_answers(void)
{
    return pump->answers.count;
}

static uint64_t answers_evicted(void)
{
    return counter("route_answers_evicted");
}

static bool admits_answer(void)
{
    add_answer(HONEST);
    uint8_t packet[sizeof world.leaving];
    write_packet(packet, HONEST);
    struct ipu_flow_key key = ipu_flow_key_of(packet, sizeof packet);
    ipu_flow_key_mask(&key, IPU_ROUTE_FIELD_PORTS);
    return ipu_route_answers_find(&pump->answers, &key) != NULL;
}

/* A host that has answered, and has no entry any more. */
static void open_resolutions(void)
{
    open_pump();
    run(next_hop_of(HONEST, IPU_NEIGH_SEND));
    forget_next_hop(HONEST);
}

static void send_to(uint32_t number)
{
    write_packet(world.leaving, number);
    world.has_leaving = true;
    settle();
}

static uint32_t count_begun(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IPU_RESOLUTION_BEGUN_SLOTS; i++)
        count += pump->resolution.begun[i].live;
    return count;
}

static uint64_t resolutions_limited(void)
{
    return counter("tx_resolution_limited");
}

static bool admits_resolution(void)
{
    uint64_t before = counter("tx_missed");
    send_to(HONEST);
    return counter("tx_missed") == before + 1;
}

static void open_senders(void)
{
    open_pump();
    run((struct ipu_command){.type = IPU_COMMAND_OWN_SET,
                             .own_set = {.ip = address4(1), .ours = 1}});
    run(next_hop_of(HONEST, IPU_NEIGH_SEND));
}

/* Asks for our address, by ARP. */
static void ask_us(uint32_t number)
{
    static const uint8_t head[] = {0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 1};
    struct in6_addr from = address4(number), to = address4(1);
    memset(world.arriving, 0, sizeof world.arriving);
    memcpy(world.arriving, head, sizeof head);
    memcpy(world.arriving + IPU_ENCAP_LEN + 28, from.s6_addr + 12, 4);
    memcpy(world.arriving + IPU_ENCAP_LEN + 52, to.s6_addr + 12, 4);
    world.arriving_from = number;
    settle();
}

/* Each asks eight times: a busy machine may take seconds for all. */
static void add_sender(uint32_t number)
{
    for (int i = 0; i < 8; i++)
        ask_us(number + 2);
}

static uint32_t count_senders(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IPU_ADMISSION_SLOTS; i++)
        count += pump->admission.by_sender[i] > 0;
    return count;
}

static uint64_t senders_limited(void)
{
    return counter("rx_control_limited");
}

static bool admits_sender(void)
{
    uint64_t before = counter("rx_control");
    ask_us(HONEST);
    return counter("rx_control") == before + 1;
}

static void open_guests(void)
{
    device.ethernet = true;
    open_pump();
    device.ethernet = false;
}

static void add_guest(uint32_t number)
{
    run((struct ipu_command){.type = IPU_COMMAND_GUEST_SET,
                             .guest_set = {.ip = address4(number), .mac = {2}}});
}

static uint32_t count_guests(void)
{
    return pump->guests.guests.count;
}

static bool admits_guest(void)
{
    struct in6_addr ip = address4(HONEST);
    run((struct ipu_command){.type = IPU_COMMAND_GUEST_DEL, .guest_del = {.ip = address4(0)}});
    add_guest(HONEST);
    return ipu_mac_table_find(&pump->guests.guests, &ip, 0) != NULL;
}

/* ---- tables of the pump by themselves */

static struct ipu_resolution resolution;
static struct ipu_admission admission;
static struct ipu_write_share share;
static uint64_t over_share;

static void open_resolution(void)
{
    CHECK_EQ(ipu_resolution_init(&resolution, 1, NULL), 0);
}

static void close_resolution(void)
{
    ipu_resolution_free(&resolution);
}

static uint32_t count_tags(const uint32_t *tags, uint32_t slots)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < slots; i++)
        count += tags[i] != 0;
    return count;
}

static void add_known(uint32_t number)
{
    struct in6_addr ip = address(number);
    ipu_resolution_answered(&resolution, &ip, 1000);
}

static uint32_t count_known(void)
{
    return count_tags(resolution.known, IPU_RESOLUTION_KNOWN_SLOTS);
}

static bool admits_known(void)
{
    struct in6_addr ip = address(HONEST);
    add_known(HONEST);
    return ipu_resolution_knows(&resolution, &ip);
}

static enum ipu_resolution_verdict judge(uint32_t number, uint64_t now_ms)
{
    struct in6_addr ip = address(number);
    struct ipu_resolution_flow flow = {.kind = 1, .program = 1};
    return ipu_resolution_judge(&resolution, &ip, flow, false, now_ms);
}

static void add_refused(uint32_t number)
{
    (void)judge(number, 1000);
}

static uint32_t count_refused(void)
{
    return count_tags(resolution.refused, IPU_RESOLUTION_REFUSED_SLOTS);
}

/* Whoever asks again after a while has a budget of his own. */
static bool admits_refused(void)
{
    return judge(HONEST, 1000) == IPU_RESOLVE_NOT &&
           judge(HONEST, 1000 + 2 * IPU_RESOLUTION_AGAIN_MS) == IPU_RESOLVE;
}

static void open_admission(void)
{
    CHECK_EQ(ipu_admission_init(&admission), 0);
}

static void close_admission(void)
{
    ipu_admission_free(&admission);
}

static void write_arp(uint8_t frame[IPU_ENCAP_LEN + ARP_LEN], uint8_t operation, size_t at,
                      uint32_t number)
{
    struct in6_addr ip = address4(number);
    memset(frame, 0, IPU_ENCAP_LEN + ARP_LEN);
    memcpy(frame, (uint8_t[]){0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, operation}, 12);
    memcpy(frame + IPU_ENCAP_LEN + at, ip.s6_addr + 12, 4);
}

static void add_question(uint32_t number)
{
    uint8_t frame[IPU_ENCAP_LEN + ARP_LEN];
    write_arp(frame, 1, 52, number + 1);
    ipu_admission_sent(&admission, frame, sizeof frame);
}

static uint32_t count_questions(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IPU_ADMISSION_SLOTS; i++)
        count += admission.asked[i].left > 0;
    return count;
}

/* The latest question has its place, whatever came before. */
static bool admits_question(void)
{
    uint8_t answer[IPU_ENCAP_LEN + ARP_LEN];
    struct ipu_neigh_table nobody;
    struct ipu_resolution none;
    struct ipu_admission_sender sender = {.qpn = 7};
    add_question(HONEST);
    write_arp(answer, 2, 28, HONEST + 1);
    CHECK_EQ(ipu_neigh_init(&nobody, 1, NULL), 0);
    CHECK_EQ(ipu_resolution_init(&none, 1, NULL), 0);
    bool admits = ipu_admission_judge_untrusted(&admission, &nobody, &none, &sender, answer,
                                                sizeof answer, 1) == IPU_ADMIT;
    ipu_resolution_free(&none);
    ipu_neigh_free(&nobody);
    return admits;
}

static void open_share(void)
{
    share = (struct ipu_write_share){.current = 0};
    over_share = 0;
    ipu_write_share_end_round(&share, IPU_WRITE_SHARE_BACKLOG, false);
}

/* Packets of strangers, one write each, beside some of a stream that merge: the pump counts those
 * that may not be written as rx_over_share. */
static void add_stranger(uint32_t number)
{
    (void)number;
    for (int i = 0; i < BULK; i++) {
        share.current = IPU_WRITE_SHARE_STRANGERS;
        ipu_write_share_count(&share, 100);
        over_share += !ipu_write_share_spend(&share, share.current);
        share.current = 1;
        ipu_write_share_count(&share, 100);
    }
    over_share += !ipu_write_share_spend(&share, share.current);
}

static uint32_t count_shares(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IPU_WRITE_SHARE_SENDERS; i++)
        count += share.units[i] > 0;
    return count;
}

static uint64_t count_over_share(void)
{
    return over_share;
}

static bool admits_share(void)
{
    share.current = 2;
    ipu_write_share_count(&share, 100);
    return ipu_write_share_spend(&share, share.current);
}

/* ---- all of them */

static void nothing(void)
{
}

static const struct row rows[] = {
    {"next hops of the pump", CAP, open_pump, add_next_hop, count_next_hops, refused,
     admits_next_hop, destroy_pump, 0, false},
    {"address handles", CAP / 2, open_handles, add_handle, count_handles, refused, admits_handle,
     destroy_pump, 0, false},
    {"routes of the pump", CAP, open_pump, add_route, count_routes, bad_commands, admits_route,
     destroy_pump, 0, false},
    {"answers of the kernel about flows", CAP, open_answers, add_answer, count_answers,
     answers_evicted, admits_answer, destroy_pump, 0, false},
    {"resolutions under way", IPU_RESOLUTION_BEGUN_SLOTS, open_resolutions, send_to, count_begun,
     resolutions_limited, admits_resolution, destroy_pump, 0, true},
    {"hosts that have answered", IPU_RESOLUTION_KNOWN_SLOTS, open_resolution, add_known,
     count_known, NULL, admits_known, close_resolution, 0, true},
    {"addresses for which we did not ask", IPU_RESOLUTION_REFUSED_SLOTS, open_resolution,
     add_refused, count_refused, NULL, admits_refused, close_resolution, 0, true},
    {"senders of ARP and ND", IPU_ADMISSION_SLOTS, open_senders, add_sender, count_senders,
     senders_limited, admits_sender, destroy_pump, 0, true},
    {"questions by ARP and ND", IPU_ADMISSION_SLOTS, open_admission, add_question, count_questions,
     NULL, admits_question, close_admission, 0, true},
    {"senders to a saturated pump", IPU_WRITE_SHARE_SENDERS, open_share, add_stranger, count_shares,
     count_over_share, admits_share, nothing, 0, true},
    {"guests in the pump", IPU_GUESTS_MAX, open_guests, add_guest, count_guests, bad_commands,
     admits_guest, destroy_pump, 0, false},
};

int main(void)
{
    fill_tables(rows, sizeof rows / sizeof *rows);
    return 0;
}
