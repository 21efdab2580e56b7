# SPDX-License-Identifier: BSD-2-Clause
"""Routed underlays of a lab: each host has a network of its own, and a router joins the networks.

Nothing carries multicast or link-local addresses from one network to another, so the hosts of the link need
`--peer`, and GIDs that cross a router.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipoibu.base.addr import IpAddress, IpInterface
from ipoibu.base.errors import UsageError

LINK: Final = "link"


@dataclass(frozen=True, slots=True)
class Underlay:
    """Says what the routed networks carry, and the kind of address that becomes the GID."""

    gid: int  # IP version
    versions: tuple[int, ...]  # of the addresses in the networks

    @property
    def device_suffix(self) -> str:
        return f",ipv{self.gid}"

    def addresses(self, number: int) -> list[IpInterface]:
        """Return the addresses of host `number`, that of the GID's version first."""
        versions = sorted(self.versions, key=lambda version: version != self.gid)
        return [host_address(number, version) for version in versions]


ROUTED4: Final = Underlay(4, (4,))
ROUTED6: Final = Underlay(6, (6,))
ROUTED: Final = {"routed4": ROUTED4, "routed6": ROUTED6}
NAMES: Final = (LINK, *ROUTED)


def underlay(name: str | None) -> Underlay | None:
    """Return the underlay of that name; None for `link`, the default; `UsageError` for another name."""
    if name in (None, LINK):
        return None
    if name not in ROUTED:
        raise UsageError(f"--underlay {name!r} is none of {', '.join(NAMES)}")
    return ROUTED[name]


def host_address(number: int, version: int) -> IpInterface:
    """Return the address of host `number` in its network; .1 and ::1 are the router's."""
    text = f"10.78.{number}.2/24" if version == 4 else f"fd78:{number:x}::2/64"
    return ipaddress.ip_interface(text)


def gateway(number: int, version: int) -> IpAddress:
    return host_address(number, version).ip - 1


def router_addresses(number: int, underlay: Underlay) -> list[IpInterface]:
    """Return those of the router's port to host `number`. For packets that it forwards, Linux asks for
    IPv6 neighbours only from a link-local address."""
    addresses = []
    for version in underlay.versions:
        length = host_address(number, version).network.prefixlen
        addresses.append(ipaddress.ip_interface(f"{gateway(number, version)}/{length}"))
        if version == 6:
            addresses.append(ipaddress.ip_interface("fe80::1/64"))
    return addresses


def anywhere(version: int) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.IPv4Network("0.0.0.0/0") if version == 4 else ipaddress.IPv6Network("::/0")


def forward() -> None:
    """Have the network namespace of the calling thread forward packets."""
    for switch in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", switch).write_text("1")
