/* SPDX-License-Identifier: BSD-2-Clause */
#include "ceiling.h"

#include <string.h>

#include "soft/crc32.h"

enum { ROCE_PORT = 4791 };

/* A train has one or two lengths, and few other lengths are frequent. */
static uint32_t seed_of(struct ceiling *self, bool received, size_t bytes)
{
    struct ceiling_seed *kept = &self->seeds[received][bytes / 4 % CEILING_SEEDS];
    if (kept->bytes != bytes) {
        kept->bytes = (uint32_t)bytes;
        kept->seed = soft_icrc_seed(&self->ends[received], &self->ends[!received], ROCE_PORT,
                                    ROCE_PORT, (uint16_t)bytes);
    }
    return kept->seed;
}

size_t ceiling_seal(struct ceiling *self, uint8_t *packet, size_t head, const uint8_t *payload,
                    size_t bytes)
{
    size_t len = head + bytes, pad = -len & 3;
    uint32_t crc = seed_of(self, false, len + pad + SOFT_ICRC_BYTES);
    uint8_t masked = packet[SOFT_ROCE_MASKED_BYTE];
    packet[SOFT_ROCE_MASKED_BYTE] = 0xFF;
    crc = soft_crc32_update(crc, packet, head);
    packet[SOFT_ROCE_MASKED_BYTE] = masked;
    if (bytes > 0)
        crc = soft_crc32_copy(crc, packet + head, payload, bytes);
    memset(packet + len, 0, pad);
    if (pad > 0)
        crc = soft_crc32_update(crc, packet + len, pad);
    soft_roce_put32le(packet + len + pad, crc);
    return len + pad + SOFT_ICRC_BYTES;
}

bool ceiling_next_untrusted(struct ceiling *self, size_t *at, struct soft_roce *packet,
                            uint8_t **payload, size_t *bytes)
{
    uint8_t *start = self->train + *at;
    size_t left = self->train_bytes - *at;
    size_t len = left < self->each ? left : self->each;
    const uint8_t *found;
    *at += len;
    bool good = soft_roce_parse_bth_untrusted(start, len, packet) == SOFT_ROCE_OK &&
                packet->dest_qpn == CEILING_QPN && packet->pkey == 0xFFFF &&
                soft_roce_parse_rest_untrusted(start, len, packet, &found, bytes) == SOFT_ROCE_OK &&
                soft_icrc_check(seed_of(self, true, len), start, len);
    if (!good) {
        self->refused++;
        return false;
    }
    *payload = start + (found - start);
    return true;
}
