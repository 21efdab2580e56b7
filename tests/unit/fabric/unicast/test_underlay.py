# SPDX-License-Identifier: BSD-2-Clause
"""The choice of the GID by the routes to the peers; the test plays the kernel."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid
from ipoibu.base.device_name import GidKind, SoftName
from ipoibu.base.errors import LinkError, NotReady
from ipoibu.base.limits import SOFT_MOVED_S, SOFT_ROUTES_S
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.soft import port
from ipoibu.fabric.soft.port import SoftPort
from ipoibu.fabric.unicast import underlay
from ipoibu.fabric.unicast.router import Route
from ipoibu.fabric.unicast.underlay import Choice, RouteUnderlay

ETH0: Final = 7
OTHER: Final = 8
ROUTER4, ROUTER6 = ip_address("192.0.2.1"), ip_address("fe80::1")
OURS4, OURS6 = ip_address("192.0.2.9"), ip_address("2001:db8::9")
DAILY: Final = ip_address("2001:db8::da11")


class Kernel:
    """Routes by peer, and the addresses of eth0."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.routes: dict[str, Route] = {}
        self._file = tmp_path / "if_inet6"
        self.addresses({"fe80::9": ("20", 0x80), str(OURS6): ("00", 0x80), str(DAILY): ("00", 1)})
        monkeypatch.setattr(underlay, "_ADDRESSES", self._file)
        monkeypatch.setattr(underlay, "route_to", lambda ip: self.routes.get(str(ip)))
        monkeypatch.setattr("socket.if_nametoindex", lambda name: ETH0)

    def addresses(self, addresses: dict[str, tuple[str, int]]) -> None:
        self._file.write_text(
            "".join(
                f"{ip_address(text).packed.hex()} {ETH0:02x} 40 {scope} {flags:02x}     eth0\n"
                for text, (scope, flags) in addresses.items()
            )
        )

    def choose(self, *peers: str) -> Choice | None:
        return RouteUnderlay("eth0", MeshOptions(peers)).choose()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


def test_the_source_to_a_peer_behind_a_router_is_the_choice(kernel: Kernel) -> None:
    kernel.routes["198.51.100.1"] = Route(ETH0, ROUTER4, OURS4)
    kernel.routes["2001:db8:1::1"] = Route(ETH0, ROUTER6, OURS6)
    choice = kernel.choose("198.51.100.1", "2001:db8:1::1")
    assert choice == Choice(OURS4, ip_address("198.51.100.1"), ROUTER4)
    assert str(choice) == "the route to the peer 198.51.100.1 by the router 192.0.2.1"
    choice = kernel.choose("[2001:db8:1::1]:7", "198.51.100.1")
    assert choice == Choice(OURS6, ip_address("2001:db8:1::1"), ROUTER6)


def test_a_peer_behind_a_router_decides_before_one_on_our_network(kernel: Kernel) -> None:
    kernel.routes["2001:db8::2"] = Route(ETH0, None, OURS6)
    kernel.routes["198.51.100.1"] = Route(ETH0, ROUTER4, OURS4)
    assert kernel.choose("2001:db8::2", "198.51.100.1") == Choice(
        OURS4, ip_address("198.51.100.1"), ROUTER4
    )
    assert kernel.choose("2001:db8::2") == Choice(OURS6, ip_address("2001:db8::2"))


def test_a_host_that_names_itself_is_known_by_that_address(kernel: Kernel) -> None:
    kernel.routes[str(OURS6)] = Route(1, None, OURS6, is_local=True)
    assert kernel.choose(str(OURS6)) == Choice(OURS6, OURS6)
    kernel.routes["fd00::1"] = Route(1, None, ip_address("fd00::1"), is_local=True)
    assert kernel.choose("fd00::1") is None  # of another device


@pytest.mark.parametrize(
    ("peer", "route"),
    [
        ("fe80::2", Route(ETH0, None, ip_address("fe80::9"))),
        ("192.0.2.2", Route(ETH0, None, OURS4)),  # on our network
        ("192.0.2.9", Route(1, None, OURS4, is_local=True)),
        ("198.51.100.1", Route(OTHER, ROUTER4, OURS4)),  # a management network
        ("2001:db8:1::1", Route(OTHER, ROUTER6, OURS6)),
        ("203.0.113.1", None),
    ],
)
def test_other_routes_say_nothing(kernel: Kernel, peer: str, route: Route | None) -> None:
    if route is not None:
        kernel.routes[peer] = route
    assert kernel.choose(peer) is None


def test_no_address_of_a_day_is_chosen_beside_a_lasting_one(kernel: Kernel) -> None:
    kernel.routes["2001:db8:1::1"] = Route(ETH0, ROUTER6, DAILY)
    assert kernel.choose("2001:db8:1::1") == Choice(OURS6, ip_address("2001:db8:1::1"), ROUTER6)
    kernel.addresses({str(DAILY): ("00", 1)})
    assert kernel.choose("2001:db8:1::1") == Choice(DAILY, ip_address("2001:db8:1::1"), ROUTER6)


def test_names_and_the_file_are_asked_too(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {SimpleNamespace(ip=ip_address("2001:db8:1::1"), port=0).ip}
    monkeypatch.setattr(
        underlay, "locators_of", lambda name, port: [SimpleNamespace(ip=it) for it in places]
    )
    kernel.routes["2001:db8:1::1"] = Route(ETH0, ROUTER6, OURS6)
    file = tmp_path / "peers"
    file.write_text("# the others\nhost.example\n")
    chooser = RouteUnderlay("eth0", MeshOptions(file=file))
    assert chooser.choose() == Choice(OURS6, ip_address("2001:db8:1::1"), ROUTER6)


# The port


def test_a_link_local_address_before_a_router_is_refused() -> None:
    choice = Choice(ip_address("fe80::9"), ip_address("2001:db8:1::1"), ROUTER6)
    with pytest.raises(
        NotReady, match="the router fe80::1 is on the way to the peer 2001:db8:1::1"
    ):
        port._chosen(SoftName("eth0"), choice)
    on_link = Choice(OURS6, ip_address("2001:db8::2"))
    chosen = port._chosen(SoftName("eth0"), on_link)
    assert chosen == SoftName("eth0", GidKind.IPV6, Gid.of_ip(OURS6))


def test_a_port_ends_when_the_routes_ask_for_another_address_for_a_while() -> None:
    now = 1000.0
    opened: Any = SimpleNamespace(
        info=SimpleNamespace(device="soft:eth0", gid=Gid.of_ip(OURS6)),
        _routes_at_s=now,
        _other_since_s=now,
    )
    choices = [Choice(OURS6, OURS6), None, Choice(OURS4, ip_address("198.51.100.1"), ROUTER4)]

    def look(choice: Choice | None) -> None:
        nonlocal now
        now += SOFT_ROUTES_S
        SoftPort._review_routes(opened, SimpleNamespace(choose=lambda: choice), now)

    for choice in (*choices, choices[0], *choices):  # never for long
        look(choice)

    def look_on() -> None:
        for _ in range(int(SOFT_MOVED_S / SOFT_ROUTES_S) + 2):
            look(choices[2])

    with pytest.raises(LinkError, match=r"has the source 192\.0\.2\.9 now, .* 2001:db8::9"):
        look_on()
