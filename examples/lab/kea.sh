#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# kea.sh: Kea in a leases an IPv6 address on ib0 to NetworkManager in b. (Its server of DHCPv4 hears
# nothing on ib0: broken/kea4.sh.)
#
# Debian: kea-dhcp6-server, network-manager
# Run: ipoibu lab --guests 2 --init systemd --share examples/lab --run 'all=./kea.sh'
# Expect: b: leased fd00:9::1:
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
if [[ $LAB_NAME == a ]]; then
    mkdir -p /run/kea /var/lib/kea
    cat >/tmp/kea.conf <<-'CONFIG'
	{"Dhcp6": {
	  "interfaces-config": {"interfaces": ["ib0"]},
	  "lease-database": {"type": "memfile", "persist": false},
	  "subnet6": [{"id": 1, "subnet": "fd00:9::/64", "interface": "ib0",
	               "pools": [{"pool": "fd00:9::1:0-fd00:9::1:fff"}]}]
	}}
	CONFIG
    KEA_LOCKFILE_DIR=/tmp kea-dhcp6 -c /tmp/kea.conf &
    server=$!
fi
meet ready
if [[ $LAB_NAME == b ]]; then
    ip address flush dev ib0 scope global
    systemctl start NetworkManager
    nmcli connection add type infiniband con-name link ifname ib0 transport-mode connected \
        ipv4.method disabled ipv6.method dhcp
    nmcli --wait 60 connection up link
    leased() { ip -6 -brief address show dev ib0 | grep -o 'fd00:9::1:[0-9a-f]*'; }
    until_true 30 "a lease" leased
    ping -q -c 1 -W 5 fe80::200:ff:fe00:1%ib0
    echo "leased $(leased)"
fi
meet end
if [[ $LAB_NAME == a ]]; then kill "$server"; fi
