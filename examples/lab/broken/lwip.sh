#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# lwip.sh: Debian's lwIP gives a buffer of its pool less memory than it says, and any packet of more
# than 592 bytes that its own netif/tapif.h reads overruns it.
#
# Debian: gcc, liblwip-dev, pkgconf
# Run: ipoibu lab --guests 1 --share examples/lab --run 'a=./broken/lwip.sh'
# Expect: a: a piece of 1514 bytes in a block of 616
set -euo pipefail
cat >/tmp/pool.c <<'C'
#include <lwip/pbuf.h>
#include <lwip/tcpip.h>
#include <malloc.h>
#include <stdio.h>
int main(void)
{
    tcpip_init(NULL, NULL);
    struct pbuf *p = pbuf_alloc(PBUF_RAW, 1514, PBUF_POOL);
    printf("a piece of %d bytes in a block of %zu\n", p->len, malloc_usable_size(p));
}
C
gcc $(pkg-config --cflags lwip) /tmp/pool.c -o /tmp/pool -llwip
/tmp/pool
