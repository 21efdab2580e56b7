/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_MSS_H
#define IPU_MSS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Lowers the MSS that a TCP segment with SYN names (RFC 9293 §3.7.1) to `most`, and keeps its
 * checksum as right or wrong as it was. Leaves a segment that names less or nothing, and one whose
 * options sign each other (RFC 5925) or cannot be read.
 */
void ipu_mss_lower_untrusted(uint8_t *tcp, size_t len, uint32_t most);

#endif
