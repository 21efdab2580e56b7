# SPDX-License-Identifier: BSD-2-Clause
#
# unprivileged_host.sh: an ordinary user's interface on rxe0 as an InfiniBand port, beside the kernel's own;
# after verbs_host.sh and judge_host.sh. /dev/infiniband has the permissions that distributions give: umad is
# root's, uverbs and rdma_cm are everybody's.

as_user() { # COMMAND...: as a user without any capability
    exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
        env HOME=/tmp/user TMPDIR=/tmp/user XDG_RUNTIME_DIR=/tmp/user "$@"
}

# The kernel's interface is kernel0, with 10.9.0.INDEX and 10.8.0.10+INDEX; the user owns the TUN ib0, with
# 10.8.0.INDEX.
unprivileged_ready() { # MODE MEMLOCK_KIB
    call verbs_machine:on_the_wire
    kernel_start "$1"
    ip link set ib0 down
    ip link set ib0 name kernel0
    ip link set kernel0 up
    until_true 10 "kernel0" has_carrier kernel0
    ip addr add "10.8.0.$((10 + LAB_INDEX))/32" dev kernel0
    # The kernel answers for the addresses of all its interfaces, also for those of ib0, unless told so.
    echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
    install -d -m 700 -o 65534 -g 65534 /tmp/user
    chmod 600 /dev/infiniband/umad0
    chmod 666 /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm /dev/net/tun
    ip tuntap add ib0 mode tun user 65534
    ip link set ib0 up mtu 65520
    ip addr add "10.8.0.$LAB_INDEX/24" dev ib0
    ip addr add "fd00:8::$LAB_INDEX/64" dev ib0 nodad
    ulimit -l "$2"
}

users_interface() { # [OPTION...]: sets ib_pid
    : >/tmp/ib0.log
    (as_user ipoibu up ib0 --device rxe0 --tun attach --log-level info "$@") >>/tmp/ib0.log 2>&1 &
    ib_pid=$!
    until_true 60 "the user's ib0" reports_up || { cat /tmp/ib0.log >&2; return 1; }
}

unprivileged() { # MODE
    local other=$((3 - LAB_INDEX))
    unprivileged_ready "$1" 8192
    users_interface --mode "${1/mixed/connected}"
    meet up 90
    five_pings "10.8.0.$other" -s 1000
    five_pings "fd00:8::$other"
    five_pings "10.8.0.$((10 + other))" # the kernel's
    until_true 20 "all four nodes" all_four_nodes_answer
    local hearer
    for hearer in 1 2; do
        if ((hearer == LAB_INDEX)); then hear_group; else speak_to_group "$hearer"; fi
    done
    if [[ $1 != datagram ]]; then # by the connection to the kernel's interface, which takes 65520 bytes
        five_pings "10.8.0.$((10 + other))" -s 20000 -M do
        [[ $(as_user ipoibu conn ib0 -j) == *'"role": "active"'* ]]
    fi
    cp /tmp/ib0.log "/run/lab/log-$LAB_NAME"
    meet done 90
    kill -TERM "$ib_pid"
    wait "$ib_pid"
}

all_four_nodes_answer() { # two interfaces on each host
    local output
    output=$(ping -c 3 -i 0.3 -W 2 ff02::1%ib0)
    echo "$output"
    (($(grep -o 'from fe80[^ ]*' <<<"$output" | sort -u | wc -l) == 4))
}

hear_group() {
    receive_group UDP4-RECVFROM:5000,ip-add-membership=239.1.2.3:ib0 >/tmp/heard &
    local receiver=$!
    read -r -t 1.5 -u "$lab_tick" || true # the join reaches the fabric
    meet "hearing-$LAB_INDEX" 40
    wait "$receiver" || true
    put "got-$LAB_INDEX" yes
    grep -q hello /tmp/heard
}

speak_to_group() { # HEARER
    meet "hearing-$1" 40
    send_group "UDP4-DATAGRAM:239.1.2.3:5000,ip-multicast-if=10.8.0.$LAB_INDEX" "$1"
}

memory() { # KIB: the user may lock so little memory
    unprivileged_ready datagram "$1"
    meet up 60
    (as_user ipoibu up ib0 --device rxe0 --tun attach) && return 1
    return 0
}
