# SPDX-License-Identifier: BSD-2-Clause
#
# connected_host.sh: connected mode between machines; after verbs_host.sh.

# Succeeds if the peer answers and ib0 has live connections of both roles. A connection begins with a
# packet, and begins anew with one after rxe ends it (the peer got no processor for half a second).
live() { # ADDRESS
    local rows
    ping -q -c 1 -W 1 "$1" >/dev/null || return 1
    rows=$(ipoibu conn ib0)
    [[ $rows == *" active LIVE "* && $rows == *" passive LIVE "* ]]
}

both_live() { # ADDRESS
    until_true 60 "connections of ours and of theirs" live "$1"
}

show_all() {
    python -m ipoibu.lab.machines.inside.call tests.lab.scenarios.status:write show neigh conn stats
}

large_ping() { # ADDRESS
    pings 5 -s 60000 -M do "$1"
}

serve_iperf() { # NAME ADDRESS
    iperf3 -s -1 -B "$2" >/dev/null &
    listening 5201
    meet "$1" 40
    wait $!
}

use_iperf() { # NAME ADDRESS [OPTION...]
    meet "$1" 40
    iperf3 -c "$2" -J "${@:3}" >"/run/lab/$1.json"
}

# Pings, TCP and UDP by connections between two machines. The first one receives.
connect() { # DEVICE
    local other=$((3 - LAB_INDEX))
    ib_up "$1" --mode connected
    meet up 40
    both_live "10.9.0.$other"
    meet connected 40
    large_ping "10.9.0.$other"
    large_ping "fd00:9::$other"
    pings 5 "10.9.0.$other"
    if ((LAB_INDEX == 1)); then
        serve_iperf forward 10.9.0.1
        serve_iperf backward fd00:9::1
        serve_iperf udp 10.9.0.1
    else
        use_iperf forward 10.9.0.1 -n 20M
        use_iperf backward fd00:9::1 -n 20M -R
        use_iperf udp 10.9.0.1 -t 2 -u -b 10M -l 8000
    fi
    show_all
    meet done 40
    ib_down
}

# The first two of three hosts have connected mode, the third one has datagram mode.
mix() { # DEVICE
    if ((LAB_INDEX == 3)); then
        ib_up "$1"
        meet up 60
        serve_iperf small 10.9.0.3
    else
        ib_up "$1" --mode connected
        meet up 60
        both_live "10.9.0.$((3 - LAB_INDEX))"
        pings 3 10.9.0.3
        # The host's own stack refuses it at once.
        if pings 5 -W 1 -s 60000 -M do 10.9.0.3 >"/run/lab/refused-$LAB_NAME" 2>&1; then return 1; fi
        ip route get 10.9.0.3 >"/run/lab/route-$LAB_NAME"
        pings 3 -s 60000 10.9.0.3 # in fragments
        large_ping "10.9.0.$((3 - LAB_INDEX))"
        if ((LAB_INDEX == 1)); then use_iperf small 10.9.0.3 -n 4M; else meet small 40; fi
        both_live "10.9.0.$((3 - LAB_INDEX))"
    fi
    meet live 100 # nobody sends from here on
    show_all
    meet done 60
    ib_down
}

# The second host's daemon stops under load, continues, and at last is killed and starts again.
stumble() { # DEVICE
    local other=$((3 - LAB_INDEX)) stream
    ib_up "$1" --mode connected
    meet up 40
    both_live "10.9.0.$other"
    if ((LAB_INDEX == 1)); then
        meet served 40
        # TCP repeats 0.2, 0.6, 1.4, 3, 6.2 and 12.6 s after the stop, of which the first four may be in vain
        # and the fifth may find the connection in the making. If the peer still acknowledges what it got
        # before the stop, TCP takes 2 s for the round trip and waits longer: so it repeats each second.
        sysctl -qw net.ipv4.tcp_rto_max_ms=1000 2>/dev/null || true # since Linux 6.15
        iperf3 -c 10.9.0.2 -t 16 -J >/run/lab/stumbled.json &
        stream=$!
        wait "$stream" # the TCP stream survives
        show_all
        mv "/run/lab/stats-$LAB_NAME.json" /run/lab/stats-stopped.json
        meet streamed 60
        ping -q -i 0.01 -s 30000 10.9.0.2 >/dev/null & # load during the kill
        stream=$!
        meet restarted 60
        both_live 10.9.0.2
        kill -INT "$stream"; wait "$stream" || true
        ip route flush cache # the datagrams' MTU
        large_ping 10.9.0.2
    else
        iperf3 -s -1 -B 10.9.0.2 >/dev/null &
        stream=$!
        listening 5201
        meet served 40
        read -r -t 2 -u "$lab_tick" || true
        kill -STOP "$ib_pid"
        read -r -t 3 -u "$lab_tick" || true
        kill -CONT "$ib_pid"
        wait "$stream"
        meet streamed 60
        read -r -t 1 -u "$lab_tick" || true
        ib_kill
        ib_up "$1" --mode connected
        meet restarted 60
        both_live 10.9.0.1
    fi
    show_all
    meet done 60
    ib_down
}

# The second machine asks for more connections than the first one accepts, then joins as a normal host.
beset() { # DEVICE
    if ((LAB_INDEX == 1)); then
        ib_up "$1" --mode connected
        local shown
        shown=$(ipoibu show ib0 -j)
        shown=${shown#*\"hwaddr\": \"}
        put victim "${shown%%\"*}"
        meet flooded 100
        show_all
        meet up 60
        both_live 10.9.0.2
        large_ping 10.9.0.2
    else
        python -m tests.doubles.cm_flood vec0 "$(get victim 40)" rdmacm 150 >/run/lab/flood
        meet flooded 100
        ib_up "$1" --mode connected
        meet up 60
        both_live 10.9.0.1
    fi
    meet done 60
    ib_down
}

# The second host's daemon dies within messages, in five lives: it is killed while the wire loses so
# many packets that nearly every message waits for some. Its successor sends on.
interrupt() { # DEVICE
    local life stream
    if ((LAB_INDEX == 1)); then ib_up "$1" --mode connected; fi
    meet up 60
    for life in {1..20}; do # five, and more until one has ended within a message
        if ((LAB_INDEX == 2)); then
            ib_up "$1" --mode connected
            both_live 10.9.0.1
            ping -q -f -l 8 -s 60000 10.9.0.1 >/dev/null 2>&1 &
            stream=$!
            read -r -t 1 -u "$lab_tick" || true
            tc qdisc add dev vec0 root netem loss 40%
            read -r -t 0.3 -u "$lab_tick" || true
            ib_kill
            tc qdisc del dev vec0 root
            kill -INT "$stream"; wait "$stream" || true
        fi
        meet "dead-$life" 100
        if ((life < 5)); then continue; fi
        if ((LAB_INDEX == 1)) && ipoibu stats ib0 --json | grep -q '"rx_failed": [1-9]'; then
            touch /run/lab/interrupted
        fi
        meet "counted-$life" 100
        if [[ -e /run/lab/interrupted ]]; then break; fi
    done
    if ((LAB_INDEX == 2)); then
        ib_up "$1" --mode connected
        both_live 10.9.0.1
        ping -q -f -l 8 -c 2000 -s 60000 10.9.0.1
    fi
    meet sent 100
    show_all
    meet done 60
    ib_down
}
