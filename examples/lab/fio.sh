#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# fio.sh: fio's engine "rdma" in b writes 4 MB into the memory of a, and reads as much from there, on
# connections that librdmacm makes by ib0's addresses. (Its --verb=send ended with "RNR retry counter
# exceeded" once on a slow machine.)
#
# Debian: fio
# Run: ipoibu lab --guests 2 --flavour full --share examples/lab --run 'all=./fio.sh'
# Expect: b: write: moved 4194304 bytes
# Expect: b: read: moved 4194304 bytes
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
cd /tmp
run() { # OPTION...; fio listens with --rw=read, and connects with --rw=write, whatever its verb does
    fio --ioengine=rdma --port=4000 --size=4m --bs=64k --iodepth=8 --output-format=json "$@"
}
listens() { rdma resource show cm_id | grep -q "LISTEN.*:4000"; }
for verb in write read; do
    if [[ $LAB_NAME == a ]]; then
        run --name=server --rw=read >/tmp/server &
        until_true 30 "a server" listens
        meet "$verb"
        wait "$!"
    else
        meet "$verb"
        run --name=client --rw=write --hostname=10.9.0.1 --verb="$verb" >/tmp/client
        grep -q '"error" : 0' /tmp/client
        echo "$verb: moved $(grep -Pom1 '"io_bytes" : \K[1-9]\d*' /tmp/client) bytes"
    fi
    meet "$verb ended"
done
