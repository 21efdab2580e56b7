/* SPDX-License-Identifier: BSD-2-Clause */
#include "check.h"
#include "core/siphash.h"

/* The codes are those of `openssl mac -macopt size:8 SIPHASH` for the bytes 0, 1, 2 .. under the
 * key 00 01 .. 0f. */
static void codes_are_those_of_siphash_2_4(void)
{
    static const uint64_t codes[] = {0x726fdb47dd0e0e31, 0x93f5f5799a932462, 0x3f2acc7f57c29bdb,
                                     0xb8ad50c6f649af94};
    const struct ipu_sip_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
    const uint64_t words[] = {0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x1716151413121110};
    for (uint32_t n = 0; n < 4; n++)
        CHECK_EQ(ipu_siphash(&key, words, n), codes[n]);
}

int main(void)
{
    RUN(codes_are_those_of_siphash_2_4);
    return 0;
}
