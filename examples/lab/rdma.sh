#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rdma.sh: programs of Debian over librdmacm and verbs, beside IP on ib0: rping and ucmatose connect
# by ib0's addresses, mckey joins a multicast group, perftest measures UD and RC.
#
# Debian: rdmacm-utils, perftest, strace
# Run: ipoibu lab --guests 2 --share examples/lab --run 'all=./rdma.sh'
# Expect: b: rping
# Expect: b: ucmatose
# Expect: b: mckey
# Expect: b: ib_send_bw RC
# Expect: b: ib_send_bw UD
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
pair() { # NAME SERVER... -- CLIENT...: run a server in a, a client in b, until both have ended
    local name=$1 side=()
    shift
    while [[ $1 != -- ]]; do side+=("$1"); shift; done
    shift
    if [[ $LAB_NAME == a ]]; then
        stdbuf -oL "${side[@]}" >/tmp/said &
        [[ -z ${READY:-} ]] || until_true 20 "$READY" grep -q "$READY" /tmp/said
    fi
    meet "$name"
    if [[ $LAB_NAME == b ]]; then
        until_true 30 "$name" "$@"
        echo "$name"
    else
        wait "$!"
        cat /tmp/said
    fi
    meet "$name ended"
}
pair rping rping -s -a 10.9.0.1 -C 10 -- rping -c -a 10.9.0.1 -C 10
pair ucmatose ucmatose -b 10.9.0.1 -- ucmatose -s 10.9.0.1
# The receiver waits for each datagram, and those before it has joined are lost. strace gives what the sender
# posts the time to leave (broken/mckey.sh).
READY=joined pair mckey mckey -b 10.9.0.1 -m 239.1.2.3 -C 5 -c 1 -- \
    strace -o /dev/null -e inject=ioctl:delay_enter=50000 mckey -b 10.9.0.2 -m 239.1.2.3 -s -C 5 -c 1
for type in RC UD; do
    test=(ib_send_bw -d rxe0 -c "$type" -n 100 -s 1024 -F)
    pair "ib_send_bw $type" "${test[@]}" -- "${test[@]}" 10.9.0.1
done
