# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 (RFC 791), IPv6 and its extension headers (RFC 8200), UDP (RFC 768), ICMP (RFC 792, RFC 4443)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ipoibu.conform.layout import Layout, Value, address, code, number
from ipoibu.conform.packet import COMPLETE, NEXT, SUMS, Around, Given, Layer, Sum

IPV4: Final = Layout(
    "ipv4",
    number("version", 4, 4),
    number("header_words", 4, 5),
    code("tos", 8),
    number("length", 16),
    code("id", 16),
    number("reserved_flag", 1),
    number("dont_fragment", 1),
    number("more_fragments", 1),
    number("fragment_offset", 13),
    number("ttl", 8, 64),
    number("protocol", 8),
    code("checksum", 16),
    address("source", 32),
    address("destination", 32),
)
ROUTER_ALERT: Final = Layout("router_alert", code("option", 16, 0x9404), number("value", 16))

IPV6: Final = Layout(
    "ipv6",
    number("version", 4, 6),
    code("traffic_class", 8),
    code("flow_label", 20),
    number("length", 16),
    number("next_header", 8),
    number("hop_limit", 8, 64),
    address("source", 128),
    address("destination", 128),
)
HOP_BY_HOP: Final = Layout(
    "hop_by_hop",
    number("next_header", 8),
    number("words", 8),
    code("option1", 16, 0x0502),  # router alert: RFC 2711
    number("value", 16),
    code("option2", 16, 0x0100),  # PadN
)
DESTINATION: Final = Layout(
    "destination_options",
    number("next_header", 8),
    number("words", 8),
    code("option", 8, 0x01),
    number("option_length", 8, 4),
    code("data", 32),
)
ROUTING: Final = Layout(
    "routing",
    number("next_header", 8),
    number("words", 8),
    number("type", 8),
    number("segments_left", 8),
    code("data", 32),
)
FRAGMENT: Final = Layout(
    "fragment",
    number("next_header", 8),
    number("reserved", 8),
    number("offset", 13),
    number("reserved2", 2),
    number("more", 1),
    code("id", 32),
)
UDP: Final = Layout(
    "udp",
    number("source_port", 16),
    number("destination_port", 16),
    number("length", 16),
    code("checksum", 16),
)
ICMP_ECHO: Final = Layout(
    "icmp_echo",
    number("type", 8, 8),
    number("code", 8),
    code("checksum", 16),
    code("id", 16),
    number("sequence", 16),
)
ICMP_UNREACHABLE: Final = Layout(
    "icmp_unreachable",
    number("type", 8, 3),
    number("code", 8),
    code("checksum", 16),
    number("unused", 16),
    number("mtu", 16),
)
ICMP_OTHER: Final = Layout("icmp", number("type", 8), number("code", 8), code("checksum", 16))
ECHO6: Final = Layout(
    "icmpv6_echo",
    number("type", 8, 128),
    number("code", 8),
    code("checksum", 16),
    code("id", 16),
    number("sequence", 16),
)
TOO_BIG: Final = Layout(
    "packet_too_big",
    number("type", 8, 2),
    number("code", 8),
    code("checksum", 16),
    number("mtu", 32),
)
ICMPV6_ERROR: Final = Layout(
    "icmpv6_error",
    number("type", 8, 4),
    number("code", 8),
    code("checksum", 16),
    number("pointer", 32),
)
ICMPV6_OTHER: Final = Layout("icmpv6", number("type", 8), number("code", 8), code("checksum", 16))

ICMPV6: Final = 58
ICMPV6_TYPES: Final[dict[int, Layout]] = {
    1: ICMPV6_ERROR,
    2: TOO_BIG,
    3: ICMPV6_ERROR,
    4: ICMPV6_ERROR,
    128: ECHO6,
    129: ECHO6,
}
"""What follows an IPv6 header with protocol 58, by its type; `nd` and `groups` add theirs."""
IPV4_PROTOCOLS: Final[dict[int, Callable[[bytes], Layout]]] = {17: lambda rest: UDP}
"""What follows an IPv4 header, by the bytes there; `groups` adds IGMP."""
UDP_PORTS: Final[dict[int, Layout]] = {}
"""What follows a UDP header, by either port; `dhcp` adds its own."""

_EXTENSIONS: Final = {0: HOP_BY_HOP, 43: ROUTING, 44: FRAGMENT, 60: DESTINATION}
_EXTENSION_LAYOUTS: Final = frozenset(_EXTENSIONS.values())


def ipv4(**values: Given) -> Layer:
    return Layer(IPV4, values)


def router_alert(**values: Given) -> Layer:
    return Layer(ROUTER_ALERT, values)


def ipv6(**values: Given) -> Layer:
    return Layer(IPV6, values)


def hop_by_hop(**values: Given) -> Layer:
    return Layer(HOP_BY_HOP, values)


def destination_options(**values: Given) -> Layer:
    return Layer(DESTINATION, values)


def routing(**values: Given) -> Layer:
    return Layer(ROUTING, values)


def fragment(**values: Given) -> Layer:
    return Layer(FRAGMENT, values)


def udp(**values: Given) -> Layer:
    return Layer(UDP, values)


def icmp_echo(**values: Given) -> Layer:
    """An ICMP echo request, unless the type is 0 (reply)."""
    return Layer(ICMP_ECHO, values)


def icmp_unreachable(**values: Given) -> Layer:
    return Layer(ICMP_UNREACHABLE, values)


def echo6(**values: Given) -> Layer:
    """An ICMPv6 echo request, unless the type is 129 (reply)."""
    return Layer(ECHO6, values)


def too_big(**values: Given) -> Layer:
    return Layer(TOO_BIG, values)


def icmpv6_error(**values: Given) -> Layer:
    """An ICMPv6 error: type 1 unreachable, 3 time exceeded, 4 parameter problem."""
    return Layer(ICMPV6_ERROR, values)


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _number(value: Given) -> int:
    assert isinstance(value, int)
    return value


def _complete_ipv4(values: dict[str, Value], around: Around) -> None:
    options = 0
    for layer in around.inner:
        if layer.layout is not ROUTER_ALERT:
            break
        options += 1
    values.setdefault("header_words", 5 + options)
    values.setdefault("length", min(20 + len(around.payload), 0xFFFF))
    if "protocol" not in values and len(around.inner) > options:
        values["protocol"] = PROTOCOL_OF.get(around.inner[options].layout, 0)
    if "checksum" not in values:
        header = IPV4.pack({**values, "checksum": 0}) + around.payload[: 4 * options]
        values["checksum"] = checksum(header)


def _complete_ipv6(values: dict[str, Value], around: Around) -> None:
    values.setdefault("length", min(len(around.payload), 0xFFFF))
    _complete_next_header(values, around)


def _complete_next_header(values: dict[str, Value], around: Around) -> None:
    if "next_header" not in values and around.inner:
        values["next_header"] = PROTOCOL_OF.get(around.inner[0].layout, 59)


PROTOCOL_OF: Final[dict[Layout, int]] = {
    **{layout: number for number, layout in _EXTENSIONS.items()},
    ICMP_ECHO: 1,
    ICMP_UNREACHABLE: 1,
    ICMP_OTHER: 1,
    UDP: 17,
    ECHO6: ICMPV6,
    TOO_BIG: ICMPV6,
    ICMPV6_ERROR: ICMPV6,
    ICMPV6_OTHER: ICMPV6,
}
"""The protocol number of a layout behind IP."""


def complete_plain_checksum(layout: Layout) -> Callable[[dict[str, Value], Around], None]:
    """Return the completion of a header whose checksum covers it and what follows (ICMP, IGMP)."""

    def complete(values: dict[str, Value], around: Around) -> None:
        if "checksum" not in values:
            raw = layout.pack({**values, "checksum": 0}) + around.payload
            values["checksum"] = checksum(raw)

    return complete


def complete_pseudo_checksum(layout: Layout) -> Callable[[dict[str, Value], Around], None]:
    """Return the completion of a header whose checksum covers a pseudo header, too (ICMPv6, UDP)."""

    def complete(values: dict[str, Value], around: Around) -> None:
        if layout is UDP:
            values.setdefault("length", min(8 + len(around.payload), 0xFFFF))
        if "checksum" in values:
            return
        raw = layout.pack({**values, "checksum": 0}) + around.payload
        values["checksum"] = checksum(
            pseudo_header(around.outer, len(raw), PROTOCOL_OF[layout]) + raw
        )

    return complete


def is_plain_sum(outer: Sequence[Layer], raw: bytes) -> bool:
    """Return whether the checksum over these bytes is right (ICMP, IGMP)."""
    return checksum(raw) == 0


def is_pseudo_sum(protocol: int) -> Sum:
    """Return the check of a checksum that covers a pseudo header, too (ICMPv6, UDP)."""
    return lambda outer, raw: checksum(pseudo_header(outer, len(raw), protocol) + raw) == 0


def pseudo_header(outer: Sequence[Layer], length: int, protocol: int) -> bytes:
    """Return the pseudo header of the innermost IP header (RFC 768, RFC 8200 §8.1); none without one."""
    for layer in reversed(outer):
        if layer.layout in (IPV4, IPV6):
            source, destination = (_packed(layer, it) for it in ("source", "destination"))
            if layer.layout is IPV4:
                return source + destination + bytes((0, protocol)) + length.to_bytes(2, "big")
            return source + destination + length.to_bytes(4, "big") + bytes((0, 0, 0, protocol))
    return b""


def _packed(layer: Layer, name: str) -> bytes:
    field = layer.layout.fields[name]
    value = layer.values.get(name, field.default)
    assert isinstance(value, Value)
    return field.to_int(value).to_bytes(field.bits // 8, "big")


COMPLETE[IPV4] = _complete_ipv4
COMPLETE[IPV6] = _complete_ipv6
for _layout in _EXTENSION_LAYOUTS:
    COMPLETE[_layout] = _complete_next_header
for _layout in (ICMP_ECHO, ICMP_UNREACHABLE, ICMP_OTHER):
    COMPLETE[_layout] = complete_plain_checksum(_layout)
    SUMS[_layout] = is_plain_sum
SUMS[IPV4] = lambda outer, raw: checksum(raw[: 4 * (raw[0] & 15)]) == 0
for _layout in (UDP, ECHO6, TOO_BIG, ICMPV6_ERROR, ICMPV6_OTHER):
    COMPLETE[_layout] = complete_pseudo_checksum(_layout)
    SUMS[_layout] = is_pseudo_sum(PROTOCOL_OF[_layout])


def _next_of_ipv4(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    values = next(it.values for it in reversed(layers) if it.layout is IPV4)
    if layers[-1].layout is IPV4:
        rest = rest[: max(0, _number(values["length"]) - 20)]  # padding is no part of the packet
        if _number(values["header_words"]) == 6 and rest[:1] == b"\x94":
            return ROUTER_ALERT, rest
        rest = rest[max(0, 4 * _number(values["header_words"]) - 20) :]
    if values["fragment_offset"]:
        return None, rest
    protocol = _number(values["protocol"])
    if protocol == 1:
        kind = rest[0] if rest else 0xFF
        return {0: ICMP_ECHO, 8: ICMP_ECHO, 3: ICMP_UNREACHABLE}.get(kind, ICMP_OTHER), rest
    choose = IPV4_PROTOCOLS.get(protocol)
    return (choose(rest) if choose is not None else None), rest


def _next_of_ipv6(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    last = layers[-1]
    if last.layout is IPV6:
        rest = rest[: _number(last.values["length"])]
    elif last.layout is FRAGMENT:
        if last.values["offset"]:
            return None, rest
    else:
        rest = rest[8 * _number(last.values["words"]) :]
    protocol = _number(last.values["next_header"])
    if protocol == ICMPV6:
        return ICMPV6_TYPES.get(rest[0] if rest else 0xFF, ICMPV6_OTHER), rest
    return (UDP if protocol == 17 else _EXTENSIONS.get(protocol)), rest


def _next_of_udp(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    ports: Mapping[str, Given] = layers[-1].values
    for name in ("destination_port", "source_port"):
        if (layout := UDP_PORTS.get(_number(ports[name]))) is not None:
            return layout, rest
    return None, rest


NEXT[IPV4] = NEXT[ROUTER_ALERT] = _next_of_ipv4
NEXT[IPV6] = _next_of_ipv6
for _layout in _EXTENSION_LAYOUTS:
    NEXT[_layout] = _next_of_ipv6
NEXT[UDP] = _next_of_udp
