# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's messages about links (linux/if_link.h)."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.host.route_message import attribute, attributes, u32

_IFLA_ADDRESS: Final = 1
_IFLA_IFNAME: Final = 3
_IFLA_MTU: Final = 4
_IFLA_MASTER: Final = 10
_IFLA_TXQLEN: Final = 13
_IFLA_LINKINFO: Final = 18
_IFLA_AF_SPEC: Final = 26
_IFLA_NET_NS_FD: Final = 28
_IFLA_GSO_MAX_SIZE: Final = 41
_IFLA_ALLMULTI: Final = 61  # since Linux 6.0
_IFLA_GSO_IPV4_MAX_SIZE: Final = 63  # since Linux 6.3; before, the other is that of IPv4, too
_IFLA_INFO_KIND: Final = 1
_IFLA_INFO_DATA: Final = 2
_VETH_INFO_PEER: Final = 1  # linux/veth.h
_IFLA_INET6_CONF: Final = 2
_IFLA_INET6_ADDR_GEN_MODE: Final = 8
_AF_INET6: Final = 10

_HEADER: Final = struct.Struct("=BxHiII")  # struct ifinfomsg
_NUMBER: Final = struct.Struct("=I")


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A link as the kernel describes it; None for what a link does not have."""

    index: int
    flags: int  # IFF_*
    name: str
    mtu_bytes: int
    hwaddr: str | None
    master: int | None
    counts_allmulti: bool
    forwards_ipv6: bool
    addr_gen_mode: int | None
    frame_bytes: int | None  # the longest frame of IPv6


def link_request(of: str | int) -> bytes:
    """Return the body of a question for the link with this name or index."""
    if isinstance(of, int):
        return _HEADER.pack(0, 0, of, 0, 0)
    return _HEADER.pack(0, 0, 0, 0, 0) + _name(of)


def link_change(
    index: int,
    *,
    flags: int = 0,
    change: int = 0,
    mtu_bytes: int | None = None,
    txqueuelen: int | None = None,
    frame_bytes: tuple[int, int] | None = None,
    master: int | None = None,
    addr_gen_mode: int | None = None,
) -> bytes:
    """Return the body of a message that changes the flags in `change`, and what is not None;
    `frame_bytes` are the longest frames of IPv4 and of IPv6."""
    body = _HEADER.pack(0, 0, index, flags, change)
    ipv4_bytes, ipv6_bytes = frame_bytes or (None, None)
    numbers = (
        (_IFLA_MTU, mtu_bytes),
        (_IFLA_TXQLEN, txqueuelen),
        (_IFLA_MASTER, master),
        (_IFLA_GSO_MAX_SIZE, ipv6_bytes),
        (_IFLA_GSO_IPV4_MAX_SIZE, ipv4_bytes),
    )
    for number, value in numbers:
        if value is not None:
            body += u32(number, value)
    if addr_gen_mode is not None:
        mode = attribute(_IFLA_INET6_ADDR_GEN_MODE, bytes((addr_gen_mode,)))
        body += attribute(_IFLA_AF_SPEC, attribute(_AF_INET6, mode))
    return body


def new_bridge(name: str) -> bytes:
    """Return the body of a message that makes a bridge."""
    kind = attribute(_IFLA_INFO_KIND, b"bridge\0")
    return _HEADER.pack(0, 0, 0, 0, 0) + _name(name) + attribute(_IFLA_LINKINFO, kind)


def new_veth(name: str, hwaddr: str, peer: str, peer_hwaddr: str, peer_namespace: int) -> bytes:
    """Return the body of a message that makes a pair of links, `peer` in the namespace of the descriptor."""
    head = _HEADER.pack(0, 0, 0, 0, 0)
    other = head + _name(peer) + _hwaddr(peer_hwaddr) + u32(_IFLA_NET_NS_FD, peer_namespace)
    kind = attribute(_IFLA_INFO_KIND, b"veth\0")
    data = attribute(_IFLA_INFO_DATA, attribute(_VETH_INFO_PEER, other))
    return head + _name(name) + _hwaddr(hwaddr) + attribute(_IFLA_LINKINFO, kind, data)


def read_link(data: bytes, offset: int) -> LinkEntry:
    """Return the link of the message at `offset`."""
    (length,) = _NUMBER.unpack_from(data, offset)
    _, _, index, flags, _ = _HEADER.unpack_from(data, offset + 16)
    found = dict(attributes(data, offset + 16 + _HEADER.size, offset + length))
    families = _nested(found.get(_IFLA_AF_SPEC, b""))
    ipv6 = _nested(families.get(_AF_INET6, b""))
    mode = ipv6.get(_IFLA_INET6_ADDR_GEN_MODE)
    hwaddr = found.get(_IFLA_ADDRESS)
    return LinkEntry(
        index,
        flags,
        os.fsdecode(found[_IFLA_IFNAME].rstrip(b"\0")),
        _number(found.get(_IFLA_MTU)) or 0,
        None if hwaddr is None else hwaddr.hex(":"),
        _number(found.get(_IFLA_MASTER)),
        bool(_number(found.get(_IFLA_ALLMULTI))),
        # The first of the sysctls is `forwarding`.
        bool(_number(ipv6.get(_IFLA_INET6_CONF, b"")[: _NUMBER.size])),
        None if mode is None else mode[0],
        _number(found.get(_IFLA_GSO_MAX_SIZE)),
    )


def _nested(value: bytes) -> dict[int, bytes]:
    return dict(attributes(value, 0, len(value)))


def _number(value: bytes | None) -> int | None:
    return None if not value else int(_NUMBER.unpack_from(value)[0])


def _name(name: str) -> bytes:
    return attribute(_IFLA_IFNAME, os.fsencode(name) + b"\0")


def _hwaddr(text: str) -> bytes:
    return attribute(_IFLA_ADDRESS, bytes.fromhex(text.replace(":", "")))
