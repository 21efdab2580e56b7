# SPDX-License-Identifier: BSD-2-Clause
#
# judge_cases.sh: partitions, idle connections and children beside the kernel's ib_ipoib; after
# judge_host.sh.

# Both hosts are limited members of one partition, and full members of the default partition, which the
# control plane uses: neither host reaches the other in the limited partition.
apart() { # HOST
    local other=$((3 - LAB_INDEX))
    side_up "$1" partition
    meet up 60
    if pings 5 -W 1 "10.9.0.$other" || pings 5 -W 1 "fd00:9::$other"; then
        echo "a limited member was heard by another" >&2
        return 1
    fi
    meet done 60
    side_down "$1"
}

shows_connections() { # active|passive COUNT...: checks one output of `ipoibu conn` for all
    local shown marks
    shown=$(ipoibu conn ib0 -j)
    while (($#)); do
        marks=${shown//\"role\": \"$1\"/@}
        marks=${marks//[^@]/}
        ((${#marks} == $2)) || return 1
        shift 2
    done
}

# A ping keeps the connections busy: `ipoibu conn` may take longer than the kernel's idle time.
until_connected() { # OTHER
    local pinger
    ping -q -i 0.2 "$1" >/dev/null & pinger=$!
    until_true 20 "a connection of either side" shows_connections active 1 passive 1
    kill $pinger
    wait $pinger || true
}

# Each host has a connection to the other. SIDE has the shorter idle time and ends its connection, the
# other one stays; the next packet makes a new one. ipoibu's idle time is 5 s (10 s for a passive
# connection), the kernel's is that of its neighbour table.
idle() { # HOST SIDE
    local other=$((3 - LAB_INDEX)) options=() gone=active stays=passive
    if [[ $2 == ipoibu ]]; then options=(--connection-idle 5); else gone=passive stays=active; fi
    side_up "$1" connected "${options[@]}"
    meet up 60
    if [[ $1 != kernel ]]; then
        until_connected "10.9.0.$other"
        until_true 60 "the end of an idle connection" shows_connections "$gone" 0 "$stays" 1
        until_connected "10.9.0.$other"
        five_pings "10.9.0.$other" -s 60000 -M do
    fi
    meet done 90
    side_down "$1"
}

# A parent and a child in another partition, made at run time, each with its own network.
children() { # HOST
    local other=$((3 - LAB_INDEX))
    if [[ $1 == kernel ]]; then
        kernel_start datagram
        echo 0x8001 >/sys/class/net/ib0/create_child
        ip link set ib0.8001 up
        ip addr add "10.10.0.$LAB_INDEX/24" dev ib0.8001
        until_true 10 "the kernel's child" has_carrier ib0.8001
    else
        side_up "$1" datagram
        ipoibu child add ib0 0x8001 --address "10.10.0.$LAB_INDEX/24" --mtu "$IB_MTU"
        if ipoibu child add ib0 0x8005 2>/tmp/refused; then return 1; fi
        [[ $(</tmp/refused) == *"no P_Key 0x8005; it has: 0xffff, 0x8001"* ]]
        [[ $(ipoibu child list ib0) == *ib0.8001* ]]
    fi
    meet up 60
    five_pings "10.9.0.$other"
    five_pings "10.10.0.$other" -s $((IB_MTU - 28)) -M do
    meet pinged 60
    if [[ $1 != kernel ]]; then
        ipoibu child del ib0 0x8001
        five_pings "10.9.0.$other" # its parent still works
    fi
    meet done 60
    side_down "$1"
}

# The kernel's host serves addresses by dnsmasq on its interface, and ipoibu gets one by DHCP.
dhcp() { # HOST
    local other=$((3 - LAB_INDEX))
    if [[ $1 == kernel ]]; then
        side_up kernel datagram
        dnsmasq --no-daemon --conf-file=/dev/null --port=0 --interface=ib0 --user=root --log-dhcp \
            --dhcp-range=10.9.0.100,10.9.0.199,255.255.255.0,120 --dhcp-leasefile=/tmp/leases \
            --dhcp-authoritative --no-ping --log-facility=- >/tmp/dnsmasq.log 2>&1 &
        until_true 20 "the server" grep -q "IP range" /tmp/dnsmasq.log
        meet served 60
        meet leased 90
        kill $!
        grep -q "DHCPACK(ib0)" /tmp/dnsmasq.log || { cat /tmp/dnsmasq.log >&2; return 1; }
    else
        meet served 60
        if [[ -e /sys/class/net/ib0/device/infiniband ]]; then ip link set ib0 name kernel0; fi
        : >/tmp/ib0.log
        ipoibu up ib0 --device "$1" --mtu "$IB_MTU" --address dhcp --lease-dir /tmp/kept \
            >>/tmp/ib0.log 2>&1 &
        ib_pid=$!
        until_true 40 "ib0" reports_up || { cat /tmp/ib0.log >&2; return 1; }
        [[ $(ip -4 -o address show dev ib0) == *" 10.9.0.1"[0-9][0-9]/24* ]]
        five_pings "10.9.0.$other"
        meet leased 60
    fi
    meet done 60
    side_down "$1"
}
