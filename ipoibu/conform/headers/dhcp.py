# SPDX-License-Identifier: BSD-2-Clause
"""DHCP over IPv4: RFC 2131, and its options by RFC 2132."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipoibu.conform.headers.ip import UDP_PORTS
from ipoibu.conform.layout import Layout, address, code, number, octets
from ipoibu.conform.packet import NEXT, Given, Layer

DHCP: Final = Layout(
    "dhcp",
    number("operation", 8, 1),
    number("hardware_type", 8, 32),
    number("hardware_length", 8),
    number("hops", 8),
    code("transaction", 32),
    number("seconds", 16),
    number("broadcast", 1),
    number("flags", 15),
    address("client", 32),
    address("yours", 32),
    address("server", 32),
    address("relay", 32),
    octets("hwaddr", 16),
    octets("server_name", 64),
    octets("file", 128),
    code("cookie", 32, 0x63825363),
)
MESSAGE_TYPE: Final = Layout(
    "dhcp_message_type", number("option", 8, 53), number("length", 8, 1), number("type", 8, 1)
)
CLIENT_ID: Final = Layout(
    "dhcp_client_id", number("option", 8, 61), number("length", 8, 1), number("type", 8)
)
OPTION: Final = Layout("dhcp_option", number("option", 8), number("length", 8))
PAD_OR_END: Final = Layout("dhcp_pad_or_end", number("option", 8, 255))

SERVER_PORT, CLIENT_PORT = 67, 68
DISCOVER: Final = 1


def dhcp(**values: Given) -> Layer:
    return Layer(DHCP, values)


def message_type(**values: Given) -> Layer:
    """The option that says which DHCP message this is."""
    return Layer(MESSAGE_TYPE, values)


def client_id(**values: Given) -> Layer:
    """The client identifier, up to its first byte, the type."""
    return Layer(CLIENT_ID, values)


def end() -> Layer:
    return Layer(PAD_OR_END, {"option": 255})


def _next(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    last = layers[-1]
    if last.layout in (MESSAGE_TYPE, CLIENT_ID, OPTION):
        length = last.values["length"]
        assert isinstance(length, int)
        rest = rest[max(0, 2 + length - last.layout.size) :]
    elif last.layout is PAD_OR_END and last.values["option"] == 255:
        return None, rest
    if not rest:
        return None, rest
    if rest[0] in (0, 255):
        return PAD_OR_END, rest
    return {53: MESSAGE_TYPE, 61: CLIENT_ID}.get(rest[0], OPTION), rest


for _layout in (DHCP, MESSAGE_TYPE, CLIENT_ID, OPTION, PAD_OR_END):
    NEXT[_layout] = _next
for _port in (SERVER_PORT, CLIENT_PORT):
    UDP_PORTS[_port] = DHCP
