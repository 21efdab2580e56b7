#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# iser.sh: targetcli in a offers a RAM disk by iSER at ib0's address; open-iscsi in b logs in, makes a
# file system on it, and finds its file again after a second login.
#
# Debian: targetcli-fb, open-iscsi, e2fsprogs
# Run: ipoibu lab --guests 2 --flavour full --init systemd --share examples/lab --run 'all=./iser.sh'
# Expect: a: iSER enable now: True
# Expect: b: iser:
# Expect: b: the file is whole
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
name=iqn.2026-01.lab.a:disk
if [[ $LAB_NAME == a ]]; then
    mkdir -p /etc/rtslib-fb-target
    targetcli <<-COMMANDS
	/backstores/ramdisk create disk 16M
	/iscsi create $name
	/iscsi/$name/tpg1/luns create /backstores/ramdisk/disk
	/iscsi/$name/tpg1/portals delete 0.0.0.0 3260
	/iscsi/$name/tpg1/portals create 10.9.0.1 3260
	/iscsi/$name/tpg1/portals/10.9.0.1:3260 enable_iser true
	/iscsi/$name/tpg1 set attribute generate_node_acls=1 demo_mode_write_protect=0
	COMMANDS
fi
meet ready 120
if [[ $LAB_NAME == b ]]; then
    systemctl start iscsid
    iscsiadm -m discovery -t sendtargets -p 10.9.0.1 -I iser
    for round in 1 2; do
        iscsiadm -m node --login
        iscsiadm -m session
        until_true 30 "the disk" test -b /dev/sda
        if [[ $round == 1 ]]; then mkfs.ext4 -q /dev/sda; fi
        mount /dev/sda /mnt
        if [[ $round == 1 ]]; then
            head -c 4194304 /dev/urandom >/tmp/bytes
            cp /tmp/bytes /mnt/
        fi
        cmp /tmp/bytes /mnt/bytes
        umount /mnt
        iscsiadm -m node --logout
    done
    echo "the file is whole"
fi
meet end 120
