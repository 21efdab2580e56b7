#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# perftest.sh: each measurement of perftest once, between two machines; its rates are not judged.
#
# Debian: perftest
# Kernels: 6.12
# Run: ipoibu lab --guests 2 --fabric ib --share examples/suites --run 'all=./perftest.sh rxe0 10.9.0.1'
# Run: ipoibu lab --guests 2 --ipoib none --fabric roce --share examples/suites
#   --run 'all=./perftest.sh rxe0 10.8.0.1'
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
device=$1 server=$2
export LIMIT_S=20
measure() { # PROGRAM OPTION...: with the addresses of queue pairs exchanged by TCP
    local program=$1 name
    name=$(tr -d - <<<"$*")
    shift
    local words=(-d "$device" -n 100 -F "$@")
    pair "$name" "$program" "${words[@]}" -- "$program" "${words[@]}" "$server"
}
for kind in send write read; do
    for way in bw lat; do
        program=ib_${kind}_$way
        for service in RC UC UD; do
            case $kind$service in readUC | readUD | writeUD) continue ;; esac
            measure "$program" -c "$service" -s 1024
        done
        measure "$program" -s 65536
    done
done
for way in bw lat; do
    measure "ib_atomic_$way" -A CMP_AND_SWAP
    measure "ib_atomic_$way" -A FETCH_AND_ADD
done
measure ib_send_bw -e -s 1024
measure ib_send_lat -e -s 1024
measure ib_send_bw -b -s 1024
measure ib_send_bw -q 4 -s 1024
measure ib_send_bw -r 64 -q 2 --use-srq -s 1024
measure ib_write_bw -I 64 -s 32
# By rdma_cm, at the address of the interface.
for program in ib_send_bw ib_write_bw ib_read_bw ib_send_lat; do
    measure "$program" -R -s 1024
done
measure ib_send_bw -R -c UD -s 1024
measure ib_send_bw -R -T 104 -s 1024
