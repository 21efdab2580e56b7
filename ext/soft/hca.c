/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "hca.h"

#include <errno.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "icrc.h"
#include "ipv4.h"
#include "objects.h"

/* Room for the longest headers of any RoCEv2 packet: the rule of rxe, so that both ends of a link
 * come to the same MTU. */
#define HEADROOM_BYTES 80
#define UD_OVERHEAD    32 /* UDP, BTH, DETH and ICRC */
#define SMALLEST_MTU   256

const char *const soft_counter_names[SOFT_C_COUNT] = {
    [SOFT_C_TX_PACKETS] = "tx_packets",
    [SOFT_C_TX_BYTES] = "tx_bytes",
    [SOFT_C_TX_CALLS] = "tx_calls",
    [SOFT_C_TX_SUPER] = "tx_super",
    [SOFT_C_TX_STALLS] = "tx_stalls",
    [SOFT_C_TX_UNREACHABLE] = "tx_unreachable",
    [SOFT_C_TX_REFUSED] = "tx_refused",
    [SOFT_C_TX_FRAGMENTS] = "tx_fragments",
    [SOFT_C_TX_CONNECTS] = "tx_connects",
    [SOFT_C_TX_ROUTES] = "tx_routes",
    [SOFT_C_TX_LENGTH] = "tx_length",
    [SOFT_C_RX_PACKETS] = "rx_packets",
    [SOFT_C_RX_BYTES] = "rx_bytes",
    [SOFT_C_RX_CALLS] = "rx_calls",
    [SOFT_C_RX_SUPER] = "rx_super",
    [SOFT_C_RX_LEFT] = "rx_left",
    [SOFT_C_RX_DELIVERED] = "rx_delivered",
    [SOFT_C_RX_ANY_ID] = "rx_any_id",
    [SOFT_C_RX_OWN] = "rx_own",
    [SOFT_C_DROP_ADDRESS] = "drop_address",
    [SOFT_C_DROP_MALFORMED] = "drop_malformed",
    [SOFT_C_DROP_VERSION] = "drop_version",
    [SOFT_C_DROP_ICRC] = "drop_icrc",
    [SOFT_C_DROP_OPCODE] = "drop_opcode",
    [SOFT_C_DROP_QPN] = "drop_qpn",
    [SOFT_C_DROP_PKEY] = "drop_pkey",
    [SOFT_C_DROP_QKEY] = "drop_qkey",
    [SOFT_C_DROP_NO_BUFFER] = "drop_no_buffer",
    [SOFT_C_DROP_GSI] = "drop_gsi",
    [SOFT_C_DROP_TOO_LONG] = "drop_too_long",
    [SOFT_C_DROP_CQ_FULL] = "drop_cq_full",
    [SOFT_C_DROP_SOCKET] = "drop_socket",
    [SOFT_C_DROP_CONNECTION] = "drop_connection",
    [SOFT_C_DROP_WINDOW] = "drop_window",
    [SOFT_C_RC_RETRANSMITS] = "rc_retransmits",
    [SOFT_C_RC_TIMEOUTS] = "rc_timeouts",
    [SOFT_C_RC_DUPLICATES] = "rc_duplicates",
    [SOFT_C_RC_GAPS] = "rc_gaps",
    [SOFT_C_RC_ACKS] = "rc_acks",
    [SOFT_C_RC_REFUSALS] = "rc_refusals",
    [SOFT_C_RC_NOT_READY] = "rc_not_ready",
    [SOFT_C_RC_SHARE] = "rc_share",
    [SOFT_C_RC_OVERDUE] = "rc_overdue",
};

int soft_hca_create(const struct soft_hca_attr *attr, struct soft_hca **out)
{
    struct soft_hca *hca = calloc(1, sizeof(*hca));

    if (hca == NULL)
        return -ENOMEM;
    pthread_mutex_init(&hca->mutex, NULL);
    pthread_mutex_init(&hca->group_mutex, NULL);
    hca->service = &soft_rc_service;
    hca->attr = *attr;
    hca->pkey[0] = SOFT_PKEY_DEFAULT;
    hca->pkey_count = 1;
    hca->next_qpn = soft_random() & SOFT_ROCE_QPN_MASK;
    hca->deadline_ns = SOFT_NO_DEADLINE_NS;
    hca->lent_until_ns = SOFT_NO_DEADLINE_NS;
    hca->timer_ns = SOFT_NO_DEADLINE_NS;
    TAILQ_INIT(&hca->stalled);
    TAILQ_INIT(&hca->work);
    TAILQ_INIT(&hca->timers);
    *out = hca;
    return 0;
}

static void destroy_detached(struct soft_hca *hca)
{
    pthread_mutex_destroy(&hca->group_mutex);
    pthread_mutex_destroy(&hca->mutex);
    free(hca);
}

static unsigned int active_mtu(unsigned int netdev_mtu_bytes)
{
    unsigned int mtu = SOFT_MAX_MESSAGE;

    while (mtu >= SMALLEST_MTU && mtu + HEADROOM_BYTES > netdev_mtu_bytes)
        mtu /= 2;
    return mtu < SMALLEST_MTU ? 0 : mtu;
}

static unsigned int overhead(const struct in6_addr *gid)
{
    return UD_OVERHEAD + (soft_is_ipv4(gid) ? sizeof(struct iphdr) : sizeof(struct ip6_hdr));
}

/* Up to 3 further bytes pad a message to four times n. */
static unsigned int longest_datagram(const struct in6_addr *gid, unsigned int netdev_mtu_bytes)
{
    unsigned int head = overhead(gid);
    unsigned int bytes = netdev_mtu_bytes < head ? 0 : netdev_mtu_bytes - head;

    bytes = bytes < SOFT_MAX_DATAGRAM ? bytes : SOFT_MAX_DATAGRAM;
    return bytes & ~3u;
}

/* Two hosts of different networks often have the same interface identifier, so for a routed GID we
 * hash all of it: FNV-1a. */
static void make_guid(const struct in6_addr *gid, uint8_t guid[8])
{
    uint64_t hash = 0xcbf29ce484222325u;

    if (soft_is_ipv4(gid) || IN6_IS_ADDR_LINKLOCAL(gid)) {
        memcpy(guid, gid->s6_addr + 8, 8);
        return;
    }
    for (int i = 0; i < 16; i++)
        hash = (hash ^ gid->s6_addr[i]) * 0x100000001b3u;
    soft_roce_put32(guid, (uint32_t)(hash >> 32));
    soft_roce_put32(guid + 4, (uint32_t)hash);
}

static int choose_gid(struct soft_netdev *dev, const struct soft_netdev_state *state,
                      const struct soft_hca_options *options, struct in6_addr *gid)
{
    if (IN6_IS_ADDR_UNSPECIFIED(&options->gid))
        return soft_netdev_choose(dev, state, options->kind, gid);
    *gid = options->gid;
    return soft_netdev_has_address(dev, state->ifindex, gid);
}

static int read_attributes(struct soft_netdev *dev, const char *netdev,
                           const struct soft_hca_options *options, struct soft_hca_attr *attr)
{
    struct soft_netdev_state state;
    int error = soft_netdev_find(dev, netdev, &state);

    if (error != 0)
        return error;
    if (!state.up)
        return -ENETDOWN;
    memset(attr, 0, sizeof(*attr));
    memcpy(attr->netdev, state.name, sizeof(attr->netdev));
    attr->ifindex = state.ifindex;
    attr->netdev_mtu_bytes = state.mtu_bytes;
    attr->active_mtu_bytes = active_mtu(state.mtu_bytes);
    if (attr->active_mtu_bytes == 0)
        return -EMSGSIZE;
    error = choose_gid(dev, &state, options, &attr->gid);
    if (error != 0)
        return error;
    attr->datagram_bytes = longest_datagram(&attr->gid, state.mtu_bytes);
    make_guid(&attr->gid, attr->guid);
    return 0;
}

int soft_hca_open_udp(struct soft_hca *hca, const struct soft_udp_config *config)
{
    int error = soft_udp_open(config, &hca->count, &hca->udp);

    for (unsigned int i = 0; error == 0 && i < SOFT_UDP_OUTLETS; i++)
        hca->outlet_seed[i] =
            soft_icrc_port_change(SOFT_UDP_PORT, soft_udp_outlet_port(hca->udp, i));
    return error;
}

static int open_receiving_udp(struct soft_hca *hca, int adopted_fd)
{
    struct soft_udp_config config = {
        .netdev = hca->attr.netdev,
        .ifindex = hca->attr.ifindex,
        .gid = hca->attr.gid,
        .port = SOFT_UDP_PORT,
        .sends_singly = hca->other_adapters,
        .adopted_fd = adopted_fd,
    };

    return soft_hca_open_udp(hca, &config);
}

int soft_hca_open(const char *netdev, const struct soft_hca_options *options, struct soft_hca **out)
{
    static const struct soft_hca_options defaults;
    struct soft_netdev dev;
    struct soft_hca_attr attr;
    struct soft_hca *hca;
    int error = soft_netdev_open(&dev);

    if (error != 0)
        return error;
    if (options == NULL)
        options = &defaults;
    error = read_attributes(&dev, netdev, options, &attr);
    if (error != 0)
        goto close_netdev;
    error = soft_hca_create(&attr, &hca);
    if (error != 0)
        goto close_netdev;
    hca->netdev = dev;
    hca->other_adapters = options->other_adapters && soft_is_ipv4(&attr.gid);
    if (soft_is_ipv4(&attr.gid))
        soft_membership_init(&hca->membership, attr.ifindex);
    else
        error = soft_membership_open(&hca->membership, attr.ifindex);
    if (error != 0)
        goto destroy;
    error = open_receiving_udp(hca, options->adopted_fd);
    if (error != 0)
        goto close_membership;
    *out = hca;
    return 0;

close_membership:
    soft_membership_close(&hca->membership);
destroy:
    destroy_detached(hca);
close_netdev:
    soft_netdev_close(&dev);
    return error;
}

int soft_hca_fd(const struct soft_hca *hca)
{
    return soft_udp_fd(hca->udp);
}

void soft_hca_close(struct soft_hca *hca)
{
    for (int i = 0; i < SOFT_QP_BUCKETS; i++)
        while (!LIST_EMPTY(&hca->qps[i]))
            soft_qp_destroy(LIST_FIRST(&hca->qps[i]));
    while (!LIST_EMPTY(&hca->ahs))
        soft_ah_destroy(LIST_FIRST(&hca->ahs));
    while (!LIST_EMPTY(&hca->srqs))
        (void)soft_srq_destroy(LIST_FIRST(&hca->srqs));
    while (!LIST_EMPTY(&hca->cqs))
        (void)soft_cq_destroy(LIST_FIRST(&hca->cqs));
    if (hca->udp != NULL) {
        soft_udp_close(hca->udp);
        if (hca->main == NULL) { /* a TX queue uses those of its HCA */
            soft_membership_close(&hca->membership);
            soft_netdev_close(&hca->netdev);
        }
    }
    destroy_detached(hca);
}

void soft_hca_query(const struct soft_hca *hca, struct soft_hca_attr *attr)
{
    *attr = hca->attr;
}

int soft_hca_check(struct soft_hca *hca, unsigned int datagram_bytes)
{
    struct soft_netdev_state state;
    int error;

    if (hca->udp == NULL)
        return 0;
    /* Two threads must not use the netlink socket at once; group_mutex is for control work, too. */
    pthread_mutex_lock(&hca->group_mutex);
    error = soft_netdev_look(&hca->netdev, hca->attr.ifindex, &state);
    if (error == 0 && (!state.up || !state.running))
        error = -ENETDOWN;
    if (error == 0)
        error = soft_netdev_has_address(&hca->netdev, hca->attr.ifindex, &hca->attr.gid);
    if (error == 0 && (active_mtu(state.mtu_bytes) < hca->attr.active_mtu_bytes ||
                       longest_datagram(&hca->attr.gid, state.mtu_bytes) < datagram_bytes))
        error = -EMSGSIZE;
    pthread_mutex_unlock(&hca->group_mutex);
    return error;
}

static enum soft_gid_kind kind_of(const struct in6_addr *gid)
{
    if (soft_is_ipv4(gid))
        return SOFT_GID_IPV4;
    return IN6_IS_ADDR_LINKLOCAL(gid) ? SOFT_GID_LINK_LOCAL : SOFT_GID_IPV6;
}

int soft_hca_next_gid(struct soft_hca *hca, struct in6_addr *gid)
{
    struct soft_netdev_state state;
    int error;

    if (hca->udp == NULL)
        return -EADDRNOTAVAIL;
    pthread_mutex_lock(&hca->group_mutex);
    error = soft_netdev_look(&hca->netdev, hca->attr.ifindex, &state);
    if (error == 0)
        error = soft_netdev_choose(&hca->netdev, &state, kind_of(&hca->attr.gid), gid);
    pthread_mutex_unlock(&hca->group_mutex);
    return error;
}

int soft_hca_restore_route(struct soft_hca *hca, enum soft_route route)
{
    const struct in6_addr *gid = &hca->attr.gid;
    int error;

    if (hca->udp == NULL || soft_is_ipv4(gid) ||
        (route == SOFT_ROUTE_LINK && !IN6_IS_ADDR_LINKLOCAL(gid)))
        return 0;
    pthread_mutex_lock(&hca->group_mutex);
    error = soft_netdev_has_route(&hca->netdev, hca->attr.ifindex, route);
    if (error == -ENETUNREACH || error == -EHOSTUNREACH) {
        error = soft_netdev_add_route(&hca->netdev, hca->attr.ifindex, route);
        if (error == 0) {
            error = 1;
            pthread_mutex_lock(&hca->mutex);
            soft_count_add(&hca->count, SOFT_C_TX_ROUTES, 1);
            pthread_mutex_unlock(&hca->mutex);
        }
    }
    pthread_mutex_unlock(&hca->group_mutex);
    return error;
}

unsigned int soft_hca_netdev_mtu(struct soft_hca *hca)
{
    struct soft_netdev_state state;
    int error;

    pthread_mutex_lock(&hca->group_mutex);
    error = soft_netdev_look(&hca->netdev, hca->attr.ifindex, &state);
    pthread_mutex_unlock(&hca->group_mutex);
    return error == 0 ? state.mtu_bytes : 0;
}

unsigned int soft_hca_needed_mtu(const struct soft_hca *hca, unsigned int datagram_bytes)
{
    unsigned int wire = ((datagram_bytes + 3) & ~3u) + overhead(&hca->attr.gid);
    unsigned int whole = hca->attr.active_mtu_bytes + HEADROOM_BYTES;

    return wire > whole ? wire : whole;
}

int soft_hca_set_pkeys(struct soft_hca *hca, const uint16_t *pkeys, int n)
{
    if (n < 1 || n > SOFT_MAX_PKEYS)
        return -EINVAL;
    soft_lock_acquire(hca);
    memcpy(hca->pkey, pkeys, (size_t)n * sizeof(*pkeys));
    hca->pkey_count = (unsigned int)n;
    soft_lock_release(hca);
    return 0;
}

int soft_hca_find_pkey(struct soft_hca *hca, uint16_t pkey)
{
    int index = -ENOENT;

    soft_lock_acquire(hca);
    for (unsigned int i = 0; i < hca->pkey_count; i++) {
        if (((hca->pkey[i] ^ pkey) & 0x7fff) != 0)
            continue;
        if (index < 0)
            index = (int)i;
        if (hca->pkey[i] & 0x8000) {
            index = (int)i;
            break;
        }
    }
    soft_lock_release(hca);
    return index;
}

uint16_t soft_hca_pkey(struct soft_hca *hca, unsigned int index)
{
    uint16_t pkey;

    soft_lock_acquire(hca);
    pkey = index < hca->pkey_count ? hca->pkey[index] : 0;
    soft_lock_release(hca);
    return pkey;
}

int soft_hca_progress(struct soft_hca *hca)
{
    int packets;

    soft_lock_acquire(hca);
    soft_progress_retry(hca);
    packets = soft_progress_receive(hca, NULL, 1);
    soft_lock_release(hca);
    return packets;
}

int64_t soft_hca_deadline_ns(struct soft_hca *hca)
{
    int64_t deadline_ns;

    soft_lock_acquire(hca);
    deadline_ns = hca->deadline_ns < hca->timer_ns ? hca->deadline_ns : hca->timer_ns;
    if (hca->short_of != NULL && hca->short_until_ns < deadline_ns)
        deadline_ns = hca->short_until_ns;
    if (hca->lent_until_ns < deadline_ns && !soft_udp_has_left(hca->udp))
        deadline_ns = hca->lent_until_ns;
    soft_lock_release(hca);
    return deadline_ns;
}

bool soft_hca_drop_source(struct soft_hca *hca, enum soft_counter why, struct in6_addr *source)
{
    soft_lock_acquire(hca);
    *source = hca->count.source[why];
    soft_lock_release(hca);
    return !IN6_IS_ADDR_UNSPECIFIED(source);
}

void soft_hca_counters(struct soft_hca *hca, struct soft_hca_counters *out)
{
    for (int i = 0; i < SOFT_C_COUNT; i++)
        out->value[i] = atomic_load_explicit(&hca->count.value[i], memory_order_relaxed);
    out->value[SOFT_C_DROP_SOCKET] = 0;
    if (hca->udp != NULL && hca->main == NULL) /* a TX queue refuses all packets */
        out->value[SOFT_C_DROP_SOCKET] = soft_udp_overruns(hca->udp);
}
