# SPDX-License-Identifier: BSD-2-Clause
#
# verbs_host.sh: a guest as one IP-over-InfiniBand host, by `ipoibu up` over rxe0 or soft:vec0.
#
# Addresses are 10.9.0.INDEX and fd00:9::INDEX; results for the test are files in /run/lab.

call() { # MODULE:FUNCTION [ARG...] of ipoibu.lab.guests.scenarios
    python -m ipoibu.lab.guests.inside.call "ipoibu.lab.guests.scenarios.$1" "${@:2}"
}

# The kernel's rxe is built in and holds UDP port 4791 of the initial network namespace, where alone
# it receives; the built-in HCA needs another one. Runs FUNCTION [ARG...] in the right one. soft:vec0@rxe0
# has the control plane of an InfiniBand port (kernel argument rdma_rxe.ib=1).
as_host() { # DEVICE FUNCTION [ARG...]
    case $1 in
        rxe0) call verbs_guest:on_the_wire && "${@:2}" ;;
        siw0) # a mesh runs over the addresses of its wire
            call verbs_guest:seed && link_up vec0 9000 "10.8.0.$LAB_INDEX/24" || return 1
            rdma_up siw0 siw vec0 && "${@:2}" ;;
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
