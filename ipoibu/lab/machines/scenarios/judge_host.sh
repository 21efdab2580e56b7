# SPDX-License-Identifier: BSD-2-Clause
#
# judge_host.sh: a machine as one host of a link on which the kernel's own ib_ipoib is the judge; after
# verbs_host.sh. A host is `kernel` (ib_ipoib on an rxe0 that looks like InfiniBand) or a device of
# `ipoibu up`. Each attempt is a line in /run/lab/behaviours-NAME: the behaviour, and yes or no.

export IB_MTU=4092 # of the broadcast group, less the 4 bytes of encapsulation

counters() { # what this host has counted, for the log of a test that failed
    ipoibu stats ib0 2>/dev/null || ip -s link show ib0
    nstat -a
    grep -H . /sys/class/infiniband/*/ports/1/hw_counters/* 2>/dev/null || true
}

tried() { # WHAT COMMAND...
    local answer=no what=$1
    shift
    if "$@" >/tmp/tried 2>&1; then
        answer=yes
    else
        cat /tmp/tried
        counters
    fi >&2
    printf '%s\t%s\n' "$what" "$answer" >>"/run/lab/behaviours-$LAB_NAME"
}

# Modes: datagram; connected; mixed: only the kernel has connected mode; asking: ipoibu can ask for
# connections, and the kernel cannot ask it; partition: datagram mode in the partition 0x8001.
kernel_start() { # MODE
    case $1 in
        connected | mixed | asking)
            echo connected >/sys/class/net/ib0/mode
            ip link set ib0 mtu 65520 ;;
        partition)
            ip link set ib0 name full0
            echo 0x8001 >/sys/class/net/full0/create_child
            ip link set full0.8001 name ib0 ;;
    esac
    ip link set ib0 up
    ip addr add "10.9.0.$LAB_INDEX/24" dev ib0
    ip addr add "fd00:9::$LAB_INDEX/64" dev ib0 nodad
    kernel_ready
}

side_up() { # HOST MODE [OPTION...] of ipoibu
    if [[ $1 != kernel && -e /sys/class/net/ib0/device/infiniband ]]; then
        ip link set ib0 name kernel0 # the kernel has made its interface on this port, too
    fi
    case $1,$2 in
        kernel,*) kernel_start "$2" ;;
        siw0,*) # the first host is the seed of the mesh
            if ((LAB_INDEX == 1)); then ib_up siw0; else ib_up siw0 --peer 10.8.0.1; fi ;;
        *,connected | *,asking) ib_up "$1" --mode connected "${@:3}" ;;
        *,partition) ib_up "$1" --mtu "$IB_MTU" --pkey 0x8001 ;;
        *) ib_up "$1" --mtu "$IB_MTU" ;;
    esac
}

side_again() { # HOST MODE: the host goes down and comes up; ipoibu gets another queue pair
    if [[ $1 == kernel ]]; then
        kernel_again
    else
        ib_kill
        side_up "$@"
    fi
}

side_down() { # HOST
    if [[ $1 == kernel ]]; then
        ip link set ib0 down
        rdma link del rxe0
    else
        ib_down
    fi
}

five_pings() { # ADDRESS [OPTION...]
    local output number
    for number in 1 2 3 4 5; do # resolves addresses, makes connections
        ping -q -c 1 -W 1 "${@:2}" "$1" && break
    done
    pings 5 "${@:2}" "$1" >"/tmp/pings.$BASHPID" || true
    read -rd "" output <"/tmp/pings.$BASHPID" || true
    echo "$output"
    [[ $output == *" 5 received" ]]
}

every_size() { # ADDRESS: echo data of every size; the kernel sends fragments beyond the MTU
    local size
    for size in 0 1 7 64 255 1400 1452 1473 2016 2017 3000 4063 4065 5000 9000; do
        ping -q -c 2 -i 0.02 -W 5 -s "$size" "$1" || return 1
    done
}

all_nodes_answer() { # HOSTS: so many addresses answer, ours and the other hosts'
    local output line from=()
    output=$(ping -c 3 -i 0.3 -W 2 ff02::1%ib0)
    echo "$output"
    while read -r line; do
        [[ $line =~ ' from '([^ ]+) && " ${from[*]} " != *" ${BASH_REMATCH[1]} "* ]] &&
            from+=("${BASH_REMATCH[1]}")
    done <<<"$output"
    ((${#from[@]} == $1))
}

hear_groups() {
    receive_group UDP4-RECVFROM:5000,ip-add-membership=239.1.2.3:ib0 >"/run/lab/group4-$LAB_NAME" &
    local receiver4=$!
    receive_group "UDP6-RECVFROM:5001,ipv6-join-group=[ff12::1234]:ib0" >"/run/lab/group6-$LAB_NAME" &
    local receiver6=$!
    read -r -t 1.5 -u "$lab_tick" || true # the joins reach the fabric
    meet "hearing-$LAB_INDEX" 40
    wait "$receiver4" || true; put "got-4-$LAB_INDEX" yes
    wait "$receiver6" || true; put "got-6-$LAB_INDEX" yes
    tried "an IPv4 group it has joined reaches it" grep -q hello "/run/lab/group4-$LAB_NAME"
    tried "an IPv6 group it has joined reaches it" grep -q hello "/run/lab/group6-$LAB_NAME"
}

send_to_groups() {
    local other=$((3 - LAB_INDEX))
    meet "hearing-$other" 40
    send_group "UDP4-DATAGRAM:239.1.2.3:5000,ip-multicast-if=10.9.0.$LAB_INDEX" "4-$other"
    send_group "UDP6-DATAGRAM:[ff12::1234%ib0]:5001" "6-$other"
}

stream_in() { # NAME ADDRESS
    iperf3 -s -1 -B "$2" >/dev/null & listening 5201; meet "$1" 40; wait $!
}

stream_out() { # NAME ADDRESS [OPTION...]
    meet "$1" 40
    iperf3 -c "$2" -J "${@:3}" >"/run/lab/$1.json"
}

# A connection stands. A host of a mesh is up before it has met the others.
has_live_peer() {
    local shown
    shown=$(ipoibu conn ib0)
    [[ $shown == *" LIVE "* ]]
}

# Both hosts run this, in turn where the order matters.
judge() { # HOST MODE
    local turn other=$((3 - LAB_INDEX)) size=$((IB_MTU - 28)) whole=(-M do)
    case $2 in
        connected) size=60000 ;;
        mixed) size=20000 whole=() ;; # in fragments, after the kernel has learned the path's MTU
        asking) size=20000; if [[ $1 == kernel ]]; then whole=(); fi ;;
    esac
    side_up "$@"
    meet up 60
    if [[ $1 == siw0 ]]; then until_true 30 "a peer of the mesh" has_live_peer; fi
    tried "it resolves by ARP and pings" five_pings "10.9.0.$other"
    tried "it resolves by ND and pings" five_pings "fd00:9::$other"
    tried "it pings over IPv4 with $size bytes" five_pings "10.9.0.$other" -s "$size" "${whole[@]}"
    tried "it pings over IPv6 with $((size - 20)) bytes" five_pings "fd00:9::$other" -s "$((size - 20))"
    tried "it pings with 0 to 9000 bytes over IPv4" every_size "10.9.0.$other"
    tried "it pings with 0 to 9000 bytes over IPv6" every_size "fd00:9::$other"
    meet pinged 60
    for turn in 1 2; do
        ((turn == LAB_INDEX)) && tried "all nodes answer its ping" all_nodes_answer 2
        if ((turn == LAB_INDEX)); then hear_groups; else send_to_groups; fi
        if ((turn == LAB_INDEX)); then
            stream_in "tcp4-$turn" "10.9.0.$LAB_INDEX"
            stream_in "tcp6-$turn" "fd00:9::$LAB_INDEX"
            stream_in "udp-$turn" "10.9.0.$LAB_INDEX"
        else
            tried "it sends TCP over IPv4" stream_out "tcp4-$turn" "10.9.0.$other" -t 1
            tried "it sends TCP over IPv6" stream_out "tcp6-$turn" "fd00:9::$other" -t 1
            tried "it sends UDP" stream_out "udp-$turn" "10.9.0.$other" -t 1 -u -b 5M -l 4000 # a machine's socket holds few packets
        fi
        meet "streamed-$turn" 60
    done
    for turn in 1 2; do
        ((turn == LAB_INDEX)) && side_again "$@"
        meet "again-$turn" 60
        tried "it reaches the other after restart $turn" until_true 20 "an answer" \
            ping -q -c 1 -W 1 "10.9.0.$other"
        meet "reached-$turn" 60
    done
    meet done 60
    side_down "$1"
}
