#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# libfabric.sh: fi_pingpong of libfabric over its provider "verbs", on a connection that librdmacm makes
# by ib0's addresses: messages of 64 bytes to 1 MB.
#
# Debian: libfabric-bin
# Run: ipoibu lab --guests 2 --share examples/lab --run 'all=./libfabric.sh'
# Expect: b: 64k     10      =10
# Expect: b: 1m      10      =10
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
pingpong=(fi_pingpong -p verbs -e msg -I 10)
if [[ $LAB_NAME == a ]]; then
    "${pingpong[@]}" &
    listening 47592
    meet ready
    wait "$(jobs -p)"
else
    meet ready
    "${pingpong[@]}" 10.9.0.1
fi
meet end
