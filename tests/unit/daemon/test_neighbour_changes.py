# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.base.errors import UsageError
from ipoibu.daemon.interface.neighbour_changes import NeighbourChanges
from tests.doubles.endpoint import EndpointDouble

HWADDR = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:77:77"


class Table(EndpointDouble):
    def __init__(self) -> None:
        self.log: list[object] = []

    def set_neighbour(self, ip: IpAddress, hwaddr: HwAddr, *, replaces: bool) -> None:
        self.log.append((str(ip), str(hwaddr), replaces))

    def remove_neighbour(self, ip: IpAddress) -> None:
        self.log.append(str(ip))

    def flush_neighbours(self, *, permanent: bool) -> None:
        self.log.append(permanent)


def act(action: str, **request: Any) -> list[object]:
    table = Table()
    with ThreadPoolExecutor(1) as executor:
        changes = NeighbourChanges(table, executor)
        asyncio.run(changes.actions[action](request))
    return table.log


def test_requests_change_the_table() -> None:
    assert act("neigh-set", ip="10.0.0.2", lladdr=HWADDR) == [("10.0.0.2", HWADDR, False)]
    assert act("neigh-set", ip="fe80::2", lladdr=HWADDR, replaces=True) == [
        ("fe80::2", HWADDR, True)
    ]
    assert act("neigh-del", ip="10.0.0.2") == ["10.0.0.2"]
    assert act("neigh-flush") == [False]
    assert act("neigh-flush", permanent=True) == [True]


@pytest.mark.parametrize(
    ("action", "request_", "reason"),
    [
        ("neigh-set", {"lladdr": HWADDR}, '"ip" is a text'),
        ("neigh-set", {"ip": "10.0.0.2", "lladdr": 7}, '"lladdr" is a text'),
        ("neigh-set", {"ip": "10.0.0.2", "lladdr": "00:11"}, "not a 20-byte hardware address"),
        ("neigh-set", {"ip": "10.0.0", "lladdr": HWADDR}, "is not an IP address"),
        ("neigh-set", {"ip": "10.0.0.2", "lladdr": HWADDR, "replaces": 1}, "true or false"),
        ("neigh-del", {"ip": "fe80::2%ib0"}, "remove the %zone"),
        ("neigh-flush", {"permanent": "yes"}, "true or false"),
    ],
)
def test_what_is_not_a_change_is_refused(
    action: str, request_: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        act(action, **request_)
