#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pytcp.sh: PyTCP answers no IPv6 packet from a link-local address, and announces its groups without
# a Router Alert. Nothing of InfiniBand is under it here: the kernel is at the other end of the TAP.
#
# Debian: gcc, liblwip-dev, pkgconf, python3-venv, tcpdump
# Run: ipoibu lab --guests 1 --share examples/lab --run 'a=./broken/pytcp.sh'
# Expect: a: from fd77::1: 1 received
# Expect: a: from fe80::1%tap7: 0 received
# Expect: a: reports, 0 with Router Alert
set -euo pipefail
ip tuntap add tap7 mode tap
ip link set tap7 up addrgenmode none
ip address add fd77::1/64 dev tap7 nodad
ip address add fe80::1/64 dev tap7 nodad
tcpdump -U -i tap7 -w /tmp/reports 'ip6 dst ff02::16 and ether src 02:00:00:77:77:77' 2>/dev/null &
until [[ -s /tmp/reports ]]; do sleep 0.1; done
"$LAB_INSIDE/../../../../build/stacks/pytcp/bin/python" -O - >/tmp/pytcp <<'PYTHON' &
import time
from pytcp import TcpIpStack
TcpIpStack(interface="tap7", mac_address="02:00:00:77:77:77",
           ip4_address="10.77.0.9/24", ip6_address="fd77::9/64").start()
print("started", flush=True)
time.sleep(600)
PYTHON
until grep -q started /tmp/pytcp; do sleep 0.1; done
for from in fd77::1 fe80::1%tap7; do
    said=$(ping -q -c 1 -W 5 -I "$from" fd77::9 || true)
    echo "from $from: $(grep -o '[0-9]* received' <<<"$said")"
done
reports=$(tcpdump -n -r /tmp/reports 2>/dev/null | grep -c 'listener report')
echo "$reports reports, $(tcpdump -n -r /tmp/reports 'ip6[6] == 0' 2>/dev/null | wc -l) with Router Alert"
