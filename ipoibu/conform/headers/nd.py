# SPDX-License-Identifier: BSD-2-Clause
"""Neighbour discovery (RFC 4861) with link-layer options of 24 bytes (RFC 4391 §9.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ipoibu.conform.headers.ip import (
    ICMPV6,
    ICMPV6_TYPES,
    PROTOCOL_OF,
    checksum,
    complete_pseudo_checksum,
    is_pseudo_sum,
    pseudo_header,
)
from ipoibu.conform.layout import Layout, Value, address, code, number, octets
from ipoibu.conform.packet import COMPLETE, NEXT, SUMS, Around, Given, Layer

SOLICITATION: Final = Layout(
    "ns",
    number("type", 8, 135),
    number("code", 8),
    code("checksum", 16),
    code("reserved", 32),
    address("target", 128),
)
ADVERTISEMENT: Final = Layout(
    "na",
    number("type", 8, 136),
    number("code", 8),
    code("checksum", 16),
    number("router", 1),
    number("solicited", 1),
    number("override", 1),
    code("reserved", 29),
    address("target", 128),
)
ROUTER_SOLICITATION: Final = Layout(
    "rs", number("type", 8, 133), number("code", 8), code("checksum", 16), code("reserved", 32)
)
ROUTER_ADVERTISEMENT: Final = Layout(
    "ra",
    number("type", 8, 134),
    number("code", 8),
    code("checksum", 16),
    number("hop_limit", 8, 64),
    number("managed", 1),
    number("other", 1),
    number("home_agent", 1),
    number("preference", 2),
    number("reserved", 3),
    number("lifetime_s", 16, 1800),
    number("reachable_ms", 32),
    number("retransmit_ms", 32),
)
REDIRECT: Final = Layout(
    "redirect",
    number("type", 8, 137),
    number("code", 8),
    code("checksum", 16),
    code("reserved", 32),
    address("target", 128),
    address("destination", 128),
)
LINK_LAYER: Final = Layout(
    "link_layer_option",
    number("type", 8, 1),
    number("length", 8, 3),
    code("pad", 16),
    octets("hwaddr", 20),
)
PREFIX: Final = Layout(
    "prefix_option",
    number("type", 8, 3),
    number("length", 8, 4),
    number("prefix_length", 8, 64),
    number("on_link", 1, 1),
    number("autonomous", 1, 1),
    number("reserved", 6),
    number("valid_s", 32, 600),
    number("preferred_s", 32, 600),
    number("reserved2", 32),
    address("prefix", 128),
)
MTU: Final = Layout(
    "mtu_option",
    number("type", 8, 5),
    number("length", 8, 1),
    number("reserved", 16),
    number("mtu", 32),
)
OTHER_OPTION: Final = Layout("option", number("type", 8), number("length", 8))
SHORT_SOLICITATION: Final = Layout(  # one byte too short: the `tail` lies behind the packet's end
    "short_ns",
    number("type", 8, 135),
    number("code", 8),
    code("checksum", 16),
    code("reserved", 32),
    code("target_start", 120),
)
SHORT_ADVERTISEMENT: Final = Layout(
    "short_na",
    number("type", 8, 136),
    number("code", 8),
    code("checksum", 16),
    code("flags", 32),
    code("target_start", 120),
)
TAIL: Final = Layout("tail", code("byte", 8))

SOURCE, TARGET = 1, 2
MESSAGES: Final = (SOLICITATION, ADVERTISEMENT, ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, REDIRECT)
_OPTIONS: Final = {SOURCE: LINK_LAYER, TARGET: LINK_LAYER, 3: PREFIX, 5: MTU}


def ns(**values: Given) -> Layer:
    return Layer(SOLICITATION, values)


def na(**values: Given) -> Layer:
    return Layer(ADVERTISEMENT, values)


def rs(**values: Given) -> Layer:
    return Layer(ROUTER_SOLICITATION, values)


def ra(**values: Given) -> Layer:
    return Layer(ROUTER_ADVERTISEMENT, values)


def redirect(**values: Given) -> Layer:
    return Layer(REDIRECT, values)


def source_option(**values: Given) -> Layer:
    """The source link-layer address option, which has length 3."""
    return Layer(LINK_LAYER, {"type": SOURCE, **values})


def target_option(**values: Given) -> Layer:
    """The target link-layer address option, which has length 3."""
    return Layer(LINK_LAYER, {"type": TARGET, **values})


def prefix_option(**values: Given) -> Layer:
    return Layer(PREFIX, values)


def mtu_option(**values: Given) -> Layer:
    return Layer(MTU, values)


def option(**values: Given) -> Layer:
    """The two bytes in front of any option; what follows is the packet's payload."""
    return Layer(OTHER_OPTION, values)


def short_ns(**values: Given) -> Layer:
    return Layer(SHORT_SOLICITATION, values)


def short_na(**values: Given) -> Layer:
    return Layer(SHORT_ADVERTISEMENT, values)


def tail(**values: Given) -> Layer:
    return Layer(TAIL, values)


def _complete_short(layout: Layout) -> Callable[[dict[str, Value], Around], None]:
    """Return the completion that sums the message alone, without the bytes behind it."""

    def complete(values: dict[str, Value], around: Around) -> None:
        if "checksum" not in values:
            raw = layout.pack({**values, "checksum": 0})
            head = pseudo_header(around.outer, len(raw), ICMPV6)
            values["checksum"] = checksum(head + raw)

    return complete


def _next(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    last = layers[-1]
    if last.layout is OTHER_OPTION or last.layout in _OPTIONS.values():
        length = last.values["length"]
        assert isinstance(length, int)
        rest = rest[max(0, 8 * length - last.layout.size) :]
        if length == 0:
            return None, rest
    if len(rest) < 2:
        return None, rest
    layout = _OPTIONS.get(rest[0], OTHER_OPTION)
    return (layout if layout.size == 8 * rest[1] else OTHER_OPTION), rest


for _layout in MESSAGES:
    PROTOCOL_OF[_layout] = ICMPV6
    COMPLETE[_layout] = complete_pseudo_checksum(_layout)
    SUMS[_layout] = is_pseudo_sum(ICMPV6)
    NEXT[_layout] = _next
    ICMPV6_TYPES[_layout.fields["type"].default] = _layout  # type: ignore[index]
for _layout in (*_OPTIONS.values(), OTHER_OPTION):
    NEXT[_layout] = _next
for _layout in (SHORT_SOLICITATION, SHORT_ADVERTISEMENT):
    PROTOCOL_OF[_layout] = ICMPV6
    COMPLETE[_layout] = _complete_short(_layout)
