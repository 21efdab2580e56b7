# SPDX-License-Identifier: BSD-2-Clause
"""Each guest of a TAP has a hardware address of its own on the link, by a queue pair of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ipoibu.base.addr import HwAddr
from ipoibu.lab import NamespaceLab
from ipoibu.lab.namespace import LabNamespace
from tests.netns.behind import inside, reaches
from tests.netns.conftest import Until
from tests.netns.test_ethernet import GUESTS, MACS, Bridged, plug

pytestmark = pytest.mark.netns

BEYOND = "192.0.2.9"  # behind the first guest
_SERIAL = itertools.count()


@contextmanager
def world(*options: str) -> Iterator[Bridged]:
    with ExitStack() as stack:
        lab = stack.enter_context(NamespaceLab(start=False))
        host = lab.hosts[0]
        host.addresses = []
        host.options += ["--ethernet", *options]
        for each in lab.hosts:
            each.start()
        # Otherwise br0 may be the first guest.
        quiet = "echo 1 >/proc/sys/net/ipv6/conf/br0/disable_ipv6"
        for command in (
            "ip link add br0 type bridge",
            quiet,
            "ip link set br0 up",
            "ip link set ib0 master br0",
        ):
            assert host.run(["sh", "-c", command]).returncode == 0
        names = [f"ipoibu-{os.getpid()}-pair-{next(_SERIAL)}" for _ in range(2)]
        guests = [LabNamespace.create(name) for name in names]
        for number, guest in enumerate(guests):
            stack.callback(guest.remove)
            plug(host, guest, number)
        yield Bridged(lab, (guests[0], guests[1]))


@pytest.fixture(scope="module")
def bridged() -> Iterator[Bridged]:
    with world() as made:
        yield made


def neighbour(bridged: Bridged, address: str) -> HwAddr | None:
    """The hardware address that the far host has for a guest's address."""
    listed = {it["ip"]: it["hwaddr"] for it in bridged.far.ask("neigh")}
    found = listed.get(address)
    return None if found is None else HwAddr.parse(found)


def own(bridged: Bridged, address: str) -> HwAddr | None:
    """The hardware address that the host gives the guest with this address."""
    listed = bridged.host.ask("guests")
    found = {it["ip"]: it["hwaddr"] for it in listed if it["kind"] == "guest"}.get(address)
    return None if found is None else HwAddr.parse(found)


def test_hosts_of_the_link_see_each_guest_by_its_own_hardware_address(
    bridged: Bridged, until: Until
) -> None:
    host = HwAddr.parse(bridged.host.ask("show")["hwaddr"])
    seen = set()
    for guest, addresses in zip(bridged.guests, GUESTS, strict=True):
        until(lambda place=guest: reaches(place, str(bridged.far.ipv4.ip)))
        for address in addresses:
            until(lambda to=address: reaches(bridged.far, to))
            until(lambda it=address: neighbour(bridged, it) == own(bridged, it) is not None)
        first, second = (neighbour(bridged, it) for it in addresses)
        assert first is not None
        assert first == second, "one hardware address for all addresses of a guest"
        assert first.gid == host.gid
        seen.add(first.qpn)
    assert len(seen) == 2
    assert host.qpn not in seen


def test_a_guest_may_be_the_router_of_hosts_of_the_link(bridged: Bridged, until: Until) -> None:
    """The packet goes to the guest's queue pair, whatever its destination."""
    guest = bridged.guests[0]
    inside(
        guest,
        "sysctl -qw net.ipv4.conf.all.arp_ignore=1",
        f"ip address add {BEYOND}/32 dev lo",
    )
    done = bridged.far.run(["ip", "route", "add", BEYOND, "via", GUESTS[0][0], "dev", "ib0"])
    assert done.returncode == 0, done.stderr
    until(lambda: reaches(bridged.far, BEYOND))


def test_an_address_that_moves_has_the_hardware_address_of_its_new_guest(
    bridged: Bridged, until: Until
) -> None:
    first, second = bridged.guests
    address, moved = GUESTS[1][0], "10.77.0.78"
    for ip, _ in GUESTS:
        until(lambda to=ip: reaches(bridged.far, to))
    inside(first, f"ip address add {moved}/24 dev eth0")
    until(lambda: reaches(bridged.far, moved))
    until(lambda: neighbour(bridged, moved) == own(bridged, GUESTS[0][0]) is not None)
    inside(first, f"ip address del {moved}/24 dev eth0")
    inside(
        second,
        "sysctl -qw net.ipv4.conf.eth0.arp_notify=1",
        f"ip address add {moved}/24 dev eth0",
        f"ip link set eth0 address {MACS[1]}",  # the kernel announces its addresses then
    )
    until(lambda: neighbour(bridged, moved) == own(bridged, address))
    until(lambda: reaches(bridged.far, moved))


def test_guests_share_when_there_are_fewer_queue_pairs(until: Until) -> None:
    with world("--guest-queue-pairs", "1") as bridged:
        for guest in bridged.guests:
            until(lambda place=guest: reaches(place, str(bridged.far.ipv4.ip)))
        for ipv4, ipv6 in GUESTS:
            until(lambda to=ipv4: reaches(bridged.far, to))
            until(lambda to=ipv6: reaches(bridged.far, to))
        pairs = [own(bridged, ipv4) for ipv4, _ in GUESTS]
        assert sum(it is None for it in pairs) == 1
        assert bridged.counter("engine.ethernet_queue_pairs_full") > 0


def test_without_queue_pairs_all_guests_have_the_interfaces_hardware_address(until: Until) -> None:
    with world("--guest-queue-pairs", "0") as bridged:
        ours = HwAddr.parse(bridged.host.ask("show")["hwaddr"])
        for ipv4, _ in GUESTS:
            until(lambda to=ipv4: reaches(bridged.far, to))
            assert neighbour(bridged, ipv4) == ours
            assert own(bridged, ipv4) is None
