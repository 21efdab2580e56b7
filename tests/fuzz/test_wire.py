# SPDX-License-Identifier: BSD-2-Clause
"""Codecs under drawn input: values survive the wire, and no bytes raise anything but `BadFrame`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, PKey, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import (
    Octets,
    arp,
    encap,
    icmp,
    igmp,
    ip,
    lladdr,
    membership,
    mgid,
    mld,
    ndisc,
    ndopt,
)
from ipoibu.wire.membership import Filter, Record, Report
from tests.doubles import grh
from tests.doubles.membership_changes import changes

u8 = st.integers(0, 0xFF)
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFFFFFF)
ipv4s = st.ip_addresses(v=4)
ipv6s = st.ip_addresses(v=6)
ipv4_groups = st.integers(0xE0000000, 0xEFFFFFFF).map(IPv4Address)
ipv6_groups = st.binary(min_size=15, max_size=15).map(lambda low: IPv6Address(b"\xff" + low))
ipv6_targets = ipv6s.filter(lambda address: not address.is_multicast)
link_locals = st.binary(min_size=8, max_size=8).map(
    lambda low: IPv6Address(b"\xfe\x80" + bytes(6) + low)
)
gids = st.binary(min_size=16, max_size=16).map(Gid)
hwaddrs = st.builds(HwAddr, st.integers(0, 0xFFFFFF).map(Qpn), gids, u8)
unicast_hwaddrs = st.builds(
    HwAddr,
    st.integers(1, MULTICAST_QPN - 1).map(Qpn),
    gids.filter(lambda gid: not gid.is_multicast and any(gid.raw)),
    u8,
)
payloads = st.binary(max_size=200)


# Values survive the wire


@given(st.sampled_from(encap.EtherType), payloads)
def test_encapsulation_survives(kind: encap.EtherType, payload: bytes) -> None:
    value = encap.Encap(kind, payload)
    assert encap.parse_untrusted(value.pack()) == value


@given(st.builds(arp.Arp, u16, unicast_hwaddrs, ipv4s, hwaddrs, ipv4s))
def test_arp_survives(value: arp.Arp) -> None:
    assert arp.parse_untrusted(value.pack()) == value


@given(hwaddrs)
def test_hardware_addresses_survive_the_wire_and_the_screen(value: HwAddr) -> None:
    assert HwAddr.unpack(value.pack()) == value
    assert HwAddr.parse(str(value)) == value


@given(
    st.builds(
        mgid.Mgid,
        st.sampled_from((4, 6)),
        st.integers(0, 15),
        u16.map(PKey),
        st.integers(0, (1 << 80) - 1),
    )
)
def test_mgids_survive(value: mgid.Mgid) -> None:
    assert mgid.parse_untrusted(value.pack()) == value


@given(ipv4_groups | ipv6_groups, u16.map(PKey), st.integers(0, 15))
def test_the_mgid_of_a_group_shows_family_scope_partition_and_low_bits(
    group: IPv4Address | IPv6Address, pkey: PKey, scope: int
) -> None:
    parts = mgid.parse_untrusted(mgid.of_group(group, pkey, scope))
    assert (parts.family, parts.scope, parts.pkey) == (group.version, scope, pkey.full)
    assert parts.group == int(group) % (1 << (28 if group.version == 4 else 80))


@given(st.builds(grh.Grh, gids, gids, u16, u8, u8, st.integers(0, 0xFFFFF), u8))
def test_global_routing_headers_survive(value: grh.Grh) -> None:
    assert grh.parse_untrusted(value.pack()) == value


@given(ipv4s, ipv4s, st.integers(0, 0xFFFF - 20), u8, u8)
def test_the_ipv4_form_of_the_grh_area_survives(
    source: IPv4Address, destination: IPv4Address, payload_bytes: int, ttl: int, tos: int
) -> None:
    sgid, dgid = (Gid(bytes(10) + b"\xff\xff" + each.packed) for each in (source, destination))
    value = grh.Grh(sgid, dgid, payload_bytes, ttl, tos, next_header=grh.NEXT_HEADER_UDP)
    assert grh.parse_untrusted(value.pack_ipv4()) == value


@given(
    st.builds(
        ip.Ipv4,
        ipv4s,
        ipv4s,
        u8,
        payloads,
        ttl=u8,
        tos=u8,
        identification=u16,
        dont_fragment=st.booleans(),
        more_fragments=st.booleans(),
        fragment_offset_bytes=st.integers(0, 0x1FFF).map(lambda units: 8 * units),
        options=st.integers(0, 10).flatmap(
            lambda words: st.binary(min_size=4 * words, max_size=4 * words)
        ),
    )
    | st.builds(ip.Ipv6, ipv6s, ipv6s, u8, payloads, u8, u8, st.integers(0, 0xFFFFF))
)
def test_ip_packets_survive(value: ip.Packet) -> None:
    assert ip.parse_untrusted(value.pack()) == value


ndisc_options = st.lists(
    st.builds(
        ndopt.Option,
        st.integers(3, 255),
        st.integers(1, 5).flatmap(lambda n: st.binary(min_size=8 * n - 2, max_size=8 * n - 2)),
    ),
    max_size=3,
).map(tuple)
addresses = st.none() | unicast_hwaddrs


@given(
    st.builds(
        ndisc.NeighbourSolicitation,
        ipv6s.filter(lambda source: not source.is_unspecified),
        ipv6s,
        ipv6_targets,
        addresses,
        ndisc_options,
    )
    | st.builds(
        ndisc.NeighbourAdvertisement,
        ipv6s,
        ipv6_targets,
        ipv6_targets,
        addresses,
        ndisc_options,
        st.booleans(),
        st.booleans(),
        st.booleans(),
    )
    | st.builds(
        ndisc.RouterSolicitation,
        ipv6s.filter(lambda source: not source.is_unspecified),
        ipv6s,
        addresses,
        ndisc_options,
    )
    | st.builds(
        ndisc.RouterAdvertisement,
        link_locals,
        ipv6s,
        addresses,
        ndisc_options,
        u8,
        u8,
        u16,
        u32,
        u32,
    )
    | st.builds(
        ndisc.Redirect, link_locals, ipv6s, link_locals, ipv6_targets, addresses, ndisc_options
    )
)
def test_neighbour_discovery_survives_and_strip_takes_only_the_address(
    value: ndisc.Message,
) -> None:
    packet = value.pack()
    assert ndisc.parse_untrusted(packet) == value
    stripped, hwaddr = ndisc.strip_untrusted(packet)
    assert hwaddr == value.lladdr
    assert ndisc.parse_untrusted(stripped) == replace(value, lladdr=None)
    assert ndisc.strip_untrusted(stripped) == (stripped, None)


filters = st.sampled_from(Filter)


@given(
    ipv4s, st.lists(st.builds(Record, ipv4_groups, filters, st.lists(ipv4s, max_size=4).map(tuple)))
)
def test_igmp_reports_survive(source: IPv4Address, records: list[Record]) -> None:
    packet = igmp.report(source, records).pack()
    assert igmp.parse_untrusted(packet) == Report(tuple(records))


@given(
    ipv6s, st.lists(st.builds(Record, ipv6_groups, filters, st.lists(ipv6s, max_size=4).map(tuple)))
)
def test_mld_reports_survive(source: IPv6Address, records: list[Record]) -> None:
    packet = mld.report(source, records).pack()
    assert mld.parse_untrusted(packet) == Report(tuple(records))


@given(st.lists(st.builds(Record, ipv4_groups, filters, st.lists(ipv4s, max_size=2).map(tuple))))
def test_joins_and_leaves_are_what_a_record_says_of_no_member(records: list[Record]) -> None:
    for record in records:
        interest = membership.after(membership.NOT_A_MEMBER, record)
        for change in changes(Report((record,))):
            assert change.join == (interest is None or bool(interest))


# No bytes raise anything but BadFrame

DECODERS: Final[dict[str, tuple[Callable[[Octets], object], frozenset[str]]]] = {
    "encap": (encap.parse_untrusted, encap.REASONS),
    "lladdr": (lladdr.parse_untrusted, lladdr.REASONS),
    "arp": (arp.parse_untrusted, arp.REASONS),
    "grh": (grh.parse_untrusted, grh.REASONS),
    "ip": (ip.parse_untrusted, ip.REASONS),
    "ip.upper": (lambda raw: ip.parse_untrusted(raw).upper_untrusted(), ip.REASONS),
    "ndopt": (lambda raw: ndopt.parse_untrusted(bytes(raw)), ndopt.REASONS),
    "ndisc": (ndisc.parse_untrusted, ndisc.REASONS),
    "ndisc.strip": (ndisc.strip_untrusted, ndisc.REASONS),
    "igmp": (igmp.parse_untrusted, igmp.REASONS),
    "mld": (mld.parse_untrusted, mld.REASONS),
    "membership.4": (
        lambda raw: membership.records_untrusted(bytes(raw), 3, 4),
        membership.REASONS,
    ),
    "membership.6": (
        lambda raw: membership.records_untrusted(bytes(raw), 3, 16),
        membership.REASONS,
    ),
    "icmp.unreachable": (icmp.unreachable_untrusted, icmp.REASONS),
    "icmp.too_big": (lambda raw: icmp.too_big_untrusted(raw, 1280), icmp.REASONS),
}


def expect_at_most_bad_frame(name: str, raw: bytes) -> None:
    decode, reasons = DECODERS[name]
    refusal = None
    try:
        decode(memoryview(raw))
    except BadFrame as error:
        refusal = error.reason
    assert refusal is None or refusal in reasons


@pytest.mark.parametrize("name", DECODERS)
@given(raw=st.binary(max_size=300))
def test_any_bytes_are_a_value_or_a_bad_frame(name: str, raw: bytes) -> None:
    expect_at_most_bad_frame(name, raw)


@given(gid=gids)
def test_any_gid_is_an_mgid_or_a_bad_frame(gid: Gid) -> None:
    refusal = None
    try:
        assert mgid.parse_untrusted(gid).pack() == gid
    except BadFrame as error:
        refusal = error.reason
    assert refusal is None or refusal in mgid.REASONS


# Bytes that get past the first checks: right lengths and checksums around anything


def sealed(header: ip.Packet, extensions: bytes, message: bytes) -> bytes:
    message = message[:2] + bytes(2) + message[4:]
    if isinstance(header, ip.Ipv4):
        check = ip.checksum(message)
    else:
        check = ip.transport_checksum(header.source, header.destination, ip.ICMPV6, message)
    message = message[:2] + check.to_bytes(2, "big") + message[4:]
    return replace(header, payload=extensions + message).pack()


IPV6_DECODERS: Final = ("ndisc", "ndisc.strip", "mld", "icmp.unreachable", "icmp.too_big")
IPV4_DECODERS: Final = ("igmp", "icmp.unreachable", "icmp.too_big")


@pytest.mark.parametrize("name", IPV6_DECODERS)
@given(
    source=ipv6s | link_locals | st.just(IPv6Address("::")),
    destination=ipv6s | ipv6_groups,
    kind=st.sampled_from((130, 131, 132, 133, 134, 135, 136, 137, 143)) | u8,
    body=st.binary(min_size=2, max_size=200),
    code=st.just(0) | u8,
    hop_by_hop=st.booleans(),
)
def test_any_icmpv6_message_is_a_value_or_a_bad_frame(
    *,
    name: str,
    source: IPv6Address,
    destination: IPv6Address,
    kind: int,
    body: bytes,
    code: int,
    hop_by_hop: bool,
) -> None:
    header = ip.Ipv6(
        source, destination, ip.HOP_BY_HOP if hop_by_hop else ip.ICMPV6, b"", hop_limit=255
    )
    extensions = mld.ROUTER_ALERT if hop_by_hop else b""
    message = bytes((kind, code, 0, 0)) + body
    expect_at_most_bad_frame(name, sealed(header, extensions, message))


@pytest.mark.parametrize("name", IPV4_DECODERS)
@given(
    source=ipv4s,
    destination=ipv4s | ipv4_groups,
    protocol=st.sampled_from((ip.ICMP, ip.IGMP)),
    kind=st.sampled_from((0x11, 0x12, 0x16, 0x17, 0x22)) | u8,
    body=st.binary(min_size=2, max_size=200),
)
def test_any_igmp_or_icmp_message_is_a_value_or_a_bad_frame(
    *,
    name: str,
    source: IPv4Address,
    destination: IPv4Address,
    protocol: int,
    kind: int,
    body: bytes,
) -> None:
    header = ip.Ipv4(source, destination, protocol, b"")
    expect_at_most_bad_frame(name, sealed(header, b"", bytes((kind, 0, 0, 0)) + body))


@given(
    header=st.builds(ip.Ipv6, ipv6s, ipv6s, st.sampled_from((0, 43, 44, 51, 60)), st.just(b"")),
    chain=st.lists(
        st.tuples(
            st.sampled_from((0, 43, 44, 51, 60, 58)), st.integers(0, 3), st.binary(max_size=30)
        ),
        max_size=6,
    ),
)
def test_the_walk_over_extension_headers_ends_within_the_packet(
    header: ip.Ipv6, chain: list[tuple[int, int, bytes]]
) -> None:
    payload = b"".join(bytes((following, length)) + rest for following, length, rest in chain)
    packet = replace(header, payload=payload)
    refusal = None
    try:
        upper = packet.upper_untrusted()
        assert upper.payload == payload[upper.offset_bytes :]
    except BadFrame as error:
        refusal = error.reason
    assert refusal in (None, "ip_extension")


@given(packet=st.builds(ip.Ipv4, ipv4s, ipv4s, u8, st.binary(max_size=1600)))
def test_an_icmp_error_is_never_larger_than_576_bytes(packet: ip.Ipv4) -> None:
    raw = packet.pack()
    error = icmp.too_big_untrusted(raw, 1280)
    if error is not None:
        assert len(error) <= 576
        parsed = ip.parse_untrusted(error)
        assert ip.checksum(parsed.payload) == 0
        assert raw.startswith(parsed.payload[8:])


@given(packet=st.builds(ip.Ipv6, ipv6s, ipv6s, u8, st.binary(max_size=1600)))
def test_an_icmpv6_error_is_never_larger_than_1280_bytes(packet: ip.Ipv6) -> None:
    raw = packet.pack()
    refusal = None
    try:
        error = icmp.too_big_untrusted(raw, 1280)
    except BadFrame as caught:
        error, refusal = None, caught.reason
    assert refusal in (None, "ip_extension")
    if error is not None:
        assert len(error) <= 1280
        parsed = ip.parse_untrusted(error)
        assert isinstance(parsed, ip.Ipv6)
        assert not ip.transport_checksum(
            parsed.source, parsed.destination, ip.ICMPV6, parsed.payload
        )
        assert raw.startswith(parsed.payload[8:])
