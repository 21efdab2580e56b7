# SPDX-License-Identifier: BSD-2-Clause
#
# verbs_host.sh: a guest as one IP-over-InfiniBand host, by `ipoibu up` over rxe0 or soft:vec0.
#
# Addresses are 10.9.0.INDEX and fd00:9::INDEX; results for the test are files in /run/lab.

call() { # MODULE:FUNCTION [ARG...] of tests.lab.scenarios
    python -m tests.lab.inside.call "tests.lab.scenarios.$1" "${@:2}"
}

# The kernel's rxe is built in and holds UDP port 4791 of the initial network namespace, where alone
# it receives; the built-in HCA needs another one. Runs FUNCTION [ARG...] in the right one. soft:vec0@rxe0
# has the control plane of an InfiniBand port (kernel argument rdma_rxe.ib=1).
as_host() { # DEVICE FUNCTION [ARG...]
    case $1 in
        rxe0) call verbs_guest:on_the_wire && "${@:2}" ;;
        soft:vec0 | soft:vec0@rxe0)
            local mac enter=(ip netns exec host)
            read -r mac </sys/class/net/vec0/address
            call verbs_guest:seed && ip netns add host && ip link set vec0 netns host || return 1
            if [[ $1 == *@rxe0 ]]; then # its control plane: a port of the same address on a wire of its own
                ip link add va address "$mac" type veth peer name vb || return 1
                ip link set va addrgenmode eui64 mtu 9000 up && link_up vb && link_up va || return 1
                rdma_up rxe0 rxe va || return 1
                until_true 5 "the kernel's interface" test -e /sys/class/net/ib0
                ip link set ib0 name kernel0
                enter=(nsenter --net=/run/netns/host) # with /sys as it is: RDMA devices are not shown elsewhere
            fi
            declare -f >/tmp/functions
            "${enter[@]}" bash -euo pipefail -c '
                . "$LAB_INSIDE/meeting.sh"; . /tmp/functions
                ip link set lo up; link_up vec0; "$@"' lab "${@:2}" ;;
    esac
}

says_up() {
    local line
    while read -r line; do [[ $line == "ib0: up,"* ]] && return; done </tmp/ib0.log
    return 1
}

ib_up() { # DEVICE [OPTION...]: leaves the daemon's number in ib_pid
    : >/tmp/ib0.log
    ipoibu up ib0 --device "$@" --address "10.9.0.$LAB_INDEX/24" \
        --address "fd00:9::$LAB_INDEX/64" >>/tmp/ib0.log 2>&1 &
    ib_pid=$!
    until_true 20 "ib0" says_up || { cat /tmp/ib0.log >&2; return 1; }
}

ib_down() { # the daemon ends with 0, and nothing of it stays
    kill -TERM "$ib_pid"
    wait "$ib_pid" || { echo "ipoibu up ended with $?" >&2; cat /tmp/ib0.log >&2; return 1; }
    [[ ! -e /sys/class/net/ib0 ]] || { echo "ib0 is still there" >&2; return 1; }
}

# Joined as any application does; `meet` tells the sender that the receiver is there.
receive_group() { # GROUP:...-membership option of socat; prints the first datagram
    timeout 30 socat -u "$1" STDOUT
}

send_group() { # ADDRESS of socat: until the receiver has met us
    local signs=()
    until ((${#signs[@]})); do
        echo "hello, group" | socat -u STDIN "$1"
        read -r -t 0.2 -u "$lab_tick" || true
        signs=(/run/lab/values/got-"$2"*)
        [[ -e ${signs[0]} ]] || signs=()
    done
}

shows_groups() { # both that are joined by the receivers
    local shown
    ipoibu mcast ib0 -j >/run/lab/mcast.json
    shown=$(</run/lab/mcast.json)
    [[ $shown == *ff12:401b:ffff::f01:203* && $shown == *ff12:601b:ffff::1234* ]]
}

# Everything an interface is for, against the other of two guests. The first one receives.
converse() { # DEVICE [OPTION...]
    local other=$((3 - LAB_INDEX)) streams=1
    [[ " $* " != *" --queues "* ]] || streams=8 # for all queues to have some
    ib_up "$@"
    meet up 40
    ping -q -c 5 -i 0.05 -W 5 "10.9.0.$other"
    ping -q -c 5 -i 0.05 -W 5 "fd00:9::$other"
    ping -q -c 5 -i 0.05 -W 5 -s 2016 -M do "10.9.0.$other" # 2044 bytes of IP
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
        iperf3 -c 10.9.0.1 -t 2 -P "$streams" -J >/run/lab/forward.json
        meet served6
        iperf3 -c fd00:9::1 -t 2 -P "$streams" -R -J >/run/lab/backward.json
    fi
    ipoibu show ib0 -j >"/run/lab/show-$LAB_NAME.json"
    ipoibu neigh ib0 -j >"/run/lab/neigh-$LAB_NAME.json"
    ipoibu stats ib0 -j >"/run/lab/stats-$LAB_NAME.json"
    meet done 40
    ib_down
}

# Two programs that meet over TCP on 10.8.0.1 port 18515.
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

# A port with the MTU of ordinary Ethernet: what `ipoibu up` says of IPv6, and that IPv4 works.
narrow_host() {
    call verbs_guest:on_a_veth 1500
    ipoibu up ib0 --device rxe0 --address fd00:9::1/64 && return 1
    : >/tmp/ib0.log
    ipoibu up ib0 --device rxe0 --address 10.9.0.1/24 >>/tmp/ib0.log 2>&1 &
    ib_pid=$!
    until_true 20 "ib0" says_up
    cat /tmp/ib0.log
    ib_down
}
