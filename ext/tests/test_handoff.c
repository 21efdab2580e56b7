/* SPDX-License-Identifier: BSD-2-Clause */
/* The pump between guests and the link: a pair of sockets plays the TAP, and the test the fabric.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "fake_fabric.h"
#include "stepped_pump.h"
#include "roomy_pump.h"
#include "core/frame.h"
#include "core/ip_header.h"
#include "device/tap.h"
#include "device/vnet.h"

enum { MTU = 2044, IP = 40, ETHERNET = IPU_VNET_LEN + IPU_ETHERNET_LEN, FRAMES = 8, HOST = 0x55 };

static const uint8_t guest[IPU_MAC_LEN] = {2, [5] = 7}, rival[IPU_MAC_LEN] = {2, [5] = 8};
static const uint8_t host[IPU_MAC_LEN] = {2, [5] = 9}, own[IPU_MAC_LEN] = {2, [5] = 10};
static const uint8_t all[IPU_MAC_LEN] = {255, 255, 255, 255, 255, 255};
static const uint8_t odd[IPU_MAC_LEN] = {255, 1}; /* of a group, and not all ones */
static const uint8_t group[IPU_MAC_LEN] = {1, 0, 0x5e, 1, 2, 3};
static const struct in6_addr gid = {.s6_addr = {0xfe, 0x80, [15] = 2}};

static struct ipu_tap tap;
static int kernel; /* the other end of the TAP */

static struct {
    uint8_t *buffer[FRAMES]; /* posted receives */
    uint64_t cookie[FRAMES];
    int posted, taken;
    uint32_t len; /* of the datagram that the fabric has, 0: none */
    uint32_t qpn;
    uint32_t to_qpn; /* of ours, 0: the fabric does not say */
    bool has_grh;
    uint8_t data[IPU_GRH_LEN + IPU_ENCAP_LEN + MTU];
    int sent, ended;
    uint32_t sent_qpn, sent_from;
    uint64_t sent_cookie[64];
} link_;

static int post(void *self, const struct ipu_recv *recvs, int n)
{
    (void)self;
    for (int i = 0; i < n; i++) {
        link_.buffer[link_.posted % FRAMES] = recvs[i].addr;
        link_.cookie[link_.posted++ % FRAMES] = recvs[i].cookie;
    }
    return n;
}

static int received(void *self, struct ipu_received *done, int max)
{
    (void)self;
    if (link_.len == 0 || max == 0)
        return 0;
    int i = link_.taken++ % FRAMES;
    memcpy(link_.buffer[i], link_.data, link_.len);
    *done = (struct ipu_received){.cookie = link_.cookie[i],
                                  .byte_len = link_.len,
                                  .src_qpn = link_.qpn,
                                  .qpn = link_.to_qpn,
                                  .flags = link_.has_grh ? IPU_RECEIVED_GRH : 0};
    link_.len = 0;
    return 1;
}

static int send_all(void *self, const struct ipu_send *sends, int n)
{
    (void)self;
    for (int i = 0; i < n; i++)
        link_.sent_cookie[link_.sent++ % 64] = sends[i].cookie;
    link_.sent_qpn = sends[0].qpn;
    link_.sent_from = sends[0].source_qpn;
    return n;
}

static int end_sends(void *self, uint64_t *cookies, int max)
{
    (void)self;
    int n = 0;
    while (n < max && link_.ended < link_.sent)
        cookies[n++] = link_.sent_cookie[link_.ended++ % 64];
    return n;
}

static const struct ipu_fabric_ops fabric_ops = {
    FAKE_FABRIC_OPS,   .send = send_all,     .post = post,
    .sent = end_sends, .received = received, .fd = the_fabric_fd,
};
static struct ipu_fabric fabric = {.ops = &fabric_ops, .qpn = 0x48, .mtu = MTU + IPU_ENCAP_LEN};

static struct in6_addr address(const char *text)
{
    struct in6_addr ip = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (inet_pton(AF_INET6, text, &ip) != 1)
        CHECK_EQ(inet_pton(AF_INET, text, ip.s6_addr + 12), 1);
    return ip;
}

static void neighbour(struct in6_addr next_hop, uint32_t qpn)
{
    give(
        (struct ipu_command){
            .type = IPU_COMMAND_NEIGH_SET,
            .neigh_set = {.next_hop = next_hop, .dest = {.qpn = qpn, .gid = gid}, .mtu = MTU}},
        NULL);
}

static void set_guest(const char *ip, bool firm)
{
    struct ipu_command command = {.type = IPU_COMMAND_GUEST_SET,
                                  .guest_set = {.ip = address(ip), .firm = firm}};
    memcpy(command.guest_set.mac, guest, IPU_MAC_LEN);
    give(command, NULL);
}

static void begin(void)
{
    int ends[2];
    struct ipu_command mac = {.type = IPU_COMMAND_MAC_SET};
    struct ipu_command host_mac = {.type = IPU_COMMAND_HOST_MAC_SET,
                                   .host_mac_set = {.gid = gid, .qpn = HOST}};
    struct in6_addr key = {.s6_addr = {1}};
    memset(&link_, 0, sizeof link_);
    open_descriptors();
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    kernel = ends[1];
    ipu_tap_init(&tap, ends[0], IPU_DEVICE_TCP | IPU_DEVICE_UDP);
    struct ipu_pump_config config = {
        .fabric = &fabric,
        .device = &tap.device,
        .mtu = MTU,
        .rx_frames = FRAMES,
        ROOMY_PUMP,
    };
    CHECK_EQ(ipu_pump_create(&config, &pump), 0);
    memcpy(key.s6_addr + 10, host, IPU_MAC_LEN);
    neighbour(key, HOST);
    neighbour(address("239.1.2.3"), IPU_MULTICAST_QPN);
    neighbour(address("255.255.255.255"), IPU_MULTICAST_QPN);
    memcpy(mac.mac_set.mac, own, IPU_MAC_LEN);
    memcpy(host_mac.host_mac_set.mac, host, IPU_MAC_LEN);
    give(mac, NULL);
    give(host_mac, NULL);
    set_guest("10.0.0.7", true);
    set_guest("fd00::7", true);
    ipu_pump_step(pump, 64);
    CHECK_EQ(counter("commands_bad"), 0);
}

static void end(void)
{
    destroy_pump();
    close(kernel);
    close(tap.fd);
}

/* An IP packet of IP bytes, UDP over IPv4, or with "::" in the addresses over IPv6. */
static void put_ip(uint8_t *ip, const char *from, const char *to)
{
    struct in6_addr source = address(from), target = address(to);
    memset(ip, 0, IP + 8);
    if (strchr(from, ':') != NULL) {
        ip[0] = 0x60;
        ip[5] = 8;
        ip[IPU_IPV6_NEXT_HEADER] = IPPROTO_UDP;
        memcpy(ip + 8, &source, 16);
        memcpy(ip + 24, &target, 16);
        return;
    }
    ip[0] = 0x45;
    ip[3] = IP;
    ip[IPU_IPV4_PROTOCOL] = IPPROTO_UDP;
    memcpy(ip + 12, source.s6_addr + 12, 4);
    memcpy(ip + 16, target.s6_addr + 12, 4);
}

static size_t put_frame(uint8_t *frame, const uint8_t *to, const uint8_t *from, uint16_t type,
                        const char *source, const char *target)
{
    memset(frame, 0, IPU_VNET_LEN);
    memcpy(frame + IPU_VNET_LEN, to, IPU_MAC_LEN);
    memcpy(frame + IPU_VNET_LEN + IPU_MAC_LEN, from, IPU_MAC_LEN);
    ipu_ip_put16(frame + IPU_VNET_LEN + 2 * IPU_MAC_LEN, type);
    put_ip(frame + ETHERNET, source, target);
    return ETHERNET + (type == IPU_TYPE_IPV6 ? 48 : IP);
}

/* Gives the pump a guest's frame, and checks that it ends in this counter. */
static void sends(const uint8_t *to, const uint8_t *from, uint16_t type, const char *source,
                  const char *target, const char *ends_in)
{
    uint8_t frame[256];
    size_t len = put_frame(frame, to, from, type, source, target);
    uint64_t before = counter(ends_in);
    CHECK_EQ(send(kernel, frame, len, 0), (ssize_t)len);
    ipu_pump_step(pump, 1);
    CHECK_EQ(counter(ends_in), before + 1);
}

static void each_frame_of_a_guest_has_its_end(void)
{
    begin();
    sends(host, guest, IPU_TYPE_IPV4, "10.0.0.7", "192.0.2.1", "tx_packets");
    CHECK_EQ(link_.sent_qpn, HOST);
    sends(host, guest, IPU_TYPE_IPV6, "fd00::7", "fd00::9", "tx_packets");
    sends(group, guest, IPU_TYPE_IPV4, "10.0.0.7", "239.1.2.3", "tx_packets");
    CHECK_EQ(link_.sent_qpn, IPU_MULTICAST_QPN);
    sends(all, guest, IPU_TYPE_IPV4, "10.0.0.7", "10.0.0.255", "tx_packets");
    CHECK_EQ(link_.sent, 4);
    sends(group, guest, IPU_TYPE_IPV4, "10.0.0.7", "10.0.0.9", "tx_missed");
    sends(odd, guest, IPU_TYPE_IPV4, "10.0.0.7", "10.0.0.9", "tx_missed");
    sends(rival, guest, IPU_TYPE_IPV4, "10.0.0.7", "10.0.0.9", "tx_missed");
    sends(host, guest, IPU_TYPE_IPV4, "10.0.0.8", "10.0.0.9", "tx_missed");
    sends(all, guest, IPU_TYPE_ARP, "10.0.0.7", "10.0.0.9", "tx_missed");
    sends(all, guest, 0x8035, "10.0.0.7", "10.0.0.9", "tx_missed");
    sends(host, rival, IPU_TYPE_IPV4, "10.0.0.7", "10.0.0.9", "tx_spoofed");
    sends(host, guest, 0x8100, "10.0.0.7", "10.0.0.9", "tx_vlan");
    sends(host, guest, 0x88a8, "10.0.0.7", "10.0.0.9", "tx_vlan");
    sends(host, guest, 0x88cc, "10.0.0.7", "10.0.0.9", "tx_not_ip");
    sends(host, guest, IPU_TYPE_IPV6, "10.0.0.7", "10.0.0.9", "tx_malformed");
    set_guest("10.0.0.7", false);
    ipu_pump_step(pump, 64);
    sends(host, rival, IPU_TYPE_IPV4, "10.0.0.7", "10.0.0.9", "tx_packets");
    CHECK_EQ(link_.sent, 5);
    end();
}

/* The link has a packet; the guest that gets it sees it come from `from`, NULL: nobody gets it. */
static void arrives(const char *source, const char *target, uint32_t qpn, const uint8_t *from)
{
    uint8_t got[256];
    bool is_v6 = strchr(source, ':') != NULL;
    memcpy(link_.data + 8, &gid, 16);
    ipu_ip_put16(link_.data + IPU_GRH_LEN, is_v6 ? IPU_TYPE_IPV6 : IPU_TYPE_IPV4);
    put_ip(link_.data + IPU_GRH_LEN + IPU_ENCAP_LEN, source, target);
    link_.has_grh = qpn != 0;
    link_.qpn = qpn;
    link_.len = IPU_GRH_LEN + IPU_ENCAP_LEN + (is_v6 ? 48 : IP);
    ipu_pump_step(pump, 1);
    ssize_t len = recv(kernel, got, sizeof got, 0);
    CHECK_EQ(len > 0, from != NULL);
    if (from == NULL)
        return;
    CHECK_EQ(len, ETHERNET + (is_v6 ? 48 : IP));
    CHECK_EQ(memcmp(got + IPU_VNET_LEN + IPU_MAC_LEN, from, IPU_MAC_LEN), 0);
}

static void each_packet_of_the_link_has_its_end(void)
{
    begin();
    arrives("10.0.0.9", "10.0.0.7", HOST, host);
    arrives("fd00::9", "fd00::7", HOST, host);
    arrives("10.0.0.9", "239.1.2.3", HOST, host);
    arrives("10.0.0.9", "10.0.0.7", 0x77, own);
    arrives("10.0.0.9", "10.0.0.7", 0, own); /* without a GRH nobody knows the sender */
    CHECK_EQ(counter("rx_packets"), 5);
    arrives("10.0.0.9", "10.0.0.8", HOST, NULL);
    CHECK_EQ(counter("rx_control"), 1);
    for (int i = 0; i < 300; i++)
        arrives("10.0.0.9", "10.0.0.8", HOST, NULL);
    CHECK(counter("rx_unknown_guest") > 0);
    CHECK_EQ(counter("rx_unknown_guest") + counter("rx_control"), 301);
    struct ipu_command gone = {.type = IPU_COMMAND_HOST_MAC_DEL,
                               .host_mac_del = {.gid = gid, .qpn = HOST}};
    struct ipu_command left = {.type = IPU_COMMAND_GUEST_DEL, .guest_del.ip = address("fd00::7")};
    give(gone, NULL);
    give(left, NULL);
    ipu_pump_step(pump, 64);
    arrives("10.0.0.9", "10.0.0.7", HOST, own);
    arrives("fd00::9", "fd00::7", HOST, NULL);
    end();
}

static void set_qpn(const uint8_t *mac, uint32_t qpn)
{
    struct ipu_command command = {.type = IPU_COMMAND_GUEST_QPN_SET, .guest_qpn_set.qpn = qpn};
    memcpy(command.guest_qpn_set.mac, mac, IPU_MAC_LEN);
    give(command, NULL);
    ipu_pump_step(pump, 64);
}

/* The link has a packet for one of our queue pairs, which `receiver` gets; NULL: nobody. */
static void comes_to(uint32_t qpn, const char *target, const uint8_t *receiver)
{
    uint8_t got[256];
    link_.to_qpn = qpn;
    memcpy(link_.data + 8, &gid, 16);
    ipu_ip_put16(link_.data + IPU_GRH_LEN, IPU_TYPE_IPV4);
    put_ip(link_.data + IPU_GRH_LEN + IPU_ENCAP_LEN, "10.0.0.9", target);
    link_.has_grh = true;
    link_.qpn = HOST;
    link_.len = IPU_GRH_LEN + IPU_ENCAP_LEN + IP;
    ipu_pump_step(pump, 1);
    link_.to_qpn = 0;
    CHECK_EQ(recv(kernel, got, sizeof got, 0) > 0, receiver != NULL);
    if (receiver != NULL)
        CHECK_EQ(memcmp(got + IPU_VNET_LEN, receiver, IPU_MAC_LEN), 0);
}

static void a_guest_has_a_queue_pair_of_its_own(void)
{
    struct ipu_command frame = {
        .type = IPU_COMMAND_SEND_FRAME,
        .len = IPU_ENCAP_LEN + 28,
        .send_frame = {.dest = {.qpn = HOST, .gid = gid}, .source_qpn = 0x50}};
    uint8_t message[IPU_ENCAP_LEN + 28] = {8, 6}, engines[IPU_ETHERNET_LEN + IP + 8];
    begin();
    set_qpn(guest, 0x50);
    sends(host, guest, IPU_TYPE_IPV4, "10.0.0.7", "192.0.2.1", "tx_packets");
    CHECK_EQ(link_.sent_from, 0x50);
    sends(group, guest, IPU_TYPE_IPV4, "10.0.0.7", "239.1.2.3", "tx_packets");
    CHECK_EQ(link_.sent_from, 0x50);
    give(frame, message);
    ipu_pump_step(pump, 64);
    CHECK_EQ(link_.sent_from, 0x50);
    memcpy(engines, host, IPU_MAC_LEN);
    memcpy(engines + IPU_MAC_LEN, rival, IPU_MAC_LEN);
    ipu_ip_put16(engines + 2 * IPU_MAC_LEN, IPU_TYPE_IPV4);
    put_ip(engines + IPU_ETHERNET_LEN, "10.0.0.8", "10.0.0.9");
    give((struct ipu_command){.type = IPU_COMMAND_SEND_PACKET, .len = sizeof engines - 8}, engines);
    ipu_pump_step(pump, 64);
    CHECK_EQ(link_.sent, 4);
    CHECK_EQ(link_.sent_from, 0);       /* the rival shares the interface's */
    comes_to(0x50, "192.0.2.1", guest); /* a router gets what it shall pass on */
    comes_to(fabric.qpn, "10.0.0.7", guest);
    comes_to(fabric.qpn, "192.0.2.1", NULL);
    comes_to(0x51, "10.0.0.7", guest); /* for a guest that has left */
    uint64_t echoes = counter("rx_echo");
    memcpy(&fabric.gid, &gid, sizeof gid);
    link_.qpn = 0x50;
    link_.len = IPU_GRH_LEN + IPU_ENCAP_LEN + IP;
    ipu_pump_step(pump, 1);
    CHECK_EQ(counter("rx_echo"), echoes + 1); /* a guest's own multicast */
    memset(&fabric.gid, 0, sizeof gid);
    set_qpn(guest, 0);
    sends(host, guest, IPU_TYPE_IPV4, "10.0.0.7", "192.0.2.1", "tx_packets");
    CHECK_EQ(link_.sent_from, 0);
    comes_to(0x50, "192.0.2.1", NULL);
    CHECK_EQ(counter("commands_bad"), 0);
    end();
}

static void no_frame_does_harm(void)
{
    uint8_t frame[512];
    uint32_t seed = 4791;
    begin();
    for (int round = 0; round < 50000; round++) {
        size_t len =
            put_frame(frame, host, guest, round % 2 ? IPU_TYPE_IPV4 : IPU_TYPE_IPV6,
                      round % 2 ? "10.0.0.7" : "fd00::7", round % 2 ? "10.0.0.9" : "fd00::9");
        for (int changes = 0; changes < 4; changes++) {
            seed = seed * 1664525u + 1013904223u;
            frame[(seed >> 8) % len] ^= (uint8_t)(1u << (seed >> 28 & 7));
        }
        seed = seed * 1664525u + 1013904223u;
        if (seed >> 31)
            len = 1 + (seed >> 8) % len;
        CHECK_EQ(send(kernel, frame, len, 0), (ssize_t)len);
        ipu_pump_step(pump, 8);
        uint32_t record;
        while (ipu_ring_peek(ipu_pump_events(pump), &record) != NULL)
            ipu_ring_release(ipu_pump_events(pump));
    }
    CHECK(counter("tx_packets") > 100 && counter("tx_missed") > 100 && counter("tx_not_ip") > 100);
    end();
}

int main(void)
{
    RUN(each_frame_of_a_guest_has_its_end);
    RUN(each_packet_of_the_link_has_its_end);
    RUN(a_guest_has_a_queue_pair_of_its_own);
    RUN(no_frame_does_harm);
    return 0;
}
