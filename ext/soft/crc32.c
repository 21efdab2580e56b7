/* SPDX-License-Identifier: BSD-2-Clause */
#include "crc32.h"

#ifdef IPU_HAVE_ISAL

#include <isa-l/crc.h>

/*
 * ISA-L returns with the upper halves of the vector registers in use, and an SSE instruction then
 * has to wait for them: 170 ns a packet on Sapphire Rapids, where the CRC of 2 KB takes 30.
 */
#ifdef __x86_64__
__attribute__((target("avx"))) static void clear_upper_halves(void)
{
    __builtin_ia32_vzeroupper();
}
#endif

uint32_t soft_crc32_update(uint32_t crc, const void *data, size_t bytes)
{
    crc = crc32_gzip_refl(crc, data, bytes);
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx"))
        clear_upper_halves();
#endif
    return crc;
}

#elif defined(IPU_HAVE_LIBDEFLATE)

#include <libdeflate.h>

uint32_t soft_crc32_update(uint32_t crc, const void *data, size_t bytes)
{
    /* A null pointer makes libdeflate start anew and forget crc. */
    return bytes == 0 ? crc : libdeflate_crc32(crc, data, bytes);
}

#else

#include <pthread.h>

/*
 * Slicing by 8: slice[k][b] is the CRC of byte b followed by k zero bytes, so eight bytes are
 * folded with eight independent look-ups. 8 KiB of tables; about 2 GB/s, a tenth of what libdeflate
 * does.
 */
#define SLICES     8
#define POLYNOMIAL 0xedb88320u

static uint32_t slice[SLICES][256];
static pthread_once_t slices_filled = PTHREAD_ONCE_INIT;

static void fill_slices(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        slice[0][b] = crc;
    }
    for (int k = 1; k < SLICES; k++)
        for (int b = 0; b < 256; b++)
            slice[k][b] = (slice[k - 1][b] >> 8) ^ slice[0][slice[k - 1][b] & 0xff];
}

static uint32_t load_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t soft_crc32_update(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *p = data;

    pthread_once(&slices_filled, fill_slices);
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint32_t low = crc ^ load_le32(p);
        uint32_t high = load_le32(p + 4);

        crc = slice[7][low & 0xff] ^ slice[6][low >> 8 & 0xff] ^ slice[5][low >> 16 & 0xff] ^
              slice[4][low >> 24] ^ slice[3][high & 0xff] ^ slice[2][high >> 8 & 0xff] ^
              slice[1][high >> 16 & 0xff] ^ slice[0][high >> 24];
    }
    for (; bytes > 0; bytes--, p++)
        crc = (crc >> 8) ^ slice[0][(crc ^ *p) & 0xff];
    return ~crc;
}

#endif
