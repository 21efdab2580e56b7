# SPDX-License-Identifier: BSD-2-Clause
"""The header of Linux's rdma_cm in front of a request's private data (InfiniBand volume 1, annex A11).

    | version 0 8b | IP version 4b, 0 4b | source port 2 | source address 16 | destination address 16 |

Requests to the service IDs of an IP port space have this header: 0x0000000001, the protocol (6 for
TCP), the port. On RoCE a user of rdma_cm can neither ask for another service ID nor listen on one,
and on either side the kernel writes and reads this header itself. An IPv4 address fills the last
four of its sixteen bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets

REASONS: Final = frozenset({"cm_rdmacm_short", "cm_rdmacm_version"})

SERVICE_BASE: Final = 0x0000_0000_0106_0000
LEN: Final = 36
_PORT_MASK: Final = 0xFFFF
_HEADER: Final = struct.Struct("!BBH16s16s")
_IPV4_PAD: Final = bytes(12)


def is_rdmacm(service_id: int) -> bool:
    """Return whether requests to this service ID carry the header."""
    return service_id & ~_PORT_MASK == SERVICE_BASE


@dataclass(frozen=True, slots=True)
class Header:
    """The IP addresses of both ends, of one family; `port` is that of the source, and has no use."""

    source: IpAddress
    destination: IpAddress
    port: int = 0

    def pack(self) -> bytes:
        """36 bytes."""
        version = self.source.version
        return _HEADER.pack(0, version << 4, self.port, _pack(self.source), _pack(self.destination))


def parse_untrusted(data: Octets) -> tuple[Header, bytes]:
    """Return the header, and the private data behind it."""
    if len(data) < LEN:
        raise BadFrame("cm_rdmacm_short")
    version, ip_version, port, source, destination = _HEADER.unpack_from(data)
    if version != 0 or ip_version >> 4 not in (4, 6):
        raise BadFrame("cm_rdmacm_version")
    if ip_version >> 4 == 4:
        addresses: tuple[IpAddress, IpAddress] = (
            IPv4Address(source[12:]),
            IPv4Address(destination[12:]),
        )
    else:
        addresses = IPv6Address(source), IPv6Address(destination)
    return Header(*addresses, port), bytes(data[LEN:])


def _pack(address: IpAddress) -> bytes:
    return address.packed if address.version == 6 else _IPV4_PAD + address.packed
