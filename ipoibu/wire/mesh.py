# SPDX-License-Identifier: BSD-2-Clause
"""The messages of an iWARP mesh; a profile of our own, docs/use/mesh.md.

Each end sends a greeting in the private data of the connection:

    | "ipom" 4 | version 1 | flags 1 | window 2 | hardware address 20 | MTU 4 | P_Key 2 | port 2 |

A control message follows a header like that of the encapsulation, with Type 0x88B5, and holds a
list:

    | operation 1 | 0 3 | entry ... |    an MGID of 16 bytes, or | IP version 1 | 0 1 | port 2 | address 16 |

The C core handles operation 5, the window, alone (ext/mesh/mesh_send.c).
"""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import (
    GID_LEN,
    HWADDR_LEN,
    MULTICAST_QPN,
    RC_FLAG,
    Gid,
    HwAddr,
    IpAddress,
    PKey,
)
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import IPV4_MIN_MTU, MESH_LOCATORS_KEPT, MESH_MTU_MAX
from ipoibu.wire import Octets

REASONS: Final = frozenset(
    {"mesh_greeting", "mesh_version", "mesh_hwaddr", "mesh_operation", "mesh_list", "mesh_address"}
)

VERSION: Final = 1
LIST_MAX: Final = 100  # entries of one message, which then fits the smallest default datagram MTU
_MARK: Final = b"ipom"
_GREETING: Final = struct.Struct(f"!4sBBH{HWADDR_LEN}sIHH")
_INTRODUCED: Final = 1  # the only flag
_ENTRY: Final = struct.Struct("!BxH16s")
_HEADER_LEN: Final = 4
_IPV4_PAD: Final = bytes(12)


class Operation(enum.IntEnum):
    """The kind of a control message."""

    GROUPS = 1  # all groups that the sender is in
    JOIN = 2  # further groups that the sender is in
    LEAVE = 3
    PEERS = 4  # the places where other hosts listen
    WINDOW = 5
    ADDRESSES = 6  # all IP addresses of the sender


@dataclass(frozen=True, slots=True)
class Locator:
    """The place where a host listens: an address of its net device, without scope, and a port."""

    ip: IpAddress
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.ip.version == 6 else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class Greeting:
    """One host. `mtu_bytes` is the largest IP packet that the host takes, `window` the number of
    messages that it takes before it grants more, and `port` its listening port, at the address from
    which it connects. `takes_connections`: it accepts connections of connected mode (RFC 4755 §3.1); on
    the wire that is the flag of the hardware address, which has none here. `is_introduced`: the host
    dials a place that another host named, so that this other host introduces it to its peers."""

    hwaddr: HwAddr
    mtu_bytes: int
    window: int
    pkey: PKey
    port: int
    takes_connections: bool = False
    is_introduced: bool = False

    @property
    def full_hwaddr(self) -> HwAddr:
        """The hardware address with its flags, as in ARP."""
        return replace(self.hwaddr, flags=RC_FLAG if self.takes_connections else 0)

    def pack(self) -> bytes:
        """36 bytes."""
        return _GREETING.pack(
            _MARK,
            VERSION,
            _INTRODUCED if self.is_introduced else 0,
            self.window,
            self.full_hwaddr.pack(),
            self.mtu_bytes,
            self.pkey,
            self.port,
        )


def greeting_untrusted(data: Octets) -> Greeting:
    """Read private data; bytes behind the greeting are padding."""
    if len(data) < _GREETING.size:
        raise BadFrame("mesh_greeting")
    mark, version, flags, window, raw, mtu_bytes, pkey, port = _GREETING.unpack_from(data)
    if mark != _MARK:
        raise BadFrame("mesh_greeting")
    if version != VERSION:
        raise BadFrame("mesh_version")
    hwaddr = HwAddr.unpack(raw)
    if hwaddr.gid.is_multicast or not any(hwaddr.gid.raw) or hwaddr.qpn in (0, MULTICAST_QPN):
        raise BadFrame("mesh_hwaddr")
    if window == 0 or mtu_bytes < IPV4_MIN_MTU or pkey & 0x7FFF == 0:
        raise BadFrame("mesh_greeting")
    return Greeting(
        HwAddr(hwaddr.qpn, hwaddr.gid),
        min(mtu_bytes, MESH_MTU_MAX),
        window,
        PKey(pkey),
        port,
        bool(hwaddr.flags & RC_FLAG),
        bool(flags & _INTRODUCED),
    )


def groups(operation: Operation, mgids: Sequence[Gid]) -> Iterator[bytes]:
    """Yield the messages for all groups; after the first message GROUPS becomes JOIN."""
    for at in range(0, max(1, len(mgids)), LIST_MAX):
        kind = Operation.JOIN if at and operation is Operation.GROUPS else operation
        yield bytes((kind, 0, 0, 0)) + b"".join(it.raw for it in mgids[at : at + LIST_MAX])


def peers(locators: Sequence[Locator]) -> Iterator[bytes]:
    for at in range(0, len(locators), LIST_MAX):
        entries = (_entry(it.ip, it.port) for it in locators[at : at + LIST_MAX])
        yield bytes((Operation.PEERS, 0, 0, 0)) + b"".join(entries)


def addresses(ips: Sequence[IpAddress]) -> bytes:
    """Return one message, with at most the first 100 addresses."""
    return bytes((Operation.ADDRESSES, 0, 0, 0)) + b"".join(_entry(ip, 0) for ip in ips[:LIST_MAX])


def operation_untrusted(message: Octets) -> Operation:
    if len(message) < _HEADER_LEN:
        raise BadFrame("mesh_operation")
    try:
        return Operation(message[0])
    except ValueError:
        raise BadFrame("mesh_operation") from None


def groups_untrusted(message: Octets) -> list[Gid]:
    """Read the list of GROUPS, JOIN or LEAVE."""
    body = bytes(message[_HEADER_LEN:])
    if len(body) % GID_LEN:
        raise BadFrame("mesh_list")
    mgids = [Gid(body[at : at + GID_LEN]) for at in range(0, len(body), GID_LEN)]
    if not all(mgid.is_multicast for mgid in mgids):
        raise BadFrame("mesh_list")
    return mgids


def locators_untrusted(message: Octets) -> list[Locator]:
    """Read the list of PEERS, or of ADDRESSES, whose ports have no meaning."""
    body = bytes(message[_HEADER_LEN:])
    if len(body) % _ENTRY.size:
        raise BadFrame("mesh_list")
    return [_locator(*fields) for fields in _ENTRY.iter_unpack(body)]


def _entry(ip: IpAddress, port: int) -> bytes:
    return _ENTRY.pack(ip.version, port, ip.packed if ip.version == 6 else _IPV4_PAD + ip.packed)


@functools.lru_cache(maxsize=MESH_LOCATORS_KEPT)
def _locator(version: int, port: int, raw: bytes) -> Locator:
    if version not in (4, 6):
        raise BadFrame("mesh_address")
    ip: IpAddress = IPv4Address(raw[12:]) if version == 4 else IPv6Address(raw)
    if ip.is_multicast or ip.is_unspecified:
        raise BadFrame("mesh_address")
    return Locator(ip, port)
