#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs a network manager on a TUN, in namespaces of its own (unshare -m -n -p -f), and attaches ipoibu.
# attached_tun.sh DIRECTORY MANAGER COMMAND...: DIRECTORY/etc has the manager's files, and COMMAND...
# is `ipoibu` as the TUN's owner. Prints what the interface has before, while and after ipoibu runs.
set -e
directory=$1 manager=$2
shift 2
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir /run/etc /run/etc.work /run/var /run/var.work /run/netns /run/ours /run/peer
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/etc.work /etc
mount -t overlay overlay -o lowerdir=/var,upperdir=/run/var,workdir=/run/var.work /var
mount -o ro -t sysfs sysfs /sys # a manager does not wait for udev where /sys is read-only
rm -rf /etc/systemd/network /etc/netplan /etc/NetworkManager /etc/network/interfaces
cp -r "$directory/etc/." /etc
chown nobody /run/ours

ip link set lo up
ip netns add peer
ip link add eth0 type veth peer name eth0 netns peer
ip link set eth0 up
ip -n peer link set eth0 up

wait_for() { # COMMAND...: until it succeeds, for 100 seconds at most
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || { echo "not within 100 s: $*" >&2; exit 1; }
        sleep 0.1
    done
}
has_routes() { ip route show dev ib0 | grep -q 10.9.0.0/16; }
has_carrier() { ip link show ib0 | grep -q LOWER_UP; }
has_none() { ! has_carrier; }
show() { # TITLE
    echo "--- $1"
    ip -4 address show dev ib0
    ip route show dev ib0
}

case $manager in
ifupdown)
    mkdir /run/network
    ifup ib0
    ;;
netplan | networkd)
    mkdir -p /run/systemd/netif
    chown systemd-network:systemd-network /run/systemd/netif
    [ "$manager" = networkd ] || netplan generate
    /lib/systemd/systemd-networkd &
    ;;
NetworkManager)
    mkdir -p /run/dbus
    dbus-daemon --system --nofork --nopidfile &
    wait_for test -S /run/dbus/system_bus_socket
    NetworkManager --debug &
    ;;
esac
wait_for has_routes
show before
IPOIBU_RUNTIME_DIR=/run/peer ip netns exec peer "${PYTHON}" -m ipoibu.cli \
    up ib0 --device soft:eth0 --address 10.0.0.2/24 --user nobody &
for attempt in first second; do
    IPOIBU_RUNTIME_DIR=/run/ours "$@" up ib0 --device soft:eth0 --tun attach &
    pid=$!
    wait_for has_carrier
    wait_for ping -c 1 -W 1 10.0.0.2
    show "$attempt"
    kill $pid
    wait $pid
    wait_for has_none
done
show after
