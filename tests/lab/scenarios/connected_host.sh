# SPDX-License-Identifier: BSD-2-Clause
#
# connected_host.sh: connected mode between guests; after verbs_host.sh.

live() { # ROLE [COUNT]: whether ib0 has so many connections of that role, in use
    local shown
    shown=$(ipoibu conn ib0 -j | tr -d ' \n')
    shown=${shown//\},\{/$'\n'}
    (($(grep -c "\"role\":\"$1\".*\"state\":\"live\"" <<<"$shown") >= ${2:-1}))
}

show_all() {
    local what
    for what in show neigh conn stats; do
        ipoibu "$what" ib0 -j >"/run/lab/$what-$LAB_NAME.json"
    done
}

# Everything that goes by connections, between two guests. The first one receives.
connect() { # DEVICE
    local other=$((3 - LAB_INDEX))
    ib_up "$1" --mode connected
    meet up 40
    ping -q -c 3 -i 0.1 -W 5 "10.9.0.$other" # by datagram, and makes the connection
    until_true 20 "a connection of ours" live active
    until_true 20 "a connection of theirs" live passive
    meet connected 40
    ping -q -c 5 -i 0.1 -W 5 -s 60000 -M do "10.9.0.$other"
    ping -q -c 5 -i 0.1 -W 5 -s 60000 -M do "fd00:9::$other"
    ping -q -c 5 -i 0.1 -W 5 "10.9.0.$other"
    if ((LAB_INDEX == 1)); then
        iperf3 -s -1 -B 10.9.0.1 >/dev/null & listening 5201; meet served; wait $!
        iperf3 -s -1 -B fd00:9::1 >/dev/null & listening 5201; meet served6; wait $!
        iperf3 -s -1 -B 10.9.0.1 >/dev/null & listening 5201; meet served_udp; wait $!
    else
        meet served
        iperf3 -c 10.9.0.1 -t 2 -J >/run/lab/forward.json
        meet served6
        iperf3 -c fd00:9::1 -t 2 -R -J >/run/lab/backward.json
        meet served_udp
        iperf3 -c 10.9.0.1 -t 2 -u -b 50M -l 8000 -J >/run/lab/udp.json
    fi
    show_all
    meet done 40
    ib_down
}
