/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hca.h - the public face of the built-in host channel adapter.
 *
 * A software HCA that speaks RoCEv2 (UDP port 4791 over IPv6 or IPv4) on one net device, with the
 * objects and the semantics of the verbs: completion queues, queue pairs, address handles, work
 * requests. Transports: UD and RC (SEND only). The theory of operation, the thread rules and the
 * wire format are in README.md.
 *
 * Conventions
 *   - Functions that can fail return 0 (or a count) or a negative errno; nothing touches errno.
 *   - Host byte order everywhere, but for GIDs, which are struct in6_addr.
 *   - Any thread may call any function on any object; one mutex per HCA, taken once per call, so
 *     batches are cheap. Destroying an object while another thread still uses it is the caller's
 *     error, as everywhere.
 *   - No call blocks, and no call allocates but create, open and attach.
 *   - Buffers named by a posted work request belong to the HCA until its completion, or that of a
 *     later signalled request of the same queue, has been polled.
 */
#ifndef SOFT_HCA_H
#define SOFT_HCA_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct soft_hca;
struct soft_cq;
struct soft_qp;
struct soft_ah;
struct soft_srq;

/* ---- limits ---------------------------------------------------------------------------------- */

#define SOFT_UDP_PORT       4791
#define SOFT_MAX_SGE        4
#define SOFT_MAX_PKEYS      128
#define SOFT_MAX_CQE        (1u << 20)
#define SOFT_MAX_WR         (1u << 16) /* per queue */
#define SOFT_MAX_QP         16384
#define SOFT_MAX_MCAST      16384 /* groups; QPs per group are bounded by SOFT_MAX_QP */
#define SOFT_MAX_AH         (1u << 20)
#define SOFT_MAX_SRQ        1024
#define SOFT_MAX_RC_BYTES   (1u << 20) /* of a message over RC */
#define SOFT_CUT_PACKETS    128
#define SOFT_CUT_BYTES      (128u << 10) /* of all datagrams of a cut, with their headers */
#define SOFT_GRH_BYTES      40
#define SOFT_LENT_ROOM      12
#define SOFT_QPN_GSI        1u
#define SOFT_QPN_MCAST      0xffffffu
#define SOFT_QKEY_GSI       0x80010000u
#define SOFT_QKEY_OWN       0x80000000u /* a send with this bit uses the Q_Key of its own QP */
#define SOFT_PKEY_DEFAULT   0xffffu
#define SOFT_HOP_LIMIT      64
#define SOFT_NO_DEADLINE_NS INT64_MAX

/* ---- the adapter ----------------------------------------------------------------------------- */

struct soft_hca_attr {
    char netdev[IF_NAMESIZE];
    unsigned int ifindex;
    struct in6_addr gid; /* an address of the device; one of IPv4 as ::ffff:a.b.c.d */
    uint8_t guid[8];     /* the interface identifier of the GID, or a hash of a routed IPv6 GID */
    unsigned int netdev_mtu_bytes;
    unsigned int active_mtu_bytes; /* 256, 512, 1024, 2048 or 4096: fits netdev_mtu_bytes - 80 */
    unsigned int datagram_bytes; /* the longest UD message: netdev_mtu_bytes - 72 (over IPv4: - 52),
                                    4 times n */
};

/* The address that becomes the GID. All hosts that talk to each other need GIDs of one kind. */
enum soft_gid_kind {
    SOFT_GID_ANY, /* link-local if there is one, else of IPv4, else another one of IPv6 */
    SOFT_GID_LINK_LOCAL,
    SOFT_GID_IPV4, /* no groups */
    SOFT_GID_IPV6, /* not link-local */
};

struct soft_hca_options {
    enum soft_gid_kind kind;
    struct in6_addr gid; /* not ::, which means any of that kind: this address, which is mapped, if
                            it is of IPv4 */
    /*
     * Over IPv4: also talk to adapters that take the identification of IPv4 headers into the ICRC,
     * such as rxe. The adapter then sends no trains and no fragments, and accepts packets whose
     * ICRC fits any identification: a damaged packet passes in one of 65536 cases.
     */
    bool other_adapters;
    int adopted_fd; /* not 0: soft_hca_fd of an earlier adapter of that device, which may have been
                       another process's; the adapter goes on with a duplicate, in which packets
                       wait */
};

/*
 * Open the HCA of a net device of the calling thread's network namespace. Without options: { 0 }.
 *
 *   -ENODEV         no such device (or a name too long to be one)
 *   -ENETDOWN       the device is down
 *   -EADDRNOTAVAIL  it has no such address, or IPv6 is disabled
 *   -EAGAIN         its address is tentative: duplicate address detection is running,
 *                   one or two seconds as a rule; try again
 *   -EMSGSIZE       its MTU is too small for the smallest InfiniBand MTU (256 + 80)
 *   -EADDRINUSE     UDP port 4791 is taken: another HCA on this device, or rxe (up to Linux 6.12 it
 *                   takes the port in the initial namespace as soon as it is loaded)
 *   -ESTALE         adopted_fd is the socket of another device or of the other address family
 *   -EPERM, -EMFILE, -ENFILE, -ENOMEM as the system answers
 *
 * Needs no privilege; with CAP_NET_ADMIN the socket buffers may exceed net.core.[rw]mem_max.
 */
int soft_hca_open(const char *netdev, const struct soft_hca_options *options,
                  struct soft_hca **out);

/* Returns the socket, for soft_hca_options.adopted_fd; the adapter keeps it. */
int soft_hca_fd(const struct soft_hca *hca);

/* Closes the adapter with all its remaining QPs, CQs and AHs: their handles become invalid. */
void soft_hca_close(struct soft_hca *hca);

/*
 * Opens another adapter that sends for this one through a socket of its own. It serves a further
 * thread, which then does not contend for this adapter's mutex. Its only P_Key is `pkey`; its queue
 * pairs receive nothing and name their owner in soft_qp_attr.source_qpn. The caller closes it
 * before this adapter. Errors as of soft_hca_open.
 */
int soft_hca_open_tx_queue(struct soft_hca *hca, uint16_t pkey, struct soft_hca **out);

/* The attributes that soft_hca_open read from the device; they do not change. */
void soft_hca_query(const struct soft_hca *hca, struct soft_hca_attr *attr);

/* Looks at the device again. Returns 0 while the port is active, else -ENODEV (device gone or
 * renumbered), -ENETDOWN (down or no carrier), -EADDRNOTAVAIL (the GID is gone), -EAGAIN (the GID
 * is tentative), -EBUSY (it is being renamed) or -EMSGSIZE (the MTU no longer carries
 * active_mtu_bytes, or a datagram of datagram_bytes). Only control threads should call this,
 * because it costs system calls. An HCA survives all of these but -ENODEV and works again when the
 * result is 0 again; but the kernel forgets a device's groups while its MTU is below 1280 bytes,
 * which ends IPv6 on it: -EADDRNOTAVAIL, then detach and attach.
 */
int soft_hca_check(struct soft_hca *hca, unsigned int datagram_bytes);

/* Finds the address that the device has in place of the GID: one of its kind, link-local, of IPv4
 * or another one of IPv6. Only control threads should call this. Returns 0, or -EADDRNOTAVAIL or
 * another error of soft_hca_check. */
int soft_hca_next_gid(struct soft_hca *hca, struct in6_addr *gid);

/* The routes of the device that the kernel made, and that packets need: to all groups, and to
 * link-local addresses. */
enum soft_route { SOFT_ROUTE_GROUPS, SOFT_ROUTE_LINK };

/* Adds such a route again if another device's has taken its place; an HCA without need for it does
 * nothing. Returns 1 if the route was missing and is there again, 0 if it was there, else a
 * negative errno: -EPERM without CAP_NET_ADMIN. Only control threads should call this. */
int soft_hca_restore_route(struct soft_hca *hca, enum soft_route route);

/* The device's MTU now, 0 if it is gone; and the MTU below which soft_hca_check returns -EMSGSIZE.
 * Only control threads should call soft_hca_netdev_mtu.
 */
unsigned int soft_hca_netdev_mtu(struct soft_hca *hca);
unsigned int soft_hca_needed_mtu(const struct soft_hca *hca, unsigned int datagram_bytes);

/* Replaces the P_Key table (at open { 0xffff }). QPs name their P_Key by index; an index past the
 * end matches nothing. -EINVAL unless 1 <= n <= SOFT_MAX_PKEYS. The table may hold invalid entries
 * (low 15 bits 0), which match nothing.
 */
int soft_hca_set_pkeys(struct soft_hca *hca, const uint16_t *pkeys, int n);

/* Returns the index of the table entry with the same low 15 bits, full members first, or
 * -ENOENT. */
int soft_hca_find_pkey(struct soft_hca *hca, uint16_t pkey);

/* Returns the table entry; past the end 0, which matches nothing. */
uint16_t soft_hca_pkey(struct soft_hca *hca, unsigned int index);

/* Receives and retries without polling a CQ, as any soft_cq_poll does. Returns the number of
 * packets taken off the wire. Only a thread that serves no CQ needs it.
 */
int soft_hca_progress(struct soft_hca *hca);

/* Returns the CLOCK_MONOTONIC time at which the caller must poll some CQ again even if no
 * descriptor becomes readable, or SOFT_NO_DEADLINE_NS. The caller asks after soft_cq_arm and before
 * it sleeps. There is a deadline while sends wait for kernel memory (ENOBUFS), which no descriptor
 * announces, while packets wait for buffers of another consumer, and while timers of RC run: it may
 * be earlier than the first of them, but never later.
 */
int64_t soft_hca_deadline_ns(struct soft_hca *hca);

enum soft_counter {
    SOFT_C_TX_PACKETS,     /* packets handed to the kernel (or to the loopback) */
    SOFT_C_TX_BYTES,       /* their payload, headers and padding not counted */
    SOFT_C_TX_CALLS,       /* sendmmsg calls: TX_PACKETS / TX_CALLS is the mean batch */
    SOFT_C_TX_SUPER,       /* UDP_SEGMENT sends, each of 2..64 packets */
    SOFT_C_TX_STALLS,      /* times a send queue had to wait for the socket */
    SOFT_C_TX_UNREACHABLE, /* lost: ENETUNREACH, EHOSTUNREACH, ENETDOWN, ENODEV, EADDRNOTAVAIL... */
    SOFT_C_TX_REFUSED,     /* lost: any other error of the socket (EPERM from a filter, EMSGSIZE) */
    SOFT_C_TX_FRAGMENTS,   /* 1: a path was too short for a packet, so the kernel sends fragments */
    SOFT_C_TX_CONNECTS,    /* times an outlet was connected to the host that its packets go to */
    SOFT_C_TX_ROUTES,      /* routes of the device that were lost, and restored */
    SOFT_C_TX_LENGTH,      /* completed with SOFT_WC_LOC_LEN_ERR, nothing sent */
    SOFT_C_RX_PACKETS,     /* packets off the wire or the loopback, before any check */
    SOFT_C_RX_BYTES,       /* payload delivered, the GRH not counted */
    SOFT_C_RX_CALLS,       /* recvmmsg calls that returned messages */
    SOFT_C_RX_SUPER,       /* UDP_GRO receives, each of 2 or more packets */
    SOFT_C_RX_LEFT,        /* times that borrowed packets stayed where they were: soft_qp_lend */
    SOFT_C_RX_DELIVERED,   /* receive completions */
    SOFT_C_RX_ANY_ID,      /* packets over IPv4 whose ICRC fits another identification than 0 */
    SOFT_C_RX_OWN,         /* our own multicasts back, with a key that does not match itself */
    SOFT_C_DROP_ADDRESS,   /* neither our GID nor an attached group */
    SOFT_C_DROP_MALFORMED, /* too short, length not a multiple of 4, padding too long */
    SOFT_C_DROP_VERSION,   /* transport header version other than 0 */
    SOFT_C_DROP_ICRC,
    SOFT_C_DROP_OPCODE, /* the QP's transport does not have it */
    SOFT_C_DROP_QPN,    /* no such QP; multicast QPN with a unicast address or the reverse */
    SOFT_C_DROP_PKEY,
    SOFT_C_DROP_QKEY,
    SOFT_C_DROP_NO_BUFFER,  /* the QP has no posted receive */
    SOFT_C_DROP_GSI,        /* the same for QP 1 */
    SOFT_C_DROP_TOO_LONG,   /* longer than the posted buffer; the work request stays */
    SOFT_C_DROP_CQ_FULL,    /* no room for the completion; the work request stays */
    SOFT_C_DROP_SOCKET,     /* by the kernel: the socket's receive buffer was full; a train is 1 */
    SOFT_C_DROP_CONNECTION, /* RC: not connected, or not from the GID that it is connected to */
    SOFT_C_DROP_WINDOW,     /* RC: a PSN or MSN outside the window of packets in flight */
    SOFT_C_RC_RETRANSMITS,  /* packets sent again */
    SOFT_C_RC_TIMEOUTS,     /* retransmission timers that ran out */
    SOFT_C_RC_DUPLICATES,   /* packets received again */
    SOFT_C_RC_GAPS,         /* packets received out of sequence */
    SOFT_C_RC_ACKS,         /* acknowledgements sent, refusals included */
    SOFT_C_RC_REFUSALS,     /* requests answered with NAK "invalid request" */
    SOFT_C_RC_NOT_READY,    /* packets refused with an RNR NAK: no buffer, or a full CQ */
    SOFT_C_RC_SHARE,        /* of these: its peer occupies its share of the shared receive queue */
    SOFT_C_RC_OVERDUE,      /* connections ended: a message was incomplete for too long */
    SOFT_C_COUNT,
};

struct soft_hca_counters {
    uint64_t value[SOFT_C_COUNT];
};

/* Reads all counters, from any thread, without the HCA's mutex. They never decrease, but are not
 * one snapshot. */
void soft_hca_counters(struct soft_hca *hca, struct soft_hca_counters *out);

/* Returns whether the HCA knows who sent the last packet that it counted under `why`, and writes
 * the sender's address to *source (IPv4 mapped). The packet's sender claims that address: only the
 * network below can vouch for it. From any thread, under the HCA's mutex. */
bool soft_hca_drop_source(struct soft_hca *hca, enum soft_counter why, struct in6_addr *source);

/* "tx_packets", "drop_icrc", ...: stable names, indexed by enum soft_counter. */
extern const char *const soft_counter_names[SOFT_C_COUNT];

/* ---- completion queues ----------------------------------------------------------------------- */

/* The values are those of enum ibv_wc_status, so an adapter need not translate. */
enum soft_wc_status {
    SOFT_WC_SUCCESS = 0,
    SOFT_WC_LOC_LEN_ERR = 1,
    SOFT_WC_WR_FLUSH_ERR = 5,
    SOFT_WC_REM_INV_REQ_ERR = 9, /* RC has these five, for the send that breaks the connection */
    SOFT_WC_REM_ACCESS_ERR = 10,
    SOFT_WC_REM_OP_ERR = 11,
    SOFT_WC_RETRY_EXC_ERR = 12,
    SOFT_WC_RNR_RETRY_EXC_ERR = 13,
};

/* The values are those of enum ibv_wc_opcode. */
enum soft_wc_opcode {
    SOFT_WC_SEND = 0,
    SOFT_WC_RECV = 128,
};

enum soft_wc_flags {
    SOFT_WC_GRH = 1,      /* set on all UD receives: every RoCEv2 packet has an IP header */
    SOFT_WC_WITH_IMM = 2, /* imm_data is valid */
    SOFT_WC_LENT = 4,     /* soft_qp_lend */
};

struct soft_wc {
    uint64_t wr_id;
    uint32_t byte_len; /* UD receive: payload + SOFT_GRH_BYTES; else: payload */
    uint32_t qp_num;
    uint32_t src_qp;
    uint32_t imm_data;
    uint16_t pkey_index;
    uint8_t status;
    uint8_t opcode; /* valid whatever the status */
    uint8_t flags;
    uint8_t *lent;           /* SOFT_WC_LENT: the payload, */
    const uint8_t *lent_grh; /* and the SOFT_GRH_BYTES in front of it */
};

/*
 * A queue of depth completions (1..SOFT_MAX_CQE). It never overruns: a full queue holds signalled
 * sends back, and drops and counts receives. Neither happens if it is as deep as all queues
 * together that complete into it. -EINVAL, -ENOMEM, -EMFILE, -ENFILE.
 */
int soft_cq_create(struct soft_hca *hca, unsigned int depth, struct soft_cq **out);

/*
 * Creates one more queue for the consumer of `other`: both queues share arming and one descriptor.
 * The caller may destroy them in any order.
 */
int soft_cq_create_beside(struct soft_cq *other, unsigned int depth, struct soft_cq **out);

/* Destroys the queue with its completions; -EBUSY while a QP uses it. */
int soft_cq_destroy(struct soft_cq *cq);

/* Takes up to n completions, oldest first, and makes progress on the whole HCA when there are fewer
 * than n. Returns the count; if it is n, there may be more.
 */
int soft_cq_poll(struct soft_cq *cq, int n, struct soft_wc *wc);

/* Takes up to n completions that the queue holds, without reading packets from the wire: for a
 * consumer that has just polled another queue. */
int soft_cq_take(struct soft_cq *cq, int n, struct soft_wc *wc);

/* Asks for a wake-up: from now on soft_cq_fd becomes readable when a completion may be there (at
 * once, if the queue holds a completion already). One call causes one wake-up, and clears an
 * earlier one. A consumer polls until fewer than n completions come, arms, polls once more, and
 * sleeps on the descriptor. Wake-ups may be spurious.
 */
void soft_cq_arm(struct soft_cq *cq);

/*
 * Cancels soft_cq_arm for a consumer that is awake: completions that it polls from now on cause no
 * wake-up, which would cost a system call each. A pending wake-up stays until the next arm.
 */
void soft_cq_disarm(struct soft_cq *cq);

/* Marks a consumer that hardly ever gets a packet: as long as another consumer sleeps on this HCA
 * and so fetches all packets anyway, only completions wake this consumer. Another consumer counts
 * from its first soft_cq_arm to the end of its queues.
 */
void soft_cq_set_background(struct soft_cq *cq);

/* Returns a level-triggered epoll descriptor for poll/epoll/select, which the CQ owns. Wait for
 * EPOLLIN on it only after soft_cq_arm: it stays readable until the consumer has polled and armed
 * again.
 */
int soft_cq_fd(const struct soft_cq *cq);

/* ---- address handles ------------------------------------------------------------------------- */

struct soft_ah_attr {
    struct in6_addr dgid;
    uint32_t flow_label; /* 20 bits; 0: the kernel chooses */
    uint8_t traffic_class;
    uint8_t hop_limit; /* 0: SOFT_HOP_LIMIT */
};

/* -EINVAL for the unspecified or a v4-mapped GID or a wide flow label, -ENOSPC at SOFT_MAX_AH. */
int soft_ah_create(struct soft_hca *hca, const struct soft_ah_attr *attr, struct soft_ah **out);

/* The caller may destroy a handle at any time: sends already posted with it still go out. */
void soft_ah_destroy(struct soft_ah *ah);

/* ---- queue pairs ----------------------------------------------------------------------------- */

enum soft_qp_type {
    SOFT_QPT_GSI = 1, /* QPN 1, Q_Key SOFT_QKEY_GSI, any P_Key of the table; one per HCA */
    SOFT_QPT_RC = 2,
    SOFT_QPT_UD = 4, /* the values are those of enum ibv_qp_type */
};

struct soft_qp_attr {
    enum soft_qp_type type;
    struct soft_cq *send_cq; /* send_cq and recv_cq may be the same */
    struct soft_cq *recv_cq;
    unsigned int max_send_wr; /* 1..SOFT_MAX_WR */
    unsigned int max_recv_wr; /* 1..SOFT_MAX_WR */
    uint32_t qkey;            /* ignored for a GSI QP */
    uint16_t pkey_index;      /* GSI: for packets whose work request names none */
    struct soft_srq *srq;     /* RC: receives come from here; NULL: from a queue of its own */
    uint32_t source_qpn;      /* UD: the source QPN in its packets; 0: its own */
    uint32_t qpn;             /* the number that it gets if it is free; 0: any */
};

/*
 * A UD QP is ready to send and receive at once; an RC QP is in the reset state (soft_qp_modify).
 * The QPN is never 0, 1 or 0xffffff; allocation starts at a random number, so that a restarted
 * program has a new one. -EINVAL (limits, CQ of another HCA), -EEXIST (a second GSI QP), -ENOSPC
 * (SOFT_MAX_QP), -ENOMEM.
 */
int soft_qp_create(struct soft_hca *hca, const struct soft_qp_attr *attr, struct soft_qp **out);

/*
 * Gives a UD QP another number: packets to it go into the QP's buffers, and their completions have
 * it as qp_num; sends name it as source_qpn. So peers see one more queue pair, which costs a few
 * words of memory. It gets the wanted number if that is free (0: any), and ends with the QP.
 * -EINVAL (not UD), -ENOSPC (SOFT_MAX_QP), -ENOMEM.
 */
int soft_qp_add_number(struct soft_qp *qp, uint32_t wanted, uint32_t *qpn);

/* Detaches from all groups and completes all posted work, sends before receives, the oldest first
 * and unsignalled ones too, with SOFT_WC_WR_FLUSH_ERR (a completion that does not fit into a full
 * CQ is lost).
 */
void soft_qp_destroy(struct soft_qp *qp);

uint32_t soft_qp_qpn(const struct soft_qp *qp);

struct soft_sge {
    void *addr;
    uint32_t length;
};

enum soft_send_flags {
    SOFT_SEND_SIGNALED = 1,
    SOFT_SEND_SOLICITED = 2,
    SOFT_SEND_WITH_IMM = 4,
    SOFT_SEND_CUT = 8, /* the request has `cut`, not `sg` */
};

/* UD: a message that the HCA sends as several datagrams, as a device with segmentation offload
 * does; the caller's function writes each. It is called under the HCA's mutex. */
struct soft_cut {
    uint32_t packets;    /* 1..SOFT_CUT_PACKETS */
    uint32_t bytes;      /* of each, */
    uint32_t last_bytes; /* and of the last, at most as long */
    uint32_t (*make)(const void *context, uint32_t k, uint8_t *to); /* returns the length */
    const void *context;
};

struct soft_send_wr {
    uint64_t wr_id;
    struct soft_ah *ah;
    uint32_t remote_qpn;  /* SOFT_QPN_MCAST with a multicast GID */
    uint32_t remote_qkey; /* bit 31 set: the QP's own */
    uint32_t imm_data;
    uint16_t pkey_index; /* GSI QPs only */
    uint8_t flags;
    uint8_t num_sge; /* 0..SOFT_MAX_SGE */
    uint32_t flow;   /* UD: packets with the same number keep their order; those with others leave
                        by other UDP ports, as far as there are some */
    uint32_t source_qpn; /* UD: of soft_qp_add_number; 0: the QP's own */
    union {
        struct soft_sge sg[SOFT_MAX_SGE];
        struct soft_cut cut;
    };
};

struct soft_recv_wr {
    uint64_t wr_id;
    uint8_t num_sge;
    struct soft_sge sg[SOFT_MAX_SGE]; /* UD: the first SOFT_GRH_BYTES bytes receive the GRH */
};

/*
 * From now on the HCA lends packets to this UD QP where it can: a completion names the payload in
 * the memory that the packet was fetched into, takes no posted receive, and has no wr_id. The
 * consumer may change the payload and the SOFT_LENT_ROOM bytes in front of it until it polls that
 * CQ again; meanwhile the HCA fetches no packets, so the consumer polls again soon. If it has not
 * for 0.1 s and others poll, the HCA goes on in other memory, and lends no packets to anybody until
 * the borrowed ones are back (SOFT_C_RX_LEFT). A packet that
 * another consumer's poll has fetched, a multicast and one from our own GID go to posted receives.
 * The HCA drops packets without a posted receive, or longer than it, in both cases.
 */
void soft_qp_lend(struct soft_qp *qp);

/* Posts n sends as one batch, in order, and tries to send them now. Returns how many it accepted:
 * fewer than n when the send queue is full, or when the next send is invalid (no AH, an AH of
 * another HCA, too many SGEs, a cut out of bounds, QPN over 24 bits); -EINVAL when the first is
 * invalid. It accepts a message longer than datagram_bytes, which completes with
 * SOFT_WC_LOC_LEN_ERR; all failures complete, even when not signalled. UD is unreliable: success
 * says only that the caller may reuse the buffer.
 *
 * RC ignores address handle, remote QPN, Q_Key and flow (a connection is one flow); success says
 * that the peer has the message. A message over SOFT_MAX_RC_BYTES is invalid, and so is any message
 * before the state SOFT_QPS_RTS; in the error state the QP accepts requests and flushes them.
 */
int soft_qp_post_send(struct soft_qp *qp, const struct soft_send_wr *wr, int n);

/* Posts n receives; returns how many it accepted, or -EINVAL when the first is invalid (too many
 * SGEs; RC: in the reset state, or with an SRQ). */
int soft_qp_post_recv(struct soft_qp *qp, const struct soft_recv_wr *wr, int n);

/* Receives packets to this multicast GID; for the first QP the HCA also joins the IPv6 group on the
 * device. The sender's own packets come back like those of other hosts; drop those with your own
 * source QPN and source GID. Attaching twice makes one attachment. -EINVAL (not multicast, not UD),
 * -ENOSPC (SOFT_MAX_MCAST), -ENOMEM, -ENODEV, -EXDEV (the calling thread is in another network
 * namespace than the HCA), or the kernel's error for the join.
 */
int soft_qp_attach_mcast(struct soft_qp *qp, const struct in6_addr *mgid);

/* Returns -ENOENT when the QP is not attached. */
int soft_qp_detach_mcast(struct soft_qp *qp, const struct in6_addr *mgid);

/* ---- reliable connections -------------------------------------------------------------------- */

/* The values are those of enum ibv_qp_state. */
enum soft_qp_state {
    SOFT_QPS_RESET = 0,
    SOFT_QPS_INIT = 1, /* receives may be posted */
    SOFT_QPS_RTR = 2,  /* receives and acknowledges */
    SOFT_QPS_RTS = 3,  /* sends, too */
    SOFT_QPS_ERR = 6,  /* flushes */
};

struct soft_rc_attr {
    /* For RTR. */
    struct soft_ah_attr path;    /* to the peer; packets from another GID are dropped */
    uint32_t dest_qpn;           /* 2..0xfffffe */
    uint32_t rq_psn;             /* 24 bits: of the first packet to receive */
    unsigned int path_mtu_bytes; /* 256, 512, 1024, 2048 or 4096, at most active_mtu_bytes; or, if
                                    the peer agrees, 4 times n, 256 to datagram_bytes */
    uint8_t min_rnr_timer;       /* 0..31, as in the AETH: 1 is 10 us, 14 1.28 ms, 0 655 ms */
    /* For RTS. */
    uint32_t sq_psn;     /* 24 bits: of the first packet to send */
    uint8_t timeout;     /* 0..31: 4.096 us * 2^timeout for an acknowledgement; 0: for ever. The
                            peer is a program that must get to run: 14 (67 ms) is a good value */
    uint8_t retry_count; /* 0..7: timeouts without progress before SOFT_WC_RETRY_EXC_ERR */
    uint8_t rnr_retry;   /* 0..7, the same for a peer without buffers; 7: no limit */
};

/* Moves an RC QP to another state: RESET to INIT to RTR to RTS, and from any state to ERR or RESET.
 * Only RTR and RTS read attr, each its own part. -EINVAL for another step, a UD QP, or values out
 * of range.
 *
 * ERR: all posted work completes with SOFT_WC_WR_FLUSH_ERR, as fast as the CQs have room. An error
 * of the connection leads there, too, with an error completion for the send that caused it. RESET:
 * the QP forgets all posted work, and, if it has an SRQ, the buffer of a message that has come in
 * part. Completions already in a CQ stay there.
 */
int soft_qp_modify(struct soft_qp *qp, enum soft_qp_state state, const struct soft_rc_attr *attr);

/* Returns the state; for UD always SOFT_QPS_RTS. */
enum soft_qp_state soft_qp_state(const struct soft_qp *qp);

/* Returns how many packets an RC QP has sent again; 0 for UD. */
uint64_t soft_qp_retransmits(const struct soft_qp *qp);

/* ---- shared receive queues ------------------------------------------------------------------- */

/* Creates a receive queue from which any number of RC QPs take their buffers. A QP takes one buffer
 * for each message, when the first packet comes, and the buffer posted last goes first. Without
 * buffers all of these QPs answer "receiver not ready". max_wr is 1..SOFT_MAX_WR. -EINVAL, -ENOSPC
 * (SOFT_MAX_SRQ), -ENOMEM.
 */
int soft_srq_create(struct soft_hca *hca, unsigned int max_wr, struct soft_srq **out);

/* Destroys the queue, and forgets its posted receives without completions; -EBUSY while a QP uses
 * it. */
int soft_srq_destroy(struct soft_srq *srq);

/* Posts receives as soft_qp_post_recv does. */
int soft_srq_post_recv(struct soft_srq *srq, const struct soft_recv_wr *wr, int n);

#endif
