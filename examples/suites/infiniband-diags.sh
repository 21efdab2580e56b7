#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# infiniband-diags.sh: what infiniband-diags asks of ports and of the SA, in one of two machines; with
# --sm OpenSM is the SA, without it each port is its own.
#
# Debian: infiniband-diags
# Kernels: 6.1 6.12 7.3
# Run: ipoibu lab --guests 2 --fabric ib --share examples/suites --run 'all=./infiniband-diags.sh'
# Run: ipoibu lab --guests 2 --fabric ib --sm 1 --share examples/suites
#   --run 'all=./infiniband-diags.sh'
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
here=/sys/class/infiniband/rxe0/ports/1
hex() { tr -d : <"$here/gids/0" | sed 's/^.\{16\}/0x/'; }
put "lid.$LAB_NAME" "$(<"$here/lid")"
put "guid.$LAB_NAME" "$(hex)"
meet known
other=$([[ $LAB_NAME == a ]] && echo b || echo a)
lid=$(<"$here/lid") peer=$(get "lid.$other") guid=$(get "guid.$other")
holds() { # WORDS COMMAND...: does its output have these words?
    local words=$1
    shift
    "$@" | tee /dev/stderr | grep -q -- "$words"
}
export -f holds
says() { # NAME WORDS COMMAND...
    local name=$1
    shift
    attempt "$name" bash -c 'set -o pipefail; holds "$@"' bash "$@"
}
if [[ $LAB_NAME == b ]]; then
    ibping -S >/dev/null 2>&1 &
fi
meet serving
if [[ $LAB_NAME == a ]]; then
    attempt ibstat ibstat rxe0
    attempt ibstatus ibstatus
    attempt ibaddr ibaddr -L
    attempt "smpquery nodeinfo" smpquery nodeinfo "$lid"
    attempt "smpquery nodedesc" smpquery nodedesc "$lid"
    attempt "smpquery portinfo" smpquery portinfo "$lid" 1
    attempt "smpquery pkeys" smpquery pkeys "$lid" 1
    attempt "smpquery guidinfo" smpquery guidinfo "$lid"
    attempt "smpquery nodeinfo of the peer" smpquery nodeinfo "$peer"
    attempt "smpquery -D" smpquery -D nodeinfo 0
    attempt "perfquery" perfquery
    attempt "perfquery -x" perfquery -x
    attempt "perfquery of the peer" perfquery "$peer" 1
    attempt "perfquery -R" perfquery -R "$lid" 1
    attempt "ibping by LID" ibping -c 3 "$peer"
    attempt "ibping by GUID" ibping -c 3 -G "$guid"
    attempt sminfo sminfo
    attempt ibnetdiscover ibnetdiscover
    attempt iblinkinfo iblinkinfo
    attempt ibtracert ibtracert "$lid" "$peer"
    attempt ibhosts ibhosts
    says "saquery ClassPortInfo" "Capability mask" saquery CPI
    says "saquery NodeRecord" NodeRecord saquery NodeRecord
    says "saquery PortInfoRecord" PortInfoRecord saquery PortInfoRecord
    says "saquery PathRecord" PathRecord saquery --src-to-dst "$lid:$peer"
    says "saquery all PathRecords" PathRecord saquery PathRecord
    says "saquery MCMemberRecord" MCMember saquery -m
    says "saquery groups" "ff12:401b" saquery -g
    says "saquery PKeyTableRecord" PKey saquery --smkey 1 PKTR
    says "saquery GUIDInfoRecord" "GUIDInfo" saquery GUIDInfoRecord
    says "saquery SMInfoRecord" "SMInfo" saquery SMIR
    attempt "saquery InformInfoRecord" saquery IIR
    attempt "saquery ServiceRecord" saquery SR
fi
meet end
if [[ $LAB_NAME == b ]]; then kill "$!"; fi
