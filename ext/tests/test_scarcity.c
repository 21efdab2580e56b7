/* SPDX-License-Identifier: BSD-2-Clause */
/* No memory while a pump runs and a link of peers lives: whichever allocation fails, what it was
 * for is refused and counted, nothing leaks, and all works once there is memory again. */
#include <errno.h>

#include "refuse.h"
#include "stepped_pump.h"
#include "core/frame.h"
#include "device/queue.h"
#include "fabric/memory.h"
#include "pump/tables/route.h"

enum { MTU = 2044, STRANGERS = 60, PACKET = 64, HOPS = 3 };

struct host {
    struct ipu_memory_port *port;
    struct ipu_queue queue;
    struct ipu_pump *pump;
};

static struct ipu_memory_switch *sw;
static struct host hosts[2];
static uint64_t refused_hops; /* neighbours that the pump has refused */

static struct in6_addr gid(uint32_t number)
{
    return (struct in6_addr){
        .s6_addr = {0xfe, 0x80, [14] = (uint8_t)(number >> 8), (uint8_t)number}};
}

static struct in6_addr ipv4(uint8_t net, uint32_t number)
{
    return (struct in6_addr){
        .s6_addr = {[10] = 0xff, 0xff, 10, net, (uint8_t)(number >> 8), (uint8_t)number}};
}

static void make_host(struct host *host, uint8_t number)
{
    struct ipu_memory_config port = {.gid = gid(number), .mtu = 2048};
    host->port = ipu_memory_port_create(sw, &port);
    CHECK(host->port != NULL);
    CHECK_EQ(ipu_queue_init(&host->queue, 1 << 16, 1 << 16), 0);
    struct ipu_pump_config config = {
        .fabric = ipu_memory_port_fabric(host->port),
        .device = &host->queue.device,
        .mtu = MTU,
        .tx_frames = 64,
        .rx_frames = 16,
        .neigh_max = 4 * STRANGERS,
        .route_max = 4 * STRANGERS,
        .route_answer_max = 4 * STRANGERS,
        .ah_max = 4 * STRANGERS,
        .command_bytes = 1 << 14,
        .event_bytes = 1 << 14,
        .capture_bytes = 1 << 14,
    };
    CHECK_EQ(ipu_pump_create(&config, &host->pump), 0);
}

static void end_host(struct host *host)
{
    ipu_pump_destroy(host->pump);
    ipu_memory_port_destroy(host->port);
    ipu_queue_free(&host->queue);
}

/* Runs a command, and reads the events as the engine does. */
static void run(struct ipu_command given, const void *data)
{
    struct ipu_ring *events = ipu_pump_events(pump);
    uint32_t len;
    give(given, data);
    step_until_idle();
    const struct ipu_event *event;
    while ((event = ipu_ring_peek(events, &len)) != NULL) {
        refused_hops += event->type == IPU_EVENT_NEIGH_REFUSED;
        ipu_ring_release(events);
    }
}

static void set_neighbour(struct in6_addr hop, struct in6_addr to, uint32_t qpn)
{
    run((struct ipu_command){.type = IPU_COMMAND_NEIGH_SET,
                             .neigh_set = {.next_hop = hop,
                                           .mtu = MTU,
                                           .dest = {.gid = to, .qpn = qpn, .hop_limit = 64}}},
        NULL);
}

static void packet_to(uint8_t *packet, struct in6_addr to)
{
    memset(packet, 0, PACKET);
    packet[0] = 0x45;
    packet[3] = PACKET;
    packet[8] = 64;
    packet[9] = 17;
    packet[12] = 10;
    packet[15] = 1;
    memcpy(packet + 16, to.s6_addr + 12, 4);
}

/* Fills each table of the pump with the entries of strangers. */
static void fill(void)
{
    for (uint32_t i = 0; i < STRANGERS; i++) {
        set_neighbour(ipv4(1, i), gid(0x100 + i), 0x100 + i);
        struct ipu_hop hops[HOPS];
        memset(hops, 0, sizeof hops);
        for (int k = 0; k < HOPS; k++)
            hops[k] = (struct ipu_hop){.gateway = ipv4(1, i), .weight = 1};
        run((struct ipu_command){.type = IPU_COMMAND_ROUTE_SET,
                                 .len = sizeof hops,
                                 .route_set = {.prefix = ipv4(2, i),
                                               .prefix_len = 128,
                                               .kind = IPU_ROUTE_MULTIPATH}},
            hops);
        run(
            (struct ipu_command){
                .type = IPU_COMMAND_SEND_FRAME,
                .len = PACKET + IPU_ENCAP_LEN,
                .send_frame = {.dest = {.gid = gid(0x800 + i), .qpn = 1, .hop_limit = 64}}},
            (uint8_t[PACKET + IPU_ENCAP_LEN]){8});
        run((struct ipu_command){.type = IPU_COMMAND_OWN_SET,
                                 .own_set = {.ip = ipv4(3, i), .ours = 1}},
            NULL);
        if (i % 3 == 0)
            run((struct ipu_command){.type = IPU_COMMAND_NEIGH_DEL,
                                     .neigh_del = {.next_hop = ipv4(1, i)}},
                NULL);
    }
    struct {
        struct ipu_hop hops[HOPS];
        uint8_t packet[PACKET];
    } answer;
    memset(&answer, 0, sizeof answer);
    for (int k = 0; k < HOPS; k++)
        answer.hops[k] = (struct ipu_hop){.gateway = ipv4(1, 1), .weight = 1};
    run((struct ipu_command){.type = IPU_COMMAND_ROUTE_SET,
                             .route_set = {.prefix = ipv4(4, 0),
                                           .prefix_len = 112,
                                           .kind = IPU_ROUTE_ASK,
                                           .fields = 0}},
        NULL);
    for (uint32_t i = 0; i < STRANGERS; i++) {
        packet_to(answer.packet, ipv4(4, i));
        run((struct ipu_command){.type = IPU_COMMAND_ROUTE_ANSWER,
                                 .len = sizeof answer,
                                 .route_answer = {.kind = IPU_ROUTE_MULTIPATH, .hops = HOPS}},
            &answer);
    }
}

/* An honest host: its neighbour is published, and a packet arrives. */
static void check_honest(void)
{
    struct in6_addr hop = ipv4(0, 2);
    uint8_t packet[PACKET];
    uint32_t index, len = 0;
    set_neighbour(hop, gid(2), ipu_memory_port_fabric(hosts[1].port)->qpn);
    packet_to(packet, hop);
    CHECK(ipu_queue_send(&hosts[0].queue, packet, PACKET));
    while (ipu_pump_step(pump, 64) + ipu_pump_step(hosts[1].pump, 64) > 0)
        ;
    const uint8_t *got = ipu_queue_peek(&hosts[1].queue, &index, &len);
    CHECK(got != NULL);
    CHECK_EQ(len, PACKET);
    CHECK_EQ(memcmp(got, packet, PACKET), 0);
}

static void a_pump_loses_the_entry_for_which_there_is_no_memory_and_goes_on(void)
{
    uint64_t counted = 0;
    int n = 0;
    for (bool refused = true; refused; n++) {
        sw = ipu_memory_switch_create(1);
        make_host(&hosts[0], 1);
        pump = hosts[0].pump;
        make_host(&hosts[1], 2);
        refused_hops = 0;
        refuse_after(n);
        fill();
        refused = refuse_stop();
        CHECK(counter("commands_bad") <= 1); /* one refusal costs one entry */
        CHECK(refused_hops <= counter("commands_bad"));
        CHECK(refused || counter("commands_bad") == 0);
        counted += counter("commands_bad");
        fill(); /* now there is memory */
        check_honest();
        end_host(&hosts[0]);
        end_host(&hosts[1]);
        ipu_memory_switch_destroy(sw);
    }
    CHECK(n > 3 * STRANGERS);       /* an address handle of two parts, and a route, for each */
    CHECK(counted > 2 * STRANGERS); /* and nearly each refusal is that of a command */
}

int main(void)
{
    RUN(a_pump_loses_the_entry_for_which_there_is_no_memory_and_goes_on);
    return 0;
}
