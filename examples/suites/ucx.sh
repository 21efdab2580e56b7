#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# ucx.sh: ucx_info, and the tests of ucx_perftest by TCP over the addresses of ib0 and by verbs.
#
# Debian: ucx-utils
# Kernels: 6.12
# Run: ipoibu lab --guests 2 --fabric ib --share examples/suites --run 'all=./ucx.sh 10.9.0.1 ib0 rxe0'
# Run: ipoibu lab --guests 2 --ipoib ipoibu --fabric ib --share examples/suites
#   --run 'all=./ucx.sh 10.9.0.1 ib0'
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
attempt "ucx_info -v" ucx_info -v
attempt "ucx_info -d" ucx_info -d
export UCX_WARN_UNUSED_ENV_VARS=n
ways=("tcp $2")
if (($# > 2)); then ways+=("rc_verbs,ud_verbs:aux $3:1" "ud_verbs $3:1"); fi
for way in "${ways[@]}"; do
    export UCX_TLS=${way% *} UCX_NET_DEVICES=${way#* }
    for test in tag_lat tag_bw tag_sync_lat ucp_am_lat ucp_am_bw stream_lat stream_bw ucp_put_lat ucp_put_bw \
        ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap; do
        words=(ucx_perftest -t "$test" -n 50 -w 5 -s "$([[ $test == ucp_[acfs]* ]] && echo 8 || echo 1024)")
        pair "${UCX_TLS%,*} $test" "${words[@]}" -- "${words[@]}" "$1"
    done
done
