#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# selftests-ib0.sh: programs of tools/testing/selftests/net of Linux 7.3 that have a peer, over ib0 between
# two machines: nettest (sockets bound to the device), udpgso_bench, msg_zerocopy, txtimestamp.
#
# Debian: iproute2
# Kernels: 7.3
# Before: examples/suites/build_selftests 7.3
# Run: ipoibu lab --guests 2 --fabric ib --share build/selftests/7.3 --run 'all=./selftests-ib0.sh'
# Run: ipoibu lab --guests 2 --fabric ib --mode connected --share build/selftests/7.3
#   --run 'all=./selftests-ib0.sh'
# Run: ipoibu lab --guests 2 --ipoib ipoibu --fabric ib --share build/selftests/7.3
#   --run 'all=./selftests-ib0.sh'
# Run: ipoibu lab --guests 2 --ipoib ipoibu --fabric ib --mode connected --share build/selftests/7.3
#   --run 'all=./selftests-ib0.sh'
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
export LIMIT_S=20
cd installed/net
sysctl -q -w net.core.optmem_max=1000000
for version in 4 6; do
    case $version in
        4) server=10.9.0.1 client=10.9.0.2 option=() ;;
        6) server=fd00:9::1 client=fd00:9::2 option=(-6) ;;
    esac
    nettest() { # NAME OPTION... [-- OPTION OF THE CLIENT...]
        local name=$1 both=("${option[@]}" -t 10)
        shift
        while (($#)) && [[ $1 != -- ]]; do both+=("$1"); shift; done
        pair "nettest$version $name" ./nettest "${both[@]}" -s -I ib0 -l "$server" -- \
            ./nettest "${both[@]}" -d ib0 -r "$server" "${@:2}"
    }
    nettest tcp
    nettest udp -D
    nettest "udp, connected" -D -- -U
    nettest "udp, device by cmsg" -D -- -C
    nettest "udp, device by setsockopt" -D -- -S
    nettest "udp, 1900 bytes" -D -L 1900 -n 3
    nettest "udp, fragments" -D -L 9000 -n 3
    nettest "tcp, not routed" --client-dontroute --server-dontroute
    # 200 messages of up to 64 kB: a flood without end left a peer of 512 MB without memory, twice of four times.
    for words in "" "-m" "-S 0" "-S 0 -z" "-S 0 -T" "-S 0 -T -z -a" "-t" "-t -z"; do
        read -r -a words <<<"$words"
        receiver=(./udpgso_bench_rx)
        if [[ ${words[0]:-} == -t ]]; then receiver+=(-t); fi
        pair "udpgso_bench$version ${words[*]:-plain}" "${receiver[@]}" -- \
            ./udpgso_bench_tx -M 200 "-$version" -D "$server" "${words[@]}"
    done
    for protocol in tcp udp; do
        words=(./msg_zerocopy "-$version" -i ib0 -C 0 -S "$client" -D "$server")
        pair "msg_zerocopy$version $protocol" "${words[@]}" -t 12 -r "$protocol" -- "${words[@]}" -t 2 "$protocol"
    done
    for words in "" -u -r -R "-u -o 42" "-u -n" "-C"; do
        read -r -a words <<<"$words"
        pair "txtimestamp$version ${words[*]:-tcp}" socat "TCP$version-LISTEN:9000,reuseaddr,fork" /dev/null -- \
            ./txtimestamp -t 5000000 "-$version" "${words[@]}" "$server"
    done
done
