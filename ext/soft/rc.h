/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_RC_H
#define SOFT_RC_H

#include "objects.h"

/*
 * One side of a reliable connection. rc.c changes the states, serves the connections and expires
 * their timers; rc_send.c is the requester, rc_receive.c the responder; rc_base.c has the parts
 * that both share.
 *
 * Packet sequence numbers have 24 bits. We compare only distances from a number of our own, and use
 * a peer's number only if its distance lies in the allowed window.
 */

#define SOFT_PSN_MASK 0xffffffu
#define SOFT_PSN_HALF 0x800000u /* at this distance and above: behind (volume 1, 9.7.2) */

/* Packets in flight. The largest window keeps a train of 64 KB messages going while the receiver
 * works on the previous message; with the smallest one, later packets still show the loss of a
 * packet. */
#define SOFT_RC_WINDOW_START 32u
#define SOFT_RC_WINDOW_MIN   8u
#define SOFT_RC_WINDOW_MAX   256u

/* The last packet of a message asks for an acknowledgement, and so do every 16th packet and the
 * packet that fills the window. */
#define SOFT_RC_ACK_EVERY 16u

/* A request whose PSN is farther ahead than this does not come from the peer, because the largest
 * send queues hold fewer packets. */
#define SOFT_RC_AHEAD_MAX 0x10000u

/* AETH syndromes (volume 1, 9.7.5.2.1). */
#define SOFT_SYNDROME_KIND   0x60u
#define SOFT_SYNDROME_VALUE  0x1fu
#define SOFT_SYNDROME_ACK    0x00u
#define SOFT_SYNDROME_RNR    0x20u
#define SOFT_SYNDROME_NAK    0x60u
#define SOFT_ACK_NO_CREDITS  0x1fu /* as an ACK's value: credits are not counted */
#define SOFT_NAK_SEQUENCE    0u
#define SOFT_NAK_INVALID     1u
#define SOFT_NAK_ACCESS      2u
#define SOFT_NAK_OPERATION   3u
#define SOFT_RC_NO_TIMER     INT64_MAX
#define SOFT_RC_SEED_ENTRIES 4
#define SOFT_RC_RNR_FOR_EVER 7
#define SOFT_RC_ACK_BASE_NS  4096
#define SOFT_RC_PAUSE_MAX_NS 1000000000

/* The acknowledgement that the responder has to send. */
enum soft_rc_pending_ack {
    SOFT_RC_ACK_NONE,
    SOFT_RC_ACK_PENDING, /* ACK of all packets before expected */
    SOFT_RC_NAK_PENDING, /* NAK with nak_syndrome, for expected */
};

/* The last NAK that we sent for the packet that we still expect. */
enum soft_rc_last_nak {
    SOFT_RC_LAST_NAK_NONE,
    SOFT_RC_LAST_NAK_SEQUENCE,
    SOFT_RC_LAST_NAK_RNR,
};

/* A packet of the send queue. */
struct soft_rc_position {
    uint32_t psn;
    unsigned int request; /* counts like head and tail; equal to the tail: none yet */
    uint32_t packet;      /* of the request */
};

struct soft_rc {
    struct soft_qp *qp;
    TAILQ_ENTRY(soft_rc) work_entry;
    TAILQ_ENTRY(soft_rc) timer_entry;
    TAILQ_ENTRY(soft_rc) share_entry;
    bool has_work;
    bool has_timer;
    bool has_share; /* of its shared receive queue: is in its list of receiving connections */

    enum soft_qp_state state;
    struct soft_rc_attr attr; /* as modified so far */
    struct soft_udp_dest dest;
    bool local;     /* the peer is on this HCA */
    uint8_t outlet; /* of all its packets */
    struct {
        uint16_t bytes;
        uint32_t value;
    } seed[SOFT_RC_SEED_ENTRIES]; /* of the ICRC, by packet length */

    /* The requester. unacked <= next <= sent_end. */
    uint32_t unacked;             /* the oldest that is not acknowledged */
    struct soft_rc_position next; /* to send; before sent_end after the requester went back */
    uint32_t sent_end;            /* after the newest ever sent */
    unsigned int first_request;   /* counts like head and tail; the peer's MSN counts from here */
    uint32_t post_psn;            /* of the first packet of the next request to be posted */
    unsigned int window;          /* packets */
    unsigned int slow_until;      /* doubles below, grows by one packet a round trip from here on */
    unsigned int grown;           /* acknowledged packets towards the next growth */
    unsigned int retries_left;
    unsigned int rnr_left;
    uint64_t retransmits; /* packets sent again, ever */
    int64_t timer_ns;     /* retransmission, or the end of a pause; SOFT_RC_NO_TIMER */
    bool paused;          /* the receiver is not ready: send nothing before timer_ns */
    bool flushing;        /* in the error state, past the acknowledged requests */

    /* The responder. */
    uint32_t expected; /* PSN */
    uint32_t msn;      /* messages completed, 24 bits */
    enum soft_rc_pending_ack pending_ack;
    uint8_t nak_syndrome;
    enum soft_rc_last_nak last_nak;
    uint32_t ahead;         /* distance of the newest packet that came too early */
    bool receiving;         /* between the first and the last packet of a message: */
    struct soft_recv_wr in; /* where it goes */
    uint8_t in_status;      /* its status if the connection ends first */
    uint64_t in_room;       /* bytes that its buffers have room for */
    uint32_t in_bytes;      /* bytes received so far */
    unsigned int in_sge;    /* the next byte goes here */
    uint32_t in_offset;
    int64_t in_since_ns; /* with has_share: when the message began */
};

static inline uint32_t soft_psn_add(uint32_t psn, uint32_t n)
{
    return (psn + n) & SOFT_PSN_MASK;
}

/* Returns how far `psn` is after `from`, 0 to 2^24 - 1. */
static inline uint32_t soft_psn_distance(uint32_t psn, uint32_t from)
{
    return (psn - from) & SOFT_PSN_MASK;
}

/* Returns how many packets a message takes; a message without data takes one, too. */
static inline uint32_t soft_rc_packets(const struct soft_rc *rc, uint32_t bytes)
{
    return bytes == 0 ? 1 : (bytes + rc->attr.path_mtu_bytes - 1) / rc->attr.path_mtu_bytes;
}

/* rc_base.c */
void soft_rc_want_service(struct soft_rc *rc); /* served at the release of the HCA's mutex */
void soft_rc_set_timer(struct soft_rc *rc, int64_t at_ns);
void soft_rc_schedule_nak(struct soft_rc *rc, unsigned int syndrome);
void soft_rc_fail(struct soft_rc *rc); /* to the error state; its send half flushes */
uint16_t soft_rc_pkey(const struct soft_rc *rc);
uint32_t soft_rc_seed(struct soft_rc *rc, size_t packet_bytes);
/* Delivers the packet in hca->loop, which is addressed to our own GID. */
void soft_rc_loop(struct soft_rc *rc, size_t packet_bytes);

/* rc_send.c */
void soft_rc_start_sending(struct soft_rc *rc);
enum soft_stall soft_rc_transmit(struct soft_rc *rc); /* as much as the window allows */
void soft_rc_take_ack(struct soft_rc *rc, const struct soft_roce *ack);
void soft_rc_expire(struct soft_rc *rc); /* its timer has run out */
/* Completes the acknowledged requests at the head of the send queue, or, in the error state, all
 * requests; false when the completion queue has no room for more. */
bool soft_rc_retire(struct soft_rc *rc);

/* rc_share.c */
/* Takes a share of the shared receive queue for a message of several packets; false: the peer must
 * wait. */
bool soft_rc_take_share(struct soft_rc *rc);
void soft_rc_return_share(struct soft_rc *rc);

/* rc_receive.c */
void soft_rc_take_request(struct soft_rc *rc, const struct soft_packet *packet);
/* Of a packet that continues a message: struct soft_transport. */
uint8_t *soft_rc_place(const struct soft_rc *rc, const struct soft_packet *packet);
/* Puts the pending acknowledgement into a slot of the batch; false when the batch is full. */
bool soft_rc_fill_ack(struct soft_rc *rc);
void soft_rc_ack_sent(struct soft_rc *rc);
/* Sends the pending acknowledgement alone. */
enum soft_stall soft_rc_send_ack(struct soft_rc *rc);
/* Completes all posted receives with an error; false when the completion queue is full. */
bool soft_rc_flush_receives(struct soft_rc *rc);

#endif
