#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# nvme.sh: a offers a RAM disk by NVMe over RDMA at ib0's address; b connects, writes 2 MB, and a finds
# the same bytes.
#
# Run: ipoibu lab --guests 2 --flavour full --share examples/lab --run 'all=./nvme.sh'
# Expect: a: the disk has b's bytes
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
name=nqn.2026-01.lab:ram
say() { printf '%s\n' "$2" >"$1"; }
if [[ $LAB_NAME == a ]]; then
    mount -t configfs configfs /sys/kernel/config
    cd /sys/kernel/config/nvmet
    mkdir -p subsystems/$name/namespaces/1 ports/1
    say subsystems/$name/attr_allow_any_host 1
    say subsystems/$name/namespaces/1/device_path /dev/ram0
    say subsystems/$name/namespaces/1/enable 1
    for pair in trtype=rdma adrfam=ipv4 traddr=10.9.0.1 trsvcid=4420; do
        say "ports/1/addr_${pair%%=*}" "${pair#*=}"
    done
    ln -s "$PWD/subsystems/$name" ports/1/subsystems/
fi
meet ready
if [[ $LAB_NAME == b ]]; then
    printf '%s' "transport=rdma,traddr=10.9.0.1,trsvcid=4420,nqn=$name" >/dev/nvme-fabrics
    until_true 20 /dev/nvme0n1 test -b /dev/nvme0n1
    head -c 2097152 /dev/urandom >/run/lab/bytes
    dd if=/run/lab/bytes of=/dev/nvme0n1 bs=64k oflag=direct status=none
    say /sys/class/nvme/nvme0/delete_controller 1
fi
meet written
if [[ $LAB_NAME == a ]]; then
    cmp -n 2097152 /run/lab/bytes /dev/ram0
    rm ports/1/subsystems/$name
    echo "the disk has b's bytes"
fi
