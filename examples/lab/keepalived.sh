#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# keepalived.sh 4|6: a and b share an address on ib0 by VRRP; c sees it move to b when a gives up. With
# 6, keepalived 2.2.7 of Debian 12 dies (broken/keepalived6.sh); 2.3.3 of Debian 13 does not.
#
# Debian: keepalived
# Run: ipoibu lab --guests 3 --share examples/lab --run 'all=./keepalived.sh 4'
# Run: ipoibu lab --guests 3 --mode connected --share examples/lab --run 'all=./keepalived.sh 4'
# Since: keepalived 1:2.3 ipoibu lab --guests 3 --share examples/lab --run 'all=./keepalived.sh 6'
# Expect: c: the address has moved
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh" # meet NAME waits for the others; until_true SECONDS WHAT COMMAND...
case $1 in
    4) vip=10.9.0.100 all=$vip/24 ;;
    6) vip=fd00:9::100 all="fe80::100/64 $vip/64" ;;
esac
holds() { [[ $(ip address show dev ib0) == *" $vip/"* ]]; }
if [[ $LAB_NAME != c ]]; then
    printf '%s\n' "vrrp_instance test {" "interface ib0" "virtual_router_id 7" \
        "priority $((200 - LAB_INDEX))" "virtual_ipaddress {" "${all/ /$'\n'}" "}" "}" >/tmp/conf
    keepalived --vrrp --dont-fork --dont-respawn --log-console --use-file=/tmp/conf &
fi
if [[ $LAB_NAME == a ]]; then until_true 30 "the address" holds; fi
meet first
if [[ $LAB_NAME == c ]]; then until_true 30 "an answer of a" ping -q -c 1 -W 1 "$vip"; fi
meet answered
if [[ $LAB_NAME == a ]]; then kill "$!"; wait "$!"; fi
if [[ $LAB_NAME == b ]]; then until_true 30 "the address" holds; fi
meet second
if [[ $LAB_NAME == c ]]; then
    until_true 90 "an answer of b" ping -q -c 1 -W 1 "$vip"
    echo "the address has moved"
fi
meet end
if [[ $LAB_NAME == b ]]; then kill "$!"; wait "$!"; fi # it fails if keepalived has died
