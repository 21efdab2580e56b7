/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_ROCE_H
#define SOFT_ROCE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The headers of a RoCEv2 packet, from the byte after the UDP header on:
 *
 *   BTH 12 | extended headers, by opcode | payload | 0..3 bytes of padding | ICRC 4
 *
 *   BTH   opcode 8 | SE 1  M 1  pad 2  version 4 | P_Key 16
 *         FECN 1  BECN 1  reserved 6 | destination QPN 24
 *         ack request 1  reserved 7 | PSN 24
 *   DETH  Q_Key 32 | reserved 8 | source QPN 24
 *   AETH  syndrome 8 | MSN 24
 *   Imm   immediate data 32
 *   RETH (RDMA), AtomicETH, IETH: only their lengths matter here
 *
 * Big-endian (InfiniBand architecture volume 1, chapter 9). This file knows layouts only; the
 * transports check the values.
 */
#define SOFT_ROCE_BTH_BYTES   12
#define SOFT_ROCE_DETH_BYTES  8
#define SOFT_ROCE_IMM_BYTES   4
#define SOFT_ROCE_AETH_BYTES  4
#define SOFT_ROCE_GRH_BYTES   40
#define SOFT_ROCE_HEAD_MAX    40 /* BTH and the longest chain of extended headers (RC: 12 + 28) */
#define SOFT_ROCE_TAIL_MAX    7  /* padding and ICRC */
#define SOFT_ROCE_MASKED_BYTE 4  /* of the BTH, in the ICRC */
#define SOFT_ROCE_QPN_MASK    0xffffffu

enum soft_roce_opcode {
    SOFT_ROCE_RC_SEND_FIRST = 0x00,
    SOFT_ROCE_RC_SEND_MIDDLE = 0x01,
    SOFT_ROCE_RC_SEND_LAST = 0x02,
    SOFT_ROCE_RC_SEND_LAST_IMM = 0x03,
    SOFT_ROCE_RC_SEND_ONLY = 0x04,
    SOFT_ROCE_RC_SEND_ONLY_IMM = 0x05,
    SOFT_ROCE_RC_WRITE_FIRST = 0x06, /* from here to READ_REQUEST: requests that no QP serves */
    SOFT_ROCE_RC_WRITE_MIDDLE = 0x07,
    SOFT_ROCE_RC_WRITE_LAST = 0x08,
    SOFT_ROCE_RC_WRITE_LAST_IMM = 0x09,
    SOFT_ROCE_RC_WRITE_ONLY = 0x0a,
    SOFT_ROCE_RC_WRITE_ONLY_IMM = 0x0b,
    SOFT_ROCE_RC_READ_REQUEST = 0x0c,
    SOFT_ROCE_RC_ACK = 0x11,
    SOFT_ROCE_RC_COMPARE_SWAP = 0x13, /* and these four */
    SOFT_ROCE_RC_FETCH_ADD = 0x14,
    SOFT_ROCE_RC_SEND_LAST_INV = 0x16,
    SOFT_ROCE_RC_SEND_ONLY_INV = 0x17,
    SOFT_ROCE_UD_SEND = 0x64,
    SOFT_ROCE_UD_SEND_IMM = 0x65,
};

struct soft_roce {
    uint8_t opcode;
    bool solicited;
    bool ack_request;
    bool has_imm;
    uint8_t pad_bytes;
    uint16_t pkey;
    uint32_t dest_qpn;
    uint32_t psn;
    uint32_t qkey;    /* DETH */
    uint32_t src_qpn; /* DETH */
    uint32_t imm_data;
    uint8_t syndrome; /* AETH */
    uint32_t msn;     /* AETH */
};

enum soft_roce_verdict {
    SOFT_ROCE_OK,
    SOFT_ROCE_MALFORMED, /* too short for its headers, not a multiple of 4, more padding than data
                          */
    SOFT_ROCE_VERSION,
    SOFT_ROCE_OPCODE, /* unknown: so is the start of its payload */
};

/* Parses the BTH of a packet of len bytes, ICRC included. After SOFT_ROCE_OK the packet has at
 * least a BTH and an ICRC, and len is a multiple of 4. The function leaves the fields behind the
 * BTH alone.
 */
enum soft_roce_verdict soft_roce_parse_bth_untrusted(const uint8_t *packet, size_t len,
                                                     struct soft_roce *out);

/* Parses the headers behind the BTH, after soft_roce_parse_bth_untrusted accepted the same packet.
 * *payload points into the packet; *payload_bytes counts neither padding nor ICRC.
 */
enum soft_roce_verdict soft_roce_parse_rest_untrusted(const uint8_t *packet, size_t len,
                                                      struct soft_roce *out,
                                                      const uint8_t **payload,
                                                      size_t *payload_bytes);

/* Writes BTH and extended headers by r->opcode; returns their length (<= SOFT_ROCE_HEAD_MAX). */
size_t soft_roce_pack(uint8_t *head, const struct soft_roce *r);

/* Writes the GRH that a UD receiver finds in front of its data. flow_info: traffic class and flow
 * label in their 28 bits, host order; packet_bytes: BTH to ICRC. Next header 0x1B, "IBA transport".
 */
void soft_roce_pack_grh(uint8_t grh[SOFT_ROCE_GRH_BYTES], uint32_t flow_info, size_t packet_bytes,
                        uint8_t hop_limit, const struct in6_addr *src, const struct in6_addr *dst);

/* P_Keys match when their low 15 bits are equal, not 0, and one of them at least is a full member
 * (volume 1, 10.9.3). */
bool soft_roce_pkey_match(uint16_t a, uint16_t b);

static inline void soft_roce_put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void soft_roce_put32(uint8_t *p, uint32_t v)
{
    soft_roce_put16(p, (uint16_t)(v >> 16));
    soft_roce_put16(p + 2, (uint16_t)v);
}

static inline uint32_t soft_roce_get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void soft_roce_put32le(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

static inline uint32_t soft_roce_get32le(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

#endif
