/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hca.h - the public face of the built-in host channel adapter.
 *
 * A software HCA that speaks RoCEv2 (UDP port 4791 over IPv6) on one net device, with the objects
 * and the semantics of the verbs: completion queues, queue pairs, address handles, work requests.
 * Transports: UD and RC (SEND only). The theory of operation, the thread rules and the wire format
 * are in README.md.
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
#define SOFT_GRH_BYTES      40
#define SOFT_QPN_GSI        1u
#define SOFT_QPN_MCAST      0xffffffu
#define SOFT_QKEY_GSI       0x80010000u
#define SOFT_QKEY_OWN       0x80000000u /* this bit in a send: "the Q_Key of the QP itself" */
#define SOFT_PKEY_DEFAULT   0xffffu
#define SOFT_HOP_LIMIT      64
#define SOFT_NO_DEADLINE_NS INT64_MAX

/* ---- the adapter ----------------------------------------------------------------------------- */

struct soft_hca_attr {
    char netdev[IF_NAMESIZE];
    unsigned int ifindex;
    struct in6_addr gid; /* the device's IPv6 link-local address */
    uint8_t guid[8];     /* the interface identifier of the GID, as it stands there */
    unsigned int netdev_mtu_bytes;
    unsigned int active_mtu_bytes; /* 256, 512, 1024, 2048 or 4096: fits netdev_mtu_bytes - 80 */
};

/*
 * Open the HCA of a net device of the calling thread's network namespace.
 *
 *   -ENODEV         no such device (or a name too long to be one)
 *   -ENETDOWN       the device is down
 *   -EADDRNOTAVAIL  it has no IPv6 link-local address, or IPv6 is disabled
 *   -EAGAIN         its link-local address is tentative: duplicate address detection is running,
 *                   one or two seconds as a rule; try again
 *   -EMSGSIZE       its MTU is too small for the smallest InfiniBand MTU (256 + 80)
 *   -EADDRINUSE     UDP port 4791 is taken: another HCA on this device, or rxe (up to Linux 6.12 it
 *                   takes the port in the initial namespace as soon as it is loaded)
 *   -EAFNOSUPPORT   a kernel without IPv6
 *   -EPERM, -EMFILE, -ENFILE, -ENOMEM as the system answers
 *
 * Needs no privilege; with CAP_NET_ADMIN the socket buffers may exceed net.core.[rw]mem_max.
 */
int soft_hca_open(const char *netdev, struct soft_hca **out);

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

/*
 * Look at the device again: 0 while the port is active, else -ENODEV (device gone or renumbered),
 * -ENETDOWN (down or no carrier), -EADDRNOTAVAIL (the GID is gone), -EAGAIN (the GID is tentative),
 * -EBUSY (it is being renamed) or -EMSGSIZE (the MTU no longer carries active_mtu_bytes). For a
 * control thread: costs system calls. An HCA survives all but -ENODEV and works again when the
 * answer is 0 again; but the kernel forgets a device's groups while its MTU is below 1280 bytes,
 * which ends IPv6 on it: -EADDRNOTAVAIL, then detach and attach.
 */
int soft_hca_check(struct soft_hca *hca);

/*
 * Replace the P_Key table (at open { 0xffff }). QPs name their P_Key by index; an index past the
 * end matches nothing. -EINVAL unless 1 <= n <= SOFT_MAX_PKEYS. Invalid entries (low 15 bits 0) are
 * allowed, they match nothing.
 */
int soft_hca_set_pkeys(struct soft_hca *hca, const uint16_t *pkeys, int n);

/* The index of the table entry with the same low 15 bits, full members first, or -ENOENT. */
int soft_hca_find_pkey(struct soft_hca *hca, uint16_t pkey);

/* The table entry; 0, which matches nothing, past the end. */
uint16_t soft_hca_pkey(struct soft_hca *hca, unsigned int index);

/*
 * Receive and retry without polling a CQ; any soft_cq_poll does the same. Returns the number of
 * packets taken off the wire. Needed only by a thread that serves no CQ.
 */
int soft_hca_progress(struct soft_hca *hca);

/*
 * CLOCK_MONOTONIC time at which some CQ must be polled again even if no descriptor becomes
 * readable, or SOFT_NO_DEADLINE_NS. Ask after soft_cq_arm and before sleeping. Set while sends wait
 * for kernel memory (ENOBUFS), which no descriptor announces, while packets wait for buffers of
 * another consumer, and by the timers of RC: may be earlier than the first of them, never later.
 */
int64_t soft_hca_deadline_ns(struct soft_hca *hca);

enum soft_counter {
    SOFT_C_TX_PACKETS,     /* packets handed to the kernel (or to the loopback) */
    SOFT_C_TX_BYTES,       /* their payload, headers and padding not counted */
    SOFT_C_TX_CALLS,       /* sendmmsg calls: TX_PACKETS / TX_CALLS is the batching */
    SOFT_C_TX_SUPER,       /* UDP_SEGMENT sends, each of 2..64 packets */
    SOFT_C_TX_STALLS,      /* times a send queue had to wait for the socket */
    SOFT_C_TX_UNREACHABLE, /* lost: ENETUNREACH, EHOSTUNREACH, ENETDOWN, ENODEV, EADDRNOTAVAIL... */
    SOFT_C_TX_REFUSED,     /* lost: any other error of the socket (EPERM from a filter, EMSGSIZE) */
    SOFT_C_TX_LENGTH,      /* completed with SOFT_WC_LOC_LEN_ERR, nothing sent */
    SOFT_C_RX_PACKETS,     /* packets off the wire or the loopback, before any check */
    SOFT_C_RX_BYTES,       /* payload delivered, the GRH not counted */
    SOFT_C_RX_CALLS,       /* recvmmsg calls that brought something */
    SOFT_C_RX_SUPER,       /* UDP_GRO receives, each of 2 or more packets */
    SOFT_C_RX_DELIVERED,   /* receive completions */
    SOFT_C_DROP_ADDRESS,   /* neither our GID nor an attached group */
    SOFT_C_DROP_MALFORMED, /* too short, length not a multiple of 4, padding too long */
    SOFT_C_DROP_VERSION,   /* transport header version other than 0 */
    SOFT_C_DROP_ICRC,
    SOFT_C_DROP_OPCODE, /* not one of the QP's transport */
    SOFT_C_DROP_QPN,    /* no such QP; multicast QPN with a unicast address or the reverse */
    SOFT_C_DROP_PKEY,
    SOFT_C_DROP_QKEY,
    SOFT_C_DROP_NO_BUFFER, /* no receive work request posted */
    SOFT_C_DROP_TOO_LONG,  /* longer than the posted buffer; the work request stays */
    SOFT_C_DROP_CQ_FULL,   /* no room for the completion; the work request stays */
    SOFT_C_DROP_SOCKET,    /* by the kernel, the socket's receive buffer being full; a train is 1 */
    SOFT_C_DROP_CONNECTION, /* RC: not connected, or not from the GID that it is connected to */
    SOFT_C_DROP_WINDOW,     /* RC: an acknowledgement of what is not in flight */
    SOFT_C_RC_RETRANSMITS,  /* packets sent again */
    SOFT_C_RC_TIMEOUTS,     /* retransmission timers that ran out */
    SOFT_C_RC_DUPLICATES,   /* packets received again */
    SOFT_C_RC_GAPS,         /* packets received out of sequence */
    SOFT_C_RC_ACKS,         /* acknowledgements sent, refusals included */
    SOFT_C_RC_REFUSALS,     /* requests answered with NAK "invalid request" */
    SOFT_C_RC_NOT_READY,    /* packets refused with an RNR NAK: no buffer, or a full CQ */
    SOFT_C_COUNT,
};

struct soft_hca_counters {
    uint64_t value[SOFT_C_COUNT];
};

/* Read all counters; from any thread, without the HCA's mutex; monotone, not one snapshot. */
void soft_hca_counters(struct soft_hca *hca, struct soft_hca_counters *out);

/* "tx_packets", "drop_icrc", ...: stable names, indexed by enum soft_counter. */
extern const char *const soft_counter_names[SOFT_C_COUNT];

/* ---- completion queues ----------------------------------------------------------------------- */

/* The values are those of enum ibv_wc_status, so an adapter need not translate. */
enum soft_wc_status {
    SOFT_WC_SUCCESS = 0,
    SOFT_WC_LOC_LEN_ERR = 1,
    SOFT_WC_WR_FLUSH_ERR = 5,
    SOFT_WC_REM_INV_REQ_ERR = 9, /* these five: RC, of the send that breaks the connection */
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
    SOFT_WC_GRH = 1,      /* always set on UD receives: RoCEv2 has an IP header in every packet */
    SOFT_WC_WITH_IMM = 2, /* imm_data is there */
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
};

/*
 * A queue of depth completions (1..SOFT_MAX_CQE). It never overruns: a full one holds signalled
 * sends back and drops receives, counted. Make it as deep as all queues that complete into it
 * together, and neither happens. -EINVAL, -ENOMEM, -EMFILE, -ENFILE.
 */
int soft_cq_create(struct soft_hca *hca, unsigned int depth, struct soft_cq **out);

/*
 * Creates one more queue for the consumer of `other`: both queues share arming and one descriptor.
 * The caller may destroy them in any order.
 */
int soft_cq_create_beside(struct soft_cq *other, unsigned int depth, struct soft_cq **out);

/* -EBUSY while a QP uses it. Completions not polled are gone. */
int soft_cq_destroy(struct soft_cq *cq);

/*
 * Take up to n completions, oldest first; makes progress on the whole HCA when there are fewer than
 * n. Returns the count; as long as it is n there may be more.
 */
int soft_cq_poll(struct soft_cq *cq, int n, struct soft_wc *wc);

/* Take up to n of those that are there, without looking for more on the wire: for a consumer that
 * has just polled another one. */
int soft_cq_take(struct soft_cq *cq, int n, struct soft_wc *wc);

/*
 * Ask for a wake-up: from now on soft_cq_fd becomes readable when a completion may be there (at
 * once, if one is there already). Wakes once per arm; clears an earlier wake-up. Pattern: poll
 * until fewer than n come, arm, poll once more, sleep on the descriptor. Wake-ups may be spurious.
 */
void soft_cq_arm(struct soft_cq *cq);

/*
 * Cancels soft_cq_arm for a consumer that is awake: completions that it polls from now on cause no
 * wake-up, which would cost a system call each. A pending wake-up stays until the next arm.
 */
void soft_cq_disarm(struct soft_cq *cq);

/*
 * For a consumer that hardly ever gets a packet: as long as another consumer sleeps on this HCA and
 * so fetches all packets anyway, only completions wake this consumer. Another consumer counts from
 * its first soft_cq_arm to the end of its queues.
 */
void soft_cq_set_background(struct soft_cq *cq);

/*
 * An epoll descriptor for poll/epoll/select, level-triggered, owned by the CQ. Wait for EPOLLIN on
 * it only after soft_cq_arm: while it is readable and not polled and armed again it stays so.
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

/* At any time: sends already posted with it still go out. */
void soft_ah_destroy(struct soft_ah *ah);

/* ---- queue pairs ----------------------------------------------------------------------------- */

enum soft_qp_type {
    SOFT_QPT_GSI = 1, /* QPN 1, Q_Key SOFT_QKEY_GSI, any P_Key of the table; one per HCA */
    SOFT_QPT_RC = 2,
    SOFT_QPT_UD = 4, /* the values are those of enum ibv_qp_type */
};

struct soft_qp_attr {
    enum soft_qp_type type;
    struct soft_cq *send_cq; /* the two may be the same */
    struct soft_cq *recv_cq;
    unsigned int max_send_wr; /* 1..SOFT_MAX_WR */
    unsigned int max_recv_wr; /* 1..SOFT_MAX_WR */
    uint32_t qkey;            /* ignored for a GSI QP */
    uint16_t pkey_index;      /* GSI: of packets whose work request does not say */
    struct soft_srq *srq;     /* RC: receives come from here; NULL: from a queue of its own */
    uint32_t source_qpn;      /* UD: the source QPN in its packets; 0: its own */
};

/*
 * A UD QP is ready to send and receive at once; an RC QP is in the reset state (soft_qp_modify).
 * The QPN is never 0, 1 or 0xffffff; allocation starts at a random number, so that a restarted
 * program has a new one. -EINVAL (limits, CQ of another HCA), -EEXIST (a second GSI QP), -ENOSPC
 * (SOFT_MAX_QP), -ENOMEM.
 */
int soft_qp_create(struct soft_hca *hca, const struct soft_qp_attr *attr, struct soft_qp **out);

/*
 * Detach from all groups and complete what is posted, send before receive, oldest first and
 * unsignalled ones too, with SOFT_WC_WR_FLUSH_ERR (what does not fit into a full CQ is gone).
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
    struct soft_sge sg[SOFT_MAX_SGE];
};

struct soft_recv_wr {
    uint64_t wr_id;
    uint8_t num_sge;
    struct soft_sge sg[SOFT_MAX_SGE]; /* UD: the first SOFT_GRH_BYTES bytes receive the GRH */
};

/*
 * Post n sends as one batch, in order, and try to send them now. Returns how many were accepted:
 * fewer than n when the send queue is full, or when the next one is invalid (no AH, an AH of
 * another HCA, too many SGEs, QPN over 24 bits); -EINVAL when that is the first. A message longer
 * than the active MTU is accepted and completes with SOFT_WC_LOC_LEN_ERR, as do all failures, even
 * when not signalled. UD is unreliable: success says that the buffer may be reused, no more.
 *
 * RC ignores address handle and remote QPN and Q_Key; success says that the peer has the message.
 * Invalid are a message over SOFT_MAX_RC_BYTES and any before the state SOFT_QPS_RTS; in the error
 * state requests are accepted and flushed.
 */
int soft_qp_post_send(struct soft_qp *qp, const struct soft_send_wr *wr, int n);

/* Post n receives; returns how many were accepted, or -EINVAL when the first one is invalid (too
 * many SGEs; RC: in the reset state, or with an SRQ). */
int soft_qp_post_recv(struct soft_qp *qp, const struct soft_recv_wr *wr, int n);

/*
 * Receive what is sent to this multicast GID: joins the IPv6 group on the device, too, for the
 * first QP. The sender's own packets come back like everybody else's; drop those with your own
 * source QPN and source GID. Attaching twice is one attachment. -EINVAL (not multicast, not UD),
 * -ENOSPC (SOFT_MAX_MCAST), -ENOMEM, -ENODEV, -EXDEV (the calling thread is in another network
 * namespace than the HCA), or what the kernel answers to the join.
 */
int soft_qp_attach_mcast(struct soft_qp *qp, const struct in6_addr *mgid);

/* -ENOENT when not attached. */
int soft_qp_detach_mcast(struct soft_qp *qp, const struct in6_addr *mgid);

/* ---- reliable connections -------------------------------------------------------------------- */

/* The values are those of enum ibv_qp_state. */
enum soft_qp_state {
    SOFT_QPS_RESET = 0,
    SOFT_QPS_INIT = 1, /* receives may be posted */
    SOFT_QPS_RTR = 2,  /* receives and answers */
    SOFT_QPS_RTS = 3,  /* sends, too */
    SOFT_QPS_ERR = 6,  /* flushes */
};

struct soft_rc_attr {
    /* For RTR. */
    struct soft_ah_attr path;    /* to the peer; packets from another GID are dropped */
    uint32_t dest_qpn;           /* 2..0xfffffe */
    uint32_t rq_psn;             /* 24 bits: of the first packet that comes */
    unsigned int path_mtu_bytes; /* 256, 512, 1024, 2048 or 4096, at most active_mtu_bytes */
    uint8_t min_rnr_timer;       /* 0..31, as in the AETH: 1 is 10 us, 14 1.28 ms, 0 655 ms */
    /* For RTS. */
    uint32_t sq_psn;     /* 24 bits: of the first packet that goes */
    uint8_t timeout;     /* 0..31: 4.096 us * 2^timeout for an acknowledgement; 0: for ever. The
                            peer is a program that must get to run: 14 (67 ms) is a good value */
    uint8_t retry_count; /* 0..7, time-outs without progress before SOFT_WC_RETRY_EXC_ERR */
    uint8_t rnr_retry;   /* 0..7, the same for a peer without buffers; 7: no limit */
};

/*
 * Walk an RC QP to another state: RESET to INIT to RTR to RTS, and from anywhere to ERR or RESET.
 * attr is read for RTR and RTS only, and then only its part for that. -EINVAL for another step, a
 * UD QP, or values out of range.
 *
 * ERR: all that is posted completes with SOFT_WC_WR_FLUSH_ERR, as fast as the CQs have room. An
 * error of the connection leads there, too, with an error completion of the send that met it.
 * RESET: all that is posted is forgotten; for a QP with an SRQ the buffer of a message that has
 * come in part as well. Completions already in a CQ stay there.
 */
int soft_qp_modify(struct soft_qp *qp, enum soft_qp_state state, const struct soft_rc_attr *attr);

/* UD: SOFT_QPS_RTS. */
enum soft_qp_state soft_qp_state(const struct soft_qp *qp);

/* RC: packets that this QP has sent again. UD: 0. */
uint64_t soft_qp_retransmits(const struct soft_qp *qp);

/* ---- shared receive queues ------------------------------------------------------------------- */

/*
 * A receive queue that any number of RC QPs take their buffers from, one for each message, when its
 * first packet comes, the one posted last first. Without buffers all of them answer "receiver not
 * ready". max_wr is 1..SOFT_MAX_WR. -EINVAL, -ENOSPC (SOFT_MAX_SRQ), -ENOMEM.
 */
int soft_srq_create(struct soft_hca *hca, unsigned int max_wr, struct soft_srq **out);

/* -EBUSY while a QP uses it. Receives still posted are forgotten, without completions. */
int soft_srq_destroy(struct soft_srq *srq);

/* As soft_qp_post_recv. */
int soft_srq_post_recv(struct soft_srq *srq, const struct soft_recv_wr *wr, int n);

#endif
