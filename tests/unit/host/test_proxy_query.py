# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from ipoibu.base.errors import LinkError
from ipoibu.host.netsocket import NetlinkSocket
from ipoibu.host.proxy_query import ProxyQuery
from ipoibu.host.route_query import RTM_GETNEXTHOP, RTM_GETROUTE
from tests.unit.host.route_messages import INDEX, OTHER, message

TARGET, ASKER = ip_address("10.6.0.7"), ip_address("10.7.0.9")
NHA_ID, NHA_GROUP, NHA_OIF = 1, 2, 5


class Kernel:
    """A kernel with one route and some nexthop objects; it refuses what it does not have."""

    def __init__(self) -> None:
        self.route: bytes | None = None
        self.nexthops: dict[int, bytes] = {}

    def exchange(
        self, kind: int, flags: int, body: bytes, action: str
    ) -> Iterator[tuple[bytes, int]]:
        if kind == RTM_GETROUTE:
            found = self.route
        else:
            assert kind == RTM_GETNEXTHOP
            (number,) = struct.unpack_from("=I", body, 12)
            found = self.nexthops.get(number)
        if found is None:
            raise LinkError(action)
        yield found, 0

    def add(self, number: int, *values: tuple[int, bytes]) -> None:
        body = bytes(8)
        for no, value in ((NHA_ID, struct.pack("=I", number)), *values):
            body += struct.pack("=HH", 4 + len(value), no) + value + bytes(-len(value) % 4)
        self.nexthops[number] = struct.pack("=IHHII", 16 + len(body), 104, 0, 0, 0) + body

    def add_hop(self, number: int, index: int) -> None:
        self.add(number, (NHA_OIF, struct.pack("=I", index)))

    def add_group(self, number: int, *members: int) -> None:
        group = b"".join(struct.pack("=IBBH", member, 0, 0, 0) for member in members)
        self.add(number, (NHA_GROUP, group))


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> Iterator[ProxyQuery]:
    query = ProxyQuery(INDEX)
    opened: NetlinkSocket = query._socket
    with monkeypatch.context() as patch:
        patch.setattr(query, "_socket", kernel)
        yield query
    opened.close()


@pytest.mark.parametrize(
    ("data", "answer", "obstacle"),
    [
        (message("10.6.0.0/16", index=OTHER), "specific", None),
        (message("0.0.0.0/0", "10.8.0.1", index=OTHER), "default", None),
        (message("10.6.0.0/16"), None, "its route leads to the link"),
        (
            message("10.6.0.0/16", hops=[(OTHER, "10.8.0.1", 1), (INDEX, "10.7.0.1", 1)]),
            None,
            "its route leads to the link",
        ),
        (message("10.6.0.7/32", index=OTHER, kind=2), None, "it is an address of this host"),
        (message("10.6.0.0/16", index=OTHER, kind=7), None, "it has no route"),
        (None, None, "it has no route"),
    ],
)
def test_the_route_says_whether_a_host_is_behind_us(
    query: ProxyQuery, kernel: Kernel, data: bytes | None, answer: str | None, obstacle: str | None
) -> None:
    kernel.route = data
    assert query.ask(ASKER, TARGET) == answer
    assert query.obstacle(TARGET) == obstacle
    assert query.is_behind(TARGET) == (answer is not None)


def test_a_nexthop_object_that_the_route_names_by_its_number_alone_is_looked_up(
    query: ProxyQuery, kernel: Kernel
) -> None:
    """The kernel names it so under net.ipv4.nexthop_compat_mode=0."""
    kernel.add_hop(1, OTHER)
    kernel.add_hop(2, INDEX)
    kernel.add_group(3, 1)
    kernel.add_group(4, 1, 2)
    answers = {}
    for number in (1, 2, 3, 4, 5):
        kernel.route = message("10.6.0.0/16", nexthop=number)
        answers[number] = query.ask(ASKER, TARGET)
    assert answers == {1: "specific", 2: None, 3: "specific", 4: None, 5: None}
