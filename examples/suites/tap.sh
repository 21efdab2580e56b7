# SPDX-License-Identifier: BSD-2-Clause
#
# tap.sh: a suite's results as lines of the Test Anything Protocol: "ok NAME", "not ok NAME # why".
# shellcheck shell=bash source=/dev/null
. "$LAB_INSIDE/meeting.sh"
echo "# Linux $(uname -r)"
: "${LIMIT_S:=30}" # for each program

attempt() { # NAME COMMAND...: a line says whether COMMAND succeeds
    local name=$1 output status=0
    shift
    output=$(timeout "$LIMIT_S" "$@" 2>&1 </dev/null) || status=$?
    verdict "$name" "$status" "$output"
}

selftest() { # NAME COMMAND...: a test of the kernel's own, whose status 4 says that it tried nothing
    local name=$1 output status=0
    shift
    output=$(timeout "$LIMIT_S" "$@" 2>&1 </dev/null) || status=$?
    if ((status == 4)); then
        echo "ok $name # SKIP $(sed '/^ *$/d' <<<"$output" | tail -n 1)"
    else
        verdict "$name" "$status" "$(grep -E 'FAIL|not ok|rror|not found' <<<"$output" || echo "$output")"
    fi
}

verdict() { # NAME STATUS OUTPUT: an output that ends with $SKIP_IF says that nothing was tried
    local why
    if (($2 == 0)); then
        echo "ok $1"
        return
    fi
    why=$(sed '/^ *$/d; /^-*$/d' <<<"$3" | tail -n 1)
    if [[ -n ${SKIP_IF:-} && $why =~ $SKIP_IF ]]; then
        echo "ok $1 # SKIP $why"
    elif (($2 == 124)); then
        echo "not ok $1 # no end in $LIMIT_S s"
    else
        echo "not ok $1 # status $2: $why"
    fi
}

listeners() { { ss -Hlntu; rdma resource show cm_id; } 2>/dev/null | grep -cE 'LISTEN|UNCONN'; }

hears() { # PID COUNT: has a server begun to listen, or ended?
    (($(listeners) > $2)) || ! kill -0 "$1" 2>/dev/null
}

pair() { # NAME SERVER... -- CLIENT...: the server runs in a, the client in b, which gives the verdict
    local name=$1 server=() before status=0 pid
    shift
    while [[ $1 != -- ]]; do server+=("$1"); shift; done
    shift
    before=$(listeners || true)
    if [[ $LAB_NAME == a ]]; then
        timeout "$LIMIT_S" "${server[@]}" >/tmp/server 2>&1 </dev/null &
        pid=$!
        until_true 5 "$name: a server that listens" hears "$pid" "$before" || true
    fi
    meet "$name" || exit
    if [[ $LAB_NAME == b ]]; then attempt "$name" "$@"; fi
    meet "$name ended" || exit
    if [[ $LAB_NAME == a ]]; then
        until_true 2 "$name: the server's end" ended "$pid" 2>/dev/null || kill "$pid" || true
        wait "$pid" || status=$?
        # 124 and 143: it does not end by itself
        if ((status && status != 124 && status != 143)); then verdict "$name" "$status" "$(</tmp/server)"; fi
    fi
}

ended() { ! kill -0 "$1" 2>/dev/null; }
