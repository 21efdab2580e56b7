# SPDX-License-Identifier: BSD-2-Clause
"""The choice of the GID by the routes to the peers; the test plays the kernel."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from ipoibu._core import SoftHca
from ipoibu.base.addr import Gid, IpAddress
from ipoibu.base.device_name import GidKind, SoftName, parse_soft
from ipoibu.base.errors import NotReady
from ipoibu.base.limits import SOFT_MOVED_S, SOFT_ROUTES_S
from ipoibu.fabric.base import MeshOptions, UnderlayChoice
from ipoibu.fabric.soft import port
from ipoibu.fabric.soft.adapter import Adapter
from ipoibu.fabric.soft.port import SoftPort
from ipoibu.fabric.unicast import underlay
from ipoibu.fabric.unicast.router import Route
from ipoibu.fabric.unicast.underlay import RouteUnderlay

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

    def choose(self, *peers: str) -> UnderlayChoice | None:
        return RouteUnderlay("eth0", MeshOptions(peers)).choose()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


def test_the_source_to_a_peer_behind_a_router_is_the_choice(kernel: Kernel) -> None:
    kernel.routes["198.51.100.1"] = Route(ETH0, ROUTER4, OURS4)
    kernel.routes["2001:db8:1::1"] = Route(ETH0, ROUTER6, OURS6)
    choice = kernel.choose("198.51.100.1", "2001:db8:1::1")
    assert choice == UnderlayChoice(OURS4, ip_address("198.51.100.1"), ROUTER4)
    assert str(choice) == "the route to the peer 198.51.100.1 by the router 192.0.2.1"
    choice = kernel.choose("[2001:db8:1::1]:7", "198.51.100.1")
    assert choice == UnderlayChoice(OURS6, ip_address("2001:db8:1::1"), ROUTER6)


def test_a_peer_behind_a_router_decides_before_one_on_our_network(kernel: Kernel) -> None:
    kernel.routes["2001:db8::2"] = Route(ETH0, None, OURS6)
    kernel.routes["198.51.100.1"] = Route(ETH0, ROUTER4, OURS4)
    assert kernel.choose("2001:db8::2", "198.51.100.1") == UnderlayChoice(
        OURS4, ip_address("198.51.100.1"), ROUTER4
    )
    assert kernel.choose("2001:db8::2") == UnderlayChoice(OURS6, ip_address("2001:db8::2"))


def test_a_host_that_names_itself_is_known_by_that_address(kernel: Kernel) -> None:
    kernel.routes[str(OURS6)] = Route(1, None, OURS6, is_local=True)
    assert kernel.choose(str(OURS6)) == UnderlayChoice(OURS6, OURS6)
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
    assert kernel.choose("2001:db8:1::1") == UnderlayChoice(
        OURS6, ip_address("2001:db8:1::1"), ROUTER6
    )
    kernel.addresses({str(DAILY): ("00", 1)})
    assert kernel.choose("2001:db8:1::1") == UnderlayChoice(
        DAILY, ip_address("2001:db8:1::1"), ROUTER6
    )


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
    assert chooser.choose() == UnderlayChoice(OURS6, ip_address("2001:db8:1::1"), ROUTER6)


class Peers:
    """What a link knows of its peers."""

    def __init__(self, *named: str, refused: str | None = None, has_peers: bool = False) -> None:
        self.named = [ip_address(ip) for ip in named]
        self.refused = ip_address(refused) if refused else None
        self.has_peers = has_peers


def test_the_peers_that_links_name_now_take_the_place_of_those_of_the_start(
    kernel: Kernel,
) -> None:
    kernel.routes["2001:db8:1::1"] = Route(ETH0, ROUTER6, OURS6)
    kernel.routes["198.51.100.1"] = Route(ETH0, ROUTER4, OURS4)
    chooser = RouteUnderlay("eth0", MeshOptions(("2001:db8:1::1",)))
    parent, child = Peers(), Peers()
    leave_parent, leave_child = chooser.enter(parent), chooser.enter(child)
    assert chooser.choose() == UnderlayChoice(
        OURS6, ip_address("2001:db8:1::1"), ROUTER6
    )  # none yet
    child.named = [ip_address("198.51.100.1"), ip_address("fe80::2")]
    by4 = UnderlayChoice(OURS4, ip_address("198.51.100.1"), ROUTER4)
    assert chooser.choose() == by4
    leave_parent()
    leave_child()  # for a heavy flush: another link follows
    assert chooser.choose() == by4


def test_the_present_gid_stays_as_long_as_one_of_the_peers_asks_for_it(kernel: Kernel) -> None:
    kernel.routes["2001:db8:1::1"] = Route(ETH0, ROUTER6, OURS6)
    kernel.routes["198.51.100.1"] = Route(ETH0, ROUTER4, OURS4)
    chooser = RouteUnderlay("eth0", MeshOptions(("2001:db8:1::1", "198.51.100.1")))
    for ours in (OURS4, OURS6):
        choice = chooser.choose(ours)
        assert choice is not None
        assert choice.address == ours
    del kernel.routes["198.51.100.1"]
    assert chooser.choose(OURS4) == UnderlayChoice(OURS6, ip_address("2001:db8:1::1"), ROUTER6)


def test_a_rail_has_its_own_route_to_a_peer_behind_another_rail(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: list[int] = []

    def route_to(ip: IpAddress, device: int = 0) -> Route:
        over.append(device)
        return Route(device or OTHER, ROUTER4, OURS4)

    monkeypatch.setattr(underlay, "route_to", route_to)
    indices = {"eth0": ETH0, "eth1": OTHER}
    monkeypatch.setattr("socket.if_nametoindex", lambda name: indices[name])
    options = MeshOptions(("198.51.100.1",))
    assert RouteUnderlay("eth0", options).choose() is None  # a management network
    chooser = RouteUnderlay("eth0", options, ["eth1"])
    assert chooser.choose() == UnderlayChoice(OURS4, ip_address("198.51.100.1"), ROUTER4)
    assert over == [0, 0, ETH0]


def test_a_lonely_first_host_goes_over_to_the_ip_version_of_those_who_meet_it(
    kernel: Kernel,
) -> None:
    link_local = ip_address("fe80::9")
    kernel.routes["192.0.2.9"] = Route(1, None, OURS4, is_local=True)
    kernel.routes["198.51.100.1"] = Route(ETH0, ROUTER4, OURS4)
    kernel.routes["198.51.100.2"] = Route(OTHER, ROUTER4, OURS4)
    chooser = RouteUnderlay("eth0", MeshOptions(("192.0.2.9",)))
    link, child = Peers("192.0.2.9", refused="198.51.100.1"), Peers()
    chooser.enter(link)
    chooser.enter(child)
    assert chooser.choose(link_local) == UnderlayChoice(OURS4, ip_address("198.51.100.1"), ROUTER4)
    assert chooser.choose(OURS6) is None  # the user, or a route, has chosen it
    assert chooser.choose(OURS4) is None
    child.has_peers = True
    assert chooser.choose(link_local) is None
    child.has_peers = False
    for refused in ("fe80::2", "198.51.100.2", "192.0.2.9"):
        link.refused = ip_address(refused)
        assert chooser.choose(link_local) is None


# The port


def test_a_link_local_address_before_a_router_is_refused() -> None:
    choice = UnderlayChoice(ip_address("fe80::9"), ip_address("2001:db8:1::1"), ROUTER6)
    with pytest.raises(
        NotReady, match="the router fe80::1 is on the way to the peer 2001:db8:1::1"
    ):
        port._chosen(SoftName("eth0"), choice)
    on_link = UnderlayChoice(OURS6, ip_address("2001:db8::2"))
    chosen = port._chosen(SoftName("eth0"), on_link)
    assert chosen == SoftName("eth0", GidKind.IPV6, Gid.of_ip(OURS6))


class Answers:
    """What the port asks, and the addresses that it takes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.answer: UnderlayChoice | None = None
        self.asked = 0
        self.took: list[IpAddress] = []
        self.port: Any = SimpleNamespace(
            info=SimpleNamespace(gid=Gid.of_ip(OURS6)),
            _asked_s=self.now,
            _wanted=None,
            _choose=self._choose,
            _take=self._take,
        )

    def _choose(self, *, is_gone: bool) -> UnderlayChoice | None:
        self.asked += 1
        return self.answer

    def _take(self, choice: UnderlayChoice) -> bool:
        self.took.append(choice.address)
        return True

    def look(
        self, answer: UnderlayChoice | None, seconds: float = 1.0, *, is_gone: bool = False
    ) -> bool:
        self.now += seconds
        self.answer = answer
        return SoftPort._review(self.port, self.now, is_gone=is_gone)


BY4: Final = UnderlayChoice(OURS4, ip_address("198.51.100.1"), ROUTER4)


def test_a_port_takes_an_address_that_has_been_the_answer_for_a_while() -> None:
    answers = Answers()
    for answer in (
        BY4,
        None,
        BY4,
        UnderlayChoice(OURS6, OURS6),
        BY4,
        UnderlayChoice(DAILY, OURS6),
        BY4,
    ):
        assert not answers.look(answer, SOFT_ROUTES_S)  # never for long
    assert not answers.look(BY4, SOFT_MOVED_S / 2)
    assert answers.look(BY4, SOFT_MOVED_S / 2)
    assert answers.took == [OURS4]


def test_a_port_asks_often_only_when_something_has_changed() -> None:
    answers = Answers()
    for _ in range(20):
        answers.look(None)
    assert answers.asked == 20 // SOFT_ROUTES_S
    asked = answers.asked
    for _ in range(3):
        assert not answers.look(None, is_gone=True)  # nor is there another address
    assert answers.asked == asked + 3


@pytest.mark.parametrize(
    ("device", "is_gone", "choice", "expected"),
    [
        ("soft:eth0", False, BY4, OURS4),
        ("soft:eth0", False, None, None),
        ("soft:eth0", True, None, DAILY),
        ("soft:eth0", True, BY4, OURS4),
        ("soft:eth0", False, UnderlayChoice(ip_address("fe80::9"), OURS6), None),
        ("soft:eth0,ipv6", True, None, DAILY),
        (f"soft:eth0,{OURS6}", True, None, None),  # this very one
    ],
)
def test_the_routes_decide_before_what_the_device_has_in_place_of_the_gid(
    device: str, is_gone: bool, choice: UnderlayChoice | None, expected: IpAddress | None
) -> None:
    opened: Any = SimpleNamespace(
        info=SimpleNamespace(gid=Gid.of_ip(OURS6)),
        _named=parse_soft(device),
        _underlay=SimpleNamespace(choose=lambda now: choice),
        _adapter=SimpleNamespace(hca=SimpleNamespace(next_gid=lambda: Gid.of_ip(DAILY).raw)),
    )
    chosen = SoftPort._choose(opened, is_gone=is_gone)
    assert (chosen and chosen.address) == expected


class Hca:
    """Counts one packet, and is closed once."""

    netdev, guid, active_mtu_bytes = "eth0", bytes(8), 4096

    def __init__(self, gid: IpAddress, packets: int) -> None:
        self.gid, self.packets, self.closed = Gid.of_ip(gid).raw, packets, 0

    def counters(self) -> dict[str, int]:
        assert not self.closed
        return {"tx_packets": self.packets}

    def drop_sources(self) -> dict[str, bytes]:
        assert not self.closed
        return {"drop_icrc": self.gid}

    def close(self) -> None:
        self.closed += 1


def test_an_adapter_ends_with_its_last_queue_pair_and_its_counters_go_on() -> None:
    hca, next_hca = Hca(OURS6, 3), Hca(OURS4, 4)
    first = Adapter(cast(SoftHca, hca))
    parent, child = object(), object()
    first.enter(parent)
    first.enter(child)
    second = Adapter(cast(SoftHca, next_hca), first)
    first.leave()
    assert not first.is_current
    first.part(parent)
    assert not hca.closed
    assert second.counters() == {"tx_packets": 7}
    assert first.drop_sources() == {"drop_icrc": Gid.of_ip(OURS6)}
    for _ in range(2):
        first.part(child)
        assert [hca.closed, next_hca.closed] == [1, 0]
    next_hca.packets = 5
    assert second.counters() == {"tx_packets": 8}
    assert first.counters() == {"tx_packets": 3}
    assert first.drop_sources() == {}
    assert second.is_current
    second.leave()
    assert [hca.closed, next_hca.closed] == [1, 1]
