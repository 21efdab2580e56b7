# SPDX-License-Identifier: BSD-2-Clause
"""DHCP over InfiniBand: RFC 4390 §2.1. The helper runs the peer's DHCP client, which then asks the link."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.dhcp import DISCOVER, SERVER_PORT, client_id, dhcp, message_type
from ipoibu.conform.headers.ip import ipv4, udp
from ipoibu.conform.packet import Layer
from ipoibu.conform.test import MUST, Act, Expect, Test

SOURCE: Final = "RFC 4390 §2.1"
ASK_S: Final = 5.0
"""The helper waits for the client, which gives up after 4 s."""


def asked(id: str, clause: str, title: str, message: Layer, *options: Layer) -> Test:
    """The client's first question has such a header and such options."""
    packet = ipv4(destination="255.255.255.255") / udp(destination_port=SERVER_PORT) / message
    for it in options:
        packet /= it
    return Test(id, clause, MUST, SOURCE, title, Act("dhcp"), Expect(packet, within_s=ASK_S))


TESTS: Final = (
    asked(
        "DHCP-1",
        "D1",
        "a client's message has hardware type 32 and hardware length 0",
        dhcp(operation=1, hardware_type=32, hardware_length=0),
        message_type(type=DISCOVER),
    ),
    asked(
        "DHCP-2",
        "D1",
        "a client's message has no hardware address",
        dhcp(operation=1, hwaddr=bytes(16)),
        message_type(type=DISCOVER),
    ),
    asked("DHCP-3", "D1", "a client's message has a client identifier", dhcp(), client_id()),
    asked(
        "DHCP-4",
        "D2",
        "a client without an address asks for an answer by broadcast",
        dhcp(operation=1, broadcast=1),
        message_type(type=DISCOVER),
    ),
)
