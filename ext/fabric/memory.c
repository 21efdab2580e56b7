/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/frame.h"
#include "core/random.h"

#define BUCKETS       256u
#define MAX_REGIONS   8u
#define DEFAULT_DEPTH 512u
#define MAX_DEPTH     65536u
#define FIRST_QPN     2u /* 0 and 1 are the management queue pairs */
#define LAST_QPN      (IPU_MULTICAST_QPN - 1)

#define GRH_VERSION     0x60000000u
#define GRH_NEXT_HEADER 0x1Bu /* IBA: the GRH is followed by a BTH */
#define BTH_DETH_ICRC   24u   /* counted by the GRH's payload length */

struct region {
    const uint8_t *base;
    size_t len;
};

/* Head and tail only grow; entry n is at n & mask. */
struct queue {
    uint32_t first, end;
};

struct attachment {
    struct in6_addr mgid;
    struct ipu_memory_port *port;
    struct attachment *next; /* in the bucket */
};

struct ipu_memory_port {
    struct ipu_fabric fabric;
    struct ipu_memory_switch *sw;
    struct ipu_memory_port *next; /* in the bucket */
    struct ipu_memory_counters counters;
    bool bare_unicast;
    bool broken;
    bool reported; /* sent() has returned -EIO for the failure */
    uint32_t recoveries_to_fail;
    bool armed;
    int wake_fd;
    struct region regions[MAX_REGIONS];
    uint32_t n_regions;
    /* posted and done together never exceed the depth, and neither does sent */
    uint32_t mask; /* depth - 1 */
    struct queue posted, done, sent;
    struct ipu_recv *posted_items;
    struct ipu_received *done_items;
    uint64_t *sent_items;
};

struct ipu_memory_switch {
    pthread_mutex_t mutex; /* guards the fields below, and all ports */
    uint64_t random;
    struct ipu_memory_port *ports[BUCKETS];
    struct attachment *groups[BUCKETS];
};

static uint32_t queued(const struct queue *queue)
{
    return queue->end - queue->first;
}

static uint32_t bucket_of(const struct in6_addr *gid, uint32_t qpn)
{
    uint64_t half[2];
    memcpy(half, gid, sizeof half);
    uint64_t state = half[0] ^ (half[1] + qpn);
    return (uint32_t)(ipu_random_next(&state) % BUCKETS);
}

static bool same_gid(const struct in6_addr *a, const struct in6_addr *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool is_multicast(const struct in6_addr *gid)
{
    return gid->s6_addr[0] == 0xFF;
}

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* --- The switch: the caller of each function holds the mutex --- */

static struct ipu_memory_port *find_port(const struct ipu_memory_switch *sw,
                                         const struct in6_addr *gid, uint32_t qpn)
{
    struct ipu_memory_port *port = sw->ports[bucket_of(gid, qpn)];
    while (port && !(port->fabric.qpn == qpn && same_gid(&port->fabric.gid, gid)))
        port = port->next;
    return port;
}

static void wake(struct ipu_memory_port *port)
{
    if (!port->armed)
        return;
    port->armed = false;
    uint64_t one = 1;
    ssize_t written = write(port->wake_fd, &one, sizeof one);
    (void)written;
}

static void complete_receive(struct ipu_memory_port *port, struct ipu_received received)
{
    port->posted.first++;
    port->done_items[port->done.end++ & port->mask] = received;
    wake(port);
}

static void write_grh(uint8_t *to, const struct ipu_memory_port *from, const struct ipu_dest *dest,
                      uint32_t len)
{
    uint32_t version_class_flow =
        GRH_VERSION | (uint32_t)dest->traffic_class << 20 | (dest->flow_label & 0xFFFFF);
    uint32_t payload = BTH_DETH_ICRC + ((len + 3) & ~3u);
    uint8_t head[8] = {(uint8_t)(version_class_flow >> 24),
                       (uint8_t)(version_class_flow >> 16),
                       (uint8_t)(version_class_flow >> 8),
                       (uint8_t)version_class_flow,
                       (uint8_t)(payload >> 8),
                       (uint8_t)payload,
                       GRH_NEXT_HEADER,
                       dest->hop_limit};
    memcpy(to, head, sizeof head);
    memcpy(to + 8, &from->fabric.gid, 16);
    memcpy(to + 24, &dest->gid, 16);
}

static void deliver(struct ipu_memory_port *to, const struct ipu_memory_port *from,
                    const struct ipu_send *send)
{
    const struct ipu_dest *dest = send->ah;
    uint32_t len = send->head_len + send->len;
    if (to->broken) {
        count(&to->counters.rx_broken);
        return;
    }
    if (queued(&to->posted) == 0) {
        count(&to->counters.rx_no_buffer);
        return;
    }
    const struct ipu_recv *recv = &to->posted_items[to->posted.first & to->mask];
    /* An HCA would break the queue pair; here a lost datagram is enough for a test to notice. */
    if (recv->len < IPU_GRH_LEN || recv->len - IPU_GRH_LEN < len) {
        count(&to->counters.rx_too_long);
        return;
    }
    bool grh = !to->bare_unicast || is_multicast(&dest->gid);
    uint8_t *at = recv->addr;
    if (grh)
        write_grh(at, from, dest, len);
    if (send->head_len > 0)
        memcpy(at + IPU_GRH_LEN, send->head, send->head_len);
    if (send->len > 0)
        memcpy(at + IPU_GRH_LEN + send->head_len, send->addr, send->len);
    count(&to->counters.rx_packets);
    complete_receive(to, (struct ipu_received){.cookie = recv->cookie,
                                               .byte_len = IPU_GRH_LEN + len,
                                               .src_qpn = send->source_qpn != 0 ? send->source_qpn
                                                                                : from->fabric.qpn,
                                               .flags = grh ? IPU_RECEIVED_GRH : 0});
}

static void forward(struct ipu_memory_port *from, const struct ipu_send *send)
{
    const struct ipu_dest *dest = send->ah;
    bool reached = false;
    if ((uint64_t)send->head_len + send->len > from->fabric.mtu) {
        count(&from->counters.tx_too_big);
        return;
    }
    count(&from->counters.tx_packets);
    if (is_multicast(&dest->gid)) {
        if (send->qpn == IPU_MULTICAST_QPN) {
            struct attachment *to = from->sw->groups[bucket_of(&dest->gid, 0)];
            for (; to; to = to->next) {
                if (same_gid(&to->mgid, &dest->gid)) {
                    deliver(to->port, from, send);
                    reached = true;
                }
            }
        }
    } else {
        struct ipu_memory_port *to = find_port(from->sw, &dest->gid, send->qpn);
        if (to) {
            deliver(to, from, send);
            reached = true;
        }
    }
    if (!reached)
        count(&from->counters.tx_nobody);
}

static bool registered(const struct ipu_memory_port *port, const void *addr, uint32_t len)
{
    uintptr_t start = (uintptr_t)addr;
    for (uint32_t i = 0; i < port->n_regions; i++) {
        uintptr_t base = (uintptr_t)port->regions[i].base;
        size_t size = port->regions[i].len;
        if (start >= base && start - base <= size && len <= size - (start - base))
            return true;
    }
    return false;
}

/* --- The packet face --- */

static void lock(struct ipu_memory_port *port)
{
    pthread_mutex_lock(&port->sw->mutex);
}

static void unlock(struct ipu_memory_port *port)
{
    pthread_mutex_unlock(&port->sw->mutex);
}

static int port_memory(void *self, void *base, size_t len)
{
    struct ipu_memory_port *port = self;
    if (port->n_regions == MAX_REGIONS)
        return -ENOSPC;
    port->regions[port->n_regions++] = (struct region){base, len};
    return 0;
}

static void *port_ah_create(void *self, const struct ipu_dest *dest)
{
    (void)self;
    struct ipu_dest *ah = malloc(sizeof *ah);
    if (ah)
        *ah = *dest;
    return ah;
}

static void port_ah_destroy(void *self, void *ah)
{
    (void)self;
    free(ah);
}

static int port_send(void *self, const struct ipu_send *sends, int n)
{
    struct ipu_memory_port *port = self;
    int taken = 0;
    lock(port);
    if (port->broken)
        taken = -EIO;
    while (taken >= 0 && taken < n && queued(&port->sent) <= port->mask) {
        const struct ipu_send *send = &sends[taken];
        if ((send->len > 0 && !registered(port, send->addr, send->len)) ||
            (send->head_len > 0 &&
             (port->fabric.one_piece || !registered(port, send->head, send->head_len)))) {
            taken = taken ? taken : -EFAULT;
            break;
        }
        forward(port, send);
        port->sent_items[port->sent.end++ & port->mask] = send->cookie;
        wake(port);
        taken++;
    }
    unlock(port);
    return taken;
}

static int port_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_memory_port *port = self;
    int taken = 0;
    lock(port);
    if (port->broken)
        taken = -EIO;
    while (taken >= 0 && taken < n && queued(&port->posted) + queued(&port->done) <= port->mask) {
        if (!registered(port, recvs[taken].addr, recvs[taken].len)) {
            taken = taken ? taken : -EFAULT;
            break;
        }
        port->posted_items[port->posted.end++ & port->mask] = recvs[taken++];
    }
    unlock(port);
    return taken;
}

static int port_sent(void *self, uint64_t *cookies, int max)
{
    struct ipu_memory_port *port = self;
    int n = 0;
    lock(port);
    while (n < max && queued(&port->sent) > 0)
        cookies[n++] = port->sent_items[port->sent.first++ & port->mask];
    if (n == 0 && port->broken) {
        n = -EIO;
        port->reported = true;
    }
    unlock(port);
    return n;
}

static int port_received(void *self, struct ipu_received *done, int max)
{
    struct ipu_memory_port *port = self;
    int n = 0;
    lock(port);
    while (n < max && queued(&port->done) > 0)
        done[n++] = port->done_items[port->done.first++ & port->mask];
    unlock(port);
    return n;
}

static int port_arm(void *self)
{
    struct ipu_memory_port *port = self;
    lock(port);
    uint64_t ignored;
    ssize_t got = read(port->wake_fd, &ignored, sizeof ignored);
    (void)got;
    bool waiting = queued(&port->sent) > 0 || queued(&port->done) > 0;
    waiting = waiting || (port->broken && !port->reported);
    port->armed = !waiting;
    unlock(port);
    return waiting;
}

static int port_fd(void *self)
{
    return ((struct ipu_memory_port *)self)->wake_fd;
}

static int port_recover(void *self)
{
    struct ipu_memory_port *port = self;
    int result = 0;
    lock(port);
    if (queued(&port->sent) > 0 || queued(&port->done) > 0) {
        result = -EBUSY;
    } else if (port->recoveries_to_fail > 0) {
        port->recoveries_to_fail--;
        result = -EAGAIN;
    } else {
        port->broken = port->reported = false;
    }
    unlock(port);
    return result;
}

static const struct ipu_fabric_ops port_ops = {
    .memory = port_memory,
    .ah_create = port_ah_create,
    .ah_destroy = port_ah_destroy,
    .send = port_send,
    .post = port_post,
    .sent = port_sent,
    .received = port_received,
    .arm = port_arm,
    .fd = port_fd,
    .recover = port_recover,
};

/* --- Life and control --- */

struct ipu_memory_switch *ipu_memory_switch_create(uint64_t seed)
{
    struct ipu_memory_switch *sw = calloc(1, sizeof *sw);
    if (!sw)
        return NULL;
    sw->random = seed;
    int error = pthread_mutex_init(&sw->mutex, NULL);
    if (error) {
        free(sw);
        errno = error;
        return NULL;
    }
    return sw;
}

void ipu_memory_switch_destroy(struct ipu_memory_switch *sw)
{
    if (!sw)
        return;
    pthread_mutex_destroy(&sw->mutex);
    free(sw);
}

static uint32_t free_qpn(struct ipu_memory_switch *sw, const struct in6_addr *gid)
{
    uint32_t qpn;
    do {
        qpn = FIRST_QPN + ipu_random_below(&sw->random, LAST_QPN - FIRST_QPN + 1);
    } while (find_port(sw, gid, qpn));
    return qpn;
}

static bool valid(const struct ipu_memory_config *config)
{
    uint32_t mtu = config->mtu;
    bool is_mtu = mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0;
    bool is_qpn = config->qpn == 0 || (config->qpn >= FIRST_QPN && config->qpn <= LAST_QPN);
    return is_mtu && is_qpn && config->queue_depth <= MAX_DEPTH && !is_multicast(&config->gid);
}

static void release(struct ipu_memory_port *port)
{
    if (port->wake_fd >= 0)
        (void)close(port->wake_fd);
    free(port->posted_items);
    free(port->done_items);
    free(port->sent_items);
    free(port);
}

struct ipu_memory_port *ipu_memory_port_create(struct ipu_memory_switch *sw,
                                               const struct ipu_memory_config *config)
{
    if (!valid(config)) {
        errno = EINVAL;
        return NULL;
    }
    struct ipu_memory_port *port = calloc(1, sizeof *port);
    if (!port)
        return NULL;
    uint32_t wanted = config->queue_depth ? config->queue_depth : DEFAULT_DEPTH;
    uint32_t depth = 1;
    while (depth < wanted)
        depth *= 2;
    port->sw = sw;
    port->bare_unicast = config->bare_unicast;
    port->mask = depth - 1;
    port->posted_items = calloc(depth, sizeof *port->posted_items);
    port->done_items = calloc(depth, sizeof *port->done_items);
    port->sent_items = calloc(depth, sizeof *port->sent_items);
    port->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (port->wake_fd < 0 || !port->posted_items || !port->done_items || !port->sent_items) {
        int error = port->wake_fd < 0 ? errno : ENOMEM;
        release(port);
        errno = error;
        return NULL;
    }

    pthread_mutex_lock(&sw->mutex);
    bool taken = config->qpn != 0 && find_port(sw, &config->gid, config->qpn);
    if (!taken) {
        port->fabric =
            (struct ipu_fabric){.ops = &port_ops,
                                .self = port,
                                .gid = config->gid,
                                .qpn = config->qpn ? config->qpn : free_qpn(sw, &config->gid),
                                .mtu = config->mtu,
                                .one_piece = config->one_piece};
        uint32_t bucket = bucket_of(&config->gid, port->fabric.qpn);
        port->next = sw->ports[bucket];
        sw->ports[bucket] = port;
    }
    pthread_mutex_unlock(&sw->mutex);
    if (taken) {
        release(port);
        errno = EADDRINUSE;
        return NULL;
    }
    return port;
}

void ipu_memory_port_destroy(struct ipu_memory_port *port)
{
    if (!port)
        return;
    struct ipu_memory_switch *sw = port->sw;
    pthread_mutex_lock(&sw->mutex);
    struct ipu_memory_port **at = &sw->ports[bucket_of(&port->fabric.gid, port->fabric.qpn)];
    while (*at != port)
        at = &(*at)->next;
    *at = port->next;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        struct attachment **link = &sw->groups[i];
        while (*link) {
            struct attachment *attachment = *link;
            if (attachment->port == port) {
                *link = attachment->next;
                free(attachment);
            } else {
                link = &attachment->next;
            }
        }
    }
    pthread_mutex_unlock(&sw->mutex);
    release(port);
}

struct ipu_fabric *ipu_memory_port_fabric(struct ipu_memory_port *port)
{
    return &port->fabric;
}

const struct ipu_memory_counters *ipu_memory_port_counters(const struct ipu_memory_port *port)
{
    return &port->counters;
}

/* Returns the pointer to the port's attachment, or the NULL pointer at the end of the bucket. */
static struct attachment **find_link(struct ipu_memory_port *port, const struct in6_addr *mgid)
{
    struct attachment **link = &port->sw->groups[bucket_of(mgid, 0)];
    while (*link && !((*link)->port == port && same_gid(&(*link)->mgid, mgid)))
        link = &(*link)->next;
    return link;
}

int ipu_memory_attach(struct ipu_memory_port *port, const struct in6_addr *mgid)
{
    if (!is_multicast(mgid))
        return -EINVAL;
    struct attachment *attachment = malloc(sizeof *attachment);
    if (!attachment)
        return -ENOMEM;
    *attachment = (struct attachment){.mgid = *mgid, .port = port};
    lock(port);
    struct attachment **link = find_link(port, mgid);
    int result = *link ? -EEXIST : 0;
    if (!*link)
        *link = attachment;
    unlock(port);
    if (result)
        free(attachment);
    return result;
}

int ipu_memory_detach(struct ipu_memory_port *port, const struct in6_addr *mgid)
{
    if (!is_multicast(mgid))
        return -EINVAL;
    lock(port);
    struct attachment **link = find_link(port, mgid);
    struct attachment *attachment = *link;
    if (attachment)
        *link = attachment->next;
    unlock(port);
    free(attachment);
    return attachment ? 0 : -ENOENT;
}

void ipu_memory_break(struct ipu_memory_port *port, uint32_t recoveries_to_fail)
{
    lock(port);
    port->broken = true;
    port->reported = false;
    port->recoveries_to_fail = recoveries_to_fail;
    while (queued(&port->posted) > 0) {
        uint64_t cookie = port->posted_items[port->posted.first & port->mask].cookie;
        complete_receive(port,
                         (struct ipu_received){.cookie = cookie, .flags = IPU_RECEIVED_FAILED});
    }
    wake(port);
    unlock(port);
}
