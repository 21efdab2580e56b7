/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "udp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipv4.h"
#include "outlet.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define SOCKET_BUFFER_BYTES                                                                        \
    (16 << 20) /* 8 ms at 2 GB/s; the kernel doubles it for its overhead                           \
                */

#define TX_SLOTS         256
#define TX_TRAIN_PACKETS 64    /* UDP_MAX_SEGMENTS; 128 since Linux 6.9, which gains nothing here */
#define TX_TRAIN_BYTES   65507 /* of one UDP_SEGMENT send; the limit of IPv4, below that of IPv6 */
#define TX_CONTROL_BYTES 128

#define RX_MESSAGES      64
#define RX_MESSAGE_BYTES 65536
/* We fetch long messages in smaller batches, or the first of them would leave the cache before we
 * read them; and so a sender that waits for an acknowledgement gets it sooner. After a short
 * message we fetch some, and twice as many where they were all there: a stream of trains, whose
 * rests are short, does not fill the memory of all messages. */
#define RX_FEW        2
#define RX_SOME       16
#define RX_LONG_BYTES 16384
/* Not a power of two, or all messages would start in the same few sets of the cache. */
#define RX_STRIDE_BYTES  (RX_MESSAGE_BYTES + 17 * 64)
#define RX_CONTROL_BYTES 128

struct soft_udp {
    int fd; /* receives; -1: none */
    struct soft_outlet outlets[SOFT_UDP_OUTLETS];
    unsigned int stalled_outlets;
    unsigned int ifindex;
    struct in6_addr gid;
    const struct soft_udp_family *family;
    struct soft_count *count;
    bool segment;       /* trains: UDP_SEGMENT works on this device */
    bool may_fragment;  /* may let the kernel send packets in fragments, */
    bool has_fragments; /* and does so: a path was too short for a packet */

    unsigned int tx_count;
    unsigned int tx_iov_count;
    unsigned int tx_outlets; /* of the batch, a bit each */
    struct soft_udp_slot tx_slot[TX_SLOTS];
    struct soft_udp_slot *tx_order[TX_SLOTS]; /* the batch outlet by outlet */
    struct iovec tx_iov[TX_SLOTS * SOFT_UDP_SLOT_IOV];
    struct iovec tx_outlet_iov[TX_SLOTS * SOFT_UDP_SLOT_IOV];
    struct mmsghdr tx_message[TX_SLOTS];
    struct iovec tx_message_piece[TX_SLOTS]; /* of trains in one piece */
    unsigned int tx_message_packets[TX_SLOTS];
    _Alignas(struct cmsghdr) uint8_t tx_control[TX_SLOTS][TX_CONTROL_BYTES];

    unsigned int rx_wanted;  /* messages to fetch at a time */
    unsigned int rx_count;   /* messages in the batch at hand */
    unsigned int rx_next;    /* the message to split next */
    size_t rx_offset;        /* within the current message */
    size_t rx_bytes;         /* of the current message, */
    size_t rx_segment_bytes; /* and of each of its packets but the last */
    struct soft_udp_packet rx_packet;
    uint8_t *rx_memory;
    uint8_t *rx_left; /* the former memory: soft_udp_leave_memory */
    struct mmsghdr rx_message[RX_MESSAGES];
    struct iovec rx_iov[RX_MESSAGES];
    union soft_udp_address rx_from[RX_MESSAGES];
    _Alignas(struct cmsghdr) uint8_t rx_control[RX_MESSAGES][RX_CONTROL_BYTES];
};

/* ---- the socket ------------------------------------------------------------------------------ */

static int set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value)) < 0 ? -errno : 0;
}

static void set_buffer(int fd, int force, int plain)
{
    /* Without CAP_NET_ADMIN the system's maximum is the limit. */
    if (set_option(fd, SOL_SOCKET, force, SOCKET_BUFFER_BYTES) < 0)
        (void)set_option(fd, SOL_SOCKET, plain, SOCKET_BUFFER_BYTES);
}

/* Packets to the port of a socket that only sends must fill no memory, and wake no thread. */
static int refuse_all(int fd)
{
    struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {.len = 1, .filter = &none};

    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno : 0;
}

/* Binds to the wildcard address, for the groups; packets to other addresses of the device are
 * dropped later. */
static int bind_socket(int fd, const struct soft_udp_family *family, uint16_t port)
{
    union soft_udp_address any;

    memset(&any, 0, sizeof(any));
    any.any.sa_family = (sa_family_t)family->domain;
    if (family->domain == AF_INET)
        any.ip4.sin_port = htons(port);
    else
        any.ip6.sin6_port = htons(port);
    return bind(fd, &any.any, family->address_bytes) < 0 ? -errno : 0;
}

/* Opens a socket that is bound to the device, and not yet to a port. */
static int open_socket(const struct soft_udp_config *config, const struct soft_udp_family *family)
{
    const char *netdev = config->netdev;
    int fd = socket(family->domain, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
    int error = fd < 0 ? -errno : 0;

    if (fd < 0)
        return error;
    for (const struct soft_udp_option *o = family->options; error == 0 && o->name != 0; o++)
        error = set_option(fd, o->level, o->name, o->value);
    if (error == 0)
        error = family->set_group_device(fd, config->ifindex);
    if (error == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, netdev, (socklen_t)strlen(netdev)) < 0)
        error = -errno;
    if (error != 0) {
        close(fd);
        return error;
    }
    return fd;
}

static int open_receiver(const struct soft_udp_config *config, const struct soft_udp_family *family)
{
    int fd = open_socket(config, family);
    int error;

    if (fd < 0)
        return fd;
    set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF);
    (void)set_option(fd, IPPROTO_UDP, UDP_GRO, 1); /* Linux 5.0; else packets come singly */
    error = bind_socket(fd, family, config->port);
    if (error != 0) {
        close(fd);
        return error;
    }
    return fd;
}

/* Binds to the first free port from *port on, and counts *port up. */
static int bind_outlet(int fd, const struct soft_udp_family *family, unsigned int *port)
{
    int error = -EADDRINUSE;

    while (error == -EADDRINUSE && *port <= UINT16_MAX)
        error = bind_socket(fd, family, (uint16_t)(*port)++);
    return error;
}

static int open_outlets(struct soft_udp *udp, const struct soft_udp_config *config)
{
    unsigned int port = SOFT_UDP_OUTLET_PORT;
    int error = 0;

    for (int i = 0; error == 0 && i < SOFT_UDP_OUTLETS; i++) {
        struct soft_outlet *outlet = &udp->outlets[i];

        outlet->fd = open_socket(config, udp->family);
        if (outlet->fd < 0)
            return outlet->fd;
        set_buffer(outlet->fd, SO_SNDBUFFORCE, SO_SNDBUF);
        error = refuse_all(outlet->fd);
        if (error == 0)
            error = bind_outlet(outlet->fd, udp->family, &port);
        outlet->port = (uint16_t)(port - 1);
    }
    return error;
}

/* Duplicates the socket of an earlier adapter, unless it belongs to another device or address
 * family. */
static int adopt_socket(const struct soft_udp_config *config, const struct soft_udp_family *family)
{
    union soft_udp_address bound;
    socklen_t bound_len = sizeof(bound);
    char netdev[IF_NAMESIZE] = "";
    socklen_t netdev_len = sizeof(netdev);
    int fd;

    memset(&bound, 0, sizeof(bound));
    if (getsockname(config->adopted_fd, &bound.any, &bound_len) < 0 ||
        bound.any.sa_family != family->domain ||
        (family->domain == AF_INET ? bound.ip4.sin_port : bound.ip6.sin6_port) !=
            htons(config->port) ||
        getsockopt(config->adopted_fd, SOL_SOCKET, SO_BINDTODEVICE, netdev, &netdev_len) < 0 ||
        strncmp(netdev, config->netdev, sizeof(netdev)) != 0)
        return -ESTALE;
    fd = fcntl(config->adopted_fd, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

/* Makes message i ready for recvmmsg, which changes just these fields. */
static void rearm_message(struct soft_udp *udp, unsigned int i)
{
    struct msghdr *m = &udp->rx_message[i].msg_hdr;

    m->msg_namelen = sizeof(udp->rx_from[i]);
    m->msg_controllen = RX_CONTROL_BYTES;
    m->msg_flags = 0;
}

/* Makes memory for messages. */
static int map_memory(struct soft_udp *udp)
{
    void *memory = mmap(NULL, (size_t)RX_MESSAGES * RX_STRIDE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return -ENOMEM;
    udp->rx_memory = memory;
    for (unsigned int i = 0; i < RX_MESSAGES; i++)
        udp->rx_iov[i].iov_base = udp->rx_memory + (size_t)i * RX_STRIDE_BYTES;
    return 0;
}

static void unmap_memory(uint8_t **memory)
{
    if (*memory != NULL)
        munmap(*memory, (size_t)RX_MESSAGES * RX_STRIDE_BYTES);
    *memory = NULL;
}

static int prepare_messages(struct soft_udp *udp)
{
    int error = map_memory(udp);

    if (error < 0)
        return error;
    for (unsigned int i = 0; i < RX_MESSAGES; i++) {
        struct msghdr *m = &udp->rx_message[i].msg_hdr;

        udp->rx_iov[i].iov_len = RX_MESSAGE_BYTES;
        m->msg_name = &udp->rx_from[i];
        m->msg_iov = &udp->rx_iov[i];
        m->msg_iovlen = 1;
        m->msg_control = udp->rx_control[i];
        rearm_message(udp, i);
    }
    return 0;
}

static void release(struct soft_udp *udp)
{
    unmap_memory(&udp->rx_memory);
    unmap_memory(&udp->rx_left);
    for (int i = 0; i < SOFT_UDP_OUTLETS; i++)
        if (udp->outlets[i].fd >= 0)
            close(udp->outlets[i].fd);
    if (udp->fd >= 0)
        close(udp->fd);
    free(udp);
}

static int open_sockets(struct soft_udp *udp, const struct soft_udp_config *config)
{
    int error = config->port != 0 ? prepare_messages(udp) : 0;

    if (error == 0 && config->port != 0) {
        udp->fd = config->adopted_fd != 0 ? adopt_socket(config, udp->family)
                                          : open_receiver(config, udp->family);
        error = udp->fd < 0 ? udp->fd : 0;
    }
    return error == 0 ? open_outlets(udp, config) : error;
}

int soft_udp_open(const struct soft_udp_config *config, struct soft_count *count,
                  struct soft_udp **out)
{
    struct soft_udp *udp = calloc(1, sizeof(*udp));
    int error;

    if (udp == NULL)
        return -ENOMEM;
    udp->fd = -1;
    for (int i = 0; i < SOFT_UDP_OUTLETS; i++)
        udp->outlets[i].fd = -1;
    udp->ifindex = config->ifindex;
    udp->gid = config->gid;
    udp->family = soft_is_ipv4(&config->gid) ? &soft_udp_ipv4 : &soft_udp_ipv6;
    udp->may_fragment = !config->sends_singly && !IN6_IS_ADDR_LINKLOCAL(&config->gid);
    udp->count = count;
    udp->rx_wanted = RX_SOME;
    error = open_sockets(udp, config);
    if (error != 0) {
        release(udp);
        return error;
    }
    udp->segment =
        !config->sends_singly && set_option(udp->outlets[0].fd, IPPROTO_UDP, UDP_SEGMENT, 0) == 0;
    *out = udp;
    return 0;
}

void soft_udp_close(struct soft_udp *udp)
{
    release(udp);
}

int soft_udp_fd(const struct soft_udp *udp)
{
    return udp->fd;
}

int soft_udp_outlet_fd(const struct soft_udp *udp, unsigned int outlet)
{
    return udp->outlets[outlet].fd;
}

uint16_t soft_udp_outlet_port(const struct soft_udp *udp, unsigned int outlet)
{
    return udp->outlets[outlet].port;
}

uint64_t soft_udp_overruns(const struct soft_udp *udp)
{
    uint32_t memory[SK_MEMINFO_VARS];
    socklen_t len = sizeof(memory);

    if (getsockopt(udp->fd, SOL_SOCKET, SO_MEMINFO, memory, &len) < 0 ||
        len <= SK_MEMINFO_DROPS * sizeof(memory[0]))
        return 0;
    return memory[SK_MEMINFO_DROPS];
}

/* ---- sending --------------------------------------------------------------------------------- */

struct soft_udp_slot *soft_udp_reserve(struct soft_udp *udp)
{
    struct soft_udp_slot *slot;

    if (udp->tx_count == TX_SLOTS)
        return NULL;
    slot = &udp->tx_slot[udp->tx_count];
    slot->iov = &udp->tx_iov[udp->tx_iov_count];
    slot->iov_count = 0;
    slot->left = false;
    slot->staged = false;
    return slot;
}

unsigned int soft_udp_room(const struct soft_udp *udp)
{
    return TX_SLOTS - udp->tx_count;
}

void soft_udp_commit(struct soft_udp *udp)
{
    struct soft_udp_slot *slot = &udp->tx_slot[udp->tx_count];

    udp->tx_iov_count += slot->iov_count;
    udp->tx_outlets |= 1u << slot->outlet;
    udp->tx_order[udp->tx_count++] = slot;
}

/* Sorts the batch by outlet, if it has several; the packets of an outlet keep their order. A train
 * needs its pieces in one row. */
static void sort_by_outlet(struct soft_udp *udp)
{
    struct iovec *iov = udp->tx_outlet_iov;
    unsigned int n = 0;

    if ((udp->tx_outlets & (udp->tx_outlets - 1)) == 0)
        return;
    for (unsigned int outlet = 0; outlet < SOFT_UDP_OUTLETS; outlet++) {
        if ((udp->tx_outlets & 1u << outlet) == 0)
            continue;
        for (unsigned int i = 0; i < udp->tx_count; i++) {
            struct soft_udp_slot *slot = &udp->tx_slot[i];

            if (slot->outlet != outlet)
                continue;
            memcpy(iov, slot->iov, slot->iov_count * sizeof(*iov));
            slot->iov = iov;
            iov += slot->iov_count;
            udp->tx_order[n++] = slot;
        }
    }
}

/* Addresses a message of an outlet. */
static void address(struct soft_udp *udp, const struct soft_outlet *outlet, struct msghdr *m,
                    const struct soft_udp_dest *dest, uint16_t segment_bytes)
{
    struct cmsghdr *c = m->msg_control;

    m->msg_name = NULL;
    m->msg_namelen = 0;
    m->msg_controllen = 0;
    if (!soft_outlet_knows(outlet, dest)) {
        m->msg_name = (void *)(uintptr_t)&dest->address;
        m->msg_namelen = udp->family->address_bytes;
        c = udp->family->put_control(m, dest, &udp->gid, udp->ifindex);
    }
    if (segment_bytes != 0)
        soft_udp_put_control(m, c, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes));
}

static bool continues(const struct soft_udp_slot *slot, const struct soft_udp_slot *next)
{
    return next->staged
               ? slot->staged && next->iov->iov_base == (uint8_t *)slot->iov->iov_base + slot->bytes
               : !slot->staged;
}

/* Returns how many packets from `first` on, and before `end`, make a train: they have one
 * destination and one size, but the last may be shorter. */
static unsigned int train_length(const struct soft_udp *udp, unsigned int first, unsigned int end,
                                 unsigned int singly)
{
    const struct soft_udp_slot *head = udp->tx_order[first];
    unsigned int bytes = head->bytes;
    unsigned int n = 1;

    if (!udp->segment || first < singly)
        return 1;
    while (first + n < end && n < TX_TRAIN_PACKETS) {
        const struct soft_udp_slot *next = udp->tx_order[first + n];

        if (next->dest != head->dest || next->bytes > head->bytes ||
            bytes + next->bytes > TX_TRAIN_BYTES || !continues(udp->tx_order[first + n - 1], next))
            break;
        bytes += next->bytes;
        n++;
        if (next->bytes < head->bytes)
            break;
    }
    return n;
}

/* Makes messages of the packets from `first` to `end`; returns their number. */
static unsigned int build_messages(struct soft_udp *udp, const struct soft_outlet *outlet,
                                   unsigned int first, unsigned int end, unsigned int singly)
{
    unsigned int messages = 0;

    while (first < end) {
        const struct soft_udp_slot *slot = udp->tx_order[first];
        struct msghdr *m = &udp->tx_message[messages].msg_hdr;
        unsigned int packets = train_length(udp, first, end, singly);
        const struct soft_udp_slot *last = udp->tx_order[first + packets - 1];

        m->msg_iov = slot->iov;
        m->msg_iovlen = (size_t)(last->iov + last->iov_count - slot->iov);
        if (slot->staged) {
            udp->tx_message_piece[messages] =
                (struct iovec){slot->iov->iov_base, (packets - 1) * slot->bytes + last->bytes};
            m->msg_iov = &udp->tx_message_piece[messages];
            m->msg_iovlen = 1;
        }
        m->msg_control = udp->tx_control[messages];
        m->msg_flags = 0;
        address(udp, outlet, m, slot->dest, packets > 1 ? (uint16_t)slot->bytes : 0);
        udp->tx_message_packets[messages++] = packets;
        first += packets;
    }
    return messages;
}

static void count_sent(struct soft_udp *udp, unsigned int messages)
{
    unsigned int super = 0;

    for (unsigned int i = 0; i < messages; i++)
        super += udp->tx_message_packets[i] > 1;
    soft_count_add(udp->count, SOFT_C_TX_CALLS, 1);
    soft_count_add(udp->count, SOFT_C_TX_SUPER, super);
}

static void count_lost(struct soft_udp *udp, int error)
{
    switch (error) {
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case ENODEV:
    case ENXIO:
    case EADDRNOTAVAIL:
    case EINVAL: /* the kernel's error for a source address that the device has lost */
        soft_count_add(udp->count, SOFT_C_TX_UNREACHABLE, 1);
        break;
    default:
        soft_count_add(udp->count, SOFT_C_TX_REFUSED, 1);
    }
}

/* A packet is longer than the path to its destination, whose MTU the kernel has learned from a
 * router. Lets the kernel send such packets in fragments from now on; false if it must not. */
static bool begin_fragments(struct soft_udp *udp)
{
    const struct soft_udp_option *o = &udp->family->fragment;

    if (!udp->may_fragment || udp->has_fragments)
        return false;
    for (int i = 0; i < SOFT_UDP_OUTLETS; i++)
        if (set_option(udp->outlets[i].fd, o->level, o->name, o->value) < 0)
            return false;
    udp->has_fragments = true;
    soft_count_add(udp->count, SOFT_C_TX_FRAGMENTS, 1);
    return true;
}

/* Sends the packets from `first` to `end`, which are one outlet's. Returns how many packets are
 * done, and sets *stall if these are not all. */
static unsigned int send_outlet(struct soft_udp *udp, unsigned int first, unsigned int end,
                                int *stall)
{
    struct soft_outlet *outlet = &udp->outlets[udp->tx_order[first]->outlet];
    unsigned int done = first;
    unsigned int singly = 0; /* the packets before this index go one by one */
    bool again = false;      /* after an error */

    soft_outlet_begin_batch(outlet, udp->family, udp->tx_order[first]->dest, &udp->gid,
                            udp->ifindex, udp->count);
    while (done < end) {
        unsigned int messages = build_messages(udp, outlet, done, end, singly);
        int sent = sendmmsg(outlet->fd, udp->tx_message, messages, MSG_DONTWAIT);

        if (sent > 0) {
            count_sent(udp, (unsigned int)sent);
            for (int i = 0; i < sent; i++)
                done += udp->tx_message_packets[i];
            again = false;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
            *stall = errno == EAGAIN ? EAGAIN : ENOBUFS;
            soft_count_add(udp->count, SOFT_C_TX_STALLS, 1);
            break;
        }
        if (!again && soft_outlet_forget(outlet)) {
            again = true;
            continue;
        }
        if (udp->tx_message_packets[0] > 1) {
            /* EIO: this device cannot send trains at all (no checksum offload, IPsec). Any other
             * error may be that of a single packet, so we try the train again as single packets. */
            if (errno == EIO)
                udp->segment = false;
            singly = done + udp->tx_message_packets[0];
            continue;
        }
        if (errno == EMSGSIZE && begin_fragments(udp))
            continue;
        count_lost(udp, errno);
        done++;
    }
    for (unsigned int i = done; i < end; i++)
        udp->tx_order[i]->left = true;
    return done - first;
}

/* Returns the end of the packets from `first` on that are one outlet's. */
static unsigned int end_of_outlet(const struct soft_udp *udp, unsigned int first)
{
    unsigned int end = first + 1;

    if ((udp->tx_outlets & (udp->tx_outlets - 1)) == 0)
        return udp->tx_count;
    while (end < udp->tx_count && udp->tx_order[end]->outlet == udp->tx_order[first]->outlet)
        end++;
    return end;
}

unsigned int soft_udp_send(struct soft_udp *udp, int *stall)
{
    unsigned int total = udp->tx_count;
    unsigned int first = 0, done = 0;

    *stall = 0;
    udp->stalled_outlets = 0;
    sort_by_outlet(udp);
    while (first < total && *stall != ENOBUFS) {
        unsigned int end = end_of_outlet(udp, first);
        int reason = 0;

        done += send_outlet(udp, first, end, &reason);
        if (reason != 0)
            *stall = reason;
        if (reason == EAGAIN)
            udp->stalled_outlets |= 1u << udp->tx_order[first]->outlet;
        first = end;
    }
    for (; first < total; first++)
        udp->tx_order[first]->left = true;
    udp->tx_count = 0;
    udp->tx_iov_count = 0;
    udp->tx_outlets = 0;
    return done;
}

bool soft_udp_sent(const struct soft_udp *udp, unsigned int i)
{
    return !udp->tx_slot[i].left;
}

unsigned int soft_udp_stalled_outlets(const struct soft_udp *udp)
{
    return udp->stalled_outlets;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Reads the message's control data; false when it lacks the data that we set the socket to
 * deliver. */
static bool parse_control(const struct soft_udp_family *family, struct msghdr *m,
                          struct soft_udp_packet *p, size_t *segment_bytes)
{
    bool has_destination = false;

    p->hop_limit = 0;
    p->flow_info = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        int value;

        if (c->cmsg_level != IPPROTO_UDP) {
            has_destination |= family->take_control(c, p);
        } else if (c->cmsg_type == UDP_GRO) {
            memcpy(&value, CMSG_DATA(c), sizeof(value));
            if (value > 0)
                *segment_bytes = (size_t)value;
        }
    }
    return has_destination;
}

/* Goes to the next usable message of the batch; false at the end of the batch. */
static bool next_message(struct soft_udp *udp)
{
    while (udp->rx_next < udp->rx_count) {
        unsigned int i = udp->rx_next++;
        struct msghdr *m = &udp->rx_message[i].msg_hdr;
        struct soft_udp_packet *p = &udp->rx_packet;
        size_t bytes = udp->rx_message[i].msg_len;
        size_t segment_bytes = bytes;

        if (bytes == 0 || (m->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
            m->msg_namelen != udp->family->address_bytes ||
            !parse_control(udp->family, m, p, &segment_bytes)) {
            soft_count_add(udp->count, SOFT_C_RX_PACKETS, 1);
            soft_count_add(udp->count, SOFT_C_DROP_MALFORMED, 1);
            continue;
        }
        udp->family->take_source(&udp->rx_from[i], p);
        p->data = udp->rx_iov[i].iov_base;
        p->same_flow = false;
        udp->rx_bytes = bytes;
        udp->rx_segment_bytes = segment_bytes;
        udp->rx_offset = 0;
        if (segment_bytes < bytes)
            soft_count_add(udp->count, SOFT_C_RX_SUPER, 1);
        return true;
    }
    return false;
}

bool soft_udp_next(struct soft_udp *udp, struct soft_udp_packet *out)
{
    struct soft_udp_packet *p = &udp->rx_packet;
    size_t left;

    if (udp->rx_offset == udp->rx_bytes && !next_message(udp))
        return false;
    left = udp->rx_bytes - udp->rx_offset;
    *out = *p;
    out->data = p->data + udp->rx_offset;
    out->bytes = left < udp->rx_segment_bytes ? left : udp->rx_segment_bytes;
    out->same_flow = udp->rx_offset > 0 && left >= udp->rx_segment_bytes;
    udp->rx_offset += out->bytes;
    return true;
}

bool soft_udp_pending(const struct soft_udp *udp)
{
    return udp->rx_offset < udp->rx_bytes || udp->rx_next < udp->rx_count;
}

/* Returns how many messages to fetch after these. */
static unsigned int next_wanted(const struct soft_udp *udp, unsigned int got)
{
    if (udp->rx_message[got - 1].msg_len >= RX_LONG_BYTES)
        return RX_FEW;
    if (got < udp->rx_wanted || got < RX_SOME)
        return RX_SOME;
    return got > RX_MESSAGES / 2 ? RX_MESSAGES : 2 * got;
}

bool soft_udp_receive(struct soft_udp *udp)
{
    int got;

    for (unsigned int i = 0; i < udp->rx_count; i++)
        rearm_message(udp, i);
    udp->rx_count = udp->rx_next = 0;
    udp->rx_offset = udp->rx_bytes = 0;
    got = recvmmsg(udp->fd, udp->rx_message, udp->rx_wanted, MSG_DONTWAIT, NULL);
    if (got <= 0) /* EAGAIN; EINTR; or a pending error of the socket, which this call has cleared */
        return false;
    udp->rx_count = (unsigned int)got;
    udp->rx_wanted = next_wanted(udp, (unsigned int)got);
    soft_count_add(udp->count, SOFT_C_RX_CALLS, 1);
    return true;
}

bool soft_udp_leave_memory(struct soft_udp *udp)
{
    uint8_t *left = udp->rx_memory;

    if (udp->rx_left != NULL || map_memory(udp) < 0)
        return false;
    udp->rx_left = left;
    return true;
}

bool soft_udp_has_left(const struct soft_udp *udp)
{
    return udp->rx_left != NULL;
}

void soft_udp_drop_left(struct soft_udp *udp)
{
    unmap_memory(&udp->rx_left);
}
