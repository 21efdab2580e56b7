#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rdma-core.sh: the programs of rdma-core that try verbs, librdmacm and rsockets, between two machines.
#
# Debian: ibverbs-utils, rdmacm-utils
# Kernels: 6.12
# Run: ipoibu lab --guests 2 --fabric ib --share examples/suites
#   --run 'all=./rdma-core.sh rxe0 0 10.9.0.1 10.9.0.2'
# Run: ipoibu lab --guests 2 --ipoib none --fabric roce --share examples/suites
#   --run 'all=./rdma-core.sh rxe0 1 10.8.0.1 10.8.0.2'
# Run: ipoibu lab --guests 2 --ipoib none --fabric iwarp --share examples/suites
#   --run 'all=./rdma-core.sh siw0 0 10.8.0.1 10.8.0.2'
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
device=$1 gid=$2 server=$3 client=$4
export LIMIT_S=20
export SKIP_IF='XRC Domain|timestamp capable'
attempt ibv_devices ibv_devices
attempt ibv_devinfo ibv_devinfo -v -d "$device"
both() { # NAME PROGRAM OPTION...: the client has the server's address at the end
    local name=$1
    shift
    pair "$name" "$@" -- "$@" "$server"
}
for kind in rc uc ud srq xsrq; do
    test=(-d "$device" -g "$gid" -n 100)
    both "ibv_${kind}_pingpong" "ibv_${kind}_pingpong" "${test[@]}"
    both "ibv_${kind}_pingpong -e" "ibv_${kind}_pingpong" -e "${test[@]}"
done
both "ibv_rc_pingpong -c" ibv_rc_pingpong -c "${test[@]}"
both "ibv_rc_pingpong -t" ibv_rc_pingpong -t "${test[@]}"
pair rping rping -s -V -C 10 -- rping -c -V -C 10 -a "$server"
pair "rping -P" rping -s -P -- rping -c -V -C 10 -a "$server"
pair ucmatose ucmatose -b "$server" -- ucmatose -s "$server"
pair "ucmatose -c 20" ucmatose -c 20 -C 5 -b "$server" -- ucmatose -c 20 -C 5 -s "$server"
pair udaddy udaddy -b "$server" -- udaddy -s "$server"
pair "udaddy -c 8" udaddy -c 8 -b "$server" -- udaddy -c 8 -s "$server"
pair udpong udpong -b "$server" -C 20 -- udpong -s "$server" -C 20
# mckey returns 0 even where it cannot join, and its receiver waits for what is lost.
# shellcheck disable=SC2016 # the words are the inner shell's
mckey=(bash -c 'trap "kill \$!; echo it heard nothing; exit 1" TERM
    mckey "$@" >/tmp/mckey &
    wait $! && ! grep _ERROR /tmp/mckey' mckey -m 239.1.2.3 -C 5 -c 1)
pair mckey "${mckey[@]}" -b "$server" -- "${mckey[@]}" -b "$client" -s
pair cmtime cmtime -b "$server" -c 10 -- cmtime -b "$client" -s "$server" -c 10
pair rstream rstream -b "$server" -S 4096 -C 20 -- rstream -s "$server" -S 4096 -C 20
pair "rstream -T b" rstream -T b -b "$server" -S 4096 -C 20 -- rstream -T b -s "$server" -S 4096 -C 20
pair riostream riostream -b "$server" -S 4096 -C 20 -- riostream -s "$server" -S 4096 -C 20
pair rcopy rcopy -- rcopy "$(type -P rcopy)" "$server:/tmp/copied"
