/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A guest whose stack is lwIP (Debian's liblwip), on a TAP. pytcp_guest.py says what it does.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <lwip/etharp.h>
#include <lwip/ethip6.h>
#include <lwip/snmp.h>
#include <lwip/sockets.h>
#include <lwip/tcpip.h>
#include <netif/ethernet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    MTU = 1500,
    FRAME_BYTES = MTU + 14,
    PORT = 7,
    STREAM_BYTES = 32768,
    ANSWER_S = 20,
    DETECTION_MS = 10000,
    LOOK_MS = 100,
};

/* `struct ifreq`, whose header conflicts with lwIP's. */
struct request {
    char name[16];
    short flags;
    char rest[22];
};

static struct netif guest;
static int tap;
static char body[STREAM_BYTES];

static err_t put(struct netif *netif, struct pbuf *packet)
{
    char frame[FRAME_BYTES];
    (void)netif;
    u16_t bytes = pbuf_copy_partial(packet, frame, sizeof frame, 0);
    return write(tap, frame, bytes) == (ssize_t)bytes ? ERR_OK : ERR_IF;
}

static void *take(void *none)
{
    char frame[FRAME_BYTES];
    ssize_t bytes;
    while ((bytes = read(tap, frame, sizeof frame)) > 0) {
        struct pbuf *packet = pbuf_alloc(PBUF_RAW, (u16_t)bytes, PBUF_RAM);
        if (packet == NULL)
            continue;
        pbuf_take(packet, frame, (u16_t)bytes);
        if (guest.input(packet, &guest) != ERR_OK)
            pbuf_free(packet);
    }
    return none;
}

static err_t set_up(struct netif *netif)
{
    netif->name[0] = 'e';
    netif->name[1] = 'n';
    netif->mtu = MTU;
    netif->hwaddr_len = ETH_HWADDR_LEN;
    memcpy(netif->hwaddr, netif->state, ETH_HWADDR_LEN);
    netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET |
                   NETIF_FLAG_IGMP | NETIF_FLAG_MLD6;
    netif->output = etharp_output;
    netif->output_ip6 = ethip6_output;
    netif->linkoutput = put;
    return ERR_OK;
}

/* A text without its prefix length, which is /24 and /64 here. */
struct text {
    char of[64];
};

static struct text bare(const char *text)
{
    struct text bare;
    snprintf(bare.of, sizeof bare.of, "%.*s", (int)strcspn(text, "/"), text);
    return bare;
}

static ip_addr_t address_of(const char *text)
{
    ip_addr_t parsed;
    if (!ipaddr_aton(bare(text).of, &parsed)) {
        fprintf(stderr, "no address: %s\n", text);
        exit(2);
    }
    return parsed;
}

union end {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

/* Fills in port 7 of an address; returns how long the address of the socket is. */
static socklen_t at_port_7(const ip_addr_t *address, union end *end)
{
    memset(end, 0, sizeof *end);
    if (!IP_IS_V6(address)) {
        end->in.sin_family = AF_INET;
        end->in.sin_port = lwip_htons(PORT);
        inet_addr_from_ip4addr(&end->in.sin_addr, ip_2_ip4(address));
        return sizeof end->in;
    }
    end->in6.sin6_family = AF_INET6;
    end->in6.sin6_port = lwip_htons(PORT);
    inet6_addr_from_ip6addr(&end->in6.sin6_addr, ip_2_ip6(address));
    return sizeof end->in6;
}

static int open_socket(const ip_addr_t *address, int type)
{
    struct timeval answer = {.tv_sec = ANSWER_S};
    int fd = lwip_socket(IP_IS_V6(address) ? AF_INET6 : AF_INET, type, 0);
    lwip_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &answer, sizeof answer);
    return fd;
}

/* Reads exactly so many bytes; returns how many came. */
static size_t read_all(int fd, char *into, size_t bytes)
{
    size_t got = 0;
    ssize_t more;
    while (got < bytes && (more = lwip_recv(fd, into + got, bytes - got, 0)) > 0)
        got += (size_t)more;
    return got;
}

static void *send_body(void *fd)
{
    for (size_t sent = 0; sent < sizeof body;) {
        ssize_t bytes = lwip_send(*(int *)fd, body + sent, sizeof body - sent, 0);
        if (bytes <= 0)
            break;
        sent += (size_t)bytes;
    }
    return NULL;
}

static void say(const char *kind, int family, bool is_whole, size_t got)
{
    if (is_whole)
        printf("%s%d ok\n", kind, family);
    else
        printf("%s%d %zu bytes, errno %d\n", kind, family, got, errno);
    fflush(stdout);
}

static void ask(const char *peer)
{
    static char got[STREAM_BYTES];
    static const size_t lengths[] = {1, 1400, 5000};
    ip_addr_t address = address_of(peer);
    int family = IP_IS_V6(&address) ? 6 : 4;
    union end end;
    socklen_t end_bytes = at_port_7(&address, &end);

    int stream = open_socket(&address, SOCK_STREAM);
    size_t bytes = 0;
    if (lwip_connect(stream, &end.any, end_bytes) == 0) {
        pthread_t sender;
        pthread_create(&sender, NULL, send_body, &stream);
        bytes = read_all(stream, got, sizeof got);
        pthread_join(sender, NULL);
    }
    say("tcp", family, bytes == sizeof body && memcmp(got, body, sizeof body) == 0, bytes);
    lwip_close(stream);

    int datagrams = open_socket(&address, SOCK_DGRAM);
    bool is_whole = lwip_connect(datagrams, &end.any, end_bytes) == 0;
    for (size_t i = 0; is_whole && i < sizeof lengths / sizeof *lengths; i++) {
        lwip_send(datagrams, body, lengths[i], 0);
        ssize_t length = lwip_recv(datagrams, got, sizeof got, 0);
        bytes = length > 0 ? (size_t)length : 0;
        is_whole = bytes == lengths[i] && memcmp(got, body, bytes) == 0;
    }
    say("udp", family, is_whole, bytes);
    lwip_close(datagrams);
}

static void *echo_stream(void *fd)
{
    char data[8192];
    int stream = (int)(intptr_t)fd;
    ssize_t bytes;
    while ((bytes = lwip_recv(stream, data, sizeof data, 0)) > 0)
        if (lwip_send(stream, data, (size_t)bytes, 0) != bytes)
            break;
    lwip_close(stream);
    return NULL;
}

static void *echo_streams(void *own)
{
    union end end;
    socklen_t end_bytes = at_port_7(own, &end);
    int listening = lwip_socket(IP_IS_V6((ip_addr_t *)own) ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    lwip_bind(listening, &end.any, end_bytes);
    lwip_listen(listening, 4);
    int stream;
    while ((stream = lwip_accept(listening, NULL, NULL)) >= 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, echo_stream, (void *)(intptr_t)stream) == 0)
            pthread_detach(thread);
    }
    return NULL;
}

static void *echo_datagrams(void *own)
{
    static char data[2][65536];
    union end end;
    socklen_t end_bytes = at_port_7(own, &end);
    bool is_v6 = IP_IS_V6((ip_addr_t *)own);
    int fd = lwip_socket(is_v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
    lwip_bind(fd, &end.any, end_bytes);
    union end sender;
    socklen_t sender_bytes = sizeof sender;
    ssize_t bytes;
    while ((bytes = lwip_recvfrom(fd, data[is_v6], sizeof data[is_v6], 0, &sender.any,
                                  &sender_bytes)) >= 0)
        lwip_sendto(fd, data[is_v6], (size_t)bytes, 0, &sender.any, sender_bytes);
    return NULL;
}

/* Waits for the end of duplicate detection; returns whether the address is ours. */
static bool await_ipv6(s8_t index)
{
    for (int ms = 0; ms < DETECTION_MS; ms += LOOK_MS) {
        LOCK_TCPIP_CORE();
        u8_t state = netif_ip6_addr_state(&guest, index);
        UNLOCK_TCPIP_CORE();
        if (ip6_addr_ispreferred(state))
            return true;
        if (ip6_addr_isduplicated(state) || ip6_addr_isinvalid(state))
            return false;
        usleep(LOOK_MS * 1000);
    }
    return false;
}

int main(int argc, char **argv)
{
    static ip_addr_t own[2];
    struct request request = {.flags = IFF_TAP | IFF_NO_PI};
    unsigned mac[6];
    u8_t bytes[6];
    if (argc < 5 || sscanf(argv[2], "%x:%x:%x:%x:%x:%x", mac, mac + 1, mac + 2, mac + 3, mac + 4,
                           mac + 5) != 6) {
        fprintf(stderr, "usage: lwip_guest TAP MAC IPV4/24 IPV6/64 [PEER...]\n");
        return 2;
    }
    for (int i = 0; i < 6; i++)
        bytes[i] = (u8_t)mac[i];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(i * 7 + (i >> 8));
    snprintf(request.name, sizeof request.name, "%s", argv[1]);
    tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request) != 0) {
        perror(argv[1]);
        return 1;
    }
    for (int i = 0; i < 2; i++)
        own[i] = address_of(argv[3 + i]);

    ip4_addr_t mask, nobody = {0};
    s8_t index;
    pthread_t thread;
    IP4_ADDR(&mask, 255, 255, 255, 0);
    tcpip_init(NULL, NULL);
    LOCK_TCPIP_CORE();
    netif_add(&guest, ip_2_ip4(&own[0]), &mask, &nobody, bytes, set_up, tcpip_input);
    pthread_create(&thread, NULL, take, NULL);
    netif_set_default(&guest);
    netif_create_ip6_linklocal_address(&guest, 1);
    netif_set_link_up(&guest);
    netif_set_up(&guest);
    netif_add_ip6_address(&guest, ip_2_ip6(&own[1]), &index);
    UNLOCK_TCPIP_CORE();
    bool is_ours = await_ipv6(index); /* nothing in lwIP 2.1 probes for the IPv4 address */
    printf("holds %s%s%s\n", bare(argv[3]).of, is_ours ? " " : "", is_ours ? bare(argv[4]).of : "");
    fflush(stdout);
    if (is_ours) {
        for (int i = 5; i < argc; i++)
            ask(argv[i]);
        for (int i = 0; i < 2; i++) {
            pthread_create(&thread, NULL, echo_streams, &own[i]);
            pthread_create(&thread, NULL, echo_datagrams, &own[i]);
        }
    }
    printf("serving\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    _exit(0); /* lwIP's threads end with the process */
}
