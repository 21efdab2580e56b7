#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# dhcpd.sh: ISC's dhcpd of Debian does not start on an IPoIB interface.
#
# Debian: isc-dhcp-server
# Run: ipoibu lab --guests 1 --share examples/lab --run 'a=./broken/dhcpd.sh'
# Expect: a: Unsupported device type 32 for "ib0"
set -euo pipefail
printf '%s\n' 'subnet 10.9.0.0 netmask 255.255.255.0 {' 'range 10.9.0.100 10.9.0.199;' '}' >/tmp/conf
: >/tmp/leases
! timeout 20 dhcpd -4 -d -f -cf /tmp/conf -lf /tmp/leases -pf /tmp/pid ib0
