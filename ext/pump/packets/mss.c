/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/packets/mss.h"

#include <string.h>

#include "core/csum.h"
#include "core/ip_header.h"

enum { SYN = 0x02 };

/* Kinds of TCP options (IANA). */
enum { END = 0, NOP = 1, MSS = 2, AUTHENTICATION = 29 };

enum { MSS_LEN = 4 };

/* Returns the offset of the value, or 0. */
static uint32_t find_value(const uint8_t *tcp, uint32_t header)
{
    uint32_t found = 0, at = IPU_TCP_HEADER;
    while (at < header && tcp[at] != END) {
        if (tcp[at] == NOP) {
            at++;
            continue;
        }
        if (header - at < 2 || tcp[at + 1] < 2 || tcp[at + 1] > header - at ||
            tcp[at] == AUTHENTICATION)
            return 0;
        if (tcp[at] == MSS && tcp[at + 1] == MSS_LEN)
            found = at + 2;
        at += tcp[at + 1];
    }
    return found;
}

/* RFC 1624: the checksum after a change of the 16 bits that begin at an even or odd offset. */
static void put_value(uint8_t *tcp, uint32_t at, uint32_t value)
{
    uint8_t words[6] = {0}; /* ~csum, ~old, new */
    uint32_t odd = at & 1;
    words[0] = (uint8_t)~tcp[IPU_TCP_CSUM];
    words[1] = (uint8_t)~tcp[IPU_TCP_CSUM + 1];
    words[2 + odd] = (uint8_t)~tcp[at];
    words[3 - odd] = (uint8_t)~tcp[at + 1];
    ipu_ip_put16(tcp + at, value);
    words[4 + odd] = tcp[at];
    words[5 - odd] = tcp[at + 1];
    uint16_t csum = ipu_csum_finish(ipu_csum_add(0, words, sizeof words));
    memcpy(tcp + IPU_TCP_CSUM, &csum, sizeof csum);
}

void ipu_mss_lower_untrusted(uint8_t *tcp, size_t len, uint32_t most)
{
    if (len < IPU_TCP_HEADER || !(tcp[IPU_TCP_FLAGS] & SYN))
        return;
    uint32_t header = (tcp[12] >> 4) * 4u;
    if (header > len)
        return;
    uint32_t at = find_value(tcp, header);
    if (at != 0 && ipu_ip_get16(tcp + at) > most)
        put_value(tcp, at, most);
}
