#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# dnsmasq.sh: dnsmasq in a leases addresses on ib0 to NetworkManager in the others (RFC 4390: no
# hardware address, a client identifier, replies by broadcast), which then reach it.
#
# Debian: dnsmasq-base, network-manager
# Run: ipoibu lab --guests 3 --init systemd --share examples/lab --run 'all=./dnsmasq.sh'
# Expect: b: leased 10.9.0.1
# Expect: c: leased 10.9.0.1
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
if [[ $LAB_NAME == a ]]; then
    dnsmasq --no-daemon --conf-file=/dev/null --port=0 --interface=ib0 --user=root --log-dhcp \
        --dhcp-range=10.9.0.100,10.9.0.199 --dhcp-leasefile=/tmp/leases --dhcp-authoritative &
    server=$!
fi
meet ready
if [[ $LAB_NAME != a ]]; then
    ip -4 address flush dev ib0
    systemctl start NetworkManager
    nmcli --wait 60 connection add type infiniband con-name link ifname ib0 transport-mode datagram
    nmcli --wait 60 connection up link
    address=$(ip -4 -brief address show dev ib0 | grep -o '10\.9\.0\.1[0-9][0-9]')
    ping -q -c 1 -W 5 10.9.0.1
    echo "leased ${address%??}"
fi
meet leased
if [[ $LAB_NAME == a ]]; then
    cat /tmp/leases
    kill "$server"
fi
