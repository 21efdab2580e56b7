#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Boots Debian's systemd in namespaces, on a copy of the root directory that it alone sees.
# boot_systemd.sh DIRECTORY PROJECT IPOIBU: an empty directory, the source tree, and the command.
set -e
directory=$1 project=$2 command=$3
mount -t tmpfs tmpfs "$directory"
root=$directory/root
mkdir "$directory/upper" "$directory/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$directory/upper,workdir=$directory/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root$project" && mount --rbind "$project" "$root$project"

# Only what basic.target needs: no unit of the machine's, and nothing that touches its devices
units=$root/etc/systemd/system
rm -rf "$units" "$root/etc/ipoibu"
mkdir -p "$units" "$root/etc/ipoibu"
for unit in dev-hugepages.mount dev-mqueue.mount getty.target proc-sys-fs-binfmt_misc.automount \
    sys-fs-fuse-connections.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    systemd-binfmt.service systemd-modules-load.service systemd-networkd.service \
    systemd-remount-fs.service systemd-resolved.service systemd-sysctl.service \
    systemd-timesyncd.service systemd-tmpfiles-setup-dev.service systemd-udev-trigger.service \
    systemd-udevd.service; do
    ln -s /dev/null "$units/$unit"
done
: >"$root/etc/fstab"
cp "$project"/packaging/systemd/*.service "$units"
# The unit hides /home, /root and the machine's /tmp, one of which may have the tree.
mkdir "$units/ipoibu@.service.d"
printf '[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths="%s"\n' "$project" \
    >"$units/ipoibu@.service.d/test.conf"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$command" >"$root/usr/bin/ipoibu"
chmod 755 "$root/usr/bin/ipoibu"
ip link set lo up
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$root" /lib/systemd/systemd --system --log-target=console --unit=basic.target
