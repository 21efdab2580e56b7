#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# kea4.sh: Kea's server of DHCPv4 in a hears no request of NetworkManager's in b on an IPoIB interface,
# neither by raw sockets nor by those of UDP; dnsmasq in its place answers (../dnsmasq.sh).
#
# Debian: kea-dhcp4-server, network-manager
# Run: ipoibu lab --guests 2 --init systemd --share examples/lab --run 'all=./broken/kea4.sh raw'
# Run: ipoibu lab --guests 2 --init systemd --share examples/lab --run 'all=./broken/kea4.sh udp'
# Expect: b: no lease
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
if [[ $LAB_NAME == a ]]; then
    mkdir -p /run/kea
    cat >/tmp/kea.conf <<-CONFIG
	{"Dhcp4": {
	  "interfaces-config": {"interfaces": ["ib0"], "dhcp-socket-type": "$1"},
	  "lease-database": {"type": "memfile", "persist": false},
	  "subnet4": [{"id": 1, "subnet": "10.9.0.0/24",
	               "pools": [{"pool": "10.9.0.100-10.9.0.199"}]}]
	}}
	CONFIG
    KEA_LOCKFILE_DIR=/tmp kea-dhcp4 -c /tmp/kea.conf &
    server=$!
fi
meet ready
if [[ $LAB_NAME == b ]]; then
    ip -4 address flush dev ib0
    systemctl start NetworkManager
    nmcli connection add type infiniband con-name link ifname ib0 transport-mode datagram \
        ipv4.dhcp-timeout 20
    if ! nmcli --wait 40 connection up link; then echo "no lease"; fi
fi
meet end
if [[ $LAB_NAME == a ]]; then kill "$server"; fi
