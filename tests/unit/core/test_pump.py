# SPDX-License-Identifier: BSD-2-Clause
"""The pump, stepped by hand, between two in-process queue pairs and two packet queues."""

from __future__ import annotations

import ipaddress
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ipoibu import _core
from ipoibu.base.addr import Gid, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of

SEND, NOTIFY, HOLD, UNREACHABLE = range(4)
ON_LINK, GATEWAY, BROADCAST, NO_ROUTE = range(4)
MTU = 2044
A4, B4 = ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("10.0.0.2")
A6, B6 = ipaddress.ip_address("fd00::1"), ipaddress.ip_address("fd00::2")
BROADCAST4 = ipaddress.ip_address("255.255.255.255")
MGID = Gid.parse("ff12:401b:ffff::ffff:ffff")


def ipv4(source: str, target: str, payload: bytes = b"", protocol: int = 17) -> bytes:
    head = struct.pack(
        ">BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(payload),
        0,
        0,
        64,
        protocol,
        0,
        ipaddress.ip_address(source).packed,
        ipaddress.ip_address(target).packed,
    )
    return head + payload


def ipv6(source: str, target: str, payload: bytes = b"", next_header: int = 17) -> bytes:
    return (
        struct.pack(">IHBB", 6 << 28, len(payload), next_header, 64)
        + ipaddress.ip_address(source).packed
        + ipaddress.ip_address(target).packed
        + payload
    )


@dataclass
class Host:
    port: _core.MemoryPort
    queue: _core.QueueDevice
    pump: _core.Pump
    gid: Gid

    @property
    def destination(self) -> Destination:
        return Destination(self.gid, Qpn(self.port.qpn))

    def counter(self, name: str) -> int:
        return self.pump.counters()[name]

    def moved(self) -> dict[str, int]:
        """Return the packet counters that are not zero, without those of bookkeeping."""
        quiet = ("commands", "events", "send_batches", "wakeups")
        return {k: v for k, v in self.pump.counters().items() if v and k not in quiet}

    def step(self) -> None:
        while self.pump.step():
            pass


def make_host(
    switch: _core.MemorySwitch, gid: str, bare_unicast: bool = False, **options: int
) -> Host:
    address = Gid.parse(gid)
    port = _core.MemoryPort(switch, address.raw, bare_unicast=bare_unicast)
    queue = _core.QueueDevice()
    pump = _core.Pump(port, queue, mtu=MTU, **options)
    return Host(port, queue, pump, address)


@pytest.fixture
def hosts() -> tuple[Host, Host]:
    switch = _core.MemorySwitch(1)
    return make_host(switch, "fe80::a"), make_host(switch, "fe80::b")


def settle(*hosts: Host) -> None:
    for _ in range(4):
        for host in hosts:
            host.step()


def test_a_packet_to_a_known_neighbour_arrives_unchanged(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.pump.neigh_set(key_of(B6), SEND, b.destination, MTU)
    packets = [ipv4("10.0.0.1", "10.0.0.2", b"x" * n) for n in (0, 1, 3, 1000, MTU - 20)]
    packets += [ipv6("fd00::1", "fd00::2", b"y" * n) for n in (0, 1, 3, 1000, MTU - 40)]
    assert a.queue.send(packets) == len(packets)
    settle(a, b)
    assert b.queue.recv(64) == packets
    assert a.pump.events() == []
    assert b.pump.events() == []
    assert a.counter("tx_packets") == len(packets)
    assert a.counter("tx_bytes") == sum(map(len, packets))
    assert b.counter("rx_packets") == len(packets)


def test_a_batch_costs_one_doorbell(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.queue.send([ipv4("10.0.0.1", "10.0.0.2", bytes([n])) for n in range(64)])
    settle(a, b)
    assert a.counter("send_batches") == 1
    assert len(b.queue.recv(100)) == 64


def test_a_miss_goes_up_with_its_next_hop_and_whole_packet(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    packet = ipv4("10.0.0.1", "10.0.0.2", b"payload")
    a.queue.send([packet])
    a.step()
    (event,) = a.pump.events()
    assert (event.type, event.next_hop, event.data) == (_core.EVENT_MISS, key_of(B4), packet)
    assert a.moved() == {"tx_missed": 1}


def test_a_packet_that_misses_waits_for_the_commands_before_it(hosts: tuple[Host, Host]) -> None:
    """A route and a neighbour that the engine sets before the packet are in effect for it, although
    a round runs `max` commands only."""
    a, b = hosts
    for _ in range(8):
        a.pump.neigh_del(key_of(A4))
    network = key_of(ipaddress.ip_address("192.168.0.0"))
    a.pump.route_set(network, 96 + 16, GATEWAY, key_of(B6))
    a.pump.neigh_set(key_of(B6), SEND, b.destination, MTU)
    packet = ipv4("10.0.0.1", "192.168.7.7")
    a.queue.send([packet])
    a.pump.step(8)
    assert a.counter("commands") == 8  # the packet has been read, the route has not been set
    settle(a, b)
    assert b.queue.recv(1) == [packet]
    assert a.pump.events() == []


def test_a_packet_that_misses_waits_for_one_round_of_commands(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    for _ in range(24):
        a.pump.neigh_del(key_of(A4))
    a.queue.send([ipv4("10.0.0.1", "10.0.0.2")])
    for held in (True, False):
        a.pump.step(8)
        assert (a.counter("tx_missed") == 0) is held
    assert a.counter("commands") == 16


def test_a_gateway_route_names_the_next_hop(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.route_set(key_of(ipaddress.ip_address("192.168.0.0")), 96 + 16, GATEWAY, key_of(B6))
    a.pump.neigh_set(key_of(B6), SEND, b.destination, MTU)
    packet = ipv4("10.0.0.1", "192.168.7.7")
    a.queue.send([packet])
    settle(a, b)
    assert b.queue.recv(1) == [packet]
    a.pump.route_del(key_of(ipaddress.ip_address("192.168.0.0")), 96 + 16)
    a.queue.send([packet])
    a.step()
    assert a.pump.events()[0].next_hop == key_of(ipaddress.ip_address("192.168.7.7"))


def test_a_subnet_broadcast_goes_to_the_broadcast_entry(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    b.port.attach(MGID.raw)
    a.pump.route_set(key_of(ipaddress.ip_address("10.0.0.255")), 128, BROADCAST)
    a.pump.neigh_set(key_of(BROADCAST4), SEND, Destination(MGID, Qpn(0xFFFFFF)), MTU)
    packets = [ipv4("10.0.0.1", "10.0.0.255"), ipv4("10.0.0.1", "255.255.255.255")]
    a.queue.send(packets)
    settle(a, b)
    assert b.queue.recv(2) == packets
    assert a.counter("tx_multicast_packets") == 2


def test_an_unreachable_route_is_a_counted_drop(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    a.pump.route_set(key_of(ipaddress.ip_address("10.9.0.0")), 96 + 16, NO_ROUTE)
    a.queue.send([ipv4("10.0.0.1", "10.9.0.1")])
    a.step()
    assert a.moved() == {"tx_no_route": 1}


def test_a_notify_entry_sends_and_speaks_once(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), NOTIFY, b.destination, MTU)
    a.queue.send([ipv4("10.0.0.1", "10.0.0.2")] * 3)
    settle(a, b)
    assert [(e.type, e.next_hop) for e in a.pump.events()] == [(_core.EVENT_USED, key_of(B4))]
    assert len(b.queue.recv(9)) == 3


def test_held_and_unreachable_entries_drop_and_count(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    packet = ipv4("10.0.0.1", "10.0.0.2")
    a.pump.neigh_set(key_of(B4), HOLD, None, MTU)
    a.queue.send([packet] * 2)
    a.step()
    assert a.pump.events() == []
    a.pump.neigh_set(key_of(B4), UNREACHABLE, None, MTU)
    a.queue.send([packet])
    a.step()
    (event,) = a.pump.events()
    assert (event.type, event.data) == (_core.EVENT_UNREACHABLE, packet)
    assert a.moved() == {"tx_unresolved_hold": 2, "tx_unreachable": 1}


def test_unreachable_words_are_bounded_per_second(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    a.pump.neigh_set(key_of(B4), UNREACHABLE, None, MTU)
    for _ in range(10):
        a.queue.send([ipv4("10.0.0.1", "10.0.0.2")] * 64)
        a.step()
    events = a.pump.events(1000)
    assert 0 < len(events) <= 200  # 100 a second, and the second may have turned
    assert a.counter("tx_unreachable") == 640


def test_a_packet_above_the_neighbours_mtu_is_reported(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, 576)
    fits, exceeds = (
        ipv4("10.0.0.1", "10.0.0.2", bytes(556)),
        ipv4("10.0.0.1", "10.0.0.2", bytes(557)),
    )
    a.queue.send([fits, exceeds])
    settle(a, b)
    assert b.queue.recv(2) == [fits]
    (event,) = a.pump.events()
    assert (event.type, event.mtu, event.data) == (_core.EVENT_TOO_BIG, 576, exceeds)


@pytest.mark.parametrize("action", [UNREACHABLE, SEND])
def test_a_packet_without_a_possible_notification_counts_once(action: int) -> None:
    switch = _core.MemorySwitch(1)
    a = make_host(switch, "fe80::a", event_bytes=1 << 13)
    b = make_host(switch, "fe80::b")
    a.pump.neigh_set(key_of(B4), action, b.destination, 1000)
    for token in range(200):
        a.pump.sync(token)  # until there is no more room
    a.step()
    before = a.counter("events")
    a.queue.send([ipv4("10.0.0.1", "10.0.0.2", bytes(1200))])
    a.step()
    assert a.counter("events") == before
    assert {name for name in a.moved() if name.startswith("tx_")} == {"tx_event_ring_full"}


def test_igmp_and_mld_go_to_the_engine_and_host_nd_nowhere(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    igmp = ipv4("10.0.0.1", "224.0.0.22", bytes(16), protocol=2)
    mld = ipv6(
        "fe80::1", "ff02::16", b"\x3a\x00\x05\x02\x00\x00\x01\x00\x8f" + bytes(19), next_header=0
    )
    solicitation = ipv6("fe80::1", "ff02::1:ff00:2", b"\x87" + bytes(23), next_header=58)
    a.queue.send([igmp, mld, solicitation])
    a.step()
    assert [(e.type, e.data) for e in a.pump.events()] == [
        (_core.EVENT_HOST, igmp),
        (_core.EVENT_HOST, mld),
    ]
    assert a.moved() == {"tx_missed": 2, "tx_host_nd": 1}


def test_igmp_and_mld_to_one_host_take_its_route(hosts: tuple[Host, Host]) -> None:
    """A query that names its receiver, and IGMP of a multicast routing daemon (DVMRP, mtrace)."""
    a, b = hosts
    a.pump.route_set(key_of(ipaddress.ip_address("192.168.0.0")), 96 + 16, GATEWAY, key_of(B6))
    a.pump.neigh_set(key_of(B6), SEND, b.destination, MTU)
    igmp = ipv4("10.0.0.1", "192.168.7.7", bytes(16), protocol=2)
    mld = ipv6(
        "fe80::1", "fd00::2", b"\x3a\x00\x05\x02\x00\x00\x01\x00\x8f" + bytes(19), next_header=0
    )
    a.queue.send([igmp, mld])
    settle(a, b)
    assert b.queue.recv(9) == [igmp, mld]
    assert a.pump.events() == []


@pytest.mark.parametrize(
    "packet",
    [
        b"\x45",
        ipv4("10.0.0.1", "10.0.0.2")[:19],
        ipv6("fd00::1", "fd00::2")[:39],
        ipv4("10.0.0.1", "10.0.0.2", b"xx")[:-1],  # total length beyond the packet
        ipv6("fd00::1", "fd00::2", b"xx")[:-1],
        ipv6("fd00::1", "::ffff:10.0.0.2"),  # would be taken for IPv4
        b"\x44" + ipv4("10.0.0.1", "10.0.0.2")[1:],  # header length 16
        b"\x55" + ipv4("10.0.0.1", "10.0.0.2")[1:],  # version 5
    ],
)
def test_what_is_no_ip_packet_is_dropped_on_the_way_out(
    hosts: tuple[Host, Host], packet: bytes
) -> None:
    a, _ = hosts
    a.queue.send([packet])
    a.step()
    assert a.moved() == {"tx_malformed": 1}


def frame_of(kind: int, payload: bytes) -> bytes:
    return struct.pack(">HH", kind, 0) + payload


def test_arp_and_nd_go_up_with_their_source(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    b.port.attach(MGID.raw)
    arp = frame_of(0x0806, bytes(56))
    advertisement = frame_of(
        0x86DD, ipv6("fe80::1", "ff02::1", b"\x88" + bytes(23), next_header=58)
    )
    a.pump.send_frame(b.destination, arp)
    a.pump.send_frame(Destination(MGID, Qpn(0xFFFFFF)), advertisement)
    settle(a, b)
    first, second = b.pump.events()
    assert (first.type, first.data) == (_core.EVENT_FRAME, arp)
    assert (first.src_qpn, first.sgid) == (a.port.qpn, a.gid.raw)
    assert (second.data, second.dgid) == (advertisement, MGID.raw)
    assert b.queue.recv(2) == []
    assert b.moved() == {"rx_control": 2}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (frame_of(0x1234, bytes(40)), "rx_type"),
        (frame_of(0x8035, bytes(28)), "rx_type"),  # RARP
        (frame_of(0x0800, ipv4("10.0.0.1", "10.0.0.2")[:19]), "rx_malformed"),
        (frame_of(0x0800, ipv6("fd00::1", "fd00::2")), "rx_malformed"),
        (frame_of(0x86DD, ipv6("fd00::1", "fd00::2")[:39]), "rx_malformed"),
        (frame_of(0x86DD, ipv4("10.0.0.1", "10.0.0.2", bytes(40))), "rx_malformed"),
        (frame_of(0x0800, b""), "rx_malformed"),
    ],
)
def test_a_bad_frame_is_a_counted_drop(hosts: tuple[Host, Host], frame: bytes, reason: str) -> None:
    a, b = hosts
    a.pump.send_frame(b.destination, frame)
    settle(a, b)
    assert b.queue.recv(1) == []
    (event,) = b.pump.events()
    assert (event.type, event.counter) == (_core.EVENT_DROPPED, reason)
    assert (event.sgid, event.src_qpn) == (a.destination.gid.raw, a.destination.qpn)
    assert b.moved() == {reason: 1}


def test_a_flood_of_bad_frames_causes_a_hundred_events_a_second(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    end_s = time.monotonic() + 10
    events = 0
    for _ in range(1000):
        a.pump.send_frame(b.destination, frame_of(0x1234, bytes(40)))
        settle(a, b)
        events += len(b.pump.events())
    seconds = 12 + time.monotonic() - end_s
    assert b.counter("rx_type") == 1000
    assert 100 <= events <= 100 * seconds


@pytest.mark.parametrize("has_grh", [True, False])
def test_a_datagram_is_received_with_and_without_a_grh(has_grh: bool) -> None:
    """E4."""
    switch = _core.MemorySwitch(1)
    a, b = make_host(switch, "fe80::a"), make_host(switch, "fe80::b", bare_unicast=not has_grh)
    packet = ipv4("10.0.0.1", "10.0.0.2", b"x" * 1000)
    arp = frame_of(0x0806, bytes(56))
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    for _ in range(3):  # the frames of the third time hold older bytes where a GRH would be
        a.queue.send([packet])
        a.pump.send_frame(b.destination, arp)
        settle(a, b)
        assert b.queue.recv(2) == [packet]
        [event] = b.pump.events()
        assert (event.data, event.src_qpn) == (arp, a.port.qpn)
        assert (event.sgid, event.dgid) == ((a.gid.raw, b.gid.raw) if has_grh else (None, None))


def test_our_own_multicast_echo_is_dropped(hosts: tuple[Host, Host]) -> None:
    """E8."""
    a, b = hosts
    group = ipaddress.ip_address("224.0.0.5")
    mgid = Gid.parse("ff12:401b:ffff::5")
    for host in hosts:
        host.port.attach(mgid.raw)
    a.pump.neigh_set(key_of(group), SEND, Destination(mgid, Qpn(0xFFFFFF)), MTU)
    a.queue.send([ipv4("10.0.0.1", "224.0.0.5")])
    settle(a, b)
    assert a.queue.recv(1) == []
    assert a.counter("rx_echo") == 1
    assert b.queue.recv(1) == [ipv4("10.0.0.1", "224.0.0.5")]


def test_the_engine_delivers_and_reinjects_packets(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    packet = ipv4("10.0.0.9", "10.0.0.1", b"icmp", protocol=1)
    a.pump.deliver(packet)
    a.step()
    assert a.queue.recv(1) == [packet]
    assert a.counter("rx_packets") == a.counter("rx_from_engine") == 1
    waiting = ipv4("10.0.0.1", "10.0.0.2", b"waited")
    a.pump.send_packet(waiting)  # still unresolved: dropped, not a second miss
    a.step()
    assert a.pump.events() == []
    assert a.counter("tx_unresolved_hold") == 1
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.pump.send_packet(waiting)
    settle(a, b)
    assert b.queue.recv(1) == [waiting]


def test_a_withdrawn_neighbour_is_a_miss_again(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.pump.neigh_del(key_of(B4))
    a.queue.send([ipv4("10.0.0.1", "10.0.0.2")])
    settle(a, b)
    assert [e.type for e in a.pump.events()] == [_core.EVENT_MISS]
    assert b.queue.recv(1) == []


def test_sync_answers_after_everything_before_it(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    a.queue.send([ipv4("10.0.0.1", "10.0.0.2")])
    a.step()
    a.pump.sync(77)
    a.step()
    assert [(e.type, e.token) for e in a.pump.events()] == [
        (_core.EVENT_MISS, 0),
        (_core.EVENT_SYNC, 77),
    ]


def test_misses_leave_room_for_control_frames_in_the_event_ring() -> None:
    switch = _core.MemorySwitch(1)
    a = make_host(switch, "fe80::a", event_bytes=1 << 14)
    b = make_host(switch, "fe80::b")
    for n in range(1, 251):
        a.queue.send([ipv4("10.0.0.1", f"10.0.1.{n}", bytes(200))])
    a.step()
    assert a.counter("tx_unresolved_hold") > 0
    b.pump.send_frame(a.destination, frame_of(0x0806, bytes(56)))
    settle(a, b)
    events = a.pump.events(1000)
    assert events[-1].type == _core.EVENT_FRAME
    assert len(events) - 1 + a.counter("tx_unresolved_hold") == 250


def test_a_broken_queue_pair_recovers_and_loses_no_frame(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    b.pump.neigh_set(key_of(A4), SEND, a.destination, MTU)
    settle(a, b)
    a.port.break_queue_pair()
    a.queue.send([ipv4("10.0.0.1", "10.0.0.2")] * 5)
    a.step()
    assert a.counter("fabric_errors") == 1
    deadline = time.monotonic() + 5
    while a.counter("fabric_recoveries") == 0 and time.monotonic() < deadline:
        a.step()
    assert [(e.type, e.working) for e in a.pump.events()] == [
        (_core.EVENT_FABRIC, False),
        (_core.EVENT_FABRIC, True),
    ]
    # Every frame is back in place: more packets than both slabs hold cross in each direction.
    for _ in range(40):
        a.queue.send([ipv4("10.0.0.1", "10.0.0.2", b"after")] * 50)
        b.queue.send([ipv4("10.0.0.2", "10.0.0.1", b"after")] * 50)
        settle(a, b)
        assert len(b.queue.recv(100)) == 50
        assert len(a.queue.recv(100)) == 50


def test_a_full_application_queue_is_a_counted_drop() -> None:
    switch = _core.MemorySwitch(1)
    a = make_host(switch, "fe80::a")
    port = _core.MemoryPort(switch, Gid.parse("fe80::b").raw)
    small = _core.QueueDevice(from_pump_bytes=1 << 13)
    b = Host(port, small, _core.Pump(port, small, mtu=MTU, rx_frames=16), Gid.parse("fe80::b"))
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    for _ in range(10):
        a.queue.send([ipv4("10.0.0.1", "10.0.0.2", bytes(1000))] * 4)
        settle(a, b)
    received = len(b.queue.recv(100))
    assert 8 < received < 40  # eight in place, the others copied
    assert b.counter("rx_copied") == received - 8
    assert received + b.counter("rx_device_full") == 40


def test_captures_hold_both_directions_with_a_grh(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.capture(65535)
    b.pump.capture(64)
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    packet = ipv4("10.0.0.1", "10.0.0.2", bytes(100))
    a.queue.send([packet])
    settle(a, b)
    (sent,), (received,) = a.pump.captured(), b.pump.captured()
    assert sent.outgoing
    assert not received.outgoing
    assert sent.data[40:] == frame_of(0x0800, packet)
    assert (sent.data[8:24], sent.data[24:40]) == (a.gid.raw, b.gid.raw)
    assert (received.wire_len, len(received.data)) == (40 + 4 + len(packet), 64)
    assert received.data[8:40] == sent.data[8:40]
    b.pump.capture(0)
    a.queue.send([packet])
    settle(a, b)
    assert b.pump.captured() == []


def test_a_capture_that_is_not_read_drops_and_counts() -> None:
    switch = _core.MemorySwitch(1)
    a, b = make_host(switch, "fe80::a", capture_bytes=1 << 12), make_host(switch, "fe80::b")
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.pump.capture(65535)
    a.queue.send([ipv4("10.0.0.1", "10.0.0.2", bytes(500))] * 20)
    settle(a, b)
    kept = len(a.pump.captured(100))
    assert 0 < kept < 20
    assert kept + a.counter("capture_dropped") == 20
    assert len(b.queue.recv(100)) == 20


def test_bad_commands_are_counted_and_harmless(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_del(key_of(B4))  # this is a good one: afterwards there is no entry
    a.pump.neigh_set(key_of(B4), 9, b.destination, MTU)
    a.pump.send_frame(b.destination, bytes(MTU + 5))
    a.pump.send_packet(b"not IP")
    a.pump.deliver(bytes(MTU + 1))
    a.pump.route_set(key_of(A4), 200, ON_LINK)
    a.step()
    assert a.counter("commands_bad") == 5
    with pytest.raises(ValueError, match="16 bytes"):
        a.pump.neigh_del(b"short")


def test_an_mtu_above_the_fabrics_is_refused() -> None:
    port = _core.MemoryPort(_core.MemorySwitch(1), Gid.parse("fe80::a").raw, mtu_bytes=1024)
    with pytest.raises(OSError, match="Message too long"):
        _core.Pump(port, _core.QueueDevice(), mtu=1021)


def doze() -> None:
    time.sleep(0.001)


def wait_for(ask: Callable[[], list[bytes]], rest: Callable[[], None] = doze) -> list[bytes]:
    deadline = time.monotonic() + 10
    while not (answer := ask()):
        assert time.monotonic() < deadline
        rest()
    return answer


def test_threads_carry_traffic_both_ways_and_sleep_between(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    b.pump.neigh_set(key_of(A4), SEND, a.destination, MTU)
    for host in hosts:
        host.pump.start()
    with pytest.raises(OSError, match="busy"):
        a.pump.step()
    for round_number in range(50):
        packet = ipv4("10.0.0.1", "10.0.0.2", struct.pack(">I", round_number))
        a.queue.send([packet])
        assert wait_for(lambda: b.queue.recv(9)) == [packet]
        b.queue.send([ipv4("10.0.0.2", "10.0.0.1")])
        assert wait_for(lambda: a.queue.recv(9))
    wakeups = a.counter("wakeups")
    assert wakeups > 0
    for host in hosts:
        host.pump.stop()
    a.pump.start()  # and once more: start works again after stop
    a.pump.stop()


def test_what_comes_before_a_packet_that_is_refused_is_sent(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    for host in hosts:
        host.pump.start()
    time.sleep(0.05)  # it sleeps by then
    good = ipv4("10.0.0.1", "10.0.0.2")
    with pytest.raises(ValueError, match="not empty"):
        a.queue.send([good, b""])
    assert wait_for(lambda: b.queue.recv(9)) == [good]


@pytest.mark.serial
def test_an_answer_that_comes_soon_is_not_slept_for() -> None:
    """In each exchange both pumps would sleep twice, but not once they expect the reply."""
    switch = _core.MemorySwitch(1)
    a, b = hosts = [make_host(switch, gid) for gid in ("fe80::a", "fe80::b")]
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    b.pump.neigh_set(key_of(A4), SEND, a.destination, MTU)
    for host in hosts:
        host.pump.start()
    request, response = ipv4("10.0.0.1", "10.0.0.2"), ipv4("10.0.0.2", "10.0.0.1")
    tries: list[int] = []
    end = time.monotonic() + 60
    while time.monotonic() < end and (not tries or tries[-1] >= 50):
        before, began = a.counter("wakeups") + b.counter("wakeups"), time.monotonic()
        for _ in range(100):
            a.queue.send([request])
            assert wait_for(lambda: b.queue.recv(9), os.sched_yield) == [request]
            b.queue.send([response])
            assert wait_for(lambda: a.queue.recv(9), os.sched_yield) == [response]
        if time.monotonic() - began < 0.03:  # else a busy machine was late, as it may always be
            tries.append(a.counter("wakeups") + b.counter("wakeups") - before)
    for host in hosts:
        host.pump.stop()
    assert not tries or tries[-1] < 50, tries


def test_two_pumps_that_poll_share_one_cpu_with_the_application() -> None:
    switch = _core.MemorySwitch(1)
    a, b = (make_host(switch, gid, busy_poll_us=60_000_000) for gid in ("fe80::a", "fe80::b"))
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # which threads started from here on inherit
    try:
        a.pump.start()
        b.pump.start()
        for number in range(50):
            packet = ipv4("10.0.0.1", "10.0.0.2", struct.pack(">I", number))
            a.queue.send([packet])
            assert wait_for(lambda: b.queue.recv(9)) == [packet]
        assert (a.counter("wakeups"), b.counter("wakeups")) == (0, 0)
    finally:
        os.sched_setaffinity(0, allowed)
        a.pump.stop()
        b.pump.stop()
