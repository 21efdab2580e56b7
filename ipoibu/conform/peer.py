# SPDX-License-Identifier: BSD-2-Clause
"""The host that is graded: where it is, and which addresses the tester may use beside it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

NEAR_COUNT = 250
"""The tester uses so many IPv4 addresses of the peer's network, one after the other. With fewer tests over
IPv4 the peer knows nothing of a test's address."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`hwaddr` is what its datagrams come from: flags 0, queue pair number and GID.

    `flags` are those that its answers announce (RFC 4755 §3.1: 0x80 for RC). Addresses are None where it
    has none.
    """

    hwaddr: bytes
    flags: int
    ipv4: str | None
    ipv6: str | None
    ipv6_global: str | None

    @property
    def has_connected_mode(self) -> bool:
        return bool(self.flags & 0x80)


def addresses_near(ipv4: str, prefix_len: int) -> list[str]:
    """Return addresses of the peer's network from its end, without the peer's own."""
    network = ipaddress.ip_interface(f"{ipv4}/{prefix_len}").network
    last = int(network.broadcast_address) - 1
    first = max(int(network.network_address) + 1, last - NEAR_COUNT)
    found = [str(ipaddress.IPv4Address(it)) for it in range(last, first - 1, -1)]
    return [it for it in found if it != ipv4]
