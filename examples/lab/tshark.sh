#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tshark.sh: tshark in a reads ib0 as IPoIB, and what ib_ipoib sends below it, on vec0, as RoCEv2.
#
# Debian: tcpdump, tshark
# Run: ipoibu lab --guests 2 --share examples/lab --run 'all=./tshark.sh'
# Expect: a: ethertype:ip:icmp
# Expect: a: eth:ethertype:ipv6:udp:infiniband:ethertype:arp
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
if [[ $LAB_NAME == a ]]; then
    tcpdump -U -i ib0 -w /tmp/ib0.pcap 'arp or icmp' &
    tcpdump -U -i vec0 -w /tmp/vec0.pcap 'udp port 4791' &
    until_true 20 "tcpdump" test -s /tmp/ib0.pcap -a -s /tmp/vec0.pcap
fi
meet ready
if [[ $LAB_NAME == b ]]; then
    ip neigh flush dev ib0
    until_true 30 "an answer of a" ping -q -c 1 -W 1 10.9.0.1
fi
meet sent
if [[ $LAB_NAME == a ]]; then
    read_by() { tshark -n -r "$1" -Y "$2" -T fields -e frame.protocols 2>/dev/null | sort | uniq -c; }
    until_true 20 "the request on ib0" grep -q arp <(read_by /tmp/ib0.pcap arp.hw.size==20)
    read_by /tmp/ib0.pcap icmp
    read_by /tmp/vec0.pcap infiniband
    kill %1 %2
fi
