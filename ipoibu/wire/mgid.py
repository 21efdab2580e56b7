# SPDX-License-Identifier: BSD-2-Clause
"""Multicast GIDs of IP groups, RFC 4391 §4 (G1-G5).

    |  8 |  4 |   4   |    16     |   16  |  80   |
    | FF |  1 | scope | signature | P_Key | group |

The mapping keeps the low 28 bits of an IPv4 address and the low 80 bits of an IPv6 address, without its
scope and flags, so several IPv6 groups can share one MGID.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, IpAddress, PKey, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import DEFAULT_SCOPE

REASONS: Final = frozenset({"mgid_prefix", "mgid_signature"})

LIMITED_BROADCAST: Final = IPv4Address("255.255.255.255")

_SIGNATURES: Final = {4: 0x401B, 6: 0x601B}  # G2
_FAMILIES: Final = {signature: family for family, signature in _SIGNATURES.items()}
_SOLICITED_NODE: Final = int(IPv6Address("ff02::1:ff00:0"))  # RFC 4291 §2.7.1


@dataclass(frozen=True, slots=True)
class Mgid:
    """The parts of an IPoIB group's GID; `family` is 4 or 6, `group` the low 80 bits."""

    family: int
    scope: int
    pkey: PKey
    group: int

    def pack(self) -> Gid:
        """Return the GID; `ValueError` for parts that do not fit their fields."""
        if self.family not in _SIGNATURES:
            raise ValueError(f"{self.family} is not an IP version")
        if not 0 <= self.scope <= 0xF:
            raise ValueError(f"a scope has 4 bits: {self.scope:#x}")
        if not 0 <= self.group < 1 << 80:
            raise ValueError(f"the group part has 80 bits: {self.group:#x}")
        return Gid(
            bytes((0xFF, 0x10 | self.scope))
            + _SIGNATURES[self.family].to_bytes(2, "big")
            + self.pkey.to_bytes(2, "big")
            + self.group.to_bytes(10, "big")
        )


def parse_untrusted(gid: Gid) -> Mgid:
    """Read an IPoIB group's GID; `mgid_prefix` or `mgid_signature` for any other GID."""
    raw = gid.raw
    if raw[0] != 0xFF or raw[1] >> 4 != 1:
        raise BadFrame("mgid_prefix")
    family = _FAMILIES.get(int.from_bytes(raw[2:4], "big"))
    if family is None:
        raise BadFrame("mgid_signature")
    pkey = PKey(int.from_bytes(raw[4:6], "big"))
    return Mgid(family, raw[1] & 0xF, pkey, int.from_bytes(raw[6:], "big"))


def of_group(group: IpAddress, pkey: PKey, scope: int = DEFAULT_SCOPE) -> Gid:
    """Return the MGID of an IP multicast group or of 255.255.255.255, on the partition of `pkey`.

    `scope` is that of the broadcast group, not the group's own (G5); the key in the MGID always has
    the full-membership bit (E7). `ValueError` if `group` is a unicast address.
    """
    if group == LIMITED_BROADCAST:
        return broadcast(pkey, scope)
    if not group.is_multicast:
        raise ValueError(f"{group} is not a multicast group")
    bits = (1 << (28 if group.version == 4 else 80)) - 1  # G3
    return Mgid(group.version, scope, pkey.full, int(group) & bits).pack()


def broadcast(pkey: PKey, scope: int = DEFAULT_SCOPE) -> Gid:
    """Return the broadcast group, which defines the link (B1): all 32 bits of 255.255.255.255 (G4)."""
    return Mgid(4, scope, pkey.full, 0xFFFFFFFF).pack()


def solicited_node(address: IPv6Address) -> IPv6Address:
    """ff02::1:ffXX:XXXX of a unicast address; RFC 4291 §2.7.1 (N3)."""
    return IPv6Address(_SOLICITED_NODE | int(address) & 0xFFFFFF)


def hwaddr(gid: Gid) -> HwAddr:
    """Return the group's hardware address as Linux prints it: 00ffffff and the MGID (E5)."""
    return HwAddr(Qpn(MULTICAST_QPN), gid)


def ip_group(group: Gid) -> IpAddress | None:
    """Return an IP group that has this MGID (G3); the MGID does not keep the scope and flags of an IPv6
    group."""
    parts = parse_untrusted(group)
    if parts.family == 6:
        return IPv6Address((0xFF02 << 112) | parts.group)
    return IPv4Address(0xE0000000 | parts.group) if parts.group >> 28 == 0 else None
