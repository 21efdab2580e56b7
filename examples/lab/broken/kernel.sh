#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# kernel.sh CLAUSE: a asks by `ipoibu conform` whether b, Linux with its own ib_ipoib, does what a clause
# demands. Each of these has a page in docs/findings, and Linux 6.1, 6.12 and 7.3 fail it.
#
# Run: ipoibu lab --guests 2 --ipoib ipoibu,kernel --share examples/lab
#   --run 'all=./broken/kernel.sh ARP-33'
# Run: ipoibu lab --guests 2 --ipoib ipoibu,kernel --share examples/lab
#   --run 'all=./broken/kernel.sh ICMP6-11'
# Run: ipoibu lab --guests 2 --ipoib ipoibu,kernel --mode connected --share examples/lab
#   --run 'all=./broken/kernel.sh CM-3'
# Run: ipoibu lab --guests 2 --ipoib ipoibu,kernel --mode connected --share examples/lab
#   --run 'all=./broken/kernel.sh IBCM-10'
# Expect: a: the kernel fails the clause
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
if [[ $LAB_NAME == a ]]; then
    ipoibu=(python3 -m ipoibu.cli)
    "${ipoibu[@]}" down ib0
    "${ipoibu[@]}" conform --device rxe0 --peer 10.9.0.2 --peer fd00:9::2 --destructive \
        --only "$1" >/tmp/report || true # its exit status is 1 after a failure
    cat /tmp/report
    grep -Eq "^(fail|warn) +$1 " /tmp/report
    echo "the kernel fails the clause"
fi
meet end 120
