/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_COALESCE_H
#define IPU_COALESCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/*
 * Packets from the fabric on their way to the device: consecutive segments of one TCP stream, and
 * datagrams of one UDP flow, become a super-frame that the kernel takes as one. We merge only
 * packets that could come from one frame, so that to cut it again gives the same packets:
 *
 *   - the same addresses and ports, not a fragment, no IP options or extension headers;
 *   - the same type of service (ECN), TTL, flow label and DF; without DF, ids that count up;
 *   - payloads of one length, of which the last may be shorter and then ends the run;
 *   - right checksums: the kernel would complete that of the super-frame without a check;
 *   - TCP: sequence numbers without a gap, the same acknowledgement, window and options (timestamps
 *     too), no flag but ACK, and PSH, which ends the run;
 *   - UDP: with a checksum, at most 64 datagrams (UDP_MAX_SEGMENTS).
 *
 * Packets of a flow keep their order: a packet that we cannot merge goes out after those before it.
 * Packets of different flows may change places. A packet that is neither TCP nor UDP stays behind
 * all earlier packets.
 */
enum {
    IPU_COALESCE_RUNS = 8,     /* flows that are merged at a time */
    IPU_COALESCE_PACKETS = 64, /* of one run */
};

#define IPU_COALESCE_TCP 1u
#define IPU_COALESCE_UDP 2u

/* One frame [vnet 16][IP packet], of one or more packets with `bytes` of IP together. */
typedef void ipu_coalesce_sink(void *context, const struct iovec *iov, uint32_t packets,
                               size_t bytes);

/* Counts a frame of a sender. Returns whether a packet that we did not merge may go to the sink;
 * otherwise the context has counted its drop. */
typedef bool ipu_coalesce_admit(void *context, uint32_t sender, uint32_t packets);

struct ipu_run {
    uint8_t *ip; /* the first packet */
    uint32_t packets;
    uint32_t start;      /* of the transport header */
    uint32_t head_len;   /* of all headers */
    uint32_t len;        /* of the merged packet */
    uint32_t size_bytes; /* payload of the first packet */
    uint32_t bytes;      /* bytes of all packets, each with its headers */
    uint32_t next_seq;
    uint32_t sender; /* of the first packet */
    uint16_t next_id;
    bool tcp;
    struct iovec iov[IPU_COALESCE_PACKETS]; /* [0] from the vnet header on, then payloads */
};

struct ipu_coalesce {
    ipu_coalesce_sink *sink;
    ipu_coalesce_admit *admit;
    void *context;
    uint32_t kinds;
    /* The longest IP packet of TCP that the device is to make: a connection begins with an MSS of
     * at most that. 0: any. */
    uint32_t tcp_packet_bytes;
    uint32_t oldest; /* the run that makes room next */
    uint32_t used;   /* bit i: runs[i] has packets */
    struct ipu_run runs[IPU_COALESCE_RUNS];
};

/* kinds: IPU_COALESCE_*, the protocols of which the device takes super-frames. */
void ipu_coalesce_init(struct ipu_coalesce *coalesce, uint32_t kinds, ipu_coalesce_sink *sink,
                       ipu_coalesce_admit *admit, void *context);

/*
 * Adds a packet of a sender, of len bytes, at least 20 (IPv4) or 40 (IPv6). Writes the IPU_VNET_LEN
 * bytes of room in front of it and, when it begins a run, its headers. The packet must stay until
 * the sink has had it, at the latest in ipu_coalesce_flush().
 */
void ipu_coalesce_add_untrusted(struct ipu_coalesce *coalesce, uint32_t sender, uint8_t *ip,
                                size_t len);

/* Gives all runs to the sink. */
void ipu_coalesce_flush(struct ipu_coalesce *coalesce);

#endif
