# SPDX-License-Identifier: BSD-2-Clause
"""The tester's link on ports with a subnet administrator: `FakeSa` and the in-process fabric."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.errors import Closed, LinkError
from ipoibu.conform import port_link
from ipoibu.conform.link import MULTICAST_QPN, CannotSend, LinkParams, QueuePair
from ipoibu.conform.port_link import PortLink
from ipoibu.wire.mcmember import JoinState
from tests.doubles.administered import BROADCAST, DEFAULT, IbPort, Subnet, states, until
from tests.doubles.fake_sa import port_gid

FRAME = bytes.fromhex("08060000") + bytes(60)
GROUP = Gid.parse("ff12:401b:ffff::f01:203")
ALL_GROUPS = (GROUP, BROADCAST)


@pytest.fixture
def subnet() -> Iterator[Subnet]:
    made = Subnet()
    yield made
    made.close()


def opened(monkeypatch: pytest.MonkeyPatch, port: IbPort) -> PortLink:
    monkeypatch.setattr(port_link, "open_port", lambda *_, **__: port)
    return PortLink("memory")


@pytest.fixture
def links(subnet: Subnet, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PortLink, PortLink]]:
    first, second = (opened(monkeypatch, subnet.port((0xFFFF, 0x0001, 0x8001))) for _ in range(2))
    yield first, second
    first.close()
    second.close()


def group_address(group: Gid) -> bytes:
    return HwAddr(Qpn(MULTICAST_QPN), group).pack()


def test_the_link_is_as_the_broadcast_groups_record_says(
    subnet: Subnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1."""
    subnet.sa.make_broadcast(DEFAULT, qkey=0x1B1B, mtu_bytes=1024)
    link = opened(monkeypatch, subnet.port())
    assert link.params == LinkParams(0xFFFF, 0x1B1B, 1020, 2)
    assert states(subnet.sa, BROADCAST, 2) == JoinState.FULL_MEMBER
    link.close()
    assert not states(subnet.sa, BROADCAST, 2)


def test_datagrams_follow_the_path_that_the_administrator_says(
    links: tuple[PortLink, PortLink],
) -> None:
    """B6."""
    first, second = links
    for queue_pair in (QueuePair.MINE, QueuePair.WATCHER):
        first.send(QueuePair.OTHER, second.address(queue_pair), FRAME)
        heard = second.receive(second.now() + 60)
        assert heard is not None
        assert (heard.queue_pair, heard.frame, heard.sgid) == (
            queue_pair,
            FRAME,
            first.address(QueuePair.OTHER)[4:],
        )
    nobody = HwAddr(Qpn(5), port_gid(99)).pack()
    with pytest.raises(CannotSend, match="subnet administrator"):
        first.send(QueuePair.MINE, nobody, FRAME)


def test_a_group_has_the_tester_as_a_member_until_it_leaves(
    subnet: Subnet, links: tuple[PortLink, PortLink]
) -> None:
    """M1, M3."""
    first, second = links
    for group in ALL_GROUPS:
        second.join(group.raw)
        assert states(subnet.sa, group, 3) == JoinState.FULL_MEMBER
        first.send(QueuePair.MINE, group_address(group), FRAME)
        heard = second.receive(second.now() + 60)
        assert heard is not None
        assert heard.dgid == group.raw
    assert states(subnet.sa, GROUP, 2) == JoinState.SEND_ONLY_FULL_MEMBER
    for group in ALL_GROUPS:
        second.leave(group.raw)
        second.leave(group.raw)
    assert not states(subnet.sa, GROUP, 3)
    assert states(subnet.sa, BROADCAST, 3)  # as long as it is on the link
    first.send(QueuePair.MINE, group_address(BROADCAST), FRAME)
    assert second.receive(second.now()) is None


def test_its_own_datagrams_to_a_group_are_no_news(links: tuple[PortLink, PortLink]) -> None:
    """E8."""
    first, _ = links
    first.join(BROADCAST.raw)
    first.send(QueuePair.OTHER, group_address(BROADCAST), FRAME)
    assert first.receive(first.now()) is None


def test_what_the_device_lacks_is_no_fault_of_the_peer(links: tuple[PortLink, PortLink]) -> None:
    first, second = links
    peer = second.address(QueuePair.MINE)
    with pytest.raises(CannotSend, match="connected mode"):
        first.open_connection()
    with pytest.raises(CannotSend, match="queue pair 1"):
        first.send(QueuePair.GSI, peer, bytes(256))
    with pytest.raises(CannotSend, match="no connection"):
        first.send_message(FRAME)
    assert first.address(QueuePair.WRONG_PKEY) != peer


def test_a_silent_administrator_is_no_fault_of_the_peer(
    subnet: Subnet, links: tuple[PortLink, PortLink]
) -> None:
    first, second = links
    subnet.sa.is_deaf = True
    with pytest.raises(CannotSend, match="no answer"):
        first.send(QueuePair.MINE, second.address(QueuePair.MINE), FRAME)
    with pytest.raises(CannotSend, match="no answer"):
        first.join(GROUP.raw)


def test_a_link_that_does_not_open_gives_the_port_back(
    subnet: Subnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    subnet.sa.forget()
    port = subnet.port()
    with pytest.raises(LinkError, match="ipoib"):
        opened(monkeypatch, port)
    with pytest.raises(Closed):
        port.sa.submit(lambda: port.sa.group(BROADCAST))
    until(lambda: not states(subnet.sa, BROADCAST, 2))
