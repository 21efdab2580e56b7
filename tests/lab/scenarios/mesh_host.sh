# SPDX-License-Identifier: BSD-2-Clause
#
# mesh_host.sh: a guest as a host of an iWARP mesh, over siw0; after verbs_host.sh.

mesh_guest() { # siw0 on vec0, with 10.0.0.INDEX
    call verbs_guest:seed
    link_up vec0 9000 "10.0.0.$LAB_INDEX/24"
    rdma link add siw0 type siw netdev vec0
}

peers_are() { # NUMBER
    local stats
    stats=$(ipoibu stats ib0 -j)
    [[ $stats =~ \"fabric.peers\":\ ?$1[,}] ]]
}

# Every host has the first one for its seed.
mesh_up() { # [OPTION...]
    local seed=()
    ((LAB_INDEX == 1)) || seed=(--peer 10.0.0.1)
    ib_up siw0 "${seed[@]}" "$@"
}

mesh_pair() {
    mesh_guest
    meet there
    mesh_up --log-level info || { cat /tmp/ib0.log; return 1; }
    until_true 20 "the peer" peers_are 1 || { cat /tmp/ib0.log; ipoibu stats ib0; return 1; }
    meet up 40
    local other=$((3 - LAB_INDEX))
    ping -q -c 5 -i 0.05 -W 5 "10.9.0.$other" || { cat /tmp/ib0.log; ipoibu stats ib0; return 1; }
    ping -q -c 5 -i 0.05 -W 5 "fd00:9::$other"
    ping -q -c 5 -i 0.05 -W 5 -s 65492 -M do "10.9.0.$other" # 65520 bytes of IP
    meet done 40
    ipoibu show ib0 -j >"/run/lab/show-$LAB_NAME.json"
    ipoibu stats ib0 -j >"/run/lab/stats-$LAB_NAME.json"
    ib_down
}

group_sent() { # NAME of the counter, from
    ipoibu stats ib0 -j >"/run/lab/$1-$LAB_NAME.json"
}

# Three hosts, of which the third knows the first only: all find all, multicast goes to those that
# joined, TCP flows, and a host that is killed and restarted is reached again.
mesh_three() {
    mesh_guest
    meet there
    mesh_up
    until_true 30 "the peers" peers_are 2
    meet up 40
    local other
    for other in 1 2 3; do
        ((other == LAB_INDEX)) || reach "10.9.0.$other"
        ((other == LAB_INDEX)) || reach "fd00:9::$other"
    done
    meet reached 40
    if ((LAB_INDEX == 1)); then
        receive_group UDP4-RECVFROM:5000,ip-add-membership=239.1.2.3:ib0 >/run/lab/group4 &
        local receiver4=$!
        receive_group "UDP6-RECVFROM:5001,ipv6-join-group=[ff12::1234]:ib0" >/run/lab/group6 &
        local receiver6=$!
        until_true 10 "the groups" shows_groups
        meet joined
        wait "$receiver4"; put got-4 yes
        wait "$receiver6"; put got-6 yes
    elif ((LAB_INDEX == 2)); then
        meet joined
        send_group UDP4-DATAGRAM:239.1.2.3:5000,ip-multicast-if=10.9.0.2 4
        send_group "UDP6-DATAGRAM:[ff12::1234%ib0]:5001" 6
    else
        timeout 5 socat -u UDP4-RECV:5000 STDOUT >/run/lab/stray || true # nobody joined it here
        meet joined
    fi
    meet grouped 40
    group_sent grouped
    if ((LAB_INDEX == 1)); then
        iperf3 -s -1 -B 10.9.0.1 >/dev/null & listening 5201; meet served; wait $!
        iperf3 -s -1 -B fd00:9::1 >/dev/null & listening 5201; meet served6; wait $!
    elif ((LAB_INDEX == 2)); then
        meet served
        iperf3 -c 10.9.0.1 -t 2 -J >/run/lab/forward.json
        meet served6
        iperf3 -c fd00:9::1 -t 2 -R -J >/run/lab/backward.json
    else
        meet served
        meet served6
    fi
    meet flowed 40
    if ((LAB_INDEX == 3)); then
        kill -KILL "$ib_pid"
        wait "$ib_pid" || true
        until_true 5 "ib0 to go" test ! -e /sys/class/net/ib0
        mesh_up
        until_true 30 "the peers again" peers_are 2
    fi
    meet restarted 60
    if ((LAB_INDEX == 3)); then
        reach 10.9.0.1; reach fd00:9::2
    else
        until_true 10 "the peers again" peers_are 2
        reach 10.9.0.3; reach fd00:9::3
    fi
    meet done 40
    group_sent stats
    ib_down
}

flood() { # 200 datagrams to 239.1.2.3
    local n
    for ((n = 0; n < 200; n++)); do echo "hello $n"; done >/tmp/lines
    python - <<'PYTHON'
import socket, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.9.0.2"))
for line in open("/tmp/lines", "rb"):
    out.sendto(line, ("239.1.2.3", 5000))
    time.sleep(0.002)
PYTHON
}

# The first of three joins a group, the second one floods it.
mesh_members() {
    mesh_guest
    meet there
    mesh_up
    until_true 30 "the peers" peers_are 2
    meet up 40
    if ((LAB_INDEX == 1)); then
        timeout 25 socat -u UDP4-RECV:5000,ip-add-membership=239.1.2.3:ib0 STDOUT >/run/lab/flood &
        local receiver=$!
        read -r -t 3 -u "$lab_tick" || true
        meet joined
        meet flooded 40
        read -r -t 1 -u "$lab_tick" || true
        kill "$receiver"; wait "$receiver" || true
    else
        meet joined
        if ((LAB_INDEX == 2)); then
            group_sent before
            flood
            group_sent after
        fi
        meet flooded 40
    fi
    meet done 40
    ib_down
}
