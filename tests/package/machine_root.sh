#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs a command in a root directory as on a machine of its own: unlike in a chroot, it may make user
# namespaces. It has the network and the PyPI configuration of this machine; run it in `unshare -m -p -f`.
# machine_root.sh ROOT SHARED COMMAND...: SHARED is /shared there.
set -e
root=$1 shared=$2
shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/shared" "$root/.former"
mount --bind "$shared" "$root/shared"
cp /etc/resolv.conf "$root/etc/resolv.conf"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
certificates=/etc/ssl/certs/ca-certificates.crt # of this machine: a proxy may have one of its own
[ ! -e "$certificates" ] || cp "$certificates" "$root/run/certificates"
cd "$root"
pivot_root . .former
umount --lazy /.former
# No exec: as process 1 the shell collects whatever a command leaves behind, where make would spin.
/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI=true \
    DEBIAN_FRONTEND=noninteractive PIP_CERT=/run/certificates "$@"
