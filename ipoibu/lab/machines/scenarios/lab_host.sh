# SPDX-License-Identifier: BSD-2-Clause
#
# lab_host.sh: a machine as a host of `ipoibu lab --guests`; after verbs_host.sh and judge_host.sh. The
# first machine shows the link or runs a command, the second one answers.

show() { # COMMAND...: prints the command, then runs it
    printf '$ %s\n' "$*"
    "$@"
    echo
}

tour() {
    local other=$((3 - LAB_INDEX))
    show ipoibu show ib0
    show ping -c 3 -i 0.2 -W 5 "10.9.0.$other"
    show ping -c 3 -i 0.2 -W 5 "fd00:9::$other"
    show ipoibu neigh ib0
    if [[ $1 == connected ]]; then
        until_true 10 "a connection" has_live_peer || true
        show ipoibu conn ib0
    fi
}

lab() { # HOST MODE [COMMAND...]
    local status=0
    side_up "$1" "$2"
    meet up 60
    if ((LAB_INDEX == 2)); then
        meet toured "$LAB_PATIENCE_S"
        show ip -d address show dev ib0
        if [[ $1 == kernel ]]; then show ip neigh show dev ib0; else show ipoibu neigh ib0; fi
    else
        if (($# > 2)); then "${@:3}" || status=$?; else tour "$2"; fi
        meet toured
    fi
    meet done 60
    side_down "$1"
    return "$status"
}
