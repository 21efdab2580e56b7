# SPDX-License-Identifier: BSD-2-Clause
#
# lab_machine.sh: sets a machine of a lab up (plan.py); after verbs_host.sh.

wire_up() { # FABRIC MTU: vec0, with the RDMA device of the fabric, or with none (soft)
    case $1 in
        ib) link_up vec0 "$2"; rdma_up rxe0 rxe vec0 ;;
        roce) link_up vec0 "$2" "10.8.0.$LAB_INDEX/24"; rdma_up rxe0 rxe vec0 ;;
        iwarp) link_up vec0 "$2" "10.8.0.$LAB_INDEX/24"; rdma_up siw0 siw vec0 ;;
        soft) link_up vec0 "$2" "10.8.0.$LAB_INDEX/24" ;;
    esac
}

# vec0 and rxe0, whose port OpenSM of one of the first MANAGERS machines brings up. `a` has the highest priority.
managed_wire_up() { # MTU MANAGERS
    local port=/sys/class/infiniband/rxe0/ports/1 guid
    link_up vec0 "$1" && rdma link add rxe0 type rxe netdev vec0 || return 1
    printf %s "$LAB_NAME rxe0" >/sys/class/infiniband/rxe0/node_desc
    meet links-up
    if ((LAB_INDEX <= $2)); then
        IFS=: read -r -d '' -a guid <"$port/gids/0" || true
        opensm_up "0x$(printf %s "${guid[@]:4}")" $((15 - LAB_INDEX))
    fi
    until_true 30 "OpenSM to bring up the port" rdma_ready rxe0
    meet ports-up
}

opensm_up() { # GUID PRIORITY: its log is $LAB_NAME/opensm.log of the run
    type -P opensm >/dev/null || { echo "lab: --sm needs OpenSM (Debian's package opensm)" >&2; return 1; }
    mkdir /tmp/opensm
    # A manager that dies has a successor within two seconds.
    printf '%s\n' "guid $1" "sm_priority $2" "sminfo_polling_timeout 500" "polling_retry_number 3" \
        "sweep_interval 2" "partition_config_file /run/lab/partitions.conf" "force_log_flush TRUE" \
        "log_file /run/lab/$LAB_NAME/opensm.log" "honor_guid2lid_file FALSE" >/tmp/opensm/opensm.conf
    OSM_TMP_DIR=/tmp/opensm OSM_CACHE_DIR=/tmp/opensm \
        opensm -F /tmp/opensm/opensm.conf </dev/null >/tmp/opensm/output 2>&1 &
    echo "$!" >/run/opensm.pid
}

kernel_up() { # MODE [P_KEY...]: ib0 of the kernel's ib_ipoib, and a child for each P_Key
    local pkey netdev batch=
    until_true 30 "ib0 of the kernel" test -e /sys/class/net/ib0
    for pkey in "${@:2}"; do echo "$pkey" >/sys/class/net/ib0/create_child; done
    for netdev in ib0 "${@:2}"; do
        netdev=${netdev/#0x/ib0.}
        if [[ $1 == connected ]]; then
            echo connected >"/sys/class/net/$netdev/mode"
            batch+="link set $netdev mtu 65520"$'\n'
        fi
        batch+="link set $netdev up"$'\n'
    done
    ip -batch - <<<"${batch}addr add 10.9.0.$LAB_INDEX/24 dev ib0
addr add fd00:9::$LAB_INDEX/64 dev ib0 nodad"
    kernel_ready
}

ipoibu_up() { # FABRIC [OPTION...] of ipoibu
    case $1 in
        ib)
            until_true 30 "ib0 of the kernel" test -e /sys/class/net/ib0
            ip link set ib0 name kernel0 # the kernel has made its interface on this port, too
            ib_up rxe0 "${@:2}" ;;
        roce) ib_up rxe0 "${@:2}" ;;
        soft) ib_up soft:vec0 "${@:2}" ;;
        iwarp) # the first machine is the seed of the mesh
            if ((LAB_INDEX == 1)); then ib_up siw0 "${@:2}"; else ib_up siw0 --peer 10.8.0.1 "${@:2}"; fi ;;
    esac
}

interface_again() { # KIND: ib0 goes away and comes back; ipoibu, which dies, gets another queue pair
    local options
    if [[ $1 == kernel ]]; then
        kernel_again
        return
    fi
    mapfile -d '' -t options </tmp/ib0.options
    kill -KILL "$(</tmp/ib0.pid)"
    until_true 30 "the end of ib0" test ! -e /sys/class/net/ib0
    ib_up "${options[@]}"
}
