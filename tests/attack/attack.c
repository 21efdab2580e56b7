/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An attacker on the wire of an interface under test. It sends RoCEv2 packets with right
 * ICRCs and any source address at a rate that the caller chooses, or repeats packets of the device.
 *
 *   attack flood  NETDEV RATE SECONDS SRC_MAC DST_MAC SRC_GID DST_GID [OPTION...] < TEMPLATE
 *   attack replay NETDEV RATE SECONDS
 *
 * TEMPLATE is the packet from the BTH to before the ICRC in hexadecimal digits. Options of a flood:
 *
 *   random:OFFSET:BYTES   this field of the template is random in each packet
 *   count:OFFSET:BYTES    this field counts the packets
 *   twin:OFFSET:OFFSET    16 bits are random, and the other ones their complement
 *   source:BYTES          the low bytes of the source address are random
 *   port:NUMBER           UDP source port (4791)
 *   bad-icrc              the ICRC is wrong
 *
 * A replay keeps the last 1024 frames to UDP port 4791 that the device sends, and sends them again.
 * SIGTERM ends both early. The program prints "begun" after its first frames, and at its end the
 * number of frames that it sent.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "flood.h"

enum {
    BATCH = 64,
    TICK_NS = 1000000, /* packets leave in a burst at each tick */
    LATE_TICKS = 20,   /* a sender that lost the CPU makes up for so many ticks at most */
    NS_PER_S = 1000000000,
    VNET_BYTES = 10,
    HEARD_BYTES = VNET_BYTES + 65536 + 128,
    HEARD_MAX = 1024,
};

struct sender {
    int fd;
    uint64_t rate;
    int64_t end_ns;
    uint64_t sent;
    void *source;
    /* The frames of the next n packets. */
    void (*fill)(void *source, struct iovec *iov, unsigned int n);
};

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "attack: %s: %s\n", what, strerror(errno));
    exit(1);
}

_Noreturn static void usage(const char *word)
{
    fprintf(stderr, "attack: cannot read %s\n", word);
    exit(2);
}

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int open_wire(const char *netdev, uint16_t protocol)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol)};
    int one = 1, fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(protocol));
    address.sll_ifindex = (int)if_nametoindex(netdev);
    if (fd < 0 || address.sll_ifindex == 0)
        die(netdev);
    if (setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("socket");
    return fd;
}

/* ---- sending at a rate ----------------------------------------------------------------------- */

static void send_some(struct sender *sender, uint64_t wanted)
{
    while (wanted > 0 && !stopped) {
        unsigned int n = wanted < BATCH ? (unsigned int)wanted : BATCH;
        struct iovec iov[BATCH];
        struct mmsghdr message[BATCH] = {0};
        sender->fill(sender->source, iov, n);
        for (unsigned int i = 0; i < n; i++)
            message[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
        int done = sendmmsg(sender->fd, message, n, 0);
        if (done < 0 && errno != ENOBUFS && errno != EINTR && errno != ENETDOWN)
            die("sendmmsg");
        if (done > 0 && sender->sent == 0) {
            puts("begun");
            fflush(stdout);
        }
        sender->sent += done > 0 ? (uint64_t)done : 0;
        wanted -= n;
    }
}

static void send_all(struct sender *sender)
{
    int64_t began_ns = clock_ns(), at_ns = began_ns;
    uint64_t due = 0;
    while (!stopped && at_ns < sender->end_ns) {
        int64_t late_ns = clock_ns() - at_ns;
        if (late_ns > LATE_TICKS * (int64_t)TICK_NS) {
            began_ns += late_ns; /* the attacker skips packets that are this late */
            at_ns += late_ns;
        }
        at_ns += TICK_NS;
        uint64_t total = (uint64_t)(at_ns - began_ns) / 1000 * sender->rate / 1000000;
        send_some(sender, total - due);
        due = total;
        struct timespec until = {at_ns / NS_PER_S, at_ns % NS_PER_S};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
}

/* ---- flood ----------------------------------------------------------------------------------- */

static void fill_flood(void *source, struct iovec *iov, unsigned int n)
{
    static uint8_t frame[BATCH][FLOOD_FRAME_MAX];
    for (unsigned int i = 0; i < n; i++)
        iov[i] = (struct iovec){frame[i], flood_next(source, frame[i])};
}

static void read_mac(const char *word, uint8_t mac[6])
{
    if (sscanf(word, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4],
               &mac[5]) != 6)
        usage(word);
}

static void read_gid(const char *word, struct in6_addr *gid)
{
    if (inet_pton(AF_INET6, word, gid) != 1)
        usage(word);
}

static void read_template(struct flood *flood)
{
    unsigned int byte;
    while (flood->template_bytes < FLOOD_TEMPLATE_MAX && scanf("%2x", &byte) == 1)
        flood->template[flood->template_bytes++] = (uint8_t)byte;
    if (flood->template_bytes < 12 || flood->template_bytes % 4 != 0)
        usage("the template: it has 12 bytes or more, a multiple of 4");
}

static void read_field(struct flood *flood, const char *word)
{
    static const char *const names[] = {"random:", "count:", "twin:"};
    struct flood_field field = {0};
    unsigned int kind = 0;
    while (kind < 3 && strncmp(word, names[kind], strlen(names[kind])) != 0)
        kind++;
    if (kind == 3 || flood->fields == FLOOD_FIELDS_MAX ||
        sscanf(strchr(word, ':'), ":%u:%u", &field.offset, &field.bytes) != 2)
        usage(word);
    field.value = (enum flood_value)kind;
    if (kind == FLOOD_TWIN) {
        field.twin_offset = field.bytes;
        field.bytes = 2;
    }
    uint32_t end = kind == FLOOD_TWIN ? field.twin_offset + 2 : field.offset + field.bytes;
    if (end > flood->template_bytes || field.offset + 2 > flood->template_bytes || field.bytes > 8)
        usage(word);
    flood->field[flood->fields++] = field;
}

static void read_option(struct flood *flood, const char *word)
{
    unsigned int number;
    if (strcmp(word, "bad-icrc") == 0)
        flood->bad_icrc = true;
    else if (sscanf(word, "source:%u", &number) == 1 && number <= 8)
        flood->source_bytes = number;
    else if (sscanf(word, "port:%u", &number) == 1)
        flood->src_port = (uint16_t)number;
    else
        read_field(flood, word);
}

static void prepare_flood(struct flood *flood, int count, char **words)
{
    *flood = (struct flood){.src_port = 4791, .random = 88172645463325252};
    read_mac(words[0], flood->src_mac);
    read_mac(words[1], flood->dst_mac);
    read_gid(words[2], &flood->src);
    read_gid(words[3], &flood->dst);
    read_template(flood);
    for (int i = 4; i < count; i++)
        read_option(flood, words[i]);
}

/* ---- replay ---------------------------------------------------------------------------------- */

struct heard {
    int fd;
    unsigned int count, next;
    struct iovec frame[HEARD_MAX];
    struct sockaddr_ll
        last; /* where the last frame came from; packets that we sent are there, too */
};

static bool is_roce(const uint8_t *frame, ssize_t bytes)
{
    const uint8_t *ethernet = frame + VNET_BYTES;
    return bytes > VNET_BYTES + FLOOD_HEAD && ethernet[12] == 0x86 && ethernet[13] == 0xdd &&
           ethernet[20] == IPPROTO_UDP && ethernet[56] == 4791 >> 8 && ethernet[57] == (4791 & 255);
}

/* Replaces a random frame by what has just left the device. */
static void listen_once(struct heard *heard)
{
    static uint8_t frame[HEARD_BYTES];
    socklen_t address_bytes = sizeof heard->last;
    ssize_t bytes = recvfrom(heard->fd, frame, sizeof frame, MSG_DONTWAIT,
                             (struct sockaddr *)&heard->last, &address_bytes);
    if (bytes < 0 || heard->last.sll_pkttype != PACKET_OUTGOING || !is_roce(frame, bytes))
        return;
    struct iovec *at = &heard->frame[heard->next++ % HEARD_MAX];
    if (heard->count < HEARD_MAX)
        heard->count++;
    at->iov_base = realloc(at->iov_base, (size_t)bytes);
    if (at->iov_base == NULL)
        die("realloc");
    at->iov_len = (size_t)bytes;
    memcpy(at->iov_base, frame, (size_t)bytes);
}

static void fill_heard(void *source, struct iovec *iov, unsigned int n)
{
    struct heard *heard = source;
    for (int i = 0; i < BATCH; i++)
        listen_once(heard);
    while (heard->count == 0 && !stopped) {
        struct pollfd ready = {.fd = heard->fd, .events = POLLIN};
        (void)poll(&ready, 1, 100);
        listen_once(heard);
    }
    for (unsigned int i = 0; i < n; i++)
        iov[i] = heard->count > 0 ? heard->frame[(unsigned int)rand() % heard->count]
                                  : (struct iovec){"", 0};
}

/* ---- the program ----------------------------------------------------------------------------- */

static void with_vnet(int fd)
{
    int one = 1;
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) < 0)
        die("PACKET_VNET_HDR");
}

int main(int argc, char **argv)
{
    static struct flood flood;
    static struct heard heard;
    struct sigaction action = {.sa_handler = stop};
    struct sender sender = {0};
    bool replay = argc == 5 && strcmp(argv[1], "replay") == 0;
    if (!replay && (argc < 9 || strcmp(argv[1], "flood") != 0)) {
        fprintf(stderr, "attack: expected `flood` or `replay` and their words, see attack.c\n");
        return 2;
    }
    sigaction(SIGTERM, &action, NULL);
    sender.fd = open_wire(argv[2], 0);
    sender.rate = strtoull(argv[3], NULL, 10);
    if (replay) {
        heard.fd = open_wire(argv[2], ETH_P_ALL);
        with_vnet(heard.fd);
        with_vnet(sender.fd);
        sender.source = &heard;
        sender.fill = fill_heard;
    } else {
        prepare_flood(&flood, argc - 5, argv + 5);
        sender.source = &flood;
        sender.fill = fill_flood;
    }
    sender.end_ns = clock_ns() + (int64_t)(strtod(argv[4], NULL) * NS_PER_S);
    send_all(&sender);
    printf("%llu\n", (unsigned long long)sender.sent);
    return 0;
}
