# SPDX-License-Identifier: BSD-2-Clause
"""What stations of an iWARP mesh say to each other outside of datagrams: hellos and lists of peers.

The profile is our own: docs/mesh.md has the formats. Everything is in network order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Self

from ipoibu.addr import HWADDR_LEN, HwAddr, IpAddress, PKey
from ipoibu.limits import ENCAP_LEN, IPV4_MIN_MTU, MESH_MTU, MESH_WINDOW_MAX

MAGIC: Final = b"IPoM"
VERSION: Final = 1
_HELLO: Final = struct.Struct(f">4sBBHHHH{HWADDR_LEN}s")
_ADDRESS: Final = struct.Struct(">16sH")
NOTE_ADDRESSES_MAX: Final = 56  # 18 bytes each; a note has 1024


@dataclass(frozen=True, slots=True, order=True)
class MeshAddress:
    """Where a station listens for its peers: an IP address and a TCP port."""

    ip: IpAddress
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.ip.version == 6 else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class Hello:
    """A station's introduction, the private data of a request and of its answer: 34 bytes.

    `mtu_bytes` is the largest message that it takes, encapsulation header included, `window` how many
    the peer may send before it is granted more; `port` is where it listens.
    """

    hwaddr: HwAddr
    pkey: PKey
    mtu_bytes: int
    window: int
    port: int

    def pack(self) -> bytes:
        return _HELLO.pack(
            MAGIC,
            VERSION,
            0,
            self.pkey,
            self.mtu_bytes,
            self.window,
            self.port,
            self.hwaddr.pack(),
        )

    @classmethod
    def unpack_untrusted(cls, raw: bytes) -> Self:
        """Read the beginning of `raw`, which may be padded; `ValueError` says what is wrong."""
        if len(raw) < _HELLO.size:
            raise ValueError(f"a hello has {_HELLO.size} bytes, not {len(raw)}")
        magic, version, _, pkey, mtu_bytes, window, port, hwaddr = _HELLO.unpack_from(raw)
        if magic != MAGIC:
            raise ValueError("that is no hello of a mesh")
        if version != VERSION:
            raise ValueError(f"version {version} of the mesh; ours is {VERSION}")
        station = HwAddr.unpack(hwaddr)
        if station.gid.is_multicast or station.gid.raw == bytes(16) or station.qpn < 2:
            raise ValueError(f"{station} is no station's hardware address")
        if not IPV4_MIN_MTU + ENCAP_LEN <= mtu_bytes <= MESH_MTU + ENCAP_LEN:
            raise ValueError(f"messages of {mtu_bytes} bytes")
        if not 1 <= window <= MESH_WINDOW_MAX:
            raise ValueError(f"a window of {window} messages")
        return cls(station, PKey(pkey), mtu_bytes, window, port)


def pack_addresses(addresses: Iterable[MeshAddress]) -> bytes:
    """A note with where other stations listen; no more than `NOTE_ADDRESSES_MAX`."""
    return b"".join(_ADDRESS.pack(_mapped(each.ip), each.port) for each in addresses)


def unpack_addresses_untrusted(raw: bytes) -> list[MeshAddress]:
    """The stations of a note, without those that nobody could connect to."""
    if len(raw) % _ADDRESS.size:
        raise ValueError(f"a list of peers has {_ADDRESS.size} bytes each, not {len(raw)} in all")
    found = (MeshAddress(_unmapped(ip), port) for ip, port in _ADDRESS.iter_unpack(raw))
    return [each for each in found if each.port and is_station(each.ip)]


def is_station(ip: IpAddress) -> bool:
    """Whether one station can be reached by it from any other: not so for a link-local address,
    which means something else on each link."""
    return not (ip.is_multicast or ip.is_unspecified or ip.is_loopback or ip.is_link_local)


def _mapped(ip: IpAddress) -> bytes:
    return bytes(10) + b"\xff\xff" + ip.packed if isinstance(ip, IPv4Address) else ip.packed


def _unmapped(raw: bytes) -> IpAddress:
    ip = IPv6Address(raw)
    return ip.ipv4_mapped or ip


def parse_seed(text: str, default_port: int) -> tuple[str, int]:
    """`HOST[:PORT]`: a name, an IPv4 address, or an IPv6 address, in brackets if a port follows.

    `ValueError` for anything else.
    """
    text = text.strip()
    host, port = text, ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is no HOST[:PORT]")
        ip_address(host.partition("%")[0])
        port = rest[1:]
        if rest == ":":
            raise ValueError(f"{text!r} has no port behind the colon")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
        if not port:
            raise ValueError(f"{text!r} has no port behind the colon")
    elif ":" in text:
        ip_address(host.partition("%")[0])
    if not host or any(character.isspace() for character in host):
        raise ValueError(f"{text!r} is no HOST[:PORT]")
    if port and (not port.isdecimal() or len(port) > 5 or not 1 <= int(port) <= 65535):
        raise ValueError(f"{text!r}: the port is 1 to 65535")
    return host, int(port) if port else default_port
