#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# networkd.sh: networkd of Debian 12 gives a child interface an invented hardware address, whose GID is
# no port's, so that no peer reaches it. With MACAddress=none (../networkd.sh) it leaves the kernel's.
#
# Debian: systemd
# Run: ipoibu lab --guests 1 --init systemd --partitions examples/lab/partitions.conf --ipoib none
#   --share examples/lab --run 'a=./broken/networkd.sh'
# Expect: a: the GID of ib0.8001 is not that of ib0
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/links.sh"
cd /etc/systemd/network
printf '%s\n' '[Match]' Name=ib0 '[Network]' Address=10.9.0.1/24 IPoIB=ib0.8001 >20-ib0.network
printf '%s\n' '[NetDev]' Name=ib0.8001 Kind=ipoib '[IPoIB]' PartitionKey=0x8001 >20-child.netdev
systemctl start systemd-networkd
until_true 60 "the child interface" test -e /sys/class/net/ib0.8001
gid() { cut -d: -f 5- "/sys/class/net/$1/address"; }
ip -brief link show type ipoib
if [[ $(gid ib0.8001) != "$(gid ib0)" ]]; then echo "the GID of ib0.8001 is not that of ib0"; fi
