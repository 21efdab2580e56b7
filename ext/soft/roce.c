/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce.h"

#include <string.h>

#include "icrc.h"

#define PKEY_FULL  0x8000u
#define PKEY_VALUE 0x7fffu

/* The extended headers of each opcode, in the order of the wire. An opcode without an entry is
 * unknown. */
enum extension {
    KNOWN = 1,
    DETH = 2,
    IMM = 4,
    AETH = 8,
    RETH = 16,
    ATOMIC = 32,
    INVALIDATE = 64,
};

#define RETH_BYTES       16
#define ATOMIC_BYTES     28
#define INVALIDATE_BYTES 4

static const uint8_t extensions[256] = {
    [SOFT_ROCE_RC_SEND_FIRST] = KNOWN,
    [SOFT_ROCE_RC_SEND_MIDDLE] = KNOWN,
    [SOFT_ROCE_RC_SEND_LAST] = KNOWN,
    [SOFT_ROCE_RC_SEND_LAST_IMM] = KNOWN | IMM,
    [SOFT_ROCE_RC_SEND_ONLY] = KNOWN,
    [SOFT_ROCE_RC_SEND_ONLY_IMM] = KNOWN | IMM,
    [SOFT_ROCE_RC_WRITE_FIRST] = KNOWN | RETH,
    [SOFT_ROCE_RC_WRITE_MIDDLE] = KNOWN,
    [SOFT_ROCE_RC_WRITE_LAST] = KNOWN,
    [SOFT_ROCE_RC_WRITE_LAST_IMM] = KNOWN | IMM,
    [SOFT_ROCE_RC_WRITE_ONLY] = KNOWN | RETH,
    [SOFT_ROCE_RC_WRITE_ONLY_IMM] = KNOWN | RETH | IMM,
    [SOFT_ROCE_RC_READ_REQUEST] = KNOWN | RETH,
    [SOFT_ROCE_RC_ACK] = KNOWN | AETH,
    [SOFT_ROCE_RC_COMPARE_SWAP] = KNOWN | ATOMIC,
    [SOFT_ROCE_RC_FETCH_ADD] = KNOWN | ATOMIC,
    [SOFT_ROCE_RC_SEND_LAST_INV] = KNOWN | INVALIDATE,
    [SOFT_ROCE_RC_SEND_ONLY_INV] = KNOWN | INVALIDATE,
    [SOFT_ROCE_UD_SEND] = KNOWN | DETH,
    [SOFT_ROCE_UD_SEND_IMM] = KNOWN | DETH | IMM,
};

enum soft_roce_verdict soft_roce_parse_bth_untrusted(const uint8_t *packet, size_t len,
                                                     struct soft_roce *out)
{
    if (len < SOFT_ROCE_BTH_BYTES + SOFT_ICRC_BYTES)
        return SOFT_ROCE_MALFORMED;
    if ((packet[1] & 0x0f) != 0) /* another version may have another layout: read no further */
        return SOFT_ROCE_VERSION;
    if (len % 4 != 0)
        return SOFT_ROCE_MALFORMED;
    out->opcode = packet[0];
    out->solicited = packet[1] & 0x80;
    out->pad_bytes = packet[1] >> 4 & 3;
    out->pkey = (uint16_t)(packet[2] << 8 | packet[3]);
    out->dest_qpn = soft_roce_get32(packet + 4) & SOFT_ROCE_QPN_MASK;
    out->ack_request = packet[8] & 0x80;
    out->psn = soft_roce_get32(packet + 8) & SOFT_ROCE_QPN_MASK;
    return SOFT_ROCE_OK;
}

static size_t extension_bytes(uint8_t has)
{
    return (has & DETH ? SOFT_ROCE_DETH_BYTES : 0u) + (has & RETH ? RETH_BYTES : 0u) +
           (has & ATOMIC ? ATOMIC_BYTES : 0u) + (has & AETH ? SOFT_ROCE_AETH_BYTES : 0u) +
           (has & IMM ? SOFT_ROCE_IMM_BYTES : 0u) + (has & INVALIDATE ? INVALIDATE_BYTES : 0u);
}

enum soft_roce_verdict soft_roce_parse_rest_untrusted(const uint8_t *packet, size_t len,
                                                      struct soft_roce *out,
                                                      const uint8_t **payload,
                                                      size_t *payload_bytes)
{
    uint8_t has = extensions[out->opcode];
    size_t at = SOFT_ROCE_BTH_BYTES;
    size_t head = at + extension_bytes(has);

    if (!has)
        return SOFT_ROCE_OPCODE;
    if (len < head + out->pad_bytes + SOFT_ICRC_BYTES)
        return SOFT_ROCE_MALFORMED;
    if (has & DETH) {
        out->qkey = soft_roce_get32(packet + at);
        out->src_qpn = soft_roce_get32(packet + at + 4) & SOFT_ROCE_QPN_MASK;
        at += SOFT_ROCE_DETH_BYTES;
    }
    if (has & RETH)
        at += RETH_BYTES;
    if (has & AETH) {
        out->syndrome = packet[at];
        out->msn = soft_roce_get32(packet + at) & SOFT_ROCE_QPN_MASK;
        at += SOFT_ROCE_AETH_BYTES;
    }
    out->has_imm = has & IMM;
    out->imm_data = has & IMM ? soft_roce_get32(packet + at) : 0;
    *payload = packet + head;
    *payload_bytes = len - head - out->pad_bytes - SOFT_ICRC_BYTES;
    return SOFT_ROCE_OK;
}

size_t soft_roce_pack(uint8_t *head, const struct soft_roce *r)
{
    uint8_t has = extensions[r->opcode];
    size_t at = SOFT_ROCE_BTH_BYTES;

    head[0] = r->opcode;
    head[1] = (uint8_t)((r->solicited ? 0x80 : 0) | r->pad_bytes << 4);
    soft_roce_put16(head + 2, r->pkey);
    soft_roce_put32(head + 4, r->dest_qpn & SOFT_ROCE_QPN_MASK);
    soft_roce_put32(head + 8, (r->ack_request ? 0x80000000u : 0) | (r->psn & SOFT_ROCE_QPN_MASK));
    if (has & DETH) {
        soft_roce_put32(head + at, r->qkey);
        soft_roce_put32(head + at + 4, r->src_qpn & SOFT_ROCE_QPN_MASK);
        at += SOFT_ROCE_DETH_BYTES;
    }
    if (has & AETH) {
        soft_roce_put32(head + at, (uint32_t)r->syndrome << 24 | (r->msn & SOFT_ROCE_QPN_MASK));
        at += SOFT_ROCE_AETH_BYTES;
    }
    if (has & IMM) {
        soft_roce_put32(head + at, r->imm_data);
        at += SOFT_ROCE_IMM_BYTES;
    }
    return at;
}

void soft_roce_pack_grh(uint8_t grh[SOFT_ROCE_GRH_BYTES], uint32_t flow_info, size_t packet_bytes,
                        uint8_t hop_limit, const struct in6_addr *src, const struct in6_addr *dst)
{
    soft_roce_put32(grh, 6u << 28 | (flow_info & 0x0fffffffu));
    soft_roce_put16(grh + 4, (uint16_t)packet_bytes);
    grh[6] = 0x1b;
    grh[7] = hop_limit;
    memcpy(grh + 8, src, 16);
    memcpy(grh + 24, dst, 16);
}

bool soft_roce_pkey_match(uint16_t a, uint16_t b)
{
    return ((a ^ b) & PKEY_VALUE) == 0 && (a & PKEY_VALUE) != 0 && ((a | b) & PKEY_FULL) != 0;
}
