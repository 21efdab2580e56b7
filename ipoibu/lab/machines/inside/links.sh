# SPDX-License-Identifier: BSD-2-Clause
#
# links.sh: network and RDMA devices of a machine.
#
# Each function returns when its device is usable, or fails with one line on stderr. They poll without
# starting programs, which takes long in a machine.
#
# The MACs are locally administered (02:...): rxe makes its GUID from the modified EUI-64 of such an
# address, and every link-local address here is predictable.

exec {lab_tick}<> <(:) # it never has data: a read with a time limit is a sleep

until_true() { # SECONDS WHAT COMMAND...: poll COMMAND every 20 ms
    local deadline=$((SECONDS + $1)) what=$2 unused
    shift 2
    until "$@"; do
        ((SECONDS <= deadline)) || { echo "lab: gave up waiting for $what" >&2; return 1; }
        read -r -t 0.02 -u "$lab_tick" unused || true
    done
}

link_local() { # INDEX: print the link-local address of machine INDEX's vec0; the first machine is 1
    printf 'fe80::ff:fe00:%x\n' "$1"
}

has_link_local() { # NETDEV
    local address flags netdev
    while read -r address _ _ _ flags netdev; do
        [[ $netdev == "$1" && $address == fe80* ]] && ((!(16#$flags & 16#40))) && return # not tentative
    done </proc/net/if_inet6
    return 1
}

link_up() { # NETDEV [MTU [CIDR...]]: up, with an EUI-64 link-local address
    local netdev=$1 mtu=${2:-9000} cidr batch scope
    for scope in all "$netdev"; do # what init sets does not count in other network namespaces
        echo 0 >"/proc/sys/net/ipv6/conf/$scope/accept_dad"
    done
    batch="link set $netdev mtu $mtu addrgenmode eui64 up"$'\n'
    for cidr in "${@:3}"; do
        batch+="addr add $cidr dev $netdev"$'\n'
    done
    ip -batch - <<<"$batch" || return 1
    until_true 5 "the link-local address of $netdev" has_link_local "$netdev"
}

veth_pair() { # NETDEV PEER [MTU]: both ends up in this namespace
    ip link add "$1" address 02:00:00:00:01:01 up type veth \
        peer name "$2" address 02:00:00:00:01:02 || return 1
    link_up "$2" "${3:-9000}" # it has no carrier, hence no address, unless the other end is up
    link_up "$1" "${3:-9000}"
}

rdma_ready() { # DEVICE
    local port=/sys/class/infiniband/$1/ports/1 state gid
    read -r state <"$port/state" && read -r gid <"$port/gids/0" &&
        [[ $state == *ACTIVE && $gid != 0000:0000:0000:0000:* ]]
}

rdma_up() { # DEVICE rxe|siw NETDEV: the netdev must be up, so that GID 0 is its link-local address
    rdma link add "$1" type "$2" netdev "$3" || return 1
    until_true 5 "port 1 of $1" rdma_ready "$1"
}

has_listener() { # PORT
    local hex table line
    printf -v hex '%04X' "$1"
    for table in /proc/net/tcp /proc/net/tcp6; do
        while read -r line; do
            [[ $line == *[0-9A-F]":$hex "*":0000 0A "* ]] && return
        done <"$table"
    done
    return 1
}

listening() { # PORT [SECONDS]: returns when some process listens on this TCP port
    until_true "${2:-40}" "a listener on TCP port $1" has_listener "$1"
}

reach() { # ADDRESS [PING-OPTION...]: one echo, answered within five seconds
    # ping -c 2 and more wait two round trips for the last answer and count a later one as lost.
    ping -q -c 1 -W 5 "${@:2}" "$1" >/dev/null || { echo "lab: $1 did not answer" >&2; return 1; }
}
