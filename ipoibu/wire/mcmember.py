# SPDX-License-Identifier: BSD-2-Clause
"""MCMemberRecord: a port's membership of a multicast group (InfiniBand volume 1, §15.2.5.17; Q2).

| MGID 16 | port GID 16 | Q_Key 4 | MLID 2 | selector 2b, MTU 6b | traffic class 1 | P_Key 2 |
| selector 2b, rate 6b | selector 2b, packet lifetime 6b | SL 4b, flow label 20b, hop limit 8b |
| scope 4b, join state 4b | proxy 1b, reserved 23b |
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, replace
from typing import Final

from ipoibu.base.addr import GID_LEN, Gid, PKey
from ipoibu.base.errors import BadFrame
from ipoibu.wire.sa import MTU_BYTES, MTU_CODES, SELECT_EXACTLY

REASONS: Final = frozenset({"mcmember_short", "mcmember_mlid", "mcmember_mtu"})

RECORD_LEN: Final = 52
MLID_MIN: Final = 0xC000
MLID_MAX: Final = 0xFFFE

_FIXED: Final = struct.Struct("!16s16sIHBBHBBIBB2x")
_CODE: Final = 0x3F  # MTU, rate and packet lifetime below their selectors


class JoinState(enum.IntFlag):
    """The kinds of membership of a port. The SA collects the bits of all requests of a port."""

    FULL_MEMBER = 1
    NON_MEMBER = 2  # receives, does not count as a user of the group (M7)
    SEND_ONLY_NON_MEMBER = 4  # M1; may not create a group
    SEND_ONLY_FULL_MEMBER = 8  # may create a group, if ClassPortInfo has the bit for it


class Component(enum.IntFlag):
    """The component mask's bits."""

    MGID = 1 << 0
    PORT_GID = 1 << 1
    QKEY = 1 << 2
    MLID = 1 << 3
    MTU = 1 << 4 | 1 << 5  # the bits of the selector and of the value
    TRAFFIC_CLASS = 1 << 6
    PKEY = 1 << 7
    RATE = 1 << 8 | 1 << 9
    LIFETIME = 1 << 10 | 1 << 11
    SL = 1 << 12
    FLOW_LABEL = 1 << 13
    HOP_LIMIT = 1 << 14
    SCOPE = 1 << 15
    JOIN_STATE = 1 << 16
    PROXY = 1 << 17


@dataclass(frozen=True, slots=True)
class McMemberRecord:
    """One membership. A request has None in fields that do not count; an answer has all fields.

    `mtu_bytes` is the InfiniBand MTU; `rate` and `lifetime` are the codes of the specification. We send
    the selector "exactly", and ignore the selectors of an answer.
    """

    mgid: Gid | None = None
    port_gid: Gid | None = None
    qkey: int | None = None
    mlid: int | None = None
    mtu_bytes: int | None = None
    traffic_class: int | None = None
    pkey: PKey | None = None
    rate: int | None = None
    lifetime: int | None = None
    sl: int | None = None
    flow_label: int | None = None
    hop_limit: int | None = None
    scope: int | None = None
    join_state: JoinState | None = None
    proxy: bool | None = None

    @property
    def mask(self) -> Component:
        """Return the components of this record that count: those that are not None."""
        mask = Component(0)
        for name, bit in _COMPONENTS.items():
            if getattr(self, name) is not None:
                mask |= bit
        return mask

    def pack(self) -> bytes:
        """Return 52 bytes; `ValueError` or `struct.error` for a value that does not fit its field."""
        sl, flow, hops = self.sl or 0, self.flow_label or 0, self.hop_limit or 0
        scope, state = self.scope or 0, self.join_state or 0
        if sl > 0xF or flow > 0xFFFFF or hops > 0xFF or scope > 0xF or state > 0xF:
            raise ValueError(f"a field of {self} has more bits than the record")
        return _FIXED.pack(
            self.mgid.raw if self.mgid else bytes(GID_LEN),
            self.port_gid.raw if self.port_gid else bytes(GID_LEN),
            self.qkey or 0,
            self.mlid or 0,
            _exactly(None if self.mtu_bytes is None else MTU_CODES[self.mtu_bytes]),
            self.traffic_class or 0,
            self.pkey or 0,
            _exactly(self.rate),
            _exactly(self.lifetime),
            sl << 28 | flow << 8 | hops,
            scope << 4 | state,
            bool(self.proxy) << 7,
        )


_COMPONENTS: Final = {
    "mgid": Component.MGID,
    "port_gid": Component.PORT_GID,
    "qkey": Component.QKEY,
    "mlid": Component.MLID,
    "mtu_bytes": Component.MTU,
    "traffic_class": Component.TRAFFIC_CLASS,
    "pkey": Component.PKEY,
    "rate": Component.RATE,
    "lifetime": Component.LIFETIME,
    "sl": Component.SL,
    "flow_label": Component.FLOW_LABEL,
    "hop_limit": Component.HOP_LIMIT,
    "scope": Component.SCOPE,
    "join_state": Component.JOIN_STATE,
    "proxy": Component.PROXY,
}


def parse_untrusted(data: bytes) -> McMemberRecord:
    """Read one record of an answer, which must have a multicast LID and an MTU for sends to the group."""
    record = _read_untrusted(data)
    if record.mlid is None or not MLID_MIN <= record.mlid <= MLID_MAX:
        raise BadFrame("mcmember_mlid")
    if record.mtu_bytes is None:
        raise BadFrame("mcmember_mtu")
    return record


def request_untrusted(data: bytes, mask: int) -> McMemberRecord:
    """Read a request as an SA does: the fields that the component mask leaves out are None."""
    record = _read_untrusted(data)
    absent = {name: None for name, bit in _COMPONENTS.items() if mask & bit != bit}
    return replace(record, **absent)


def _read_untrusted(data: bytes) -> McMemberRecord:
    """Read all fields; an MTU that is none of InfiniBand's is None."""
    if len(data) < RECORD_LEN:
        raise BadFrame("mcmember_short")
    (mgid, port, qkey, mlid, mtu, tclass, pkey, rate, lifetime, shared, state, proxy) = (
        _FIXED.unpack_from(data)
    )
    return McMemberRecord(
        mgid=Gid(mgid),
        port_gid=Gid(port),
        qkey=qkey,
        mlid=mlid,
        mtu_bytes=MTU_BYTES.get(mtu & _CODE),
        traffic_class=tclass,
        pkey=PKey(pkey),
        rate=rate & _CODE,
        lifetime=lifetime & _CODE,
        sl=shared >> 28,
        flow_label=shared >> 8 & 0xFFFFF,
        hop_limit=shared & 0xFF,
        scope=state >> 4,
        join_state=JoinState(state & 0xF),
        proxy=bool(proxy & 0x80),
    )


def _exactly(code: int | None) -> int:
    if code is None:
        return 0
    if not 0 <= code <= _CODE:
        raise ValueError(f"a code has 6 bits: {code:#x}")
    return SELECT_EXACTLY << 6 | code
