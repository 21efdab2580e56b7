#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rsockets-socat.sh: librspreload makes socat of Debian 12 jump to the address 0, because its first call is
# recv(), before any socket(). socat 1.8 makes other calls first, and so lives.
#
# Debian: librdmacm1, socat
# Until: socat 1.8
# Run: ipoibu lab --guests 1 --share examples/lab --run 'a=./broken/rsockets-socat.sh'
# Expect: a: socat has ended with 139
set -euo pipefail
preload=$(find /usr/lib -name librspreload.so -print -quit)
status=0
LD_PRELOAD=$preload socat -u /etc/debian_version TCP:10.9.0.1:7 || status=$?
echo "socat has ended with $status"
