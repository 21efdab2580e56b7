# SPDX-License-Identifier: BSD-2-Clause
"""Every decoder of `ipoibu.wire` under drawn bytes, and under damaged golden packets: it gives a value
or a `BadFrame` whose reason its module lists."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import ipaddress
import pkgutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ipoibu.wire
from ipoibu.base.addr import Gid
from ipoibu.base.errors import BadFrame
from ipoibu.wire import (
    dhcp,
    dhcp6,
    dhcp6_lease,
    dhcp_packet,
    fragment,
    icmp_message,
    ip,
    membership,
    ndopt,
    sa,
    udp,
)

GOLDEN_FILE: Final = Path(__file__).parents[1] / "golden" / "wire.toml"
Decoder = Callable[[bytes], object]


def _reply(raw: bytes) -> dhcp6.Message:
    """A message whose association has the bytes as its options, and the message, too, if they are legal."""
    ids = ((dhcp6.Code.SERVER_ID, raw[:20]), (dhcp6.Code.IA_NA, bytes(12) + raw))
    return dhcp6.Message(dhcp6.Kind.REPLY, 1, (*ids, *dhcp6.options_untrusted(raw)))


def _by_icmp(raw: bytes, read: Callable[[ip.Packet], object]) -> object:
    """Read a packet, and a message with a right checksum, whose type and code are its first bytes."""
    four = ip.Ipv4(ipaddress.IPv4Address(1), ipaddress.IPv4Address(2), ip.ICMP, b"")
    six = ip.Ipv6(ipaddress.IPv6Address(1), ipaddress.IPv6Address(2), ip.ICMPV6, b"")
    found: list[object] = []
    for packet in (four, six):
        if len(raw) >= 8:
            sealed = icmp_message._sealed(packet.source, packet.destination, raw[0], raw)
            found.append(read(dataclasses.replace(packet, payload=sealed)))
    return [*found, read(ip.parse_untrusted(raw))]


# Decoders that take more than bytes.
ADAPTED: Final[dict[str, Decoder]] = {
    "membership.records_untrusted": lambda raw: [
        membership.records_untrusted(raw, raw[0] if raw else 1, size) for size in (4, 16)
    ],
    "mcmember.request_untrusted": lambda raw: [
        ipoibu.wire.mcmember.request_untrusted(raw, mask) for mask in (0, 0x30, 0x3FFFF)
    ],
    "mgid.parse_untrusted": lambda raw: ipoibu.wire.mgid.parse_untrusted(
        Gid(raw[:16].ljust(16, b"\xff"))
    ),
    "ndopt.split_untrusted": lambda raw: [
        ndopt.split_untrusted(kind, ndopt.parse_untrusted(raw)) for kind in ndopt.LinkLayer
    ],
    "sa.records_untrusted": lambda raw: sa.records_untrusted(raw, raw[0] if raw else 0, 8),
    "icmp.too_big_untrusted": lambda raw: ipoibu.wire.icmp.too_big_untrusted(raw, 1280),
    "dhcp6.status_untrusted": lambda raw: dhcp6.status_untrusted(((dhcp6.Code.STATUS, raw),)),
    "dhcp6_lease.server_untrusted": lambda raw: dhcp6_lease.server_untrusted(_reply(raw)),
    "dhcp6_lease.verdict_untrusted": lambda raw: dhcp6_lease.verdict_untrusted(
        _reply(raw), b"\0" * 4
    ),
    "dhcp6_lease.takes_back_untrusted": lambda raw: dhcp6_lease.takes_back_untrusted(
        _reply(raw), b"\0" * 4, ipaddress.IPv6Address("fd00::1")
    ),
    "dhcp_packet.datagram_untrusted": lambda raw: (
        dhcp_packet.datagram_untrusted(raw, ip.Ipv4, range(1 << 16)),
        dhcp_packet.datagram_untrusted(raw, ip.Ipv6, range(1 << 16)),
    ),
    "dhcp.number_untrusted": lambda raw: dhcp.number_untrusted(raw, 4),
    "fragment.parse_untrusted": lambda raw: fragment.parse_untrusted(ip.parse_untrusted(raw)),
    "icmp_message.report_untrusted": lambda raw: _by_icmp(raw, icmp_message.report_untrusted),
    "icmp_message.echo_reply_untrusted": lambda raw: _by_icmp(
        raw, icmp_message.echo_reply_untrusted
    ),
    "udp.parse_untrusted": lambda raw: udp.parse_untrusted(ip.parse_untrusted(raw)),
    "membership.group_untrusted": lambda raw: membership.group_untrusted(
        (raw[:4] if len(raw) < 16 else raw[:16]).ljust(4, b"\xe0")
    ),
}


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(ipoibu.wire.__path__, "ipoibu.wire."):
        yield importlib.import_module(info.name)


def _decoders() -> Iterator[tuple[str, Decoder, frozenset[str]]]:
    """Each function of the room that reads a peer's bytes, with the reasons that it may give."""
    for module in _modules():
        short = module.__name__.rpartition(".")[2]
        for name, function in inspect.getmembers(module, inspect.isfunction):
            public = name.endswith("_untrusted") and not name.startswith("_")
            if public and function.__module__ == module.__name__:
                full = f"{short}.{name}"
                yield full, ADAPTED.get(full, function), module.REASONS


def _golden() -> Iterator[bytes]:
    for kinds in tomllib.loads(GOLDEN_FILE.read_text()).values():
        for vector in kinds.values():
            yield bytes.fromhex(vector["hex"])


DECODERS: Final = {name: (decode, reasons) for name, decode, reasons in _decoders()}
GOLDEN: Final = sorted(_golden())

noise: Final = st.binary(max_size=400)
damage: Final = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6)


def _decode(name: str, raw: bytes) -> None:
    decode, reasons = DECODERS[name]
    refusal = None
    try:
        decode(raw)
    except BadFrame as error:
        refusal = error.reason
    assert refusal is None or refusal in reasons, f"{refusal} is no reason of {name}"


def test_there_are_decoders_of_every_kind() -> None:
    assert {"arp.parse_untrusted", "cm.parse_untrusted", "mesh.groups_untrusted"} <= set(DECODERS)
    assert set(ADAPTED) <= set(DECODERS)


@pytest.mark.parametrize("name", DECODERS)
@given(raw=noise | st.binary(min_size=256, max_size=256))
def test_any_bytes_are_a_value_or_a_listed_reason(name: str, raw: bytes) -> None:
    _decode(name, raw)


@pytest.mark.parametrize("name", DECODERS)
@given(raw=st.sampled_from(GOLDEN), spots=damage, cut=st.integers(0, 400), more=noise)
def test_a_damaged_golden_packet_is_a_value_or_a_listed_reason(
    name: str, raw: bytes, spots: list[tuple[int, int]], cut: int, more: bytes
) -> None:
    spoiled = bytearray(raw)
    for at, value in spots:
        if at < len(spoiled):
            spoiled[at] = value
    _decode(name, bytes(spoiled[:cut]) if cut < len(spoiled) else bytes(spoiled) + more)
