#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# keepalived6.sh: keepalived 2.2.7 of Debian 12 dies when it announces an IPv6 address on ib0: it copies
# 20 bytes of hardware address into the 8 of sll_addr (https://github.com/acassen/keepalived/issues/2100).
#
# Debian: keepalived
# Until: keepalived 1:2.3
# Run: ipoibu lab --guests 1 --share examples/lab --run 'a=./broken/keepalived6.sh'
# Expect: a: keepalived has died of "buffer overflow detected"
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/links.sh"
printf '%s\n' "vrrp_instance test {" "interface ib0" "virtual_router_id 7" "priority 200" \
    "virtual_ipaddress {" "fe80::100/64" "}" "}" >/tmp/conf
keepalived --vrrp --dont-fork --dont-respawn --log-console --use-file=/tmp/conf >/tmp/log 2>&1 &
until_true 60 "the end of keepalived" grep -q "buffer overflow detected" /tmp/log
echo 'keepalived has died of "buffer overflow detected"'
