#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# libfabric.sh: for its completion queue ofi_rxm asks for the room of 256 peers, which is more than rxe
# offers (max_cqe), and ends with EINVAL. With FI_UNIVERSE_SIZE=8 it gets its queue.
#
# Debian: libfabric-bin
# Run: ipoibu lab --guests 2 --share examples/lab --run 'all=./broken/libfabric.sh'
# Expect: a: , ret=-22 (Invalid argument)
# Expect: b: the other side has gone
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
test=(fi_pingpong -p 'verbs;ofi_rxm' -e rdm -I 20 -S 1024)
listens() { ss -Hltn "sport = :47592" | grep -q LISTEN; }
if [[ $LAB_NAME == a ]]; then
    "${test[@]}" &
    until_true 20 "the server" listens
fi
meet listening
if [[ $LAB_NAME == b ]]; then
    "${test[@]}" 10.9.0.1 || echo "the other side has gone"
else
    wait "$!" || true
fi
