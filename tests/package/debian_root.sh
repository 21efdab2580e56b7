#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs a command in a root directory, with mounts and processes of its own; run it in `unshare -m -p -f`.
# debian_root.sh LOWER UPPER SHARED COMMAND...: LOWER is a root that stays as it is, UPPER a directory
# for all changes; SHARED is /shared there. With an empty UPPER the root is LOWER itself.
set -e
lower=$1 upper=$2 shared=$3
shift 3
mount --make-rprivate /
root=$lower
if [ -n "$upper" ]; then
    mkdir -p "$upper/files" "$upper/work" "$upper/root"
    root=$upper/root
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper/files,workdir=$upper/work" "$root"
fi
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/shared"
mount --bind "$shared" "$root/shared"
touch "$root/etc/resolv.conf"
mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
if [ -z "$SYSCTL" ]; then # what a package does in its root must not set the host's kernel
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
fi
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive PIP_NO_INDEX=1 PIP_FIND_LINKS=/shared/wheels "$@"
