# SPDX-License-Identifier: BSD-2-Clause
"""The pump between guests behind a TAP and the link; a pair of sockets plays the TAP."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6ND_RS, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from ipoibu import _core
from ipoibu.base.addr import MULTICAST_QPN, Gid, Mac, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of
from ipoibu.proto.ethernet.macs import next_hop_of
from tests.unit.core.test_pump_offload import (
    MTU,
    OFFLOAD,
    SEND,
    VNET,
    FakeTun,
    Host,
    settle,
    super_frame,
)

GUEST, RIVAL = Mac.parse("02:00:00:00:00:07"), Mac.parse("02:00:00:00:00:08")
FAR, OWN = Mac.parse("02:00:00:00:00:09"), Mac.parse("02:00:00:00:00:0a")
A4, B4 = ipaddress.ip_address("10.0.0.7"), ipaddress.ip_address("10.0.0.9")
GROUP = ipaddress.ip_address("239.1.2.3")
MGID = Gid.parse("ff12:401b:ffff::f01:203")
NO_VNET = bytes(VNET.size)


@pytest.fixture
def world() -> Iterator[tuple[Host, Host]]:
    """`tap` has the guest A4, and knows that FAR stands for `far`, which has a TUN."""
    switch = _core.MemorySwitch(1)
    hosts = []
    for gid, kind in (("fe80::a", _core.TapDevice), ("fe80::b", _core.TunDevice)):
        address = Gid.parse(gid)
        port = _core.MemoryPort(switch, address.raw)
        port.attach(MGID.raw)
        tun = FakeTun(OFFLOAD, kind)  # type: ignore[arg-type]
        hosts.append(Host(port, tun, _core.Pump(port, tun.device, mtu=MTU), address))
    tap, far = hosts
    tap.pump.mac_set(OWN.raw)
    tap.pump.host_mac_set(far.gid.raw, far.port.qpn, FAR.raw)
    tap.pump.guest_set(key_of(A4), GUEST.raw, True)
    tap.pump.neigh_set(key_of(next_hop_of(FAR)), SEND, far.destination, MTU)
    tap.pump.neigh_set(key_of(GROUP), SEND, Destination(MGID, Qpn(MULTICAST_QPN)), MTU)
    far.pump.neigh_set(key_of(A4), SEND, tap.destination, MTU)
    settle(tap, far)
    yield tap, far
    for host in hosts:
        host.pump.close()
        for end in host.tun.ends:
            end.close()


def frame(packet: Any, *, to: Mac = FAR, source: Mac = GUEST, **fields: Any) -> bytes:
    return bytes(Ether(dst=str(to), src=str(source), **fields) / packet)


def udp(source: object = A4, to: object = B4, payload: bytes = b"x" * 40) -> Any:
    return IP(src=str(source), dst=str(to), id=1) / UDP(sport=7, dport=9) / Raw(payload)


def events(host: Host) -> list[tuple[int, bytes]]:
    return [(event.type, event.data) for event in host.pump.events()]


def test_a_guests_packet_goes_to_the_host_whose_mac_it_names(world: tuple[Host, Host]) -> None:
    tap, far = world
    tap.tun.give(NO_VNET + frame(udp(to="192.0.2.1")))  # beyond the host, which is a router
    settle(tap, far)
    assert far.tun.take() == [NO_VNET + bytes(udp(to="192.0.2.1"))]
    assert events(tap) == []


def test_a_packet_of_a_host_without_a_mac_comes_from_the_interface(
    world: tuple[Host, Host],
) -> None:
    tap, far = world
    tap.pump.host_mac_del(far.gid.raw, far.port.qpn)
    far.tun.give(NO_VNET + bytes(udp(B4, A4)))
    settle(tap, far)
    assert tap.tun.take() == [NO_VNET + frame(udp(B4, A4), to=GUEST, source=OWN)]


def test_the_padding_of_a_short_frame_stays_behind(world: tuple[Host, Host]) -> None:
    tap, far = world
    short = udp(payload=b"x")
    tap.tun.give(NO_VNET + frame(short).ljust(60, b"\0"))
    settle(tap, far)
    assert far.tun.take() == [NO_VNET + bytes(short)]


def test_a_packet_of_the_link_goes_to_the_guest_that_has_its_destination(
    world: tuple[Host, Host],
) -> None:
    tap, far = world
    reply = udp(B4, A4)
    far.tun.give(NO_VNET + bytes(reply))
    settle(tap, far)
    assert tap.tun.take() == [NO_VNET + frame(reply, to=GUEST, source=FAR)]


def test_a_packet_to_a_group_goes_by_the_group_in_both_directions(world: tuple[Host, Host]) -> None:
    tap, far = world
    group_mac = Mac.parse("01:00:5e:01:02:03")
    tap.tun.give(NO_VNET + frame(udp(to=GROUP), to=group_mac))
    far.pump.neigh_set(key_of(GROUP), SEND, Destination(MGID, Qpn(MULTICAST_QPN)), MTU)
    settle(tap, far)
    assert far.tun.take() == [NO_VNET + bytes(udp(to=GROUP))]
    far.tun.give(NO_VNET + bytes(udp(B4, GROUP)))
    settle(tap, far)
    assert tap.tun.take() == [NO_VNET + frame(udp(B4, GROUP), to=group_mac, source=FAR)]


def test_super_frames_stay_whole_to_the_guest_and_are_cut_to_the_link(
    world: tuple[Host, Host],
) -> None:
    tap, far = world
    payload = bytes(range(250)) * 40
    whole = super_frame(udp(payload=payload), 1000)
    header, packet = whole[: VNET.size], whole[VNET.size :]
    flags, kind, hdr_len, size, start, offset = VNET.unpack(header)
    shifted = VNET.pack(flags, kind, hdr_len + 14, size, start + 14, offset)
    tap.tun.give(shifted + frame(udp())[:14] + packet)
    settle(tap, far)
    merged = b"".join(taken[VNET.size + 28 :] for taken in far.tun.take())
    assert merged == payload
    assert tap.counter("tx_super_frames") == 1
    assert tap.counter("tx_packets") == 10
    far.pump.neigh_set(key_of(A4), SEND, tap.destination, MTU)
    back = super_frame(udp(B4, A4, payload), 1000)
    far.tun.give(back)
    settle(tap, far)
    (taken,) = tap.tun.take()
    assert VNET.unpack(taken[: VNET.size])[4] == 14 + 20  # csum_start counts from the frame
    assert taken[VNET.size :][:12] == GUEST.raw + FAR.raw
    assert taken[VNET.size + 14 + 28 :] == payload


@pytest.mark.parametrize(
    "unknown",
    [
        frame(udp(source="10.0.0.77")),
        frame(udp(), to=RIVAL),
        frame(udp(to="239.9.9.9"), to=Mac.parse("01:00:5e:09:09:09")),
        frame(udp(to="10.0.0.255"), to=Mac.parse("ff:ff:ff:ff:ff:ff")),
        frame(udp(), to=Mac.parse("01:00:5e:09:09:09")),
        frame(Raw(bytes(28)), to=Mac.parse("ff:ff:ff:ff:ff:ff"), type=0x8035),
        frame(ARP(psrc=str(A4), pdst=str(B4)), to=Mac.parse("ff:ff:ff:ff:ff:ff")),
        frame(
            IPv6(src="fe80::7", dst="ff02::2") / ICMPv6ND_RS(), to=Mac.parse("33:33:00:00:00:02")
        ),
        frame(IP(src="10.0.0.7", dst="10.0.0.9") / UDP(sport=68, dport=67) / Raw(bytes(300))),
        frame(IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67) / Raw(bytes(300))),
    ],
    ids=[
        "source",
        "mac",
        "group",
        "broadcast",
        "no-group",
        "rarp",
        "arp",
        "rs",
        "renewal",
        "discover",
    ],
)
def test_what_the_pump_does_not_know_goes_to_the_engine_with_its_ethernet_header(
    world: tuple[Host, Host], unknown: bytes
) -> None:
    tap, far = world
    tap.tun.give(NO_VNET + unknown)
    settle(tap, far)
    ((kind, data),) = events(tap)
    assert kind in (_core.EVENT_HOST, _core.EVENT_MISS)
    assert data == unknown
    assert far.tun.take() == []
    assert tap.counter("tx_missed") == 1


def test_the_engines_frames_go_by_their_mac_and_to_the_guests(world: tuple[Host, Host]) -> None:
    tap, far = world
    tap.pump.send_packet(frame(udp(source="10.0.0.77")))
    tap.pump.deliver(b"whatever the engine says")
    settle(tap, far)
    assert far.tun.take() == [NO_VNET + bytes(udp(source="10.0.0.77"))]
    assert tap.tun.take() == [NO_VNET + b"whatever the engine says"]
    bad = tap.counter("commands_bad")
    tap.pump.send_packet(b"short")
    tap.pump.deliver(bytes(MTU + 15))
    settle(tap)
    assert tap.counter("commands_bad") == bad + 2


@pytest.mark.parametrize(
    ("dropped", "counter"),
    [
        (frame(udp(), type=0x88CC), "tx_not_ip"),
        (frame(udp(), type=0x8100), "tx_vlan"),
        (frame(udp(), type=0x88A8), "tx_vlan"),
        (frame(udp(), type=0x86DD), "tx_malformed"),
        (frame(Raw(b"\x45"), type=0x800), "tx_malformed"),
        (b"short", "tx_malformed"),
    ],
)
def test_other_frames_are_counted_drops(
    world: tuple[Host, Host], dropped: bytes, counter: str
) -> None:
    tap, far = world
    tap.tun.give(NO_VNET + dropped)
    settle(tap, far)
    assert (events(tap), far.tun.take(), tap.counter(counter)) == ([], [], 1)


def test_a_packet_from_the_address_of_another_guest_is_reported_a_hundred_times_a_second(
    world: tuple[Host, Host],
) -> None:
    tap, far = world
    spoofed = NO_VNET + frame(udp(), source=RIVAL)
    for _ in range(400):
        tap.tun.give(spoofed)
        settle(tap, far)
    reported = tap.pump.events()
    assert far.tun.take() == []
    assert tap.counter("tx_spoofed") == 400
    assert {(it.type, it.next_hop, it.data) for it in reported} == {
        (_core.EVENT_SPOOFED, key_of(A4), RIVAL.raw)
    }
    assert 99 <= len(reported) < 400, "100 a second, and other seconds may have begun meanwhile"


def test_a_guest_that_is_not_firm_shares_its_address(world: tuple[Host, Host]) -> None:
    tap, far = world
    tap.pump.guest_set(key_of(A4), GUEST.raw, False)
    settle(tap)
    tap.tun.give(NO_VNET + frame(udp(), source=RIVAL))
    settle(tap, far)
    assert far.tun.take() == [NO_VNET + bytes(udp())]


def test_a_packet_for_an_unknown_guest_goes_to_the_engine_a_hundred_times_a_second(
    world: tuple[Host, Host],
) -> None:
    tap, far = world
    tap.pump.guest_del(key_of(A4))
    settle(tap)
    far.tun.give(NO_VNET + bytes(udp(B4, A4)))
    settle(tap, far)
    (event,) = tap.pump.events()
    assert (event.type, event.data) == (_core.EVENT_LINK_PACKET, bytes(udp(B4, A4)))
    assert (event.src_qpn, event.sgid) == (far.port.qpn, far.gid.raw)
    unknown = NO_VNET + bytes(udp(B4, A4))
    for _ in range(400):
        far.tun.give(unknown)
        settle(tap, far)
    passed = len(tap.pump.events())
    assert tap.tun.take() == []
    assert 99 <= passed < 400, "100 a second, and other seconds may have begun meanwhile"
    assert passed + tap.counter("rx_unknown_guest") == 400


def test_a_packet_that_is_too_long_goes_to_the_engine_with_its_ethernet_header(
    world: tuple[Host, Host],
) -> None:
    tap, far = world
    tap.pump.neigh_set(key_of(next_hop_of(FAR)), SEND, far.destination, 100)
    settle(tap)
    tap.tun.give(NO_VNET + frame(udp(payload=bytes(200))))
    settle(tap, far)
    (event,) = tap.pump.events()
    assert (event.type, event.mtu) == (_core.EVENT_TOO_BIG, 100)
    assert event.data == frame(udp(payload=bytes(200)))


def test_another_pump_of_the_tap_begins_without_guests(world: tuple[Host, Host]) -> None:
    """So a guest that leaves while the data path is severed is gone (`Shell.resume`)."""
    tap, _ = world
    tap.pump.close()
    tap.port = _core.MemoryPort(_core.MemorySwitch(2), tap.gid.raw)
    tap.pump = _core.Pump(tap.port, tap.tun.device, mtu=MTU)
    tap.tun.give(NO_VNET + frame(udp()))
    settle(tap)
    assert events(tap) == [(_core.EVENT_HOST, frame(udp()))]


def test_commands_for_guests_need_a_tap(world: tuple[Host, Host]) -> None:
    _, far = world
    bad = far.counter("commands_bad")
    far.pump.guest_set(key_of(A4), GUEST.raw, True)
    far.pump.guest_del(key_of(A4))
    far.pump.mac_set(OWN.raw)
    far.pump.host_mac_set(far.gid.raw, 7, OWN.raw)
    far.pump.host_mac_del(far.gid.raw, 7)
    settle(far)
    assert far.counter("commands_bad") == bad + 5
    with pytest.raises(ValueError, match="a MAC has 6 bytes, not 5"):
        far.pump.mac_set(bytes(5))
    with pytest.raises(ValueError, match="a TAP has one queue here"):
        _core.TapDevice(0, (), (1,))


def test_no_frame_of_a_guest_crashes_the_pump(world: tuple[Host, Host]) -> None:
    tap, far = world
    good = NO_VNET + frame(udp())
    for length in range(len(good)):
        tap.tun.give(good[:length] or b"\0")
    for at in range(len(good)):
        tap.tun.give(good[:at] + bytes((good[at] ^ 0xFF,)) + good[at + 1 :])
        if at % 16 == 0:
            settle(tap, far)
            tap.pump.events()
            far.tun.take()
    settle(tap, far)
    reasons = "malformed missed not_ip vlan spoofed bad_csum bad_gso unresolved_hold event_ring_full too_big"
    ends = ["tx_packets", *(f"tx_{reason}" for reason in reasons.split())]
    assert sum(tap.counter(name) for name in ends) == 2 * len(good)
    assert struct.calcsize("=BBHHHH6x") == len(NO_VNET)
