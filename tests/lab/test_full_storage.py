# SPDX-License-Identifier: BSD-2-Clause
"""Storage of a kernel of the flavour full: file systems in one machine, RDMA between two.

Machine a serves, machine b writes and reads; a sees what b wrote. The configuration goes straight to
the kernels, as nvmetcli, targetcli, exportfs, nvme and ibsrpdm would do it: the tests need no packages.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import INFINIBAND, shell
from tests.lab.bare import run

pytestmark = [pytest.mark.lab, pytest.mark.nightly]

# A port, and an address of it that librdmacm takes: vec0's for RoCE, ib0's for InfiniBand.
PORT = """
    mount -t configfs configfs /sys/kernel/config
    link_up vec0 9000 10.8.0.$LAB_INDEX/24
    rdma_up rxe0 rxe vec0
    server=10.8.0.1 own=10.8.0.$LAB_INDEX
    if [[ $FABRIC == ib ]]; then
        until_true 5 ib0 test -e /sys/class/net/ib0
        ip address add 10.9.0.$LAB_INDEX/24 dev ib0
        ip link set ib0 up
        server=10.9.0.1 own=10.9.0.$LAB_INDEX
    fi
    meet up
    until_true 20 "the other machine" reach ${own%.*}.$((3 - LAB_INDEX))
    enabled() { printf '%s\\n' "$2" >"$1"; }
"""
# 2 MB that b writes to $1, reads back by a new open, and finds again.
WRITE = """
    head -c 2097152 /dev/urandom >/tmp/data
    dd if=/tmp/data of=$disk bs=64k oflag=direct conv=notrunc status=none
    dd if=$disk of=/tmp/back bs=64k count=32 iflag=direct status=none
    cmp /tmp/data /tmp/back
    cp /tmp/data /run/lab/data
    rdma resource show qp | grep "type RC state RTS"
    meet written
    meet compared
"""
COMPARE = """
    meet ready
    meet written
    cmp -n 2097152 /run/lab/data $disk
    meet compared
"""


def serve(kernel: Path, directory: Path, fabric: str, server: str, client: str) -> None:
    """Run the scripts of a server and of its client, which begins when the server says `meet ready`."""
    results = run(
        kernel,
        [shell(f"FABRIC={fabric}\n{PORT}{script}") for script in (server, f"meet ready\n{client}")],
        kernel_arguments=[INFINIBAND if fabric == "ib" else ()] * 2,
        directory=directory,
        timeout_s=90,
    )
    for result in results:
        result.check()


fabrics = pytest.mark.parametrize("fabric", ["roce", "ib"])


@fabrics
def test_nvme_over_rdma(full_kernel: Path, tmp_path: Path, fabric: str) -> None:
    name = "nqn.2026-01.lab:ram"
    server = f"""
        cd /sys/kernel/config/nvmet
        mkdir -p subsystems/{name}/namespaces/1 ports/1
        enabled subsystems/{name}/attr_allow_any_host 1
        disk=/dev/ram0
        enabled subsystems/{name}/namespaces/1/device_path $disk
        enabled subsystems/{name}/namespaces/1/enable 1
        for pair in trtype=rdma adrfam=ipv4 traddr=$server trsvcid=4420; do
            enabled ports/1/addr_${{pair%%=*}} ${{pair#*=}}
        done
        ln -s $PWD/subsystems/{name} ports/1/subsystems/
        {COMPARE}
        meet disconnected
        rm ports/1/subsystems/{name}
    """
    client = f"""
        disk=/dev/nvme0n1
        printf 'transport=rdma,traddr=%s,trsvcid=4420,nqn={name}' $server >/dev/nvme-fabrics
        until_true 20 $disk test -b $disk
        {WRITE}
        enabled /sys/class/nvme/nvme0/delete_controller 1
        meet disconnected
    """
    serve(full_kernel, tmp_path, fabric, server, client)


@fabrics
def test_nfs_over_rdma(full_kernel: Path, tmp_path: Path, fabric: str) -> None:
    flags = 0x2 | 0x10 | 0x400 | 0x2000  # any port, asynchronous, no subtree check, has a number
    server = f"""
        mkdir /tmp/recovery /tmp/export; mount -t tmpfs tmpfs /tmp/export
        echo hello >/tmp/export/greeting
        mount -t nfsd nfsd /proc/fs/nfsd
        cd /proc/fs/nfsd
        enabled versions '-2 -3 +4 +4.1 +4.2' || enabled versions '-3 +4 +4.1 +4.2'
        enabled nfsv4recoverydir /tmp/recovery
        enabled portlist 'rdma 20049'
        enabled threads 2
        for client in 10.8.0.2 10.9.0.2; do
            enabled /proc/net/rpc/auth.unix.ip/channel "nfsd $client 2147483647 lab"
        done
        enabled /proc/net/rpc/nfsd.fh/channel 'lab 1 \\x00000000 2147483647 /tmp/export'
        enabled /proc/net/rpc/nfsd.export/channel 'lab /tmp/export 2147483647 {flags} 65534 65534 0'
        enabled v4_end_grace Y
        disk=/tmp/export/file
        {COMPARE}
        meet unmounted
        enabled threads 0
    """
    client = f"""
        mkdir /tmp/mounted
        mount -i -t nfs4 -o addr=$server,clientaddr=$own,proto=rdma,port=20049,vers=4.2,sec=sys \\
            $server:/ /tmp/mounted
        grep ' /tmp/mounted nfs4 .*proto=rdma' /proc/mounts
        [[ $(</tmp/mounted/greeting) == hello ]]
        disk=/tmp/mounted/file
        {WRITE}
        mkdir /tmp/mounted/directory; ln -s file /tmp/mounted/link
        [[ $(ls /tmp/mounted | xargs) == 'directory file greeting link' ]]
        umount /tmp/mounted
        meet unmounted
    """
    serve(full_kernel, tmp_path, fabric, server, client)


@fabrics
def test_srp(full_kernel: Path, tmp_path: Path, fabric: str) -> None:
    server = f"""
        cd /sys/kernel/config/target
        mkdir -p core/fileio_0/lab srpt
        truncate -s 16M /tmp/disk
        disk=/tmp/disk
        enabled core/fileio_0/lab/control fd_dev_name=$disk,fd_dev_size=16777216
        enabled core/fileio_0/lab/enable 1
        enabled srpt/discovery_auth/rdma_cm_port 5555
        guid=$(</sys/class/infiniband/rxe0/node_guid) gid=$(</sys/class/infiniband/rxe0/ports/1/gids/0)
        port=srpt/0x${{gid//:}}/lab
        mkdir -p $port/lun/lun_0
        ln -s $PWD/core/fileio_0/lab $port/lun/lun_0/disk
        client=$port/acls/0x0000000000000000000000fffe000002 # its port's GUID
        mkdir -p $client/lun_0
        ln -s $PWD/$port/lun/lun_0 $client/lun_0/lun
        enabled $port/enable 1
        put guid ${{guid//:}}
        {COMPARE}
    """
    client = f"""
        guid=$(get guid) disk=/dev/sda
        cd /sys/class/infiniband_srp/srp-rxe0-1
        enabled add_target id_ext=$guid,ioc_guid=$guid,dest=$server:5555
        until_true 20 $disk test -b $disk
        {WRITE}
    """
    serve(full_kernel, tmp_path, fabric, server, client)


def test_file_systems_and_loop_devices(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        truncate -s 32M /tmp/image
        mkfs.ext4 -q /tmp/image
        mkdir /tmp/disk /tmp/lower /tmp/upper /tmp/work /tmp/merged
        mount -o loop /tmp/image /tmp/disk
        echo one >/tmp/disk/file
        setfattr() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.lab", b"kept")' "$1"; }
        setfattr /tmp/disk/file
        umount /tmp/disk
        mount -o loop,ro /tmp/image /tmp/disk
        mount -t overlay -o lowerdir=/tmp/disk,upperdir=/tmp/upper,workdir=/tmp/work overlay /tmp/merged
        echo two >>/tmp/merged/file; rmdir /tmp/merged/lost+found
        [[ $(</tmp/merged/file) == $'one\\ntwo' && $(</tmp/disk/file) == one ]]
        [[ -d /tmp/disk/lost+found && ! -e /tmp/merged/lost+found ]]
        python3 -c 'import os; assert os.getxattr("/tmp/disk/file", "user.lab") == b"kept"'
    """
    run(full_kernel, [shell(script)], directory=tmp_path)[0].check()
