# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import PROXY_NETWORKS_MAX
from ipoibu.daemon.config.parsers import Proxied, parse_proxy
from ipoibu.daemon.interface.proxy_table import ProxyTable

KERNELS: set[IpAddress] = {ip_address("fd00::7"), ip_address("10.0.0.7")}


class Table(ProxyTable):
    """A table that counts its changes, beside two entries of the kernel."""

    def __init__(self, *given: str) -> None:
        self.changes = 0
        super().__init__(map(parse_proxy, given), self._count, lambda: KERNELS)

    def _count(self) -> None:
        self.changes += 1

    def act(self, action: str, proxy: object = None) -> Any:
        return asyncio.run(self.actions[action]({"proxy": proxy}))  # type: ignore[arg-type]

    def rows(self) -> list[tuple[str, str]]:
        return [(row["proxy"], row["origin"]) for row in self.act("proxies")]


def test_proxies_come_from_the_option_from_commands_and_from_the_kernel() -> None:
    table = Table("10.1.0.0/16", "10.2.0.1", "10.1.0.0/16")
    assert table.networks == (ip_network("10.1.0.0/16"), ip_network("10.2.0.1/32"))
    assert not table.by_routes
    table.act("proxy-add", "fd00::/64")
    table.act("proxy-add", "routes")
    assert table.by_routes
    assert ip_network("fd00::/64") in table.networks
    assert table.rows() == [
        ("10.1.0.0/16", "option"),
        ("10.2.0.1", "option"),
        ("fd00::/64", "command"),
        ("routes", "command"),
        ("10.0.0.7", "kernel"),
        ("fd00::7", "kernel"),
    ]
    assert table.changes == 2


def test_a_command_removes_either_kind() -> None:
    table = Table("10.1.0.0/16")
    table.act("proxy-add", "routes")
    table.act("proxy-del", "routes")
    table.act("proxy-del", "10.1.0.0/16")
    assert (table.networks, table.by_routes) == ((), False)
    with pytest.raises(UsageError, match="is no proxy entry"):
        table.act("proxy-del", "10.1.0.0/16")


def test_another_value_of_the_option_leaves_those_of_commands() -> None:
    table = Table("10.1.0.0/16")
    table.act("proxy-add", "10.2.0.0/16")
    table.replace([parse_proxy("10.3.0.0/16")])
    assert table.networks == (ip_network("10.3.0.0/16"), ip_network("10.2.0.0/16"))


def test_there_are_so_many_and_no_more() -> None:
    table = Table(*(f"10.{i >> 8}.{i & 255}.0/24" for i in range(PROXY_NETWORKS_MAX)))
    with pytest.raises(UsageError, match="more than"):
        table.act("proxy-add", "192.0.2.1")
    with pytest.raises(UsageError, match="already"):
        table.act("proxy-add", "10.0.0.0/24")
    more = [ip_network((i << 8, 24)) for i in range(PROXY_NETWORKS_MAX + 1)]
    with pytest.raises(UsageError, match="more than"):
        table.replace(more)
    assert table.changes == 0


@pytest.mark.parametrize("text", [None, 7, "10.1.0.1/16", "x" * 1000])
def test_what_is_no_proxy_is_refused(text: object) -> None:
    with pytest.raises(UsageError):
        Table().act("proxy-add", text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("224.0.0.0/8", "no host"),
        ("ff02::1", "no host"),
        ("127.0.0.0/8", "no host"),
        ("::1", "no host"),
        ("0.0.0.0", "no host"),
        ("::", "no host"),
        ("fe80::/64", "link-local"),
        ("169.254.1.0/24", "link-local"),
        ("fd00::1%ib0", "zone"),
        ("route", "nor `routes`"),
    ],
)
def test_no_host_behind_us_has_such_an_address(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_proxy(text)


def test_the_text_of_a_proxy_is_a_network_or_routes() -> None:
    assert parse_proxy("routes") is Proxied.ROUTES
    assert parse_proxy("::/0") == ip_network("::/0")
    assert parse_proxy("0.0.0.0/0") == ip_network("0.0.0.0/0")
