#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# qperf.sh: each test of qperf for a second, over the addresses of ib0 and by verbs; its rates are
# not judged. What uc_bw sends fills a receiver of 512 MB (docs/findings/linux-rxe-flood.md).
#
# Debian: qperf
# Kernels: 6.12
# Run: ipoibu lab --guests 2 --memory 4096 --fabric ib --share examples/suites
#   --run 'all=./qperf.sh 10.9.0.1 rxe0'
# Run: ipoibu lab --guests 2 --memory 4096 --ipoib ipoibu --fabric ib --share examples/suites
#   --run 'all=./qperf.sh 10.9.0.1 rxe0'
# Run: ipoibu lab --guests 2 --ipoib ipoibu --fabric iwarp --share examples/suites
#   --run 'all=./qperf.sh 10.9.0.1'
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
tests=(conf tcp_bw tcp_lat udp_bw udp_lat)
if (($# > 1)); then
    tests+=(rc_bw rc_bi_bw rc_lat uc_bw uc_bi_bw uc_lat ud_bw ud_bi_bw ud_lat)
    tests+=(rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw rc_rdma_write_lat rc_rdma_write_poll_lat)
    tests+=(uc_rdma_write_bw uc_rdma_write_lat uc_rdma_write_poll_lat)
    tests+=(rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add)
fi
for test in "${tests[@]}"; do
    words=(-t 1)
    if [[ $test == *[ru][cd]_* ]]; then words+=(-i "$2:1"); fi
    pair "$test" qperf -- qperf "${words[@]}" "$1" "$test"
done
