# SPDX-License-Identifier: BSD-2-Clause
#
# mesh_host.sh: a machine as a host of an iWARP mesh, by `ipoibu up` over siw0; after verbs_host.sh,
# verbs_cases.sh and connected_host.sh. The mesh runs over 10.8.0.INDEX, the interfaces have 10.9.0.INDEX.

trouble() { # FUNCTION [ARG...] of mesh_trouble.py
    python -m ipoibu.lab.machines.inside.call "tests.lab.scenarios.mesh_trouble:$1" "${@:2}"
}

connected_to() { # COUNT: checks for one live connection to each of COUNT peers
    local row rows live=0
    rows=$(ipoibu conn ib0)
    while read -r row; do
        [[ -z $row ]] && continue
        [[ $row == *" LIVE "* ]] || return 1
        live=$((live + 1))
    done <<<"$rows"
    ((live == $1))
}

# Three hosts; the last two know only the first one.
gather() {
    local index peers=()
    ((LAB_INDEX == 1)) || peers=(--peer 10.8.0.1)
    ib_up siw0 "${peers[@]}"
    meet up 60
    until_true 30 "two peers" connected_to 2
    meet gathered 60
    for index in 1 2 3; do
        ((index == LAB_INDEX)) && continue
        pings 3 "10.9.0.$index"
        pings 3 "fd00:9::$index"
        large_ping "10.9.0.$index"
    done
    if ((LAB_INDEX == 1)); then
        receive_group UDP4-RECVFROM:5000,ip-add-membership=239.1.2.3:ib0 >/run/lab/group4 &
        local receiver4=$!
        receive_group "UDP6-RECVFROM:5001,ipv6-join-group=[ff12::1234]:ib0" >/run/lab/group6 &
        local receiver6=$!
        until_true 10 "the groups" shows_groups
        meet joined 60
        wait "$receiver4"; put got-4 yes
        wait "$receiver6"; put got-6 yes
        serve_iperf forward 10.9.0.1
        serve_iperf backward fd00:9::1
        serve_iperf udp 10.9.0.1
    else
        meet joined 60
        if ((LAB_INDEX == 2)); then
            send_group UDP4-DATAGRAM:239.1.2.3:5000,ip-multicast-if=10.9.0.2 4
            send_group "UDP6-DATAGRAM:[ff12::1234%ib0]:5001" 6
            use_iperf forward 10.9.0.1 -n 20M
            use_iperf backward fd00:9::1 -n 20M -R
            use_iperf udp 10.9.0.1 -t 2 -u -b 10M -l 8000
        else
            meet forward 60; meet backward 60; meet udp 60
        fi
    fi
    show_all
    meet done 60
    ib_down
}

# The second host's daemon is killed and starts again under load; the others keep the mesh.
come_back() {
    local peers=() stream
    ((LAB_INDEX == 1)) || peers=(--peer 10.8.0.1)
    ib_up siw0 "${peers[@]}"
    meet up 60
    until_true 30 "two peers" connected_to 2
    meet gathered 60
    if ((LAB_INDEX == 2)); then
        read -r -t 1 -u "$lab_tick" || true
        ib_kill
        ib_up siw0 "${peers[@]}"
        until_true 30 "two peers again" connected_to 2
        meet restarted 60
        large_ping 10.9.0.1
        large_ping 10.9.0.3
    else
        ping -q -i 0.02 -s 20000 10.9.0.2 >/dev/null & # load during the kill
        stream=$!
        large_ping "10.9.0.$((4 - LAB_INDEX))" # the connection between the other two survives
        meet restarted 60
        until_true 30 "an answer" ping -q -c 1 -W 1 10.9.0.2
        kill -INT "$stream"; wait "$stream" || true
        until_true 30 "two peers" connected_to 2
    fi
    show_all
    meet done 60
    ib_down
}

# The first host is a mesh of one; the second machine attacks it, then joins.
bother() {
    if ((LAB_INDEX == 1)); then
        ib_up siw0
        meet up 60
        trouble before "$ib_pid"
        meet bothered 300
        show_all
        trouble after "$ib_pid"
        meet looked 60
        meet up_too 60
        until_true 30 "a peer" connected_to 1
        large_ping 10.9.0.2
    else
        meet up 60
        trouble garbage 10.8.0.1
        trouble connects 10.8.0.1
        meet bothered 300
        meet looked 60
        ib_up siw0 --peer 10.8.0.1
        meet up_too 60
    fi
    meet done 60
    ib_down
}

# The daemon reads peers from a file that changes, and from a name.
look_up() {
    if ((LAB_INDEX == 1)); then
        ib_up siw0
        meet up 60
        meet peers-read 60
        connected_to 1
        meet changed 60
    else
        echo "# no peer yet" >/tmp/peers
        ib_up siw0 --peers-file /tmp/peers
        meet up 60
        connected_to 0
        printf '10.8.0.1:4792  # the first\n' >/tmp/peers
        until_true 20 "a peer by file" connected_to 1
        meet peers-read 60
        meet changed 60
    fi
    show_all
    meet done 60
    ib_down
}
