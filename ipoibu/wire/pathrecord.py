# SPDX-License-Identifier: BSD-2-Clause
"""PathRecord: the path to a port (InfiniBand volume 1, §15.2.5.16); B6, Q1.

| service id 8 | DGID 16 | SGID 16 | DLID 2 | SLID 2 |
| raw 1b, reserved 3b, flow label 20b, hop limit 8b | traffic class 1 |
| reversible 1b, number of paths 7b | P_Key 2 | QoS class 12b, SL 4b |
| selector 2b, MTU 6b | selector 2b, rate 6b | selector 2b, packet lifetime 6b | preference 1 |
| reserved 6 |
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import BadFrame
from ipoibu.wire.sa import MTU_BYTES, MTU_CODES, SELECT_EXACTLY

REASONS: Final = frozenset({"path_short", "path_lid", "path_mtu"})

RECORD_LEN: Final = 64
LID_MIN: Final = 0x0001
LID_MAX: Final = 0xBFFF

_FIXED: Final = struct.Struct("!8x16s16sHHIBBHHBBBB6x")
_CODE: Final = 0x3F
_REVERSIBLE: Final = 0x80


class Component(enum.IntFlag):
    """The bits of the component mask that our requests use."""

    DGID = 1 << 2
    SGID = 1 << 3
    TRAFFIC_CLASS = 1 << 10
    REVERSIBLE = 1 << 11
    NUMBER = 1 << 12
    PKEY = 1 << 13
    SL = 1 << 15


@dataclass(frozen=True, slots=True)
class PathRecord:
    """One path, from the port with `slid` to the port with `dlid`.

    `mtu_bytes` is the InfiniBand MTU; `rate` and `lifetime` are the codes of the specification. With a
    `hop_limit` above 1 the path leads through a router, so packets need a GRH.
    """

    dgid: Gid
    sgid: Gid
    dlid: int
    slid: int
    pkey: PKey
    sl: int
    mtu_bytes: int
    rate: int
    lifetime: int = 0
    flow_label: int = 0
    hop_limit: int = 0
    traffic_class: int = 0
    reversible: bool = True

    def pack(self) -> bytes:
        """Return 64 bytes; `KeyError` or `struct.error` for a value that does not fit its field."""
        return _FIXED.pack(
            self.dgid.raw,
            self.sgid.raw,
            self.dlid,
            self.slid,
            self.flow_label << 8 | self.hop_limit,
            self.traffic_class,
            self.reversible * _REVERSIBLE,
            self.pkey,
            self.sl,
            SELECT_EXACTLY << 6 | MTU_CODES[self.mtu_bytes],
            SELECT_EXACTLY << 6 | self.rate,
            SELECT_EXACTLY << 6 | self.lifetime,
            0,
        )


@dataclass(frozen=True, slots=True)
class PathQuery:
    """A request for one path, which must be reversible, because the answers to ARP and ND use it, too."""

    dgid: Gid
    sgid: Gid
    pkey: PKey

    @property
    def mask(self) -> Component:
        return (
            Component.DGID
            | Component.SGID
            | Component.PKEY
            | Component.REVERSIBLE
            | Component.NUMBER
        )

    def pack(self) -> bytes:
        """64 bytes."""
        fields = (0, 0, 0, 0, _REVERSIBLE | 1, self.pkey, 0, 0, 0, 0, 0)
        return _FIXED.pack(self.dgid.raw, self.sgid.raw, *fields)


def query_untrusted(data: bytes) -> PathQuery:
    """Read a request as an SA does."""
    if len(data) < RECORD_LEN:
        raise BadFrame("path_short")
    dgid, sgid, *_ = fields = _FIXED.unpack_from(data)
    return PathQuery(Gid(dgid), Gid(sgid), PKey(fields[7]))


def parse_untrusted(data: bytes) -> PathRecord:
    """Read one record of an answer, whose LIDs must both be unicast."""
    if len(data) < RECORD_LEN:
        raise BadFrame("path_short")
    (dgid, sgid, dlid, slid, shared, tclass, number, pkey, qos_sl, mtu, rate, lifetime, _) = (
        _FIXED.unpack_from(data)
    )
    if not (LID_MIN <= dlid <= LID_MAX and LID_MIN <= slid <= LID_MAX):
        raise BadFrame("path_lid")
    mtu_bytes = MTU_BYTES.get(mtu & _CODE)
    if mtu_bytes is None:
        raise BadFrame("path_mtu")
    return PathRecord(
        dgid=Gid(dgid),
        sgid=Gid(sgid),
        dlid=dlid,
        slid=slid,
        pkey=PKey(pkey),
        sl=qos_sl & 0xF,
        mtu_bytes=mtu_bytes,
        rate=rate & _CODE,
        lifetime=lifetime & _CODE,
        flow_label=shared >> 8 & 0xFFFFF,
        hop_limit=shared & 0xFF,
        traffic_class=tclass,
        reversible=bool(number & _REVERSIBLE),
    )
