# SPDX-License-Identifier: BSD-2-Clause
"""Super-frames through the pump: a pair of sockets plays the TUN, scapy the kernel and the judge."""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from ipoibu import _core
from ipoibu.base.addr import Gid, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of

SEND, NOTIFY, HOLD, UNREACHABLE = range(4)
MTU = 2044
B4, B6 = ipaddress.ip_address("10.0.0.2"), ipaddress.ip_address("fd00::2")
OFFLOAD = ("csum", "tso4", "tso6", "ecn", "uso4", "uso6")
NEEDS_CSUM = 1
TCPV4, TCPV6, UDP_L4 = 1, 4, 5
VNET = struct.Struct("=BBHHHH6x")


@dataclass
class FakeTun:
    """One end is the device; the other stands for the kernel."""

    offload: tuple[str, ...] = OFFLOAD
    kind: type[_core.TunDevice | _core.TunRing] = _core.TunDevice
    ends: tuple[socket.socket, socket.socket] = field(
        default_factory=lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    )

    def __post_init__(self) -> None:
        for end in self.ends:
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.device = self.kind(self.ends[0].fileno(), self.offload)

    def give(self, frame: bytes) -> None:
        self.ends[1].send(frame)

    def take(self) -> list[bytes]:
        frames = []
        while True:
            try:
                frames.append(self.ends[1].recv(1 << 17))
            except BlockingIOError:
                return frames


@dataclass
class Host:
    port: _core.MemoryPort
    tun: FakeTun
    pump: _core.Pump
    gid: Gid

    @property
    def destination(self) -> Destination:
        return Destination(self.gid, Qpn(self.port.qpn))

    def counter(self, name: str) -> int:
        return self.pump.counters()[name]

    def step(self) -> None:
        while self.pump.step():
            pass


Hosts = tuple[Host, Host]


@pytest.fixture(params=[_core.TunDevice, _core.TunRing])
def make_host(request: pytest.FixtureRequest) -> Iterator[Any]:
    switch = _core.MemorySwitch(1)
    hosts: list[Host] = []

    def make(
        gid: str, offload: tuple[str, ...] = OFFLOAD, *, one_piece: bool = False, **options: Any
    ) -> Host:
        address = Gid.parse(gid)
        port = _core.MemoryPort(switch, address.raw, one_piece=one_piece)
        tun = FakeTun(offload, request.param)
        faults = options.pop("faults", None)
        fabric = _core.FaultyFabric(port, **faults) if faults else port
        hosts.append(Host(port, tun, _core.Pump(fabric, tun.device, mtu=MTU, **options), address))
        return hosts[-1]

    yield make
    for host in hosts:
        host.pump.close()
        for end in host.tun.ends:
            end.close()


@pytest.fixture
def hosts(make_host: Any) -> Hosts:
    """a has offloads; b has none, and so shows the packets as they crossed the fabric."""
    a, b = make_host("fe80::a"), make_host("fe80::b", ("csum",))
    for key in (B4, B6):
        a.pump.neigh_set(key_of(key), SEND, b.destination, MTU)
    return a, b


def settle(*hosts: Host) -> None:
    for _ in range(8):
        for host in hosts:
            host.step()


def ip_header(version: int) -> Any:
    if version == 4:
        return IP(src="10.0.0.1", dst="10.0.0.2", id=7)
    return IPv6(src="fd00::1", dst="fd00::2")


def payload_of(length: int) -> bytes:
    return bytes(n * 7 % 251 for n in range(length))


def super_frame(packet: Any, size: int) -> bytes:
    """Return a frame like the kernel's: the checksum field holds the sum of the pseudo header."""
    raw = bytearray(bytes(packet))
    layer = packet[TCP] if TCP in packet else packet[UDP]
    start = len(raw) - len(layer)
    offset = 16 if TCP in packet else 6
    at = start + offset
    (csum,) = struct.unpack_from(">H", raw, at)
    raw[at : at + 2] = b"\0\0"
    body = raw[start:] + b"\0" * (len(raw[start:]) % 2)
    rest = sum(struct.unpack(f">{len(body) // 2}H", body))
    struct.pack_into(">H", raw, at, (-csum - rest) % 0xFFFF)
    kind = UDP_L4 if UDP in packet else TCPV4 if IP in packet else TCPV6
    header = start + ((raw[start + 12] >> 4) * 4 if TCP in packet else 8)
    return VNET.pack(NEEDS_CSUM, kind, header, size, start, offset) + raw


def parsed(packet: bytes) -> Any:
    return IP(packet) if packet[0] >> 4 == 4 else IPv6(packet)


def check_whole(packet: bytes) -> None:
    """Check that every length and checksum is the one that scapy would write."""
    layers = parsed(packet)
    for layer, fields in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (TCP, ("chksum",))):
        if layer in layers:
            for name in fields:
                delattr(layers[layer], name)
    if UDP in layers:
        del layers[UDP].len
        del layers[UDP].chksum
    assert bytes(layers) == packet


def arrived(host: Host) -> list[bytes]:
    """Return the packets written to the device, which must have vnet headers of zeros."""
    frames = host.tun.take()
    assert all(frame[:16] == bytes(16) for frame in frames)
    return [frame[16:] for frame in frames]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("length", [1400, 1401, 3000, 60000])
def test_a_super_frame_crosses_as_packets_that_fit(
    hosts: Hosts, version: int, transport: str, length: int
) -> None:
    a, b = hosts
    data = payload_of(length)
    head = (
        TCP(sport=1, dport=2, seq=100, flags="PA") if transport == "tcp" else UDP(sport=1, dport=2)
    )
    a.tun.give(super_frame(ip_header(version) / head / Raw(data), 1400))
    settle(a, b)
    packets = arrived(b)
    assert len(packets) == -(-length // 1400)
    for packet in packets:
        check_whole(packet)
    assert b"".join(bytes(parsed(p)[Raw].load) for p in packets) == data
    assert a.counter("tx_super_frames") == 1
    assert a.counter("tx_packets") == len(packets)
    assert a.counter("tx_bytes") == sum(map(len, packets)) == b.counter("rx_bytes")
    assert b.counter("rx_packets") == len(packets)


def test_a_queue_pair_with_one_sge_sends_the_same(make_host: Any) -> None:
    seen = []
    for one_piece in (False, True):
        a = make_host(f"fe80::a{one_piece:d}", one_piece=one_piece)
        b = make_host(f"fe80::b{one_piece:d}", ("csum",))
        a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
        a.tun.give(super_frame(ip_header(4) / TCP(seq=1) / Raw(payload_of(20000)), 2004))
        settle(a, b)
        seen.append(arrived(b))
    assert len(seen[0]) == 10
    assert seen[0] == seen[1]


def test_packets_are_merged_into_the_frame_that_was_cut(make_host: Any) -> None:
    a, b = make_host("fe80::a"), make_host("fe80::b")
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.pump.neigh_set(key_of(B6), SEND, b.destination, MTU)
    frames = [
        super_frame(ip_header(version) / head / Raw(payload_of(30000)), 1400)
        for version in (4, 6)
        for head in (TCP(sport=1, seq=9, flags="A"), UDP(sport=1))
    ]
    for frame in frames:
        a.tun.give(frame)
        settle(a, b)
    assert b.tun.take() == frames
    assert b.counter("rx_merged_frames") == 4
    assert b.counter("rx_merged") == b.counter("rx_packets") == 4 * 22


def test_small_packets_cross_an_offloading_device_as_ever(make_host: Any) -> None:
    a, b = make_host("fe80::a"), make_host("fe80::b")
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    packets = [
        bytes(IP(src="10.0.0.1", dst="10.0.0.2", proto=253) / Raw(payload_of(n)))
        for n in (0, 1, 500, MTU - 20)
    ]
    for packet in packets:
        a.tun.give(bytes(16) + packet)
    settle(a, b)
    assert b.tun.take() == [bytes(16) + packet for packet in packets]
    assert a.counter("send_batches") == 1
    assert a.counter("tx_super_frames") == b.counter("rx_merged_frames") == 0


def test_a_device_that_takes_no_udp_frames_gets_datagrams(make_host: Any) -> None:
    a, b = make_host("fe80::a"), make_host("fe80::b", ("csum", "tso4", "tso6"))
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.tun.give(super_frame(ip_header(4) / UDP() / Raw(payload_of(3000)), 1000))
    settle(a, b)
    assert len(arrived(b)) == 3
    a.tun.give(super_frame(ip_header(4) / TCP(flags="A") / Raw(payload_of(3000)), 1000))
    settle(a, b)
    assert len(b.tun.take()) == 1


def test_a_frame_of_more_segments_than_anything_holds_goes_out_bit_by_bit(hosts: Hosts) -> None:
    """More segments than the fabric's queue, the headers and the receives: we lose none on our side."""
    a, b = hosts
    data = payload_of(60000)
    a.tun.give(super_frame(ip_header(4) / TCP(seq=0) / Raw(data), 50))
    a.tun.give(super_frame(ip_header(4) / TCP(seq=60000) / Raw(data), 1400))
    out: list[bytes] = []
    for _ in range(200):
        a.pump.step()
        b.step()
        out += arrived(b)
    assert b"".join(bytes(parsed(packet)[Raw].load) for packet in out) == data + data
    assert a.counter("tx_packets") == 1200 + 43
    assert a.counter("send_batches") >= 1243 // 64


def test_all_frames_and_headers_come_back(hosts: Hosts) -> None:
    a, b = hosts
    for _ in range(300):  # of 80 frames and 512 headers
        a.tun.give(super_frame(ip_header(4) / TCP() / Raw(payload_of(6000)), 1400))
        settle(a, b)
        assert len(b.tun.take()) == 5


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_neighbour_with_a_smaller_mtu_gets_smaller_tcp_and_no_udp(
    hosts: Hosts, kind: str
) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(B4), SEND, b.destination, 1000)
    data = payload_of(4000)
    head = TCP(seq=5) if kind == "tcp" else UDP()
    a.tun.give(super_frame(ip_header(4) / head / Raw(data), 1400))
    settle(a, b)
    packets = arrived(b)
    if kind == "tcp":
        assert [len(packet) for packet in packets] == [1000] * 4 + [200]
        assert b"".join(bytes(parsed(packet)[Raw].load) for packet in packets) == data
        return
    assert packets == []
    assert a.counter("tx_too_big") == 1
    (event,) = a.pump.events()
    assert (event.type, event.mtu) == (_core.EVENT_TOO_BIG, 1000)
    check_whole(event.data)  # the first datagram, for the ICMP error
    assert len(event.data) == 1428


def test_a_miss_goes_up_as_the_first_segment(hosts: Hosts) -> None:
    a, b = hosts
    a.pump.neigh_del(key_of(B4))
    frame = super_frame(ip_header(4) / TCP(seq=5, flags="PA") / Raw(payload_of(4000)), 1400)
    a.tun.give(frame)
    a.step()
    (event,) = a.pump.events()
    assert (event.type, event.next_hop) == (_core.EVENT_MISS, key_of(B4))
    check_whole(event.data)
    assert parsed(event.data)[TCP].flags == "A"
    assert bytes(parsed(event.data)[Raw].load) == payload_of(4000)[:1400]
    assert a.counter("tx_missed") == 1
    assert a.counter("tx_super_frames") == 0
    a.pump.neigh_set(key_of(B4), UNREACHABLE, None, MTU)
    a.tun.give(frame)
    a.step()
    assert a.pump.events()[0].data == event.data
    # The frames are free again, and the next one is cut from its beginning.
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    a.tun.give(frame)
    settle(a, b)
    assert len(arrived(b)) == 3


def test_commands_wait_until_the_frame_is_cut(hosts: Hosts) -> None:
    """The address handle of its segments may go with the neighbour, but all segments still leave."""
    a, b = hosts
    a.tun.give(super_frame(ip_header(4) / TCP() / Raw(payload_of(60000)), 50))
    a.pump.step(64)
    a.pump.neigh_del(key_of(B4))
    assert 0 < a.counter("tx_packets") < 1200
    settle(a, b)
    assert a.counter("tx_packets") == 1200
    a.tun.give(super_frame(ip_header(4) / TCP() / Raw(payload_of(3000)), 1400))
    settle(a, b)
    assert a.counter("tx_missed") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"gso_size": 0},
        {"csum_start": 21},
        {"csum_offset": 6},
        {"gso_type": TCPV6},
        {"gso_type": UDP_L4},
        {"gso_type": 3},
        {"flags": 0},
    ],
)
def test_a_vnet_header_that_makes_no_sense_is_a_counted_drop(
    hosts: Hosts, change: dict[str, int]
) -> None:
    a, b = hosts
    frame = super_frame(ip_header(4) / TCP() / Raw(payload_of(4000)), 1400)
    names = ("flags", "gso_type", "hdr_len", "gso_size", "csum_start", "csum_offset")
    fields = dict(zip(names, VNET.unpack(frame[:16]), strict=True)) | change
    a.tun.give(VNET.pack(*fields.values()) + frame[16:])
    settle(a, b)
    assert b.tun.take() == []
    assert a.counter("tx_bad_gso") == 1
    assert a.counter("tx_packets") == 0


def test_datagrams_above_the_mtu_are_a_counted_drop(hosts: Hosts) -> None:
    a, b = hosts
    for size in (MTU - 28, MTU - 27):
        a.tun.give(super_frame(ip_header(4) / UDP() / Raw(payload_of(4000)), size))
    settle(a, b)
    assert len(b.tun.take()) == 2
    assert a.counter("tx_bad_gso") == 1


def test_a_plain_packet_above_the_mtu_is_a_counted_drop(hosts: Hosts) -> None:
    a, b = hosts
    a.tun.give(bytes(16) + bytes(ip_header(4) / UDP() / Raw(bytes(MTU))))
    settle(a, b)
    assert b.tun.take() == []
    assert a.counter("tx_too_big") == 1


def test_a_fabric_that_breaks_in_the_middle_loses_packets_and_no_frame(hosts: Hosts) -> None:
    a, b = hosts
    for _ in range(3):
        a.tun.give(super_frame(ip_header(4) / TCP() / Raw(payload_of(60000)), 50))
        a.pump.step()
        a.port.break_queue_pair()
        for _ in range(10):
            a.pump.step()
        before = a.counter("fabric_recoveries")
        deadline = time.monotonic() + 5
        while a.counter("fabric_recoveries") == before and time.monotonic() < deadline:
            a.pump.step()
        settle(a, b)
        b.tun.take()
    assert a.counter("tx_fabric_error") > 0
    assert a.counter("tx_packets") + a.counter("tx_fabric_error") == 3 * 1200
    for _ in range(200):
        a.tun.give(super_frame(ip_header(4) / TCP() / Raw(payload_of(6000)), 1400))
        settle(a, b)
        assert len(b.tun.take()) == 5


def test_a_capture_shows_segments_with_their_headers(hosts: Hosts) -> None:
    a, b = hosts
    a.pump.capture(65535)
    b.pump.capture(100)
    a.tun.give(super_frame(ip_header(6) / TCP(seq=3) / Raw(payload_of(4000)), 1400))
    settle(a, b)
    packets = arrived(b)
    sent, received = a.pump.captured(), b.pump.captured()
    assert [frame.data[44:] for frame in sent] == packets
    assert all(frame.data[40:44] == b"\x86\xdd\0\0" for frame in sent)
    assert [frame.data[40:] for frame in received] == [f.data[40:100] for f in sent]
    assert [frame.wire_len for frame in received] == [44 + len(packet) for packet in packets]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_bad_wire_makes_no_other_bytes_of_a_stream(make_host: Any, seed: int) -> None:
    """Under loss, repetition and reordering the output, sorted by sequence number, equals the input."""
    faults = {"loss": 0.01, "reorder": 0.01, "duplicate": 0.005, "corrupt": 0.002, "seed": seed}
    a, b = make_host("fe80::a", faults=faults), make_host("fe80::b")
    a.pump.neigh_set(key_of(B4), SEND, b.destination, MTU)
    length, count = 20000, 100
    data = payload_of(length * count)
    seen = bytearray(len(data))
    known = bytearray(len(data))
    wrong = 0
    for n in range(count):
        part = data[n * length : (n + 1) * length]
        a.tun.give(super_frame(ip_header(4) / TCP(seq=n * length, flags="A") / Raw(part), 1400))
        settle(a, b)
        for frame in b.tun.take():
            flags, kind, hdr_len, size, start, offset = VNET.unpack(frame[:16])
            packet = frame[16:]
            if kind == 0:
                # Damaged packets stay alone, for the kernel to find: their checksum is wrong.
                if _csum_wrong(packet):
                    wrong += 1
                    continue
                hdr_len = 40
            else:
                assert (flags, kind, hdr_len, start, offset) == (NEEDS_CSUM, TCPV4, 40, 20, 16)
                assert size == 1400
            seq = int.from_bytes(packet[24:28], "big")
            body = packet[hdr_len:]
            seen[seq : seq + len(body)] = body
            known[seq : seq + len(body)] = b"\1" * len(body)
    assert b.counter("rx_merged_frames") > count / 2
    assert wrong > 0
    assert 0.95 < known.count(1) / len(data) < 1
    assert all(s == d for s, d, k in zip(seen, data, known, strict=True) if k)


def _csum_wrong(packet: bytes) -> bool:
    try:
        check_whole(packet)
    except (AssertionError, IndexError, AttributeError, struct.error):
        return True
    return False
