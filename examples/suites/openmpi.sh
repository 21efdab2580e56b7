#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# openmpi.sh: a program of Open MPI, with a rank in each of two machines, by TCP over the addresses of ib0
# and by UCX over verbs: a ring, a reduction and an exchange of 1 MB. mpirun's daemons start by a shell of
# the lab instead of ssh.
#
# Debian: openmpi-bin, libopenmpi-dev
# Kernels: 6.12
# Run: ipoibu lab --guests 2 --fabric ib --share examples/suites --run 'all=./openmpi.sh ib0 rxe0'
# Run: ipoibu lab --guests 2 --ipoib ipoibu --fabric ib --share examples/suites
#   --run 'all=./openmpi.sh ib0'
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
export LIMIT_S=40
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [[ $LAB_NAME == a ]]; then mpicc -o /run/lab/ring openmpi.c; fi
hostname "$LAB_NAME"
meet built
# The agent of mpirun: it leaves the command of a daemon for the other machine.
printf '%s\n' '#!/bin/bash' 'shift' 'printf "%s\n" "$*" >/run/lab/next && mv /run/lab/next /run/lab/daemon' \
    'until [[ -e /run/lab/over ]]; do sleep 0.2; done' >/tmp/agent
chmod +x /tmp/agent
ring() { # NAME OPTION...
    local name=$1
    shift
    if [[ $LAB_NAME == a ]]; then
        rm -f /run/lab/over
        attempt "$name" mpirun --mca plm_rsh_agent /tmp/agent --mca plm_rsh_no_tree_spawn 1 \
            --mca oob_tcp_if_include "$interface" --host 10.9.0.1,10.9.0.2 -np 2 "$@" /run/lab/ring
        meet "$name"
    else
        until_true 30 "the command of mpirun" test -e /run/lab/daemon
        timeout "$LIMIT_S" bash -c "$(</run/lab/daemon)" >/tmp/daemon 2>&1 || true
        rm /run/lab/daemon
        : >/run/lab/over
        meet "$name"
    fi
}
interface=$1
ring "tcp" --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include "$interface"
if (($# > 1)); then
    ring "ucx" --mca pml ucx -x "UCX_NET_DEVICES=$2:1" -x UCX_TLS=rc_verbs,ud_verbs,self
fi
