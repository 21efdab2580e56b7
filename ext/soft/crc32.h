/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFT_CRC32_H
#define SOFT_CRC32_H

#include <stddef.h>
#include <stdint.h>

/*
 * CRC-32 of Ethernet, gzip and the InfiniBand ICRC (polynomial 0x04c11db7, reflected), in zlib's
 * convention: crc is the CRC of the preceding data, 0 at the start. ISA-L (IPU_HAVE_ISAL) or
 * libdeflate (IPU_HAVE_LIBDEFLATE) computes it by carry-less multiplication; on packets of 2 KB and
 * a CPU with AVX-512 ISA-L takes a third of the time of libdeflate.
 */
uint32_t soft_crc32_update(uint32_t crc, const void *data, size_t bytes);

#endif
