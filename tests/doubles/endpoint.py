# SPDX-License-Identifier: BSD-2-Clause
"""An endpoint that nobody may call; a test's double overrides what its subject calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import Any, NoReturn

from ipoibu._core import CapturedFrame
from ipoibu.base.addr import HwAddr, IpAddress, IpInterface
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.base.route import AskRoute, RouteChange
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.machine.transition import Transition
from ipoibu.proto.neigh.host_addresses import ArpPolicy, AskArp
from ipoibu.proto.neigh.proxy_networks import AskRouteBehind, ProxyRules


def _refuse() -> NoReturn:
    raise AssertionError("the test expects no such call")


class EndpointDouble(EndpointContract):
    """Refuses every call."""

    # Observe

    @property
    def port(self) -> PortInfo:
        _refuse()

    @property
    def socket_fd(self) -> int | None:
        _refuse()

    @property
    def params(self) -> PartitionParams:
        _refuse()

    @property
    def hwaddr(self) -> HwAddr:
        _refuse()

    @property
    def mtu(self) -> int:
        _refuse()

    @property
    def datagram_mtu(self) -> int:
        _refuse()

    @property
    def busy_poll_us(self) -> int | None:
        _refuse()

    @property
    def mode(self) -> str:
        _refuse()

    def show(self) -> dict[str, Any]:
        _refuse()

    def neighbours(self) -> list[dict[str, Any]]:
        _refuse()

    def groups(self) -> list[dict[str, Any]]:
        _refuse()

    def connections(self) -> list[dict[str, Any]]:
        _refuse()

    def peers(self) -> list[dict[str, Any]]:
        _refuse()

    def guests(self) -> list[dict[str, Any]]:
        _refuse()

    def stats(self) -> dict[str, int]:
        _refuse()

    def drop_sources(self) -> dict[str, str]:
        _refuse()

    def paths(self) -> list[dict[str, Any]]:
        _refuse()

    def watch(self, sink: Callable[[Transition], None], /) -> Callable[[], None]:
        _refuse()

    def capture(
        self, sink: Callable[[Sequence[CapturedFrame]], None], snap_bytes: int, /
    ) -> Callable[[], None]:
        _refuse()

    async def aping(self, target: IpAddress | HwAddr, timeout: float, /) -> dict[str, Any]:
        _refuse()

    async def aprogress(self) -> None:
        _refuse()

    # Host inputs

    def address_added(self, address: IpInterface, is_checked: bool, is_optimistic: bool, /) -> None:
        _refuse()

    def address_removed(self, address: IpInterface, /) -> None:
        _refuse()

    def routes_changed(self, changes: list[RouteChange], /) -> None:
        _refuse()

    def routes_left_out(self, count: int, /) -> None:
        _refuse()

    def answer_routes(self, ask: AskRoute, /) -> None:
        _refuse()

    def router_changed(self, is_router: bool, /) -> None:
        _refuse()

    def memberships_changed(self, groups: frozenset[IpAddress], /) -> None:
        _refuse()

    def allmulticast_changed(self, is_wanted: bool, /) -> None:
        _refuse()

    def arp_changed(self, others: frozenset[IPv4Address], policy: ArpPolicy, /) -> None:
        _refuse()

    def answer_arp(self, ask: AskArp, /) -> None:
        _refuse()

    def proxies_changed(self, ips: frozenset[IpAddress], /) -> None:
        _refuse()

    def proxied_changed(self, rules: ProxyRules, /) -> None:
        _refuse()

    def answer_proxy(self, ask: AskRouteBehind, /) -> None:
        _refuse()

    def set_neighbour(self, ip: IpAddress, hwaddr: HwAddr, *, replaces: bool) -> None:
        _refuse()

    def remove_neighbour(self, ip: IpAddress, /) -> None:
        _refuse()

    def flush_neighbours(self, *, permanent: bool) -> None:
        _refuse()

    def set_busy_poll(self, busy_poll_us: int | None, /) -> None:
        _refuse()

    def set_mode(self, mode: str, /) -> None:
        _refuse()

    def set_peers(self, peers: Sequence[str], /) -> None:
        _refuse()

    def bind_guests(self, config: EthernetConfig, /) -> None:
        _refuse()

    def rewired(self) -> None:
        _refuse()

    # Life

    def open(self) -> None:
        _refuse()

    def close(self) -> None:
        _refuse()
