/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_CRC32_VECTOR_H
#define SOFT_CRC32_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CRC-32 by carry-less multiplication of 256 bits (VPCLMULQDQ with AVX2), for crc32.c. Returns
 * whether this CPU has it; the function below needs that. */
bool soft_crc32_vector_prepare(void);

/* Returns whether this CPU also has what ISA-L needs for 512 bits at a time. */
bool soft_crc32_vector_is_wider(void);

#define SOFT_CRC32_SHORTEST 32 /* bytes that soft_crc32_shorten needs */
#define SOFT_CRC32_REST     16

/*
 * Makes 16 bytes that have, from a CRC register of 0, the register that all but the last bytes % 16
 * of the message have from `crc`. Copies as many bytes to `to` on the way, unless that is NULL.
 */
void soft_crc32_shorten(uint32_t crc, uint8_t *to, const uint8_t *from, size_t bytes,
                        uint8_t rest[SOFT_CRC32_REST]);

#endif
