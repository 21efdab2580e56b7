#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# networkd.sh: networkd gives ib0 an address by DHCP, and makes a child interface in the partition
# 0x8001; dnsmasq leases the addresses.
#
# Debian: systemd, dnsmasq-base
# Run: ipoibu lab --guests 2 --init systemd --partitions examples/lab/partitions.conf --ipoib none
#   --share examples/lab --run 'all=./networkd.sh'
# Expect: b: reached 10.9.0.1 and 10.8.1.1
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
address=DHCP=ipv4
if [[ $LAB_NAME == a ]]; then address=Address=10.9.0.1/24; fi
cd /etc/systemd/network
printf '%s\n' '[Match]' Name=ib0 '[Network]' "$address" IPoIB=ib0.8001 >20-ib0.network
printf '%s\n' '[Match]' Name=ib0.8001 '[Network]' "Address=10.8.1.$LAB_INDEX/24" >20-child.network
# MACAddress=none: otherwise networkd invents a hardware address, whose GID no port has.
printf '%s\n' '[NetDev]' Name=ib0.8001 Kind=ipoib MACAddress=none '[IPoIB]' PartitionKey=0x8001 \
    >20-child.netdev
if [[ $LAB_NAME == b ]]; then meet ready 120; fi
systemctl start systemd-networkd
systemctl start systemd-networkd-wait-online@ib0 systemd-networkd-wait-online@ib0.8001
networkctl list --no-pager --no-legend
if [[ $LAB_NAME == a ]]; then
    dnsmasq --no-daemon --conf-file=/dev/null --port=0 --interface=ib0 --user=root --log-dhcp \
        --dhcp-range=10.9.0.100,10.9.0.199 --dhcp-leasefile=/tmp/leases --dhcp-authoritative &
    meet ready 120
else
    until_true 30 "an answer of 10.9.0.1" ping -q -c 1 -W 1 10.9.0.1
    until_true 30 "an answer of 10.8.1.1" ping -q -c 1 -W 1 10.8.1.1
    echo "reached 10.9.0.1 and 10.8.1.1"
fi
meet reached 120
if [[ $LAB_NAME == a ]]; then kill "$!"; fi
