# SPDX-License-Identifier: BSD-2-Clause
"""A host routes multicast between two interfaces of ours and an Ethernet: smcroute, and FRR's pimd."""

from __future__ import annotations

import re
import secrets
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from ipaddress import ip_interface
from pathlib import Path
from typing import NamedTuple

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import Namespace
from tests.netns.conftest import Until
from tests.netns.frr import frr
from tests.netns.page_configs import config
from tests.netns.programs import Station, namespace_of, running
from tests.netns.streams import family_of

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
PORT = 5000
GROUP, GROUP6 = "239.1.2.3", "ff15::1:2:3"
SOURCED, SOURCED6 = "239.4.5.6", "ff15::4:5:6"
BY_SOURCE = "232.1.2.3"  # RFC 4607
MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP = 42, 46  # linux/in.h


class Place(NamedTuple):
    """A station beside the router: its interface, and the router's towards it."""

    station: Station
    interface: str
    towards: str


class World(NamedTuple):
    router: Host
    places: dict[str, Place]


@pytest.fixture(scope="module")
def world(sh: Sh) -> Iterator[World]:
    """The router has ib0, ib0.8001 in another partition, and v0, a veth; a station is behind each."""
    with Lab(3, start=False) as lab, ExitStack() as stack:
        one, router, other = lab.hosts
        other.options += ["--pkey", "0x8001"]
        other.addresses = [ip_interface("10.88.0.3/24"), ip_interface("fd88::3/64")]
        lab.start()
        router.ask("child-add", pkey="0x8001", address=["10.88.0.2/24", "fd88::2/64"])
        pod = Namespace.create(f"{router.namespace.name}-pod")
        stack.callback(pod.remove)
        sh(router, f"ip link add v0 type veth peer name v1 netns {pod.name}")
        stack.callback(router.run, ["ip", "link", "del", "v0"])
        sh(router, "sysctl -qw net.ipv6.conf.v0.accept_dad=0; ip link set v0 up")
        sh(router, "ip address add 192.0.2.1/24 dev v0; ip address add fd77:2::1/64 dev v0 nodad")
        sh(router, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        for command in (
            "sysctl -qw net.ipv6.conf.v1.accept_dad=0",
            "ip link set v1 up",
            "ip address add 192.0.2.9/24 dev v1",
            "ip address add fd77:2::9/64 dev v1 nodad",
        ):
            assert pod.run(command.split()).returncode == 0
        places = {
            "ib0": Place(one, "ib0", "ib0"),
            "ib0.8001": Place(other, "ib0", "ib0.8001"),
            "v0": Place(pod, "v1", "v0"),
        }
        yield World(router, places)


def _index(place: Place) -> int:
    return namespace_of(place.station).inside(lambda: socket.if_nametoindex(place.interface))


def _member(place: Place, group: str, source: str | None = None) -> socket.socket:
    """A socket that receives what is sent to the group, or what `source` alone sends to it."""
    family = family_of(group)
    level = socket.IPPROTO_IP if family == socket.AF_INET else socket.IPPROTO_IPV6
    member = place.station.socket(family, socket.SOCK_DGRAM)
    member.bind((group, PORT))
    request = struct.pack("=I4x", _index(place)) + _sockaddr(group)
    if source is None:
        member.setsockopt(level, MCAST_JOIN_GROUP, request)
    else:
        member.setsockopt(level, MCAST_JOIN_SOURCE_GROUP, request + _sockaddr(source))
    return member


def _sockaddr(ip: str) -> bytes:
    """A struct sockaddr_storage."""
    family = family_of(ip)
    raw = socket.inet_pton(family, ip)
    fields = raw if family == socket.AF_INET else bytes(4) + raw
    return (struct.pack("=HH", family, 0) + fields).ljust(128, b"\0")


def _arrives(
    source: Place, targets: list[Place], group: str, until: Until, only_from: str | None = None
) -> None:
    """Send from `source` to the group until each target, a member, has received it."""
    family = family_of(group)
    word = secrets.token_hex(8).encode()
    with ExitStack() as stack:
        members = [stack.enter_context(closing(_member(it, group, only_from))) for it in targets]
        sender = stack.enter_context(source.station.socket(family, socket.SOCK_DGRAM))
        if family == socket.AF_INET:
            via = struct.pack("=4s4si", bytes(4), bytes(4), _index(source))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, via)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
        else:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, _index(source))
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 8)
        waiting = set(members)

        def has_come() -> bool:
            sender.sendto(word, (group, PORT))
            for member in select.select(list(waiting), [], [], 0.1)[0]:
                if member.recv(100) == word:
                    waiting.discard(member)
            return not waiting

        until(has_come, timeout_s=30)


def _others(world: World, name: str) -> list[Place]:
    return [place for other, place in world.places.items() if other != name]


def _smcroute(world: World) -> str:
    """The page's configuration, for three interfaces."""
    lines = [f"phyint {name} enable" for name in world.places]
    for line in config("# smcroute.conf").splitlines():
        match = re.fullmatch(r"(m\w+) from ib0 group (\S+).*", line)
        for name in world.places if match else ():
            assert match is not None
            verb, group = match.groups()
            others = " ".join(other for other in world.places if other != name)
            lines.append(f"{verb} from {name} group {group}" + f" to {others}" * (verb == "mroute"))
    return "\n".join([*lines, ""])


@pytest.mark.timeout(120)
def test_smcroute_forwards_groups_of_both_families_everywhere(
    world: World, tmp_path: Path, until: Until
) -> None:
    """Between the two interfaces of ours, and between each and the Ethernet."""
    path = tmp_path / "smcroute.conf"
    path.write_text(_smcroute(world))
    with running(world.router, tmp_path, "smcrouted", "-n", "-f", str(path)):
        for group in (GROUP, GROUP6):
            for name, source in world.places.items():
                _arrives(source, _others(world, name), group, until)


@pytest.mark.timeout(120)
def test_a_route_by_source_needs_no_member_on_the_router(
    world: World, tmp_path: Path, until: Until
) -> None:
    """The router receives the groups that its multicast routes take from the link."""
    config = tmp_path / "smcroute.conf"
    config.write_text(
        "".join(f"phyint {name} enable\n" for name in world.places)
        + f"mroute from ib0 source 10.77.0.1 group {SOURCED} to ib0.8001 v0\n"
        + f"mroute from ib0 source fd77::1 group {SOURCED6} to ib0.8001 v0\n"
    )
    source, others = world.places["ib0"], _others(world, "ib0")

    def joined() -> set[str]:
        return {group for row in world.router.ask("mcast") for group in row["groups"]}

    with running(world.router, tmp_path, "smcrouted", "-n", "-f", str(config)):
        for group in (SOURCED, SOURCED6):
            _arrives(source, others, group, until)
        assert {SOURCED, SOURCED6} <= joined()
    until(lambda: not {SOURCED, SOURCED6} & joined(), timeout_s=20)


def _pim() -> str:
    """The page's configuration, with the second interface of ours as the first."""
    text = config("! frr.conf: PIM")
    first = re.search(r"^interface ib0\n(?: .*\n)+exit\n", text, re.MULTILINE)
    assert first is not None
    return text + first[0].replace("interface ib0", "interface ib0.8001")


@pytest.mark.timeout(120)
def test_pim_forwards_groups_to_who_asks_for_them(world: World, until: Until) -> None:
    """FRR's pimd learns the members by IGMP from each side, and needs no member of its own for those by
    source."""
    with frr(world.router, _pim(), "pimd") as vtysh:
        for name, source in world.places.items():
            _arrives(source, _others(world, name), GROUP, until)
        assert GROUP in vtysh("show ip mroute")
        one, others = world.places["ib0"], _others(world, "ib0")
        _arrives(one, others, BY_SOURCE, until, only_from="10.77.0.1")
