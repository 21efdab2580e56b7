# SPDX-License-Identifier: BSD-2-Clause
#
# rails_host.sh: guest 1 has two rails to guest 2, and one of its wires is pulled in each round; after
# verbs_host.sh and judge_host.sh. Guest 2 is the kernel's ib_ipoib with one port. Contenders for guest 1:
# bond, the kernel's bonding driver over two ib_ipoib, and ipoibu with two devices. Guest 2 writes the
# output of ping of each round to /run/lab/ping-ROUND.

readonly RAILS_ADDRESS=10.9.0.1

rails_wire() { # rxe0 on w0 and rxe1 on w1; their other ends, s0 and s1, and vec0 are ports of a bridge
    local n
    call verbs_guest:seed || return 1
    ip link add br0 mtu 9000 type bridge mcast_snooping 0 || return 1
    ip link set vec0 mtu 9000 addrgenmode none master br0 up || return 1
    ip link set br0 addrgenmode none up || return 1
    for n in 0 1; do
        ip link add "w$n" mtu 9000 address "02:00:00:00:02:0$n" type veth peer name "s$n" mtu 9000 &&
            ip link set "s$n" addrgenmode none master br0 up && link_up "w$n" &&
            rdma_up "rxe$n" rxe "w$n" || return 1
    done
    until_true 5 "the kernel's second interface" test -e /sys/class/net/ib1
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
    esac
}

rails_ready() { # CONTENDER: both rails are usable
    local state
    case $1 in
        bond) state=$(grep -h 'MII Status' /proc/net/bonding/bond0) ;;
        ipoibu) state=$(ipoibu show ib0 | grep -E 'rail rxe. port 1 (active|backup)') ;;
    esac
    [[ $1 == bond && $state != *down* ]] || [[ $1 == ipoibu && $state == *rail*rail* ]]
}

rails_active() { # CONTENDER: prints the number of the active rail
    local name
    case $1 in
        bond) read -r name </sys/class/net/bond0/bonding/active_slave ;;
        ipoibu) name=$(ipoibu show ib0 | sed -n 's,^    rail \(rxe.\) port 1 active .*,\1,p') ;;
    esac
    printf '%s\n' "${name: -1}"
}

rails_first() { # CONTENDER ROUNDS
    local round active
    rails_wire && rails_up "$1" || return 1
    meet up 60
    for ((round = 0; round < $2; round++)); do
        until_true 20 "both rails" rails_ready "$1"
        active=$(rails_active "$1")
        meet "begin-$round" 60
        sleep 1
        ip link set "s$active" down
        meet "end-$round" 60
        [[ $(rails_active "$1") == $((1 - active)) ]] || { echo "rail $active is active still" >&2; return 1; }
        ip link set "s$active" up
    done
    [[ $1 != ipoibu ]] || ib_down
    meet done 60
}

rails_second() { # CONTENDER ROUNDS
    local round
    call verbs_guest:on_the_wire && kernel_start datagram || return 1
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
