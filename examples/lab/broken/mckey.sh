#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# mckey.sh: the sender of mckey ends without waiting for what it has posted, and nothing reaches the receiver
# over Soft-RoCE. strace makes the sender's end slow, and all of it does.
#
# Debian: rdmacm-utils, strace
# Run: ipoibu lab --guests 2 --share examples/lab --run 'all=./broken/mckey.sh'
# Expect: b: return status 0
# Expect: a: nothing arrives
# Expect: a: with a sender that ends slowly, all arrives
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
receive() { # MEETING: says whether all five datagrams arrive
    stdbuf -oL mckey -b 10.9.0.1 -m 239.1.2.3 -C 5 >/tmp/said &
    until_true 20 "joining" grep -q joined /tmp/said
    meet "$1"
    meet "$1 sent"
    until_true 2 "$1" ended "$!" 2>/dev/null || kill "$!"
    wait "$!"
}
ended() { ! kill -0 "$1" 2>/dev/null; }
send() { # MEETING COMMAND...
    meet "$1"
    "${@:2}" mckey -b 10.9.0.2 -m 239.1.2.3 -s -C 5
    meet "$1 sent"
}
if [[ $LAB_NAME == a ]]; then
    receive fast || echo "nothing arrives"
    receive slow && echo "with a sender that ends slowly, all arrives"
else
    send fast
    send slow strace -o /dev/null -e inject=ioctl:delay_enter=50000
fi
