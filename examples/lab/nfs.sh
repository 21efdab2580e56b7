#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# nfs.sh: a exports a directory; b mounts it by TCP over ib0 and c by RDMA, at the same time, and each
# sees what the other wrote. (One machine would use the connection of its first mount for the second.)
#
# Run: ipoibu lab --guests 3 --flavour full --share examples/lab --run 'all=./nfs.sh'
# Expect: b: c's file is whole by tcp
# Expect: c: b's file is whole by rdma
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
say() { printf '%s\n' "$2" >"$1"; }
if [[ $LAB_NAME == a ]]; then
    mkdir -p /tmp/export /tmp/recovery
    mount -t tmpfs tmpfs /tmp/export
    mount -t nfsd nfsd /proc/fs/nfsd
    say /proc/fs/nfsd/versions '-3 +4 +4.1 +4.2'
    say /proc/fs/nfsd/nfsv4recoverydir /tmp/recovery
    python3 -c 'import socket, time
s = socket.create_server(("0.0.0.0", 2049)); open("/proc/fs/nfsd/portlist", "w").write(f"{s.fileno()}\n")'
    say /proc/fs/nfsd/portlist 'rdma 20049'
    say /proc/fs/nfsd/threads 2
    # What exportfs and mountd would answer: the client, the file handle, and the export itself.
    for client in 10.9.0.2 10.9.0.3; do
        say /proc/net/rpc/auth.unix.ip/channel "nfsd $client 2147483647 lab"
    done
    say /proc/net/rpc/nfsd.fh/channel 'lab 1 \x00000000 2147483647 /tmp/export'
    say /proc/net/rpc/nfsd.export/channel "lab /tmp/export 2147483647 $((0x2412)) 65534 65534 0"
    say /proc/fs/nfsd/v4_end_grace Y
fi
meet ready
if [[ $LAB_NAME != a ]]; then
    case $LAB_NAME in
        b) proto=tcp port=2049 other=c ;;
        c) proto=rdma port=20049 other=b ;;
    esac
    options=addr=10.9.0.1,clientaddr=10.9.0.$LAB_INDEX,vers=4.2,sec=sys,noac
    mkdir /tmp/mounted
    mount -i -t nfs4 -o "$options,proto=$proto,port=$port" 10.9.0.1:/ /tmp/mounted
    grep " /tmp/mounted nfs4 .*proto=$proto" /proc/mounts
    head -c 4194304 /dev/urandom >"/run/lab/of-$LAB_NAME"
    cp "/run/lab/of-$LAB_NAME" /tmp/mounted/
fi
meet written
if [[ $LAB_NAME != a ]]; then
    cmp "/run/lab/of-$other" "/tmp/mounted/of-$other"
    umount /tmp/mounted
    echo "$other's file is whole by $proto"
fi
meet end
if [[ $LAB_NAME == a ]]; then say /proc/fs/nfsd/threads 0; fi
