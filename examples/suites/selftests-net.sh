#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# selftests-net.sh: tests of tools/testing/selftests/net of Linux 7.3 in one machine, which has an ib0: some
# whose kernel options the flavour full has, and which end within seconds. Most run in namespaces.
#
# Debian: iproute2, iputils-arping, netsniff-ng, socat, traceroute
# Kernels: 7.3
# Before: examples/suites/build_selftests 7.3
# Run: ipoibu lab --guests 1 --flavour full --fabric ib --share build/selftests/7.3
#   -- ./selftests-net.sh
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
export LIMIT_S=300
cd installed/net
sockets=(bind_bhash.sh bind_timewait bind_wildcard cmsg_ip.sh cmsg_so_mark.sh cmsg_time.sh
    cork_fragsize.py epoll_busy_poll getsockopt_iter reuseaddr_conflict
    reuseaddr_ports_exhausted.sh reuseport_addr_any.sh reuseport_bpf reuseport_bpf_cpu reuseport_dualstack
    run_netsocktests rxtimestamp.sh sk_bind_sendto_listen sk_connect_zero_addr sk_so_peek_off skf_net_off.sh
    tcp_port_share test_so_rcv.sh udp_splice_checksum)
packets=(psock_snd.sh run_afpackettests udpgso.sh)
routes=(ecmp_rehash.sh fib-onlink-tests.sh fib_nexthop_nongw.sh fib_tests.sh route_hint.sh
    route_localnet.sh rtnetlink.py rtnetlink_notification.sh vrf_route_leaking.sh vrf_strict_mode_test.sh)
neighbours=(arp_ndisc_evict_nocarrier.sh arp_ndisc_untracked_subnets.sh test_neigh.sh)
messages=(broadcast_ether_dst.sh broadcast_pmtu.sh exception_cache.sh icmp.sh icmp_rfc4884 traceroute.sh)
fragments=(ipv6_flowlabel.sh ipv6_force_forwarding.sh ipv6_fragmentation)
devices=(ip6_tunnel.sh netdevice.sh netns-sysctl.sh protodown.sh)
tests=("${sockets[@]}" "${packets[@]}" "${routes[@]}" "${neighbours[@]}" "${messages[@]}")
for test in "${tests[@]}" "${fragments[@]}" "${devices[@]}"; do
    selftest "${test%.*}" "./$test"
done
