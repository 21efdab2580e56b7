# SPDX-License-Identifier: BSD-2-Clause
"""Packets to groups that are longer than the group's MTU, as connected mode has them."""

from __future__ import annotations

import ipaddress
import struct

import pytest

from ipoibu import _core
from ipoibu.base.addr import Gid, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of
from ipoibu.wire.ip import checksum
from tests.unit.core.test_pump import BROADCAST, MGID, MTU, SEND, Host, ipv4, ipv6, settle

LARGE = 65520
GROUP4, GROUP6 = ipaddress.ip_address("239.1.2.3"), ipaddress.ip_address("ff02::5")
ALL = ipaddress.ip_address("255.255.255.255")
OURS = ipaddress.ip_address("fe80::1")
PAYLOAD = bytes(number % 251 for number in range(60000))
TO_GROUP = Destination(MGID, Qpn(0xFFFFFF))


@pytest.fixture
def hosts() -> tuple[Host, Host]:
    switch, made = _core.MemorySwitch(1), []
    for gid in ("fe80::a", "fe80::b"):
        address = Gid.parse(gid)
        port = _core.MemoryPort(switch, address.raw)
        queue = _core.QueueDevice()
        made.append(Host(port, queue, _core.Pump(port, queue, mtu=MTU, device_mtu=LARGE), address))
        port.attach(MGID.raw)
    first = made[0].pump
    for group in (GROUP4, GROUP6, ALL):
        first.neigh_set(key_of(group), SEND, TO_GROUP, MTU)
    first.own_set(key_of(OURS), True)
    return made[0], made[1]


def sent(hosts: tuple[Host, Host], packets: list[bytes]) -> list[bytes]:
    a, b = hosts
    got = []
    assert a.queue.send(packets) == len(packets)
    for _ in range(40):
        settle(a, b)
        got += b.queue.recv(64)
    return got


def whole4(fragments: list[bytes]) -> tuple[bytes, set[int]]:
    """Check headers of IPv4 fragments; return their payload, put together, and their ids."""
    payload, more = b"", True
    for data in fragments:
        head = (data[0] & 15) * 4
        length, _, place = struct.unpack_from(">HHH", data, 2)
        assert more
        assert length == len(data) <= MTU
        assert checksum(data[:head]) == 0
        assert (place & 0x1FFF) * 8 == len(payload)
        more = bool(place & 0x2000)
        assert not place & 0xC000
        payload += data[head:]
    assert not more
    return payload, {struct.unpack_from(">H", data, 4)[0] for data in fragments}


@pytest.mark.parametrize("n", [MTU - 19, 5000, 60000])
def test_a_long_packet_to_a_group_arrives_in_fragments(hosts: tuple[Host, Host], n: int) -> None:
    """In connected mode an IPv4 sender cannot learn that a group takes less (RFC 1122 §3.2.2)."""
    fragments = sent(hosts, [ipv4("10.0.0.1", "239.1.2.3", PAYLOAD[:n])])
    payload, ids = whole4(fragments)
    assert payload == PAYLOAD[:n]
    assert ids == {0}  # the packet's own
    a, _ = hosts
    assert a.counter("tx_fragmented") == 1
    assert a.counter("tx_packets") == a.counter("tx_multicast_packets") == len(fragments)


def test_a_packet_that_fits_stays_whole(hosts: tuple[Host, Host]) -> None:
    packet = ipv4("10.0.0.1", "239.1.2.3", PAYLOAD[: MTU - 20])
    assert sent(hosts, [packet]) == [packet]
    assert hosts[0].counter("tx_fragmented") == 0


def test_packets_with_df_get_ids_that_differ(hosts: tuple[Host, Host]) -> None:
    """Their own ids mean nothing (RFC 6864 §4.1): Linux writes 0."""
    packet = bytearray(ipv4("10.0.0.1", "239.1.2.3", PAYLOAD[:4000]))
    packet[6] |= 0x40
    fragments = sent(hosts, [bytes(packet)] * 3)
    parts = [fragments[at : at + 2] for at in (0, 2, 4)]
    all_ids = [whole4(part)[1] for part in parts]
    assert all(len(ids) == 1 for ids in all_ids)
    assert len(set.union(*all_ids)) == 3


def test_a_fragment_is_cut_further_and_keeps_its_place(hosts: tuple[Host, Host]) -> None:
    packet = bytearray(ipv4("10.0.0.1", "239.1.2.3", PAYLOAD[:4096]))
    packet[4:8] = struct.pack(">HH", 77, 0x2000 | 100)
    fragments = sent(hosts, [bytes(packet)])
    places = [struct.unpack_from(">HH", data, 4) for data in fragments]
    assert places == [(77, 0x2000 | 100), (77, 0x2000 | 353), (77, 0x2000 | 606)]


def test_only_options_that_are_to_be_copied_are_in_all_fragments(hosts: tuple[Host, Host]) -> None:
    """RFC 791 §3.1: router alert is, record route is not."""
    packet = ipv4("10.0.0.1", "239.1.2.3", PAYLOAD[:4000])
    options = b"\x94\x04\0\0" + b"\x07\x07\x04\0\0\0\0" + b"\0"
    head = bytearray(packet[:20])
    head[0] = 0x48
    struct.pack_into(">H", head, 2, 4032)
    first, second = sent(hosts, [bytes(head) + options + packet[20:]])
    assert first[20:32] == options
    assert second[20:32] == b"\x94\x04\0\0" + b"\1" * 7 + b"\0"
    assert whole4([first, second])[0] == PAYLOAD[:4000]


def test_broadcasts_are_cut_too(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    a.pump.route_set(key_of(ipaddress.ip_address("10.0.0.255")), 128, BROADCAST)
    for to in ("255.255.255.255", "10.0.0.255"):
        assert whole4(sent(hosts, [ipv4("10.0.0.1", to, PAYLOAD[:5000])]))[0] == PAYLOAD[:5000]


@pytest.mark.parametrize("extension", [b"", b"\x11\0\x05\x02\0\0\x01\0"])
def test_ipv6_gets_fragment_headers(hosts: tuple[Host, Host], extension: bytes) -> None:
    """RFC 8200 §4.5: behind the hop-by-hop options."""
    kind = 0 if extension else 17
    packet = ipv6("fe80::1", "ff02::5", extension + PAYLOAD[:5000], next_header=kind)
    fragments = sent(hosts, [packet, packet])
    assert len(fragments) == 6
    ids = set()
    start = 40 + len(extension)
    for whole in (fragments[:3], fragments[3:]):
        payload = b""
        for data in whole:
            assert len(data) <= MTU
            assert struct.unpack_from(">H", data, 4)[0] == len(data) - 40
            assert data[40 if extension else 6] == 44
            following, reserved, place, number = struct.unpack_from(">BBHI", data, start)
            assert (following, reserved, place & ~7) == (17, 0, len(payload))
            assert bool(place & 1) == (data is not whole[-1])
            payload += data[start + 8 :]
            ids.add(number)
        assert payload == PAYLOAD[:5000]
    assert len(ids) == 2


def test_ipv6_of_others_is_too_big_for_a_router(hosts: tuple[Host, Host]) -> None:
    """RFC 8200 §5, RFC 4443 §2.4 (e.3): a router tells the sender, also of multicast."""
    a, _ = hosts
    packet = ipv6("fd00::9", "ff02::5", PAYLOAD[:5000])
    assert sent(hosts, [packet]) == []
    [event] = a.pump.events()
    assert (event.type, event.next_hop, event.mtu) == (_core.EVENT_TOO_BIG, key_of(GROUP6), MTU)


def test_unicast_is_not_cut(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    target = ipaddress.ip_address("10.0.0.2")
    a.pump.neigh_set(key_of(target), SEND, b.destination, MTU)
    assert sent(hosts, [ipv4("10.0.0.1", "10.0.0.2", PAYLOAD[:5000])]) == []
    assert a.counter("tx_too_big") == 1


def test_the_packet_that_the_engine_kept_is_cut_too(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.send_packet(ipv4("10.0.0.1", "239.1.2.3", PAYLOAD))
    assert whole4(sent(hosts, []))[0] == PAYLOAD
    assert b.counter("rx_packets") == 30


def test_a_group_that_takes_no_fragment_gets_nothing(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    a.pump.neigh_set(key_of(GROUP4), SEND, TO_GROUP, 24)
    assert sent(hosts, [ipv4("10.0.0.1", "239.1.2.3", PAYLOAD[:5000])]) == []
    assert a.counter("tx_too_big") == 1
