#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# networkmanager.sh: profiles of type infiniband for ib0, in connected mode, and for a child interface
# in the partition 0x8001.
#
# Debian: network-manager
# Run: ipoibu lab --guests 2 --init systemd --partitions examples/lab/partitions.conf --ipoib none
#   --share examples/lab --run 'all=./networkmanager.sh'
# Expect: a: ib0:infiniband:connected
# Expect: a: ib0.8001:infiniband:connected
# Expect: a: reached 10.8.1.2
# Expect: b: reached 10.8.1.1
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
systemctl start NetworkManager
nmcli connection add type infiniband con-name link ifname ib0 transport-mode connected \
    infiniband.mtu 65520 ipv4.method manual ipv4.addresses "10.9.0.$LAB_INDEX/24"
nmcli connection add type infiniband con-name child ifname ib0.8001 \
    infiniband.parent ib0 infiniband.p-key 0x8001 \
    ipv4.method manual ipv4.addresses "10.8.1.$LAB_INDEX/24"
nmcli --wait 60 connection up link
nmcli --wait 60 connection up child
nmcli --terse --fields device,type,state device
[[ $(</sys/class/net/ib0/mtu) == 65520 && $(</sys/class/net/ib0/mode) == connected ]]
meet configured 120
for network in 10.9.0 10.8.1; do
    other=$network.$((3 - LAB_INDEX))
    until_true 30 "an answer of $other" ping -q -c 1 -W 1 "$other"
    echo "reached $other"
done
meet reached
