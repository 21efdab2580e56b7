#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# ospf.sh: FRR in a and BIRD in b become OSPF neighbours on ib0, and exchange the routes of what is
# behind them. ib_ipoib is a broadcast network to both, with a designated router.
#
# Debian: frr, bird2
# Run: ipoibu lab --guests 2 --share examples/lab --run 'all=./ospf.sh'
# Run: ipoibu lab --guests 2 --mode connected --share examples/lab --run 'all=./ospf.sh'
# Expect: a: reached 10.20.2.1
# Expect: b: reached 10.20.1.1
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
own=10.20.$LAB_INDEX.1 other=10.20.$((3 - LAB_INDEX)).1
ip address add "$own/32" dev lo
if [[ $LAB_NAME == a ]]; then
    install -d -o frr -g frrvty /run/frr
    printf '%s\n' "router ospf" "ospf router-id $own" "network 10.0.0.0/8 area 0" \
        "passive-interface lo" "interface ib0" "ip ospf hello-interval 1" \
        "ip ospf dead-interval 4" >/tmp/frr.conf
    for daemon in zebra ospfd; do
        /usr/lib/frr/$daemon -f /tmp/frr.conf -i /tmp/$daemon.pid \
            --vty_socket /run/frr -z /run/frr/zserv.api &
        sleep 1
    done
else
    cat >/tmp/bird.conf <<-CONFIG
	router id $own;
	protocol device {}
	protocol kernel { ipv4 { export all; }; }
	protocol ospf v2 {
	  area 0 { interface "ib0" { hello 1; dead 4; }; interface "lo" { stub; }; };
	}
	CONFIG
    bird -f -c /tmp/bird.conf -s /tmp/bird.ctl &
fi
until_true 60 "an answer of $other" ping -q -c 1 -W 1 -I "$own" "$other"
echo "reached $other"
ip route show proto ospf
ip route show proto bird
meet reached
mapfile -t daemons < <(jobs -p)
kill "${daemons[@]}"
