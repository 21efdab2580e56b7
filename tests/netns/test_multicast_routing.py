# SPDX-License-Identifier: BSD-2-Clause
"""A host routes multicast between two interfaces of ours and an Ethernet: smcroute, and FRR's pimd."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import ip_interface
from pathlib import Path
from typing import NamedTuple

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from tests.netns.conftest import Until
from tests.netns.frr import frr
from tests.netns.multicast import Place, arrives
from tests.netns.page_configs import config
from tests.netns.programs import running

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
GROUP, GROUP6 = "239.1.2.3", "ff15::1:2:3"
SOURCED, SOURCED6 = "239.4.5.6", "ff15::4:5:6"
BY_SOURCE = "232.1.2.3"  # RFC 4607


class World(NamedTuple):
    router: Host
    places: dict[str, Place]  # by the router's interface towards each


@pytest.fixture(scope="module")
def world(sh: Sh) -> Iterator[World]:
    """The router has ib0, ib0.8001 in another partition, and v0, a veth; a station is behind each."""
    with NamespaceLab(3, start=False) as lab, ExitStack() as stack:
        one, router, other = lab.hosts
        other.options += ["--pkey", "0x8001"]
        other.addresses = [ip_interface("10.88.0.3/24"), ip_interface("fd88::3/64")]
        lab.start()
        router.ask("child-add", pkey="0x8001", address=["10.88.0.2/24", "fd88::2/64"])
        pod = LabNamespace.create(f"{router.namespace.name}-pod")
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
            "ib0": Place(one, "ib0"),
            "ib0.8001": Place(other, "ib0"),
            "v0": Place(pod, "v1"),
        }
        yield World(router, places)


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


def test_smcroute_forwards_groups_of_both_families_everywhere(
    world: World, tmp_path: Path, until: Until
) -> None:
    """Between the two interfaces of ours, and between each and the Ethernet."""
    path = tmp_path / "smcroute.conf"
    path.write_text(_smcroute(world))
    with running(world.router, tmp_path, "smcrouted", "-n", "-f", str(path)):
        for group in (GROUP, GROUP6):
            for name, source in world.places.items():
                arrives(source, _others(world, name), group, until)


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
            arrives(source, others, group, until)
        assert {SOURCED, SOURCED6} <= joined()
    until(lambda: not {SOURCED, SOURCED6} & joined())


def _pim() -> str:
    """The page's configuration, with the second interface of ours as the first."""
    text = config("! frr.conf: PIM")
    first = re.search(r"^interface ib0\n(?: .*\n)+exit\n", text, re.MULTILINE)
    assert first is not None
    return text + first[0].replace("interface ib0", "interface ib0.8001")


def test_pim_forwards_groups_to_who_asks_for_them(world: World, until: Until) -> None:
    """FRR's pimd learns the members by IGMP from each side, and needs no member of its own for those by
    source."""
    with frr(world.router, _pim(), "pimd") as vtysh:
        for name, source in world.places.items():
            arrives(source, _others(world, name), GROUP, until)
        assert GROUP in vtysh("show ip mroute")
        one, others = world.places["ib0"], _others(world, "ib0")
        arrives(one, others, BY_SOURCE, until, only_from="10.77.0.1")
