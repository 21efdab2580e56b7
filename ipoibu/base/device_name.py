# SPDX-License-Identifier: BSD-2-Clause
"""The names of devices. Unlike the devices, this module needs no part of the C core."""

from __future__ import annotations

import enum
import ipaddress
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import Gid
from ipoibu.base.errors import UsageError

PREFIX: Final = "soft:"  # the built-in HCA on a net device
GID_SEPARATOR: Final = ","  # between the net device and the address to use as GID
SEPARATOR: Final = "@"  # between the net device and the name of the InfiniBand port


class DeviceKind(enum.Enum):
    """The kind of port behind a device's name. `fabric.device` opens each, and `doctor.machine` checks it."""

    SOFT = PREFIX
    RDMA = ""  # a name without a prefix

    @classmethod
    def of(cls, device: str) -> DeviceKind:
        return next(kind for kind in cls if device.startswith(kind.value))


class GidKind(enum.IntEnum):
    """The kind of address that becomes the GID of the built-in HCA; enum soft_gid_kind in ext/soft/hca.h."""

    ANY = 0
    LINK_LOCAL = 1
    IPV4 = 2
    IPV6 = 3

    @classmethod
    def of(cls, gid: Gid) -> GidKind:
        if isinstance(gid.ip, ipaddress.IPv4Address):
            return cls.IPV4
        return cls.LINK_LOCAL if gid.ip.is_link_local else cls.IPV6


@dataclass(frozen=True, slots=True)
class SoftName:
    """`soft:NETDEV[,ipv4|,ipv6|,ADDRESS][@UMAD]`, read."""

    netdev: str
    kind: GidKind = GidKind.ANY
    gid: Gid | None = None  # only this one
    umad: str = ""


_KINDS: Final = {"": GidKind.ANY, "ipv4": GidKind.IPV4, "ipv6": GidKind.IPV6}


def parse_device(text: str) -> tuple[str, int]:
    """Split `DEV[/PORT]`; the port is 1 unless given. `UsageError` for anything else."""
    device, slash, port = text.partition("/")
    if not device or not device.isprintable() or (slash and not port.isdecimal()):
        raise _no_device(text)
    if DeviceKind.of(device) is DeviceKind.SOFT:
        parse_soft(device)
    return device, int(port) if slash else 1


def device_text(device: str, port: int) -> str:
    """Return the text of a port that `parse_device` reads; RDMA devices alone have several ports."""
    return f"{device}/{port}" if DeviceKind.of(device) is DeviceKind.RDMA else device


def parse_soft(device: str) -> SoftName:
    """Read the name of a built-in HCA; `UsageError` for anything else."""
    rest, at, umad = device.removeprefix(PREFIX).partition(SEPARATOR)
    netdev, comma, address = rest.partition(GID_SEPARATOR)
    if not netdev or (at and not umad) or (at and comma) or (comma and not address):
        raise _no_device(device)
    if address in _KINDS:
        return SoftName(netdev, _KINDS[address], umad=umad)
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        raise _no_device(device) from None
    if ip.is_multicast or ip.is_unspecified or ip.is_loopback or "%" in address:
        raise _no_device(device)
    gid = Gid.of_ip(ip)
    return SoftName(netdev, GidKind.of(gid), gid)


def _no_device(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a device (expected {PREFIX}NETDEV, {PREFIX}NETDEV{GID_SEPARATOR}ipv4,"
        f" {GID_SEPARATOR}ipv6 or {GID_SEPARATOR}ADDRESS, {PREFIX}NETDEV{SEPARATOR}UMAD or RDMADEV,"
        " then /PORT)"
    )
