# SPDX-License-Identifier: BSD-2-Clause
"""The encapsulation header (RFC 4391 §6) and ARP (RFC 826, RFC 4391 §9.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipoibu.conform.headers.ip import IPV4, IPV6
from ipoibu.conform.layout import Layout, Value, address, code, number, octets
from ipoibu.conform.packet import COMPLETE, NEXT, Around, Given, Layer

ENCAP: Final = Layout("ipoib", code("type", 16), number("reserved", 16))

ARP: Final = Layout(
    "arp",
    number("hardware_type", 16, 32),
    code("protocol", 16, 0x0800),
    number("hardware_length", 8, 20),
    number("protocol_length", 8, 4),
    number("operation", 16, 1),
    octets("sender_hwaddr", 20),
    address("sender_ip", 32),
    octets("target_hwaddr", 20),
    address("target_ip", 32),
)

REQUEST: Final = 1
REPLY: Final = 2

_TYPES: Final = {IPV4: 0x0800, ARP: 0x0806, IPV6: 0x86DD}
_LAYOUTS: Final = {number: layout for layout, number in _TYPES.items()}


def encap(**values: Given) -> Layer:
    """The header of every frame; a test writes it only if it wants an unusual one."""
    return Layer(ENCAP, values)


def arp(**values: Given) -> Layer:
    return Layer(ARP, values)


def _complete(values: dict[str, Value], around: Around) -> None:
    if around.inner:
        values.setdefault("type", _TYPES.get(around.inner[0].layout, 0))


def _next(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    return _LAYOUTS.get(layers[-1].values["type"]), rest  # type: ignore[arg-type]


COMPLETE[ENCAP] = _complete
NEXT[ENCAP] = _next
