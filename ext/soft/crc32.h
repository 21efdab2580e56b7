/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_CRC32_H
#define SOFT_CRC32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * CRC-32 of Ethernet, gzip and the InfiniBand ICRC (polynomial 0x04c11db7, reflected), in zlib's
 * convention: crc is the CRC of the preceding data, 0 at the start.
 */
uint32_t soft_crc32_update(uint32_t crc, const void *data, size_t bytes);

/* Does the same, and copies the data, which must not overlap with `to`: one pass where the CPU has
 * vectors for it. */
uint32_t soft_crc32_copy(uint32_t crc, void *to, const void *from, size_t bytes);

/*
 * What computes it, by carry-less multiplication but for our own table. The first in this order is
 * used from the start: our vectors of 256 bits, ISA-L, libdeflate, the table. Where the CPU has
 * AVX-512, ISA-L comes first, which multiplies 512 bits at a time there, and else 128.
 */
enum soft_crc32 { SOFT_CRC32_VECTORS, SOFT_CRC32_ISAL, SOFT_CRC32_DEFLATE, SOFT_CRC32_TABLE };

enum soft_crc32 soft_crc32_used(void);

/* For tests, while no other thread computes. Returns whether the machine has it. */
bool soft_crc32_use(enum soft_crc32 wanted);
void soft_crc32_use_best(void);

#endif
