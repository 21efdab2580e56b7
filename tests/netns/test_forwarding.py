# SPDX-License-Identifier: BSD-2-Clause
"""A host that forwards: between an interface of ours and an Ethernet, between two of ours, with NAT.

Super-frames that it forwards stay whole: the kernel sees one frame of up to 64 KiB, which came in as one
and leaves as one.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_interface

import pytest

from ipoibu.daemon.control.client import Client
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from tests.netns.conftest import Until
from tests.netns.programs import Station
from tests.netns.streams import moved, transfer

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
SIZE = 16 << 20
MTU = 2044
POD, POD6 = "192.0.2.9", "fd77:2::9"
NAT = """
table inet ours {{
  chain out {{
    type nat hook postrouting priority 100
    oifname "{interface}" masquerade
  }}
}}
"""


def _reaches(host: Station, target: str) -> bool:
    return host.run(["ping", "-c1", "-W1", target]).returncode == 0


def _sent(host: Host, interface: str) -> tuple[int, int]:
    """How many frames, whole as the kernel hands them over, and bytes the interface has sent."""
    shown = host.run(["ip", "-s", "-j", "link", "show", "dev", interface]).stdout
    sent = json.loads(shown)[0]["stats64"]["tx"]
    return int(sent["packets"]), int(sent["bytes"])


def _stream(sender: Station, receiver: Station, address: str) -> None:
    data = random.Random(3).randbytes(SIZE)
    assert transfer(sender, receiver, address, data) == hashlib.sha256(data).hexdigest()


def _leaves_in_large_frames(
    pod: Station, first: Host, router: Host, target: str, mode: str
) -> bool:
    """A stream from the pod leaves the router in super-frames, which connected mode sends whole. A busy
    machine may break the connection, or make the kernel's frames small: try again."""
    if mode == "connected":
        _stream(pod, first, target)  # the connection is there now
    before = router.ask("stats")
    _stream(pod, first, target)
    frames, packets = moved(router, before, "tx_super_frames", "tx_packets")
    if mode == "connected":
        return 0 < packets < SIZE / MTU / 4  # few messages carry all
    return packets > 0.9 * SIZE / MTU and 0 < frames < packets / 8


@pytest.fixture(scope="module", params=["datagram", "connected"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def routed(sh: Sh, mode: str) -> Iterator[tuple[NamespaceLab, LabNamespace]]:
    """The second host forwards between the link and a pod's Ethernet; the first has routes to the pod."""
    with NamespaceLab(2, options=["--mode", mode]) as lab:
        first, router = lab.hosts
        pod = LabNamespace.create(f"{router.namespace.name}-pod")
        try:
            sh(router, f"ip link add v0 type veth peer name v1 netns {pod.name}")
            sh(router, "ip link set v0 up; ip address add 192.0.2.1/24 dev v0")
            sh(router, "ip address add fd77:2::1/64 dev v0 nodad")
            sh(router, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
            for command in (
                "ip link set v1 up",
                f"ip address add {POD}/24 dev v1",
                f"ip address add {POD6}/64 dev v1 nodad",
                "ip route add default via 192.0.2.1",
                "ip -6 route add default via fd77:2::1",
            ):
                assert pod.run(command.split()).returncode == 0
            sh(first, f"ip route add 192.0.2.0/24 via {router.ipv4.ip}")
            sh(first, f"ip -6 route add fd77:2::/64 via {router.ipv6.ip}")
            yield lab, pod
        finally:
            router.run(["ip", "link", "del", "v0"])
            pod.remove()


@pytest.mark.parametrize("address", [POD, POD6])
def test_a_stream_to_an_ethernet_stays_in_large_frames(
    routed: tuple[NamespaceLab, LabNamespace], mode: str, until: Until, address: str
) -> None:
    lab, pod = routed
    first, router = lab.hosts
    until(lambda: _reaches(first, address))

    def stays() -> bool:
        if mode == "connected":
            _stream(first, pod, address)  # the connection is there now
        before = router.ask("stats")
        packets, size = _sent(router, "v0")
        _stream(first, pod, address)
        merged, frames, supers = moved(
            router, before, "rx_merged", "rx_merged_frames", "rx_superframes"
        )
        packets_after, size_after = _sent(router, "v0")
        assert size_after - size > SIZE
        if packets_after - packets >= SIZE / MTU / 4:  # not in the frames in which they came
            return False
        if mode == "connected":
            return 0 < supers < SIZE / MTU / 4
        return merged > 0.8 * SIZE / MTU and frames < merged / 8

    until(stays, 150)


@pytest.mark.parametrize("version", ["ipv4", "ipv6"])
def test_a_stream_from_an_ethernet_stays_in_large_frames(
    routed: tuple[NamespaceLab, LabNamespace], mode: str, until: Until, version: str
) -> None:
    lab, pod = routed
    first, router = lab.hosts
    target = str(getattr(first, version).ip)
    until(lambda: _reaches(pod, target))
    until(lambda: _leaves_in_large_frames(pod, first, router, target, mode), 150)


def test_nat_hides_an_ethernet_behind_the_address_of_the_interface(
    routed: tuple[NamespaceLab, LabNamespace], mode: str, sh: Sh, until: Until
) -> None:
    """The first host has no route back to the pod: it sees the router alone."""
    lab, pod = routed
    first, router = lab.hosts
    sh(first, "ip route del 192.0.2.0/24; ip -6 route del fd77:2::/64")
    try:
        assert not _reaches(pod, str(first.ipv4.ip))
        sh(router, f"nft -f - << END\n{NAT.format(interface='ib0')}\nEND")
        for version in ("ipv4", "ipv6"):
            target = str(getattr(first, version).ip)
            until(lambda target=target: _reaches(pod, target))
            until(lambda to=target: _leaves_in_large_frames(pod, first, router, to, mode), 150)
    finally:
        router.run(["nft", "flush", "ruleset"])
        sh(first, f"ip route add 192.0.2.0/24 via {router.ipv4.ip}")
        sh(first, f"ip -6 route add fd77:2::/64 via {router.ipv6.ip}")


def test_two_interfaces_of_ours_forward_between_two_partitions(
    sh: Sh, until: Until, mode: str
) -> None:
    """The middle host is in both partitions; in connected mode super-frames cross either link whole."""
    with NamespaceLab(3, options=["--mode", mode], start=False) as lab:
        one, middle, other = lab.hosts
        other.options += ["--pkey", "0x8001"]
        other.addresses = [ip_interface("10.88.0.3/24"), ip_interface("fd88::3/64")]
        lab.start()
        middle.ask("child-add", pkey="0x8001", address=["10.88.0.2/24", "fd88::2/64"], mode=mode)
        sh(middle, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        sh(one, "ip route add 10.88.0.0/24 via 10.77.0.2; ip -6 route add fd88::/64 via fd77::2")
        sh(other, "ip route add 10.77.0.0/24 via 10.88.0.2; ip -6 route add fd77::/64 via fd88::2")

        def crosses(target: str) -> bool:
            until(lambda: _reaches(one, target))
            _stream(one, other, target)
            before, child = middle.ask("stats"), _child(middle)
            _stream(one, other, target)
            came = moved(middle, before, "rx_superframes", "rx_merged_frames", "rx_packets")
            left = [
                _child(middle)[name] - child[name] for name in ("tx_super_frames", "tx_packets")
            ]
            if mode == "connected":  # few messages carry all
                return 0 < came[0] < SIZE / MTU / 4 and 0 < left[1] < SIZE / MTU / 4
            return 0 < came[1] < came[2] / 8 and 0 < left[0] < left[1] / 8

        targets = ("10.88.0.3", "fd88::3")
        for target in targets:
            until(partial(crosses, target), 150)
        # With NAT the other host needs no route back, and sees the middle one alone.
        sh(other, "ip route del 10.77.0.0/24; ip -6 route del fd77::/64")
        assert not any(_reaches(one, target) for target in targets)
        sh(middle, f"nft -f - << END\n{NAT.format(interface='ib0.8001')}\nEND")
        for target in targets:
            until(partial(crosses, target), 150)


def _child(host: Host) -> dict[str, int]:
    with Client("ib0.8001", host.namespace.path) as client:
        stats = client.request("stats")
    return {name: int(stats.get(name, 0)) for name in ("tx_super_frames", "tx_packets")}
