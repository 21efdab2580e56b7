# SPDX-License-Identifier: BSD-2-Clause
"""DHCP messages that the pump passes to the engine, and those that it does not."""

from __future__ import annotations

import ipaddress
import struct

import pytest

from ipoibu import _core
from ipoibu.base.addr import MULTICAST_QPN, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of
from tests.unit.core.test_pump import (
    B4,
    BROADCAST4,
    MGID,
    MTU,
    SEND,
    Host,
    ipv4,
    ipv6,
    make_host,
    settle,
)

CLIENT, SERVER = 68, 67
ALL = "255.255.255.255"


def udp(source: str, target: str, source_port: int, target_port: int, protocol: int = 17) -> bytes:
    datagram = struct.pack(">HHHH", source_port, target_port, 20, 0) + bytes(12)
    return ipv4(source, target, datagram, protocol)


def changed(packet: bytes, at: int, value: bytes) -> bytes:
    return packet[:at] + value + packet[at + len(value) :]


REQUEST = udp("0.0.0.0", ALL, CLIENT, SERVER)
RENEWAL = udp("10.0.0.1", "10.0.0.2", CLIENT, SERVER)
REPLY = udp("10.0.0.2", "10.0.0.1", SERVER, CLIENT)
A4 = ipaddress.ip_address("10.0.0.1")


@pytest.fixture
def pair() -> tuple[Host, Host]:
    switch = _core.MemorySwitch(1)
    a, b = make_host(switch, "fe80::a"), make_host(switch, "fe80::b")
    for each, other, ip in ((a, b, B4), (b, a, A4)):
        each.pump.neigh_set(key_of(ip), SEND, other.destination, MTU)
        each.port.attach(MGID.raw)
        each.pump.neigh_set(key_of(BROADCAST4), SEND, Destination(MGID, Qpn(MULTICAST_QPN)), MTU)
    return a, b


def events(host: Host) -> list[tuple[int, bytes]]:
    return [(event.type, event.data) for event in host.pump.events()]


def test_a_request_to_everybody_goes_to_the_engine_which_sends_it(pair: tuple[Host, Host]) -> None:
    a, b = pair
    a.queue.send([REQUEST])
    settle(a, b)
    assert events(a) == [(_core.EVENT_HOST, REQUEST)]
    assert b.queue.recv(64) == []
    a.pump.forward(REQUEST)
    settle(a, b)
    assert b.queue.recv(64) == [REQUEST]


def test_a_request_to_one_server_goes_to_the_engine_while_it_watches(
    pair: tuple[Host, Host],
) -> None:
    a, b = pair
    a.queue.send([RENEWAL])
    settle(a, b)
    assert (events(a), b.queue.recv(64)) == ([], [RENEWAL])
    a.pump.dhcp_watch()
    settle(a)
    a.queue.send([RENEWAL])
    settle(a, b)
    assert (events(a), b.queue.recv(64)) == ([(_core.EVENT_HOST, RENEWAL)], [])


def test_a_reply_goes_to_the_engine_while_it_watches(pair: tuple[Host, Host]) -> None:
    a, b = pair
    b.queue.send([REPLY])
    settle(a, b)
    assert (events(a), a.queue.recv(64)) == ([], [REPLY])
    a.pump.dhcp_watch()
    settle(a)
    b.queue.send([REPLY])
    settle(a, b)
    assert (events(a), a.queue.recv(64)) == ([(_core.EVENT_DHCP_REPLY, REPLY)], [])
    assert a.counter("rx_control") == 1


def test_a_flood_of_replies_reaches_the_host_without_the_engine(pair: tuple[Host, Host]) -> None:
    a, b = pair
    a.pump.dhcp_watch()
    settle(a)
    for _ in range(5):
        b.queue.send([REPLY] * 60)
        settle(a, b)
    passed, delivered = len(events(a)), len(a.queue.recv(512))
    assert passed + delivered == 300
    assert 100 <= passed <= 200, "100 a second, and a second may have begun meanwhile"


@pytest.mark.parametrize(
    "packet",
    [
        udp("10.0.0.1", "224.0.0.1", CLIENT, CLIENT),
        udp("10.0.0.1", ALL, SERVER, CLIENT),
        udp("10.0.0.1", ALL, SERVER, SERVER),
        udp("10.0.0.1", ALL, CLIENT, SERVER, protocol=6),
        changed(REQUEST, 6, b"\x20\x00"),
        changed(REQUEST, 6, b"\x00\x01"),
        changed(REQUEST, 2, b"\x00\x1b")[:27],
        changed(REQUEST, 0, b"\x46"),
    ],
    ids=["ports", "reply", "relay", "TCP", "first fragment", "later one", "cut off", "IP options"],
)
def test_other_packets_stay_in_the_pump(pair: tuple[Host, Host], packet: bytes) -> None:
    a, b = pair
    a.pump.dhcp_watch()
    a.pump.neigh_set(key_of(ipaddress.ip_address("224.0.0.1")), SEND, b.destination, MTU)
    settle(a)
    a.queue.send([packet])
    settle(a, b)
    assert (events(a), b.queue.recv(64)) == ([], [packet])


def test_a_renewal_without_neighbour_is_a_miss_once_more(pair: tuple[Host, Host]) -> None:
    """The engine has looked at the packet, not for its next hop."""
    a, b = pair
    a.pump.neigh_del(key_of(B4))
    a.pump.forward(RENEWAL)
    settle(a)
    (miss,) = a.pump.events()
    assert (miss.type, miss.next_hop, miss.data) == (_core.EVENT_MISS, key_of(B4), RENEWAL)
    a.pump.send_packet(RENEWAL)
    settle(a)
    assert events(a) == []
    assert a.counter("tx_unresolved_hold") == 1
    assert b.queue.recv(64) == []


A6 = ipaddress.ip_address("fe80::a")


def udp6(source_port: int, target_port: int, next_header: int = 17) -> bytes:
    datagram = struct.pack(">HHHH", source_port, target_port, 20, 0) + bytes(12)
    return ipv6("fe80::b", "fe80::a", datagram, next_header)


def pass6(pair: tuple[Host, Host], packet: bytes) -> tuple[list[tuple[int, bytes]], list[bytes]]:
    """Send the packet from the second host; return what the first one's engine and device get."""
    a, b = pair
    b.pump.neigh_set(key_of(A6), SEND, a.destination, MTU)
    b.queue.send([packet])
    settle(a, b)
    return events(a), a.queue.recv(64)


def test_a_reply_of_dhcpv6_goes_to_the_engine_while_it_watches(pair: tuple[Host, Host]) -> None:
    reply = udp6(547, 546)
    assert pass6(pair, reply) == ([], [reply])
    pair[0].pump.dhcp_watch()
    settle(pair[0])
    assert pass6(pair, reply) == ([(_core.EVENT_DHCP_REPLY, reply)], [])


@pytest.mark.parametrize(
    "packet",
    [udp6(546, 547), udp6(547, 547), udp6(547, 546, next_header=6), udp6(547, 546)[:44]],
    ids=["request", "relay", "TCP", "cut off"],
)
def test_other_packets_of_ipv6_stay_in_the_pump(pair: tuple[Host, Host], packet: bytes) -> None:
    pair[0].pump.dhcp_watch()
    settle(pair[0])
    packet = packet[:4] + struct.pack(">H", len(packet) - 40) + packet[6:]
    assert pass6(pair, packet) == ([], [packet])
