#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rsockets.sh: librspreload leaves a socket that is made with SOCK_CLOEXEC to TCP. (That it makes socat of
# Debian 12 crash shows rsockets-socat.sh.)
#
# Debian: librdmacm1, python3
# Run: ipoibu lab --guests 1 --share examples/lab --run 'a=./broken/rsockets.sh'
# Expect: a: SOCK_STREAM: /dev/null
# Expect: a: SOCK_STREAM | SOCK_CLOEXEC: socket:
set -euo pipefail
preload=$(find /usr/lib -name librspreload.so -print -quit)
# The descriptor of an rsocket is one of /dev/null, that of a socket of the kernel says so.
LD_PRELOAD=$preload python3 -c 'import ctypes, os
for name, flags in (("SOCK_STREAM", 0), ("SOCK_STREAM | SOCK_CLOEXEC", os.O_CLOEXEC)):
    descriptor = ctypes.CDLL(None).socket(2, 1 | flags, 0)
    print(name + ":", os.readlink(f"/proc/self/fd/{descriptor}"))'
