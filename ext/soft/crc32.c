/* SPDX-License-Identifier: BSD-2-Clause */
#include "crc32.h"

#include <dlfcn.h>
#include <string.h>

#include "crc32_vector.h"

/*
 * ISA-L and libdeflate are loaded at run time: a machine without them computes by the table. A
 * library of another version has another name, so the prototypes below are those of these names.
 */
#define ISAL    "libisal.so.2"
#define DEFLATE "libdeflate.so.0"

typedef uint32_t isal_function(uint32_t crc, const unsigned char *data, uint64_t bytes);
typedef uint32_t deflate_function(uint32_t crc, const void *data, size_t bytes);
typedef uint32_t update_function(uint32_t crc, const void *data, size_t bytes);
typedef uint32_t copy_function(uint32_t crc, void *to, const void *from, size_t bytes);

static isal_function *isal;
static deflate_function *deflate;

/* ---- ISA-L -------------------------------------------------------------------------------------
 */

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

static uint32_t update_by_isal(uint32_t crc, const void *data, size_t bytes)
{
    crc = isal(crc, data, bytes);
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx"))
        clear_upper_halves();
#endif
    return crc;
}

/* ---- libdeflate --------------------------------------------------------------------------------
 */

static uint32_t update_by_deflate(uint32_t crc, const void *data, size_t bytes)
{
    /* A null pointer makes libdeflate start anew and forget crc. */
    return bytes == 0 ? crc : deflate(crc, data, bytes);
}

/* ---- our own -----------------------------------------------------------------------------------
 */

/*
 * Slicing by 8: slice[k][b] is the CRC of byte b followed by k zero bytes, so eight bytes are
 * folded with eight independent look-ups. 8 KiB of tables; about 2 GB/s, a tenth of what libdeflate
 * does.
 */
#define SLICES     8
#define POLYNOMIAL 0xedb88320u

static uint32_t slice[SLICES][256];

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

/* Takes and returns the register, which is the CRC with its bits inverted. */
static uint32_t step(uint32_t crc, const uint8_t *p, size_t bytes)
{
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint32_t low = crc ^ load_le32(p);
        uint32_t high = load_le32(p + 4);

        crc = slice[7][low & 0xff] ^ slice[6][low >> 8 & 0xff] ^ slice[5][low >> 16 & 0xff] ^
              slice[4][low >> 24] ^ slice[3][high & 0xff] ^ slice[2][high >> 8 & 0xff] ^
              slice[1][high >> 16 & 0xff] ^ slice[0][high >> 24];
    }
    if (bytes >= 4) {
        crc ^= load_le32(p);
        crc = slice[3][crc & 0xff] ^ slice[2][crc >> 8 & 0xff] ^ slice[1][crc >> 16 & 0xff] ^
              slice[0][crc >> 24];
        bytes -= 4;
        p += 4;
    }
    for (; bytes > 0; bytes--, p++)
        crc = (crc >> 8) ^ slice[0][(crc ^ *p) & 0xff];
    return crc;
}

static uint32_t update_by_table(uint32_t crc, const void *data, size_t bytes)
{
    return ~step(~crc, data, bytes);
}

/* ---- vectors -----------------------------------------------------------------------------------
 */

static uint32_t copy_by_vectors(uint32_t crc, void *to, const void *from, size_t bytes)
{
    size_t rest = bytes % SOFT_CRC32_REST, at = bytes - rest;
    uint8_t shortened[SOFT_CRC32_REST];

    if (bytes < SOFT_CRC32_SHORTEST) {
        if (to != NULL && bytes > 0)
            memcpy(to, from, bytes);
        return update_by_table(crc, from, bytes);
    }
    soft_crc32_shorten(~crc, to, from, bytes, shortened);
    if (to != NULL)
        memcpy((uint8_t *)to + at, (const uint8_t *)from + at, rest);
    crc = step(0, shortened, sizeof(shortened));
    return ~step(crc, (const uint8_t *)from + at, rest);
}

static uint32_t update_by_vectors(uint32_t crc, const void *data, size_t bytes)
{
    return copy_by_vectors(crc, NULL, data, bytes);
}

/* ---- the choice --------------------------------------------------------------------------------
 */

static update_function *update = update_by_table;

static uint32_t copy_apart(uint32_t crc, void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
    return update(crc, from, bytes);
}

static copy_function *copy = copy_apart;
static enum soft_crc32 used = SOFT_CRC32_TABLE;
static bool has_vectors;

/* The library stays loaded. POSIX lets dlsym return functions as objects. */
static bool load(const char *library, const char *name, void *function)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

    *(void **)function = handle == NULL ? NULL : dlsym(handle, name);
    return *(void **)function != NULL;
}

bool soft_crc32_use(enum soft_crc32 wanted)
{
    switch (wanted) {
    case SOFT_CRC32_ISAL:
        if (isal == NULL && !load(ISAL, "crc32_gzip_refl", &isal))
            return false;
        update = update_by_isal;
        break;
    case SOFT_CRC32_DEFLATE:
        if (deflate == NULL && !load(DEFLATE, "libdeflate_crc32", &deflate))
            return false;
        update = update_by_deflate;
        break;
    case SOFT_CRC32_VECTORS:
        if (!has_vectors)
            return false;
        update = update_by_vectors;
        break;
    case SOFT_CRC32_TABLE:
        update = update_by_table;
        break;
    }
    copy = wanted == SOFT_CRC32_VECTORS ? copy_by_vectors : copy_apart;
    used = wanted;
    return true;
}

enum soft_crc32 soft_crc32_used(void)
{
    return used;
}

void soft_crc32_use_best(void)
{
    if (soft_crc32_vector_is_wider() && soft_crc32_use(SOFT_CRC32_ISAL))
        return;
    for (int i = SOFT_CRC32_VECTORS; !soft_crc32_use((enum soft_crc32)i); i++)
        ;
}

/* Before any thread computes, and before a process gives up the right to read files. */
__attribute__((constructor)) static void choose(void)
{
    fill_slices();
    has_vectors = soft_crc32_vector_prepare();
    soft_crc32_use_best();
}

uint32_t soft_crc32_copy(uint32_t crc, void *to, const void *from, size_t bytes)
{
    return copy(crc, to, from, bytes);
}

uint32_t soft_crc32_update(uint32_t crc, const void *data, size_t bytes)
{
    return update(crc, data, bytes);
}
