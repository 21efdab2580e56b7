#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# libfabric.sh: the test of libfabric, fi_pingpong, by providers for sockets over the addresses of ib0
# and by those for verbs.
#
# Debian: libfabric-bin
# Kernels: 6.12
# Run: ipoibu lab --guests 2 --fabric ib --share examples/suites --run 'all=./libfabric.sh 10.9.0.1 rxe0'
# Run: ipoibu lab --guests 2 --ipoib ipoibu --fabric ib --share examples/suites
#   --run 'all=./libfabric.sh 10.9.0.1'
# Run: ipoibu lab --guests 2 --ipoib none --fabric roce --share examples/suites
#   --run 'all=./libfabric.sh 10.8.0.1 rxe0'
# Run: ipoibu lab --guests 2 --ipoib none --fabric iwarp --share examples/suites
#   --run 'all=./libfabric.sh 10.8.0.1 siw0'
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
export SKIP_IF='fi_getinfo.*No data available'
attempt fi_info fi_info
ways=("tcp msg" "tcp;ofi_rxm rdm" "udp dgram" "udp;ofi_rxd rdm" "sockets msg" "sockets rdm" "sockets dgram")
if (($# > 1)); then ways+=("verbs msg" "verbs;ofi_rxm rdm" "verbs dgram" "verbs;ofi_rxd rdm"); fi
for way in "${ways[@]}"; do
    words=(fi_pingpong -p "${way% *}" -e "${way#* }" -I 20 -S 1024 -c)
    pair "$way" "${words[@]}" -- "${words[@]}" "$1"
    pair "$way, all sizes" "${words[@]}" -S all -I 2 -- "${words[@]}" -S all -I 2 "$1"
done
