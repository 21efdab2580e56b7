# SPDX-License-Identifier: BSD-2-Clause
#
# verbs_host.sh: a machine as one IP-over-InfiniBand host: `ipoibu up` over rxe0, siw0 or soft:vec0.
#
# Addresses are 10.9.0.INDEX and fd00:9::INDEX; results for the test are files in /run/lab.

call() { # MODULE:FUNCTION [ARG...] of ipoibu.lab.machines.scenarios
    python -m ipoibu.lab.machines.inside.call "ipoibu.lab.machines.scenarios.$1" "${@:2}"
}

# Runs FUNCTION [ARG...] in the network namespace that suits the device. The kernel's rxe holds UDP port
# 4791 of the initial network namespace, and receives only there; the built-in HCA needs another one.
# soft:vec0@rxe0 has the control plane of an InfiniBand port (kernel argument rdma_rxe.ib=1).
as_host() { # DEVICE FUNCTION [ARG...]
    case $1 in
        rxe0) call verbs_machine:on_the_wire && "${@:2}" ;;
        siw0) # a mesh runs over the addresses of its wire
            call verbs_machine:seed && link_up vec0 9000 "10.8.0.$LAB_INDEX/24" || return 1
            rdma_up siw0 siw vec0 && "${@:2}" ;;
        soft:vec0 | soft:vec0@rxe0)
            local mac enter=(ip netns exec host)
            read -r mac </sys/class/net/vec0/address
            call verbs_machine:seed && ip netns add host && ip link set vec0 netns host || return 1
            if [[ $1 == *@rxe0 ]]; then # the control plane is a port of the same address on a separate wire
                ip link add va address "$mac" type veth peer name vb || return 1
                ip link set va addrgenmode eui64 mtu 9000 up && link_up vb && link_up va || return 1
                rdma_up rxe0 rxe va || return 1
                until_true 5 "the kernel's interface" test -e /sys/class/net/ib0
                ip link set ib0 name kernel0
                enter=(nsenter --net=/run/netns/host) # keep /sys: another namespace's /sys shows no RDMA devices
            fi
            declare -f >/tmp/functions
            "${enter[@]}" bash -euo pipefail -c '
                . "$LAB_INSIDE/meeting.sh"; . /tmp/functions
                ip link set lo up; link_up vec0; "$@"' lab "${@:2}" ;;
    esac
}

reports_up() {
    local line
    while read -r line; do [[ $line == "ib0: up,"* ]] && return; done </tmp/ib0.log
    return 1
}

ib_up() { # DEVICE [OPTION...]: sets ib_pid to the daemon's process number
    : >/tmp/ib0.log
    printf '%s\0' "$@" >/tmp/ib0.options
    ipoibu up ib0 --device "$@" --address "10.9.0.$LAB_INDEX/24" \
        --address "fd00:9::$LAB_INDEX/64" >>/tmp/ib0.log 2>&1 &
    ib_pid=$!
    echo "$ib_pid" >/tmp/ib0.pid
    until_true 120 "ib0" reports_up || { cat /tmp/ib0.log >&2; return 1; }
}

ib_down() { # ends the daemon, checks its status and that ib0 is gone
    kill -TERM "$ib_pid"
    wait "$ib_pid" || { echo "ipoibu up ended with $?" >&2; cat /tmp/ib0.log >&2; return 1; }
    [[ ! -e /sys/class/net/ib0 ]] || { echo "ib0 is still there" >&2; return 1; }
}

ib_kill() { # the daemon dies without a word to its peers
    kill -KILL "$ib_pid"
    wait "$ib_pid" || true
}

has_carrier() { # NETDEV
    local up=0
    { read -r up <"/sys/class/net/$1/carrier"; } 2>/dev/null && ((up))
}

kernel_ready() { # ib0 of the kernel's ib_ipoib has joined its broadcast group
    until_true 30 "the carrier of ib0" has_carrier ib0
}

kernel_again() { # ib0 of the kernel goes down and comes up
    ip link set ib0 down
    ip link set ib0 up
    ip addr replace "fd00:9::$LAB_INDEX/64" dev ib0 nodad # the IPv6 addresses go with the link
    kernel_ready
}

# Sends so many echo requests one by one, and waits for each answer. For the last answers of several
# requests ping itself waits two round trips only, which a busy machine exceeds.
pings() { # COUNT [OPTION...] ADDRESS
    local output number received=0 file=/tmp/ping.$BASHPID # a subshell for each would take as long as ping
    for ((number = 0; number < $1; number++)); do
        if ping -q -c 1 -W 5 "${@:2}" >"$file" 2>&1; then
            received=$((received + 1))
        else
            output=$(<"$file")
            echo "${output/1 packets/1 packet}" # only the sum below counts packets
        fi
    done
    echo "$1 packets transmitted, $received received"
    ((received > 0))
}

# An application joins a group like this; the sender waits for the receiver with `meet`.
receive_group() { # GROUP:...-membership option of socat; prints the first datagram
    timeout 30 socat -u "$1" STDOUT
}

send_group() { # ADDRESS of socat, KEY: repeats the datagram until the receiver has put got-KEY
    local signs=()
    until ((${#signs[@]})); do
        echo "hello, group" | socat -u STDIN "$1"
        read -r -t 0.2 -u "$lab_tick" || true
        signs=(/run/lab/values/got-"$2"*)
        [[ -e ${signs[0]} ]] || signs=()
    done
}
