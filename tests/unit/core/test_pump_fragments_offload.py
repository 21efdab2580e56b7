# SPDX-License-Identifier: BSD-2-Clause
"""Super-frames of UDP to groups, whose segments are longer than the group's MTU."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.packet import Raw

from ipoibu import _core
from ipoibu.base.addr import Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of
from tests.unit.core.test_pump import MGID
from tests.unit.core.test_pump_offload import (
    MTU,
    SEND,
    Host,
    arrived,
    check_whole,
    make_host,
    parsed,
    payload_of,
    settle,
    super_frame,
)

__all__ = ["make_host"]  # pytest finds it here

LARGE = 65520
GROUP4, GROUP6 = ipaddress.ip_address("239.1.2.3"), ipaddress.ip_address("ff02::5")
OURS = "fe80::1"
HEADERS = {
    "IPv4": IP(src="10.0.0.1", dst=str(GROUP4), id=7),
    "IPv4, DF": IP(src="10.0.0.1", dst=str(GROUP4), id=0, flags="DF"),
    "IPv4, option": IP(src="10.0.0.1", dst=str(GROUP4), id=7, options=[IPOption_Router_Alert()]),
    "IPv6": IPv6(src=OURS, dst=str(GROUP6)),
    "IPv6, hop-by-hop": IPv6(src=OURS, dst=str(GROUP6)) / IPv6ExtHdrHopByHop(),
    "IPv6, options": IPv6(src=OURS, dst=str(GROUP6)) / IPv6ExtHdrDestOpt(),
}


@pytest.fixture(params=[False, True], ids=["", "one piece"])
def hosts(make_host: Any, request: pytest.FixtureRequest) -> tuple[Host, Host]:
    a = make_host("fe80::a", one_piece=request.param, device_mtu=LARGE)
    b = make_host("fe80::b", ("csum",))
    for host in (a, b):
        host.port.attach(MGID.raw)
    for group in (GROUP4, GROUP6):
        a.pump.neigh_set(key_of(group), SEND, Destination(MGID, Qpn(0xFFFFFF)), MTU)
    a.pump.own_set(key_of(ipaddress.ip_address(OURS)), True)
    return a, b


def datagrams(packets: list[bytes]) -> tuple[list[Any], set[int]]:
    """Put the fragments together, which come in order; return the datagrams, and the ids of fragments."""
    found: list[Any] = []
    ids: set[int] = set()
    data = b""
    for packet in packets:
        assert len(packet) <= MTU
        layers = parsed(packet)
        if IPv6ExtHdrFragment in layers:
            header = layers[IPv6ExtHdrFragment]
            place, more, number = header.offset, header.m, header.id
            assert layers.plen == len(packet) - 40
            content = bytes(header.payload)
        elif IP in layers and (layers.flags.MF or layers.frag):
            place, more, number = layers.frag, layers.flags.MF, layers.id
            assert layers.len == len(packet)
            assert bytes(IP(packet, chksum=None))[:20] == packet[:20]
            content = packet[layers.ihl * 4 :]
        else:
            found.append(layers)
            continue
        assert place * 8 == len(data)
        assert (number in ids) == bool(data)
        ids.add(number)
        data += content
        if not more:
            found.append(whole(packet, data))
            data = b""
    assert data == b""
    return found, ids


def whole(last: bytes, data: bytes) -> Any:
    """Return the datagram with the data of all its fragments, from its last one."""
    layers = parsed(last)
    if IP in layers:
        head = IP(last[: layers.ihl * 4])
        head.frag, head.flags, head.len, head.chksum = 0, 0, None, None
        return IP(bytes(head / Raw(data)))
    header = layers[IPv6ExtHdrFragment]
    before, kind = header.underlayer, header.nh
    before.remove_payload()
    before.nh = kind
    layers.plen = None
    return IPv6(bytes(layers / Raw(data)))


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize(
    ("size", "n"),
    [(5000, 22000), (MTU, 3 * MTU), (9000, 9001), (2016, 40320)],
)
def test_each_segment_arrives_in_fragments(
    hosts: tuple[Host, Host], name: str, size: int, n: int
) -> None:
    a, b = hosts
    data = payload_of(n)
    a.tun.give(super_frame(HEADERS[name] / UDP(sport=5, dport=6) / Raw(data), size))
    packets = []
    for _ in range(10):
        settle(a, b)
        packets += arrived(b)
    got, ids = datagrams(packets)
    assert [bytes(it[UDP].payload) for it in got] == [
        data[at : at + size] for at in range(0, n, size)
    ]
    for each in got:
        check_whole(bytes(each))
    assert a.counter("tx_super_frames") == 1
    assert a.counter("tx_fragmented") == len(ids)
    assert a.counter("tx_packets") == len(packets)
    assert a.counter("tx_too_big") == 0


def test_super_frames_in_a_row_have_ids_that_differ(hosts: tuple[Host, Host]) -> None:
    """RFC 6864 §4.1: of packets with "don't fragment" the ids mean nothing."""
    a, b = hosts
    for _ in range(3):
        a.tun.give(super_frame(HEADERS["IPv4, DF"] / UDP() / Raw(payload_of(10000)), 5000))
    settle(a, b)
    got, ids = datagrams(arrived(b))
    assert len(got) == len(ids) == 6


def test_super_frames_of_others_are_too_big_for_a_router(hosts: tuple[Host, Host]) -> None:
    """RFC 8200 §5: of IPv6 only the sender makes fragments."""
    a, b = hosts
    a.tun.give(
        super_frame(IPv6(src="fd00::9", dst=str(GROUP6)) / UDP() / Raw(payload_of(9000)), 4000)
    )
    settle(a, b)
    assert arrived(b) == []
    [event] = a.pump.events()
    assert (event.type, event.mtu) == (_core.EVENT_TOO_BIG, MTU)


def test_a_group_that_takes_no_fragment_gets_none(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    a.pump.neigh_set(key_of(GROUP4), SEND, Destination(MGID, Qpn(0xFFFFFF)), 35)
    a.tun.give(super_frame(HEADERS["IPv4"] / UDP() / Raw(payload_of(9000)), 4000))
    settle(a, b)
    assert arrived(b) == []
    assert a.counter("tx_too_big") == 1
