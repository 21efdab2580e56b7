#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# perftest.sh: with -R the client of perftest connects twice, and the server listens for the second
# connection only after the first one has ended. A client that is faster than the server is rejected,
# and then dies in librdmacm. strace makes the server slow.
#
# Debian: perftest, strace
# Run: ipoibu lab --guests 2 --share examples/lab --run 'all=./broken/perftest.sh'
# Expect: b: RDMA_CM_EVENT_REJECTED; error: 8
# Expect: b: status 139
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
measurement=(ib_send_bw -d rxe0 -R -n 100 -F)
listens() { rdma resource show cm_id | grep -q LISTEN; }
if [[ $LAB_NAME == a ]]; then
    strace -f -o /tmp/calls -e inject=write:delay_enter=2000 "${measurement[@]}" >/dev/null &
    until_true 20 "the server" listens
fi
meet listening
if [[ $LAB_NAME == b ]]; then
    status=0
    "${measurement[@]}" 10.9.0.1 || status=$?
    echo "status $status"
fi
meet end
if [[ $LAB_NAME == a ]]; then kill "$!" || true; fi
