# SPDX-License-Identifier: BSD-2-Clause
"""The tester's links on the ports of two hosts: every queue pair, groups, queue pair 1, a connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from ipoibu.base.addr import Gid, HwAddr
from ipoibu.base.errors import UsageError
from ipoibu.conform.link import MULTICAST_QPN, CannotSend, Heard, QueuePair
from ipoibu.conform.port_link import PortLink
from ipoibu.fabric.base import MeshOptions
from ipoibu.lab import NETDEV, NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

WAIT_S: Final = 60.0
PSNS: Final = 0x123456, 0x654321
LINK: Final = QueuePair.MINE, QueuePair.OTHER, QueuePair.WATCHER
ARP_REQUEST: Final = bytes.fromhex("080600000020080014040001")
ARP_REPLY: Final = bytes.fromhex("080600000020080014040002")
BROADCAST: Final = b"\0\xff\xff\xff" + bytes.fromhex("ff12401bffff000000000000ffffffff")
GROUP: Final = bytes.fromhex("ff12601bffff0000000000000001ff00")

Pair = tuple[PortLink, PortLink]


def open_link(host: Host) -> PortLink:
    return host.namespace.inside(lambda: PortLink(f"soft:{NETDEV}"))


@pytest.fixture
def pair(idle: NamespaceLab) -> Iterator[Pair]:
    with ExitStack() as stack:
        first, second = links = [open_link(host) for host in idle.hosts[:2]]
        for link in links:
            stack.callback(link.close)
        yield first, second


def frame(number: int) -> bytes:
    return bytes.fromhex("08060000") + bytes([number]) * 60


def hear(link: PortLink, queue_pair: QueuePair) -> Heard:
    """Return the next arrival at the queue pair."""
    end = time.monotonic() + WAIT_S
    while (heard := link.receive(end)) is not None:
        if heard.queue_pair is queue_pair:
            return heard
    raise AssertionError(f"nothing came to {queue_pair.name}")


def exchange(receiver: PortLink, sender: PortLink) -> Heard:
    """Return the next message. The sender has to see acknowledgements, and to repeat what is lost."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        sender.receive(sender.now())
        heard = receiver.receive(receiver.now() + 0.05)
        if heard is not None and heard.queue_pair is QueuePair.RC:
            return heard
    raise AssertionError("no message came")


def group_address(mgid: bytes) -> bytes:
    return b"\0" + MULTICAST_QPN.to_bytes(3, "big") + mgid


def test_each_queue_pair_of_the_link_reaches_each(pair: Pair) -> None:
    first, second = pair
    assert len({first.address(queue_pair) for queue_pair in LINK}) == 3
    for number, source in enumerate(LINK):
        for target in LINK:
            first.send(source, second.address(target), frame(number))
            heard = hear(second, target)
            sender = HwAddr.unpack(first.address(source))
            assert (heard.frame, heard.qpn, heard.sgid) == (
                frame(number),
                sender.qpn,
                sender.gid.raw,
            )


def test_wrong_keys_do_not_reach_the_link_but_each_other(pair: Pair) -> None:
    """E6, E7."""
    first, second = pair
    mine = second.address(QueuePair.MINE)
    for wrong in (QueuePair.WRONG_QKEY, QueuePair.WRONG_PKEY):
        first.send(wrong, mine, frame(1))
        first.send(wrong, second.address(wrong), frame(2))
        assert hear(second, wrong).frame == frame(2)  # of one socket, so the other one came before
    first.send(QueuePair.MINE, mine, frame(3))
    assert hear(second, QueuePair.MINE).frame == frame(3)


def test_a_group_reaches_members_and_is_no_news_to_its_sender(pair: Pair) -> None:
    """E8."""
    first, second = pair
    for link in pair:
        link.join(GROUP)
        link.join(GROUP)
    first.send(QueuePair.OTHER, group_address(GROUP), frame(1))
    heard = hear(second, QueuePair.MINE)
    assert heard.dgid == GROUP
    second.send(QueuePair.MINE, first.address(QueuePair.MINE), frame(2))
    assert hear(first, QueuePair.MINE).frame == frame(2)  # not the echo
    second.leave(GROUP)
    first.send(QueuePair.MINE, group_address(GROUP), frame(3))
    first.send(QueuePair.MINE, second.address(QueuePair.MINE), frame(4))
    assert hear(second, QueuePair.MINE).frame == frame(4)


def test_a_management_datagram_reaches_queue_pair_1(pair: Pair) -> None:
    first, second = pair
    mad = bytes(255) + b"\1"
    second.send(QueuePair.GSI, first.address(QueuePair.MINE), mad)  # opens queue pair 1 of both
    first.send(QueuePair.GSI, second.address(QueuePair.MINE), mad)
    heard = hear(second, QueuePair.GSI)
    assert (heard.frame, heard.qpn) == (mad, 1)
    with pytest.raises(CannotSend, match="256 bytes"):
        first.send(QueuePair.GSI, second.address(QueuePair.MINE), mad + b"x")


def test_a_connection_carries_long_messages_both_ways_and_again(pair: Pair) -> None:
    for _ in range(2):
        numbers = [link.open_connection() for link in pair]
        for link, peer, psns, number in zip(
            pair, pair[::-1], (PSNS, PSNS[::-1]), numbers[::-1], strict=True
        ):
            link.connect(peer.address(QueuePair.MINE), number, 2048, *psns)
        for link, peer in (pair, pair[::-1]):
            message = frame(7) * 1000
            link.send_message(message)
            assert exchange(peer, link).frame == message
    for link in pair:
        link.close_connection()
        link.close_connection()
        with pytest.raises(CannotSend, match="no connection"):
            link.send_message(b"x")


def test_what_the_port_cannot_carry_is_no_fault_of_the_peer(pair: Pair) -> None:
    first, second = pair
    with pytest.raises(CannotSend, match="at most"):
        first.send(QueuePair.MINE, second.address(QueuePair.MINE), bytes(20000))
    with pytest.raises(CannotSend, match="RC"):
        first.address(QueuePair.RC)


def test_a_link_says_what_it_is_and_gives_the_port_back(idle: NamespaceLab) -> None:
    host = idle.hosts[0]
    for _ in range(2):  # the port is free again
        link = open_link(host)
        try:
            assert (link.params.pkey, link.params.mtu) == (0xFFFF, 2044)
            assert f"soft:{NETDEV}/1 (Ethernet on {NETDEV}), GID fe80::" in link.description
            assert Gid(link.address(QueuePair.MINE)[4:]).raw[:2] == b"\xfe\x80"
        finally:
            link.close()
            link.close()


def test_peers_take_the_place_of_multicast(bare: NamespaceLab) -> None:
    """On a link without multicast each queue pair is a host of its own, which the others know."""
    first, second = bare.hosts[:2]
    second.device, second.peer = f"{second.device},ipv4", _underlay(first)
    first.run(["ip", "address", "add", f"{_underlay(first)}/24", "dev", NETDEV])
    second.run(["ip", "address", "add", f"{_underlay(second)}/24", "dev", NETDEV])
    second.start()
    peers = MeshOptions(peers=(_underlay(second),))
    link = first.namespace.inside(lambda: PortLink(f"soft:{NETDEV},ipv4", peers=peers))
    try:
        for queue_pair in LINK:
            link.send(queue_pair, BROADCAST, arp_request(link.address(queue_pair), second))
            reply = hear(link, queue_pair)
            assert reply.frame[:12] == ARP_REPLY
            assert reply.frame[12:32][4:] == reply.sgid
        assert link.open_connection() > 1
    finally:
        link.close()


def test_a_link_without_multicast_needs_a_peer(bare: NamespaceLab) -> None:
    host = bare.hosts[0]
    host.run(["ip", "address", "add", f"{_underlay(host)}/24", "dev", NETDEV])
    with pytest.raises(UsageError, match="name a peer"):
        host.namespace.inside(lambda: PortLink(f"soft:{NETDEV},ipv4"))
    open_link(host).close()  # the failure has given the port back


def _underlay(host: Host) -> str:
    return f"192.0.2.{host.number}"


def arp_request(sender: bytes, asked: Host) -> bytes:
    """RFC 4391 §9.1.2, with the encapsulation header."""
    ours, theirs = (ip.packed for ip in (asked.ipv4.ip + 100, asked.ipv4.ip))
    return ARP_REQUEST + sender + ours + bytes(20) + theirs
