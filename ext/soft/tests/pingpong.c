/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soft_pingpong, soft_rc_pingpong: messages to and fro over the built-in HCA, understood by
 * ibv_ud_pingpong and ibv_rc_pingpong of rdma-core (started with -g, so that they use GIDs) on
 * Soft-RoCE or a RoCE adapter at the other end. The name of the program's file decides between the
 * two.
 *
 * The two find each other over TCP: the client sends "LID:QPN:PSN:GID" in hexadecimal with its NUL,
 * 52 bytes; the server answers in kind; the client says "done". Then the client sends the first
 * message, and each side answers every message with one, until both have sent and received all.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "gid_option.h"
#include "hca.h"

#define QKEY       0x11111111u
#define GREETING   sizeof("0000:000000:000000:00000000000000000000000000000000")
#define TIMEOUT_MS 10000 /* UD loses messages, and a lost one is never answered */

struct options {
    const char *netdev, *port, *host;
    unsigned int size, rx_depth, iterations, mtu;
    bool events, check, rc;
    struct soft_hca_options hca;
};

struct peer {
    uint32_t qpn, psn;
    struct in6_addr gid;
};

struct game {
    struct soft_hca *hca;
    struct soft_cq *cq;
    struct soft_qp *qp;
    struct soft_ah *ah;
    struct peer peer;
    uint32_t psn;
    size_t grh_bytes; /* in front of each message */
    uint8_t *inbox;   /* rx_depth frames of GRH and message */
    uint8_t *outbox;
};

static void fail(const char *what, int error)
{
    fprintf(stderr, "soft_pingpong: %s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the greeting ---------------------------------------------------------------------------- */

static int try_address(const struct addrinfo *a, bool client)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    int one = 1, connection;

    if (fd < 0)
        return -1;
    if (client) {
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            return fd;
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, 1) < 0) {
        close(fd);
        return -1;
    }
    printf("listening on port %d\n", ntohs(((struct sockaddr_in6 *)a->ai_addr)->sin6_port));
    fflush(stdout);
    connection = accept(fd, NULL, NULL);
    close(fd);
    return connection;
}

static int meet(const struct options *o)
{
    /* The wildcard of IPv6 serves IPv4, too. */
    struct addrinfo hints = {.ai_family = o->host == NULL ? AF_INET6 : AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = o->host == NULL ? AI_PASSIVE : 0};
    struct addrinfo *addresses;
    int error = getaddrinfo(o->host, o->port, &hints, &addresses);
    int fd = -1;

    if (error != 0) {
        fprintf(stderr, "soft_pingpong: %s port %s: %s\n", o->host ? o->host : "any host", o->port,
                gai_strerror(error));
        exit(1);
    }
    for (struct addrinfo *a = addresses; a != NULL && fd < 0; a = a->ai_next)
        fd = try_address(a, o->host != NULL);
    freeaddrinfo(addresses);
    if (fd < 0)
        fail(o->host ? o->host : "listen", errno);
    return fd;
}

static void say(int fd, const struct game *g)
{
    char text[GREETING], gid[33];
    struct soft_hca_attr attr;

    soft_hca_query(g->hca, &attr);
    for (int i = 0; i < 16; i++)
        snprintf(gid + 2 * i, 3, "%02x", attr.gid.s6_addr[i]);
    snprintf(text, sizeof(text), "%04x:%06x:%06x:%s", 0, soft_qp_qpn(g->qp) & 0xffffffu,
             g->psn & 0xffffffu, gid);
    if (write(fd, text, sizeof(text)) != sizeof(text))
        fail("greeting", errno);
}

static void hear_untrusted(int fd, struct peer *peer)
{
    char text[GREETING] = "", gid[33] = "";
    unsigned int lid, byte;

    if (recv(fd, text, sizeof(text), MSG_WAITALL) != sizeof(text))
        fail("greeting", EPROTO);
    text[sizeof(text) - 1] = '\0';
    if (sscanf(text, "%4x:%6x:%6x:%32s", &lid, &peer->qpn, &peer->psn, gid) != 4 ||
        strlen(gid) != 32)
        fail("greeting", EPROTO);
    for (int i = 0; i < 16; i++) {
        if (sscanf(gid + 2 * i, "%2x", &byte) != 1)
            fail("greeting", EPROTO);
        peer->gid.s6_addr[i] = (uint8_t)byte;
    }
}

/* Gets ready for the peer, which may send as soon as it knows us. */
static void join(const struct options *o, struct game *g)
{
    struct soft_rc_attr attr = {
        .path = {.dgid = g->peer.gid, .hop_limit = SOFT_HOP_LIMIT},
        .dest_qpn = g->peer.qpn,
        .rq_psn = g->peer.psn,
        .path_mtu_bytes = o->mtu,
        .min_rnr_timer = 12,
        .sq_psn = g->psn,
        .timeout = 18,
        .retry_count = 7,
        .rnr_retry = 7,
    };
    int error;

    if (!o->rc) {
        error = soft_ah_create(g->hca, &attr.path, &g->ah);
    } else {
        error = soft_qp_modify(g->qp, SOFT_QPS_RTR, &attr);
        if (error == 0)
            error = soft_qp_modify(g->qp, SOFT_QPS_RTS, &attr);
    }
    if (error != 0)
        fail("what the peer says (does it use a GID? -g)", error);
}

static void greet(const struct options *o, struct game *g)
{
    char done[sizeof("done")];
    int fd = meet(o);

    if (o->host != NULL)
        say(fd, g);
    hear_untrusted(fd, &g->peer);
    join(o, g);
    if (o->host != NULL) {
        if (write(fd, "done", sizeof("done")) != sizeof("done"))
            fail("greeting", errno);
    } else {
        say(fd, g);
        if (recv(fd, done, sizeof(done), MSG_WAITALL) != sizeof(done))
            fail("greeting", EPROTO);
    }
    close(fd);
}

/* ---- the game -------------------------------------------------------------------------------- */

static void open_game(const struct options *o, struct game *g)
{
    struct soft_qp_attr attr = {.max_send_wr = 1, .max_recv_wr = o->rx_depth, .qkey = QKEY};
    struct soft_hca_attr hca;
    int error = soft_hca_open(o->netdev, &o->hca, &g->hca);

    if (error != 0)
        fail(o->netdev, error);
    soft_hca_query(g->hca, &hca);
    if ((o->rc ? o->mtu : o->size) > hca.active_mtu_bytes) {
        fprintf(stderr, "soft_pingpong: %s %u is more than the MTU of %s, %u\n",
                o->rc ? "MTU" : "size", o->rc ? o->mtu : o->size, o->netdev, hca.active_mtu_bytes);
        exit(1);
    }
    g->grh_bytes = o->rc ? 0 : SOFT_GRH_BYTES;
    g->psn = (uint32_t)now_ns() & 0xffffff;
    attr.type = o->rc ? SOFT_QPT_RC : SOFT_QPT_UD;
    error = soft_cq_create(g->hca, o->rx_depth + 1, &g->cq);
    if (error != 0)
        fail("completion queue", error);
    attr.send_cq = attr.recv_cq = g->cq;
    error = soft_qp_create(g->hca, &attr, &g->qp);
    if (error == 0 && o->rc)
        error = soft_qp_modify(g->qp, SOFT_QPS_INIT, NULL);
    if (error != 0)
        fail("queue pair", error);
    g->inbox = calloc(o->rx_depth, g->grh_bytes + (size_t)o->size + 1);
    g->outbox = malloc(o->size + 1);
    if (g->inbox == NULL || g->outbox == NULL)
        fail("memory", ENOMEM);
    memset(g->outbox, 0x7b, o->size);
}

static uint8_t *frame(const struct options *o, const struct game *g, uint64_t number)
{
    return g->inbox + number * (g->grh_bytes + (size_t)o->size);
}

static void post_receive(const struct options *o, struct game *g, uint64_t number)
{
    struct soft_recv_wr wr = {.wr_id = number,
                              .num_sge = 1,
                              .sg = {{frame(o, g, number), (uint32_t)g->grh_bytes + o->size}}};

    if (soft_qp_post_recv(g->qp, &wr, 1) != 1)
        fail("post a receive", EINVAL);
}

static void post_send(const struct options *o, struct game *g)
{
    struct soft_send_wr wr = {
        .ah = g->ah,
        .remote_qpn = g->peer.qpn,
        .remote_qkey = QKEY,
        .flags = SOFT_SEND_SIGNALED,
        .num_sge = 1,
        .sg = {{g->outbox, o->size}},
    };

    if (soft_qp_post_send(g->qp, &wr, 1) != 1)
        fail("post a send", EINVAL);
}

/* Returns how long to sleep if no packet comes. */
static int sleep_ms(struct game *g)
{
    int64_t deadline_ns = soft_hca_deadline_ns(g->hca);
    int64_t ms = (deadline_ns - now_ns()) / 1000000 + 1;

    if (deadline_ns == SOFT_NO_DEADLINE_NS || ms > TIMEOUT_MS)
        return TIMEOUT_MS;
    return ms < 0 ? 0 : (int)ms;
}

/* Waits for a completion, asleep or by polling. */
static void next_completion(const struct options *o, struct game *g, struct soft_wc *wc)
{
    struct pollfd p = {.fd = soft_cq_fd(g->cq), .events = POLLIN};
    int64_t end_ns = now_ns() + (int64_t)TIMEOUT_MS * 1000000;

    while (soft_cq_poll(g->cq, 1, wc) == 0) {
        if (now_ns() > end_ns) {
            fprintf(stderr, "soft_pingpong: no message for %d s\n", TIMEOUT_MS / 1000);
            exit(1);
        }
        if (o->events) {
            soft_cq_arm(g->cq);
            poll(&p, 1, sleep_ms(g));
        }
    }
}

static void check_message(const struct options *o, const struct game *g, const struct soft_wc *wc)
{
    const uint8_t *data = frame(o, g, wc->wr_id) + g->grh_bytes;

    if (wc->byte_len != g->grh_bytes + o->size || wc->src_qp != g->peer.qpn ||
        (o->size > 0 && (data[0] != 0x7b || memcmp(data, data + 1, o->size - 1) != 0))) {
        fprintf(stderr, "soft_pingpong: not what was sent: %u bytes from QPN %06x\n", wc->byte_len,
                wc->src_qp);
        exit(1);
    }
}

static void play(const struct options *o, struct game *g)
{
    unsigned int sent = 0, received = 0;
    bool sending = o->host != NULL, answered = false;

    if (sending)
        post_send(o, g);
    while (sent < o->iterations || received < o->iterations) {
        struct soft_wc wc;

        next_completion(o, g, &wc);
        if (wc.status != SOFT_WC_SUCCESS) {
            fprintf(stderr, "soft_pingpong: completion with status %u\n", wc.status);
            exit(1);
        }
        if (wc.opcode == SOFT_WC_SEND) {
            sent++;
            sending = false;
        } else {
            if (o->check)
                check_message(o, g, &wc);
            post_receive(o, g, wc.wr_id);
            received++;
            answered = true;
        }
        if (answered && !sending && sent < o->iterations) {
            post_send(o, g);
            sending = true;
            answered = false;
        }
    }
}

static void usage(void)
{
    fprintf(stderr, "usage: soft_pingpong|soft_rc_pingpong -d NETDEV [OPTIONS] [HOST]\n"
                    "  without HOST waits for a client, with HOST connects to it\n"
                    "  -d NETDEV  net device      -p PORT   TCP port to meet at (18515)\n"
                    "  -s SIZE    bytes (1024)    -n COUNT  messages each way (1000)\n"
                    "  -r DEPTH   receives (500)  -e        sleep while waiting\n"
                    "  -c         check what comes\n"
                    "  -m MTU     of the path, soft_rc_pingpong only (1024)\n"
                    "  -a GID     ipv4, ipv6 or an address of the device (its link-local one)\n"
                    "  -i         over IPv4: the peer is rxe or a RoCE adapter\n");
    exit(2);
}

static unsigned int number(const char *text, unsigned int least, unsigned int most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 0);

    if (*text == '\0' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "soft_pingpong: %s is not a number from %u to %u\n", text, least, most);
        exit(2);
    }
    return (unsigned int)value;
}

int main(int argc, char **argv)
{
    struct options o = {
        .port = "18515", .size = 1024, .rx_depth = 500, .iterations = 1000, .mtu = 1024};
    struct game g = {.hca = NULL};
    struct soft_hca_counters counters;
    int64_t start_ns, taken_ns;
    int option;

    o.rc = strstr(argv[0], "rc_pingpong") != NULL;
    if (o.rc)
        o.size = 4096; /* the default of ibv_rc_pingpong */
    while ((option = getopt(argc, argv, "d:p:s:r:n:m:a:eci")) != -1) {
        switch (option) {
        case 'd':
            o.netdev = optarg;
            break;
        case 'p':
            o.port = optarg;
            break;
        case 's':
            o.size = number(optarg, 0, o.rc ? SOFT_MAX_RC_BYTES : 4096);
            break;
        case 'r':
            o.rx_depth = number(optarg, 1, SOFT_MAX_WR);
            break;
        case 'n':
            o.iterations = number(optarg, 1, 1u << 30);
            break;
        case 'm':
            o.mtu = number(optarg, 256, 4096);
            break;
        case 'a':
            if (!read_gid_option(optarg, &o.hca))
                usage();
            break;
        case 'i':
            o.hca.other_adapters = true;
            break;
        case 'e':
            o.events = true;
            break;
        case 'c':
            o.check = true;
            break;
        default:
            usage();
        }
    }
    if (o.netdev == NULL || optind + 1 < argc)
        usage();
    o.host = optind < argc ? argv[optind] : NULL;
    open_game(&o, &g);
    for (unsigned int i = 0; i < o.rx_depth; i++)
        post_receive(&o, &g, i);
    greet(&o, &g);
    start_ns = now_ns();
    play(&o, &g);
    taken_ns = now_ns() - start_ns;
    soft_hca_counters(g.hca, &counters);
    if (o.hca.other_adapters)
        printf("%" PRIu64 " packets with another IPv4 identification than 0\n",
               counters.value[SOFT_C_RX_ANY_ID]);
    printf("%u bytes, %u messages each way in %.3f s: %.2f us a round trip, %.3f Gb/s\n", o.size,
           o.iterations, (double)taken_ns * 1e-9, (double)taken_ns * 1e-3 / o.iterations,
           2.0 * 8.0 * o.size * o.iterations / (double)taken_ns);
    soft_hca_close(g.hca);
    free(g.inbox);
    free(g.outbox);
    return 0;
}
