# SPDX-License-Identifier: BSD-2-Clause
#
# bench_host.sh: a machine as one end of one contender's turn (ipoibu/bench/machines.py); after
# verbs_host.sh and judge_host.sh. Machine 1 receives, machine 2 sends. Contenders: ethernet; kernel, ipoibu
# and embedded (the data path in an application), each datagram or connected; perftest, UD or RC. The
# machines write to /run/lab: the output of iperf3 (NAME.json) and ping, /proc/stat before and after
# (stat-NAME-WHEN-MACHINE), and for embedded and perftest bytes and microseconds.

bench_up() { # CONTENDER MODE
    case $1 in
        ethernet) ip addr add "10.9.0.$LAB_INDEX/24" dev vec0 ;;
        kernel) kernel_start "$2" ;;
        ipoibu)
            ip link set ib0 name kernel0
            if [[ $2 == connected ]]; then ib_up rxe0 --mode connected; else ib_up rxe0 --mtu "$IB_MTU"; fi ;;
        embedded) ip link set ib0 name kernel0 ;;
        perftest) ip addr add "10.8.0.$LAB_INDEX/24" dev vec0 ;;
    esac
}

account() { # NAME: writes what the machine's one CPU has done so far
    head -n 1 /proc/stat >"/run/lab/stat-$1-$LAB_INDEX"
}

bench_stream() { # NAME SECONDS [OPTION...] of iperf3
    if ((LAB_INDEX == 1)); then
        iperf3 -s -1 -B 10.9.0.1 >/dev/null & listening 5201
        meet "$1-ready" 40
        account "$1-before"
        wait $!
        account "$1-after"
    else
        meet "$1-ready" 40
        account "$1-before"
        iperf3 -c 10.9.0.1 -t "$2" -J "${@:3}" >"/run/lab/$1.json"
        account "$1-after"
    fi
    meet "$1-done" 60
}

# perftest uses events, because a program that polls leaves rxe no time on one CPU. With events it takes a
# number of messages rather than a time. It counts cycles, which a machine cannot, so its own figures are
# 0 here: this times a run of many messages and a run of few. perftest waits two minutes for a lost
# datagram; this gives up sooner.
bench_perftest() { # MODE SECONDS
    local options=(-d rxe0 -e -F) count size began turn limit_s=$((20 + 10 * $2))
    case $1 in
        datagram) options+=(-c UD -m 4096 -r 16384) size=$IB_MTU count=$(($2 * 25000)) ;;
        connected) options+=(-c RC -m 4096) size=65536 count=$(($2 * 6000)) ;;
    esac
    for turn in 200 "$count"; do
        if ((LAB_INDEX == 1)); then
            timeout "$limit_s" ib_send_bw "${options[@]}" -s "$size" -n "$turn" >/dev/null & listening 18515
            meet "perftest-$turn" 40
            wait $!
        else
            meet "perftest-$turn" 40
            began=${EPOCHREALTIME/./}
            timeout "$limit_s" ib_send_bw "${options[@]}" -s "$size" -n "$turn" 10.8.0.1 >/dev/null
            echo "$((turn * size)) $((${EPOCHREALTIME/./} - began))" >>/run/lab/perftest
        fi
    done
}

bench_calls() { # SECONDS: the system calls of our daemon while a stream runs, in a run of its own
    local tracer
    strace -f -c -o "/run/lab/calls-$LAB_INDEX" -p "$ib_pid" 2>/dev/null &
    tracer=$!
    bench_stream traced "$1"
    kill -INT $tracer
    wait $tracer || true
}

bench() { # CONTENDER MODE SECONDS
    local mtu
    bench_up "$1" "$2"
    meet up 60
    if [[ $1 == perftest ]]; then
        bench_perftest "$2" "$3"
    elif [[ $1 == embedded ]]; then
        if [[ $2 == connected ]]; then mtu=65520; else mtu=$IB_MTU; fi
        call embedded:stream "$2" "$mtu" "$3"
    else
        ping -q -c 3 -i 0.2 -W 5 "10.9.0.$((3 - LAB_INDEX))" >/dev/null
        meet known 40
        bench_stream tcp "$3"
        if ((LAB_INDEX == 2)); then ping -c 200 -i 0.005 -W 5 10.9.0.1 >/run/lab/ping; fi
        meet pinged 60
        if [[ $1 == ipoibu ]]; then
            ipoibu stats ib0 -j >"/run/lab/stats-$LAB_INDEX.json"
            bench_calls 1
            ib_down
        fi
    fi
    meet done 60
}
