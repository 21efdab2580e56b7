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

/*
 * What computes it. ISA-L and libdeflate do so by carry-less multiplication; on packets of 2 KB and
 * a CPU with AVX-512 ISA-L takes a third of the time of libdeflate. The first one that this machine
 * has is used from the start; compiled with SOFT_CRC32_OWN, our own table.
 */
enum soft_crc32 { SOFT_CRC32_ISAL, SOFT_CRC32_DEFLATE, SOFT_CRC32_TABLE };

enum soft_crc32 soft_crc32_used(void);

/* For tests, while no other thread computes. Returns whether the machine has the library. */
bool soft_crc32_use(enum soft_crc32 wanted);

#endif
