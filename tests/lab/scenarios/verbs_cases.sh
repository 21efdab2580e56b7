# SPDX-License-Identifier: BSD-2-Clause
#
# verbs_cases.sh: test cases for one host or two on rxe0 and soft:vec0; after verbs_host.sh.

shows_groups() { # both groups of the receivers
    local shown
    ipoibu mcast ib0 -j >/run/lab/mcast.json
    shown=$(</run/lab/mcast.json)
    [[ $shown == *ff12:401b:ffff::f01:203* && $shown == *ff12:601b:ffff::1234* ]]
}

meets_peer() { # the peer may be one that dials us, a while after both are up
    local shown
    shown=$(ipoibu peers ib0)
    [[ $shown == *" LIVE "* ]]
}

# Pings, multicast and TCP between two machines. The first one receives.
converse() { # DEVICE [OPTION...]
    local other=$((3 - LAB_INDEX)) streams=1
    [[ " $* " != *" --queues "* ]] || streams=8 # so that every queue has some
    ib_up "$@"
    [[ " $* " != *" --peer "* ]] || until_true 30 "the peer" meets_peer
    meet up 40
    pings 5 "10.9.0.$other"
    pings 5 "fd00:9::$other"
    pings 5 -s 2016 -M do "10.9.0.$other" # 2044 bytes of IP
    if ((LAB_INDEX == 1)); then
        receive_group UDP4-RECVFROM:5000,ip-add-membership=239.1.2.3:ib0 >/run/lab/group4 &
        local receiver4=$!
        receive_group "UDP6-RECVFROM:5001,ipv6-join-group=[ff12::1234]:ib0" >/run/lab/group6 &
        local receiver6=$!
        until_true 10 "the groups" shows_groups
        meet joined
        wait "$receiver4"; put got-4 yes
        wait "$receiver6"; put got-6 yes
        iperf3 -s -1 -B 10.9.0.1 >/dev/null & listening 5201; meet served; wait $!
        iperf3 -s -1 -B fd00:9::1 >/dev/null & listening 5201; meet served6; wait $!
    else
        meet joined
        send_group UDP4-DATAGRAM:239.1.2.3:5000,ip-multicast-if=10.9.0.2 4
        send_group "UDP6-DATAGRAM:[ff12::1234%ib0]:5001" 6
        meet served
        iperf3 -c 10.9.0.1 -n 10M -P "$streams" -J >/run/lab/forward.json
        meet served6
        iperf3 -c fd00:9::1 -n 10M -P "$streams" -R -J >/run/lab/backward.json
    fi
    python -m ipoibu.lab.machines.inside.call tests.lab.scenarios.status:write show neigh stats
    meet done 40
    ib_down
}

# Two programs that exchange parameters over TCP on 10.8.0.1 port 18515.
serve() { # PROGRAM [ARG...]
    ip addr add 10.8.0.1/24 dev vec0
    "$@" &
    listening 18515
    meet listening
    wait $!
}

join_in() { # PROGRAM [ARG...]
    ip addr add 10.8.0.2/24 dev vec0
    meet listening
    "$@"
}

# A port with the MTU of ordinary Ethernet: `ipoibu up` refuses IPv6, and IPv4 works.
narrow_host() {
    call verbs_machine:on_a_veth 1500
    ipoibu up ib0 --device rxe0 --address fd00:9::1/64 && return 1
    : >/tmp/ib0.log
    ipoibu up ib0 --device rxe0 --address 10.9.0.1/24 >>/tmp/ib0.log 2>&1 &
    ib_pid=$!
    until_true 20 "ib0" reports_up
    cat /tmp/ib0.log
    ib_down
}
