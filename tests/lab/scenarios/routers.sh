# SPDX-License-Identifier: BSD-2-Clause
#
# routers.sh: a machine as one of two hosts with FRR, whose addresses are on `lo` alone; after verbs_host.sh
# and judge_host.sh.

export FRR=/tmp/frr

frr_daemon() { # NAME
    "/usr/lib/frr/$1" -u root -g root -A 127.0.0.1 -P 0 -f /dev/null --log "file:$FRR/log" \
        -z $FRR/zserv.api --vty_socket $FRR -i "$FRR/$1.pid" >&2 &
}

is_client() { [[ $(vtysh --vty_socket $FRR -c "show zebra client summary") == *"$1"* ]]; }

frr_up() { # CONFIGURATION CLIENT DAEMON...: starts zebra and the daemons; zebra calls the last of them CLIENT
    local each
    mkdir -p $FRR
    mount -t tmpfs none /var/tmp
    sed -E 's/^(frrvty:.*:)[^:]*$/\1root/' /etc/group >$FRR/group # FRR wants its user in this group
    mount --bind $FRR/group /etc/group
    frr_daemon zebra
    until_true 20 "zebra" test -S $FRR/zserv.api
    for each in "${@:3}"; do frr_daemon "$each"; done
    until_true 20 "$2" is_client "$2"
    sed "s/65001/6500$LAB_INDEX/; s/10\.255\.9\.1/10.255.9.$LAB_INDEX/" <<<"$1" >$FRR/conf
    vtysh --vty_socket $FRR -f $FRR/conf >&2 || true # it complains of its own file in /etc
}

reaches() { # OTHER FORMAT: the other's address from ours, which have the machines' numbers in them
    # shellcheck disable=SC2059
    ping -q -c 1 -W 1 -I "$(printf "$2" "$LAB_INDEX")" "$(printf "$2" "$1")" >/dev/null 2>&1
}

routers() { # HOST CONFIGURATION CLIENT DAEMON..., with the configuration of the first machine
    local other=$((3 - LAB_INDEX))
    side_up "$1" datagram
    ip link set lo up
    ip address add "10.255.9.$LAB_INDEX/32" dev lo
    ip address add "fd55::$LAB_INDEX/128" dev lo
    ip address del "10.9.0.$LAB_INDEX/24" dev ib0
    if [[ $3 == ospf* ]]; then ip address add "10.255.9.$LAB_INDEX/32" dev ib0; fi
    frr_up "${@:2}"
    meet up 60
    until_true 60 "the other's IPv4 address" reaches $other 10.255.9.%d || { cat $FRR/log >&2; return 1; }
    until_true 60 "the other's IPv6 address" reaches $other fd55::%d || { cat $FRR/log >&2; return 1; }
    if [[ $3 == bgp ]]; then [[ $(ip route show "10.255.9.$other") == *"via inet6 fe80:"* ]]; fi
    meet reached 60
    if [[ $1 != kernel ]]; then ib_down; fi
    meet done 60
}
