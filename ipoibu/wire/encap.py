# SPDX-License-Identifier: BSD-2-Clause
"""The 4-byte encapsulation header of IPoIB, RFC 4391 §6 (E1-E3), and the IP MTU (T1).

 0                   1                   2                   3
+-------------------------------+-------------------------------+
|             Type              |           Reserved            |
+-------------------------------+-------------------------------+
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import ENCAP_LEN, IB_MTUS
from ipoibu.wire import Octets

REASONS: Final = frozenset({"encap_short", "encap_type"})


class EtherType(enum.IntEnum):
    """The payloads that RFC 4391 §6 admits, and no others (E3)."""

    IPV4 = 0x0800
    ARP = 0x0806
    RARP = 0x8035
    IPV6 = 0x86DD


@dataclass(frozen=True, slots=True)
class Encap:
    """A datagram's payload and its type."""

    type: EtherType
    payload: bytes

    def pack(self) -> bytes:
        """Return header and payload, with zero in the reserved half (E2). `ValueError` for an
        unlisted type."""
        return EtherType(self.type).to_bytes(2, "big") + b"\0\0" + self.payload


def parse_untrusted(frame: Octets) -> Encap:
    """Read a datagram without its GRH, and ignore the reserved half (E2)."""
    if len(frame) < ENCAP_LEN:
        raise BadFrame("encap_short")
    try:
        kind = EtherType(int.from_bytes(frame[:2], "big"))
    except ValueError:
        raise BadFrame("encap_type") from None
    return Encap(kind, bytes(frame[ENCAP_LEN:]))


def ip_mtu_bytes(ib_mtu_bytes: int) -> int:
    """Return the IP MTU of datagram mode on an InfiniBand MTU of 256..4096 bytes; RFC 4391 §7 (T1)."""
    if ib_mtu_bytes not in IB_MTUS:
        raise ValueError(f"{ib_mtu_bytes} is not an InfiniBand MTU")
    return ib_mtu_bytes - ENCAP_LEN
