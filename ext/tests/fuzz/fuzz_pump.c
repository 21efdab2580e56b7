/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drives the pump with datagrams, messages of connections, frames of the device, and commands, in
 * any order, with faults of the fabric and of the device. The input begins with a byte: the
 * offloads of the device, 4 for a fabric that takes messages in one piece, 8 for a device with
 * guests, whose frames have an Ethernet header in front, and 16 for a fabric that cuts
 * super-frames.
 */
#include <errno.h>

#include "core/frame.h"
#include "core/ip_header.h"
#include "device/vnet.h"
#include "pump/packets/segment.h"
#include "pump/tables/route.h"
#include "pump_world.h"

enum { BYTES_MAX = 70000, ACTIONS_MAX = 200, GRH = 40, HOPS = 4 };

enum action {
    DATAGRAM,
    MESSAGE,
    FRAME,
    STEP,
    NEIGHBOUR,
    CONNECTION,
    TX_MODE,
    ENGINE,
    FAULTS,
    ROUTE,
    ANSWER,
    OWN,
    GUEST,
    ACTIONS,
};

static uint8_t bytes_of_input[BYTES_MAX];
static size_t ethernet_len; /* of the device's frames */

/* A packet that is longer than an input: its last byte fills it up to `stretch` bytes. */
static size_t stretched(struct input *in, size_t max)
{
    size_t stretch = input_u16(in);
    size_t len = input_bytes(in, bytes_of_input, max);
    stretch = stretch < max ? stretch : max;
    if (len > 0 && stretch > len)
        memset(bytes_of_input + len, bytes_of_input[len - 1], stretch - len);
    return stretch > len && len > 0 ? stretch : len;
}

/* Makes the IP packet's own length that of the packet, as most senders do. */
static void fit_length(uint8_t *ip, size_t len)
{
    if (len >= IPU_IPV4_HEADER && ipu_ip_is_v4(ip))
        ipu_ip_put16(ip + 2, (uint32_t)len);
    else if (len >= IPU_IPV6_HEADER)
        ipu_ip_put16(ip + 4, (uint32_t)(len - IPU_IPV6_HEADER));
}

/* [flags][stretch 2][length 2][frame from the encapsulation header on] */
static void datagram(struct input *in)
{
    static uint8_t datagram[GRH + IPU_ENCAP_LEN + WORLD_MTU] = {0x60, [6] = 0x1b, 64};
    uint8_t flags = input_u8(in);
    size_t len = stretched(in, sizeof datagram - GRH);
    datagram[23] = flags & 4 ? 0x99 : 2; /* our own source, or the peer's */
    memcpy(datagram + 8, (uint8_t[]){0xfe, 0x80}, 2);
    memcpy(datagram + GRH, bytes_of_input, len);
    if (flags & 8 && len > IPU_ENCAP_LEN)
        fit_length(datagram + GRH + IPU_ENCAP_LEN, len - IPU_ENCAP_LEN);
    world_datagram(datagram, flags & 16 ? len : GRH + len,
                   (flags & 1 ? IPU_RECEIVED_GRH : 0) | (flags & 2 ? IPU_RECEIVED_FAILED : 0),
                   flags & 4 ? 0x99 : 0x101, flags >> 6 ? WORLD_GUEST_QPN + (flags >> 6) : 0x99);
    if (!(flags & 32))
        world_step();
}

/* [which][flags][stretch 2][length 2][message] */
static void message(struct input *in)
{
    uint8_t which = input_u8(in), flags = input_u8(in);
    size_t len = stretched(in, IPU_VNET_LEN + IPU_VNET_PACKET_MAX);
    uint8_t *ip = bytes_of_input + IPU_VNET_LEN;
    if (flags & 1 && len > IPU_VNET_LEN)
        fit_length(ip, len - IPU_VNET_LEN);
    if (flags & 2 && len > IPU_ENCAP_LEN)
        fit_length(bytes_of_input + IPU_ENCAP_LEN, len - IPU_ENCAP_LEN);
    world_message(which, bytes_of_input, len);
    if (!(flags & 32))
        world_step();
}

/* [flags][stretch 2][length 2][vnet 16][IP] */
static void frame(struct input *in)
{
    uint8_t flags = input_u8(in);
    size_t head = ethernet_len + IPU_VNET_LEN, len = stretched(in, head + IPU_VNET_PACKET_MAX);
    if (flags & 1 && len > head)
        fit_length(bytes_of_input + head, len - head);
    world_frame(bytes_of_input, len);
    world_step();
}

static void set_neighbour(struct input *in)
{
    uint8_t which = input_u8(in), how = input_u8(in);
    struct ipu_command command = {.type = how & 128 ? IPU_COMMAND_NEIGH_DEL : IPU_COMMAND_NEIGH_SET,
                                  .neigh_set = {.next_hop = world_hop(which, which & 128),
                                                .dest = world_dest(which >> 2 & 7),
                                                .action = how & 7,
                                                .mtu = how & 64 ? 600 : WORLD_MTU}};
    command.neigh_set.dest.sl = how & 32 ? 15 : 0;
    world_command(&command, NULL, 0);
}

static void set_connection(struct input *in)
{
    uint32_t which = input_u8(in) % WORLD_CONNECTIONS;
    uint8_t how = input_u8(in);
    struct ipu_command add = {.type = IPU_COMMAND_CONNECTION_ADD,
                              .connection_add = {.id = which + 1,
                                                 .native = world_connection(which),
                                                 .superframes = how & 1}};
    struct ipu_command del = {.type = IPU_COMMAND_CONNECTION_DEL, .connection_del = {which + 1}};
    if (how & 2) {
        world_command(&del, NULL, 0);
        return;
    }
    /* The engine adds a connection once, with everything in it zero. */
    if (world_connection(which)->id == 0)
        world_command(&add, NULL, 0);
}

static void set_tx_mode(struct input *in)
{
    uint8_t which = input_u8(in), how = input_u8(in);
    struct ipu_command command = {
        .type = IPU_COMMAND_TX_MODE_SET,
        .tx_mode_set = {.dest = world_dest(which & 7),
                        .mode = how & 3,
                        .mtu = how & 4 ? 1000 : WORLD_DEVICE_MTU,
                        .superframe_bytes = how & 8 ? 20000 : IPU_VNET_LEN + IPU_VNET_PACKET_MAX,
                        .id = 1 + (which >> 3) % WORLD_CONNECTIONS}};
    world_command(&command, NULL, 0);
}

/* [which][stretch 2][length 2][data] */
static void engine(struct input *in)
{
    static const uint32_t types[] = {IPU_COMMAND_SEND_FRAME, IPU_COMMAND_SEND_PACKET,
                                     IPU_COMMAND_CAPTURE,    IPU_COMMAND_SYNC,
                                     IPU_COMMAND_FORWARD,    IPU_COMMAND_DHCP_WATCH};
    uint8_t which = input_u8(in);
    struct ipu_command command = {.type = types[which % 6]};
    size_t len = stretched(in, WORLD_DEVICE_MTU);
    if (command.type == IPU_COMMAND_SEND_FRAME)
        command.send_frame.dest = world_dest(which >> 2 & 7);
    if (command.type == IPU_COMMAND_CAPTURE)
        command.capture.snap_len = which & 128 ? 200 : 0;
    command.len = (uint32_t)len;
    world_command(&command, bytes_of_input, (uint32_t)len);
}

static void set_faults(struct input *in)
{
    uint8_t how = input_u8(in), take = input_u8(in);
    world.faults = (struct world_faults){
        .error = how & 1 ? EIO : 0,
        .device = how & 64    ? EINTR
                  : how & 128 ? EBADFD
                              : 0,
        .take = how & 2 ? take % 8 : -1,
        .queues = how & 4,
        .is_full = how & 8,
        .holds = how & 16,
        .fails = how & 32,
    };
}

/* Next hops of a route or an answer: neighbours of all kinds, and the destination itself. */
static uint32_t fill_hops(struct ipu_hop *hops, uint8_t which)
{
    for (uint32_t i = 0; i < HOPS; i++)
        hops[i] = (struct ipu_hop){.gateway = world_hop(which + i, which & 64),
                                   .weight = 1 + (which >> i & 3),
                                   .on_link = i == which % 5};
    return 1 + which % HOPS;
}

static void set_route(struct input *in)
{
    uint8_t which = input_u8(in), how = input_u8(in);
    struct ipu_hop hops[HOPS];
    uint32_t len = fill_hops(hops, which) * (uint32_t)sizeof *hops;
    struct ipu_command command = {.type = how & 128 ? IPU_COMMAND_ROUTE_DEL : IPU_COMMAND_ROUTE_SET,
                                  .route_set = {.prefix = world_hop(which, which & 64),
                                                .gateway = world_hop(which >> 2, which & 64),
                                                .prefix_len = which & 64 ? which : 96 + which % 33,
                                                .kind = how & 7,
                                                .fields = how >> 3 & 7}};
    command.len = (how & 7) == IPU_ROUTE_MULTIPATH ? len : 0;
    world_command(&command, hops, command.len);
}

/* [which][how][stretch 2][length 2][IP packet]: the kernel's answer about a flow */
static void answer_route(struct input *in)
{
    static uint8_t data[HOPS * sizeof(struct ipu_hop) + WORLD_DEVICE_MTU];
    struct ipu_hop hops[HOPS];
    uint8_t which = input_u8(in), how = input_u8(in);
    uint32_t count = (how & 7) == IPU_ROUTE_MULTIPATH ? fill_hops(hops, which) : 0;
    uint32_t head = count * (uint32_t)sizeof *hops;
    struct ipu_command command = {.type = IPU_COMMAND_ROUTE_ANSWER,
                                  .route_answer = {.gateway = world_hop(which, which & 64),
                                                   .kind = how & 7,
                                                   .hops = count,
                                                   .send = how >> 3 & 1}};
    size_t len = stretched(in, WORLD_DEVICE_MTU);
    if (count > 0)
        memcpy(data, hops, head);
    memcpy(data + head, bytes_of_input, len);
    command.len = head + (uint32_t)len;
    world_command(&command, data, command.len);
}

/* The addresses decide which ARP and ND messages concern us. */
static void set_own(struct input *in)
{
    uint8_t which = input_u8(in);
    struct ipu_command command = {
        .type = IPU_COMMAND_OWN_SET,
        .own_set = {.ip = world_hop(which, which & 64), .ours = !(which & 128)}};
    world_command(&command, NULL, 0);
}

enum guest {
    GUEST_SET,
    GUEST_DEL,
    GUEST_QPN_SET,
    MAC_SET,
    HOST_MAC_SET,
    HOST_MAC_DEL,
    MAC_NEIGHBOUR,
    GUEST_DELIVER,
    GUEST_CHANGES,
};

static void put_mac(uint8_t *at, uint8_t which)
{
    memcpy(at, (uint8_t[IPU_MAC_LEN]){2, [5] = which % WORLD_MACS}, IPU_MAC_LEN);
}

/* [which][how], and for GUEST_DELIVER [stretch 2][length 2][frame]: what the engine says about
 * guests. */
static void change_guest(struct input *in)
{
    static const uint32_t types[GUEST_CHANGES] = {
        [GUEST_SET] = IPU_COMMAND_GUEST_SET,         [GUEST_DEL] = IPU_COMMAND_GUEST_DEL,
        [GUEST_QPN_SET] = IPU_COMMAND_GUEST_QPN_SET, [MAC_SET] = IPU_COMMAND_MAC_SET,
        [HOST_MAC_SET] = IPU_COMMAND_HOST_MAC_SET,   [HOST_MAC_DEL] = IPU_COMMAND_HOST_MAC_DEL,
        [MAC_NEIGHBOUR] = IPU_COMMAND_NEIGH_SET,     [GUEST_DELIVER] = IPU_COMMAND_DELIVER,
    };
    uint8_t which = input_u8(in), how = input_u8(in);
    struct ipu_dest dest = world_dest(how & 7);
    struct ipu_command command = {.type = types[which % GUEST_CHANGES]};
    switch (which % GUEST_CHANGES) {
    case GUEST_SET:
        command.guest_set.ip = world_hop(how, how & 128);
        command.guest_set.firm = how >> 6 & 1;
        put_mac(command.guest_set.mac, how >> 2);
        break;
    case GUEST_DEL:
        command.guest_del.ip = world_hop(how, how & 128);
        break;
    case GUEST_QPN_SET:
        command.guest_qpn_set.qpn = how & 128 ? 0 : WORLD_GUEST_QPN + (how >> 2) % WORLD_MACS;
        put_mac(command.guest_qpn_set.mac, how);
        break;
    case MAC_SET:
        put_mac(command.mac_set.mac, how);
        break;
    case HOST_MAC_SET:
        command.host_mac_set.gid = dest.gid;
        command.host_mac_set.qpn = dest.qpn;
        put_mac(command.host_mac_set.mac, how >> 3);
        break;
    case HOST_MAC_DEL:
        command.host_mac_del.gid = dest.gid;
        command.host_mac_del.qpn = dest.qpn;
        break;
    case MAC_NEIGHBOUR: /* under the key 100::MAC */
        command.neigh_set.next_hop.s6_addr[0] = 1;
        put_mac(command.neigh_set.next_hop.s6_addr + 10, how >> 3);
        command.neigh_set.dest = dest;
        command.neigh_set.mtu = how & 128 ? 600 : WORLD_MTU;
        break;
    default:
        command.len = (uint32_t)stretched(in, WORLD_DEVICE_MTU);
        if (ethernet_len == 0 && command.len < IPU_IPV4_HEADER)
            return; /* the engine delivers whole packets to a TUN */
    }
    world_command(&command, bytes_of_input, command.len);
}

typedef void action(struct input *in);

static void step(struct input *in)
{
    (void)in;
    world_step();
}

static action *const actions[ACTIONS] = {
    [DATAGRAM] = datagram,   [MESSAGE] = message,         [FRAME] = frame,
    [STEP] = step,           [NEIGHBOUR] = set_neighbour, [CONNECTION] = set_connection,
    [TX_MODE] = set_tx_mode, [ENGINE] = engine,           [FAULTS] = set_faults,
    [ROUTE] = set_route,     [ANSWER] = answer_route,     [OWN] = set_own,
    [GUEST] = change_guest,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input in = {data, bytes};
    uint8_t kind = input_u8(&in);
    ethernet_len = kind & 8 ? IPU_ETHERNET_LEN : 0;
    world_open(kind & (IPU_DEVICE_TCP | IPU_DEVICE_UDP), kind & 4, kind & 8, kind & 16);
    for (int i = 0; i < ACTIONS_MAX && in.left > 0; i++)
        actions[input_u8(&in) % ACTIONS](&in);
    world.faults = (struct world_faults){.take = -1};
    world_step();
    world_step();
    MUST(world_is_whole());
    world_close();
    return 0;
}
