#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rsockets.sh: what librspreload of Debian 12 does to programs that do not begin with a plain socket():
# a socket with SOCK_CLOEXEC stays TCP, and recv() before the first socket() calls the address 0.
#
# Debian: librdmacm1, python3, socat
# Run: ipoibu lab --guests 1 --share examples/lab --run 'a=./broken/rsockets.sh'
# Expect: a: SOCK_STREAM: /dev/null
# Expect: a: SOCK_STREAM | SOCK_CLOEXEC: socket:
# Expect: a: socat has ended with 139
set -euo pipefail
preload=$(find /usr/lib -name librspreload.so -print -quit)
# The descriptor of an rsocket is one of /dev/null, that of a socket of the kernel says so.
LD_PRELOAD=$preload python3 -c 'import ctypes, os
for name, flags in (("SOCK_STREAM", 0), ("SOCK_STREAM | SOCK_CLOEXEC", os.O_CLOEXEC)):
    descriptor = ctypes.CDLL(None).socket(2, 1 | flags, 0)
    print(name + ":", os.readlink(f"/proc/self/fd/{descriptor}"))'
status=0
LD_PRELOAD=$preload socat -u /etc/debian_version TCP:10.9.0.1:7 || status=$?
echo "socat has ended with $status"
