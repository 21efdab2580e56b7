# SPDX-License-Identifier: BSD-2-Clause
#
# rails_host.sh: machine 1 has two rails to machine 2, and one of its wires is pulled in each round; after
# verbs_host.sh and judge_host.sh. Machine 2 has one port. Contenders for machine 1: bond, the kernel's bonding
# driver over two ib_ipoib, ipoibu with two devices, and connected, the same in connected mode, all beside
# the kernel's ib_ipoib in machine 2; roce, ipoibu in both machines on ports that are RoCE (without the kernel argument rdma_rxe.ib). Machine 2 writes
# the output of ping of each round to /run/lab/ping-ROUND.

readonly RAILS_ADDRESS=10.9.0.1

rails_wire() { # CONTENDER: rxe0 on w0 and rxe1 on w1; their other ends, s0 and s1, and vec0 are ports of a bridge
    local n
    call verbs_machine:seed || return 1
    ip link add br0 mtu 9000 type bridge mcast_snooping 0 || return 1
    ip link set vec0 mtu 9000 addrgenmode none master br0 up || return 1
    ip link set br0 addrgenmode none up || return 1
    for n in 0 1; do
        ip link add "w$n" mtu 9000 address "02:00:00:00:1$LAB_INDEX:0$n" type veth peer name "s$n" mtu 9000 &&
            ip link set "s$n" addrgenmode none master br0 up && link_up "w$n" &&
            rdma_up "rxe$n" rxe "w$n" || return 1
    done
    [[ $1 == roce ]] || until_true 5 "the kernel's second interface" test -e /sys/class/net/ib1
}

rails_up() { # CONTENDER
    case $1 in
        bond)
            ip link add bond0 type bond mode active-backup miimon 20 || return 1
            ip link set ib0 master bond0 && ip link set ib1 master bond0 || return 1
            ip link set bond0 up && ip addr add "$RAILS_ADDRESS/24" dev bond0 || return 1
            until_true 10 "the bond" has_carrier bond0 ;;
        ipoibu)
            ip link set ib0 name kernel0 && ip link set ib1 name kernel1 || return 1
            ib_up rxe0 --device rxe1 --mtu "$IB_MTU" ;;
        connected)
            ip link set ib0 name kernel0 && ip link set ib1 name kernel1 || return 1
            ib_up rxe0 --device rxe1 --mode connected ;;
        roce) ib_up rxe0 --device rxe1 --mtu "$IB_MTU" ;;
    esac
}

rails_ready() { # CONTENDER: both rails are usable
    local state
    case $1 in
        bond) state=$(grep -h 'MII Status' /proc/net/bonding/bond0) ;;
        *) state=$(ipoibu show ib0 | grep -E 'rail rxe. port 1 (active|backup)') ;;
    esac
    [[ $1 == bond && $state != *down* ]] || [[ $1 != bond && $state == *rail*rail* ]]
}

rails_active() { # CONTENDER: prints the number of the active rail
    local name
    case $1 in
        bond) read -r name </sys/class/net/bond0/bonding/active_slave ;;
        *) name=$(ipoibu show ib0 | sed -n 's,^    rail \(rxe.\) port 1 active .*,\1,p') ;;
    esac
    printf '%s\n' "${name: -1}"
}

rails_is_active() { # CONTENDER NUMBER
    [[ $(rails_active "$1") == "$2" ]]
}

rails_first() { # CONTENDER ROUNDS
    local round active
    rails_wire "$1" && rails_up "$1" || return 1
    meet up 60
    for ((round = 0; round < $2; round++)); do
        until_true 20 "both rails" rails_ready "$1" || { ipoibu show ib0; cat /tmp/ib0.log; return 1; } >&2
        active=$(rails_active "$1")
        meet "begin-$round" 60
        sleep 1
        ip link set "s$active" down
        meet "end-$round" 60
        # A machine that its host let wait may be here before its bond has looked at its wires.
        until_true 5 "the other rail" rails_is_active "$1" $((1 - active))
        ip link set "s$active" up
    done
    if [[ $1 != bond ]]; then no_other_queue_pair && ib_down || return 1; fi
    meet done 60
}

no_other_queue_pair() { # each rail had its queue pair all the time
    local stats
    stats=$(ipoibu stats -j ib0)
    [[ $stats == *'"engine.rail_changes"'* && $stats != *'"engine.renewals"'* ]] || {
        echo "$stats" >&2
        return 1
    }
}

rails_second() { # CONTENDER ROUNDS
    local round
    call verbs_machine:on_the_wire || return 1
    case $1 in
        roce) ib_up rxe0 --mtu "$IB_MTU" ;;
        connected) kernel_start connected ;;
        *) kernel_start datagram ;;
    esac || return 1
    meet up 60
    for ((round = 0; round < $2; round++)); do
        until_true 20 "the first host" reach "$RAILS_ADDRESS"
        meet "begin-$round" 60
        ping -q -i 0.005 -c 400 -W 2 "$RAILS_ADDRESS" >"/run/lab/ping-$round" || true
        reach "$RAILS_ADDRESS" # while the wire is pulled still
        meet "end-$round" 60
    done
    meet done 60
}

rails() { # CONTENDER ROUNDS
    if ((LAB_INDEX == 1)); then rails_first "$@"; else rails_second "$@"; fi
}

rail_values() { # KEY: prints the value of each rail, one a line
    ipoibu show -j ib0 | python -c 'import json, sys
for rail in json.load(sys.stdin)[0]["rails"]: print(rail[sys.argv[1]])' "$1"
}

has_peers() { # NUMBER: both rails reach so many hosts
    [[ $(rail_values peers) == "$1"$'\n'"$1" ]]
}

rails_spread() { # RoCE ports in both machines: flows go by both rails, and by one while the other has no wire
    local other=10.9.0.$((3 - LAB_INDEX)) port before after
    rails_wire roce && ib_up rxe0 --device rxe1 --rail-mode balance-xor --mtu "$IB_MTU" || return 1
    meet up 60
    until_true 20 "the other host by both rails" has_peers 1
    until_true 20 "the other host" reach "$other"
    mapfile -t before < <(rail_values tx_packets)
    for ((port = 9000; port < 9064; port++)); do echo x >"/dev/udp/$other/$port" || true; done
    mapfile -t after < <(rail_values tx_packets)
    ((after[0] - before[0] >= 10 && after[1] - before[1] >= 10)) || {
        echo "by rail: ${before[*]}, then ${after[*]}" >&2
        return 1
    }
    meet spread 60
    ((LAB_INDEX == 2)) || ip link set s0 down
    until_true 20 "the loss of a rail" lost_rail
    reach "$other"
    meet lost 60
    ib_down
    meet done 60
}

lost_rail() {
    [[ $(rail_values peers) == 0$'\n'1 ]]
}
