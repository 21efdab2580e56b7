# SPDX-License-Identifier: BSD-2-Clause
"""Subscriptions to the SA's events, and the events: InfiniBand volume 1, §13.4.8.2 and §13.4.8.3
(M2, Q3).

    InformInfo  | GID 16 | LID from 2 | LID to 2 | reserved 2 | generic 1 | subscribe 1 | type 2 |
                | trap 2 | QPN 24b, reserved 3b, response time 5b | reserved 8b, producer 24b |

    Notice      | generic 1b, type 7b, producer 24b | trap 2 | issuer LID 2 | toggle 1b, count 15b |
                | details 54 | issuer GID 16 |

The details of traps 64..67 begin with six reserved bytes and the GID of the port or group.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import GID_LEN, Gid
from ipoibu.base.errors import BadFrame
from ipoibu.wire import mad

REASONS: Final = frozenset({"inform_short", "notice_short", "notice_trap"})

INFORM_LEN: Final = 36
NOTICE_LEN: Final = 80
ALL_LIDS: Final = 0xFFFF
CLASS_MANAGER: Final = 4  # the producer of traps 64..67
NO_GID: Final = Gid(bytes(GID_LEN))
SUBNET_MANAGEMENT: Final = 3  # the type of traps 64..67; 0xFFFF is any

_INFORM: Final = struct.Struct("!16sHH2xBBHHII")
_NOTICE: Final = struct.Struct("!IHHH6x16s32x16s")


class Trap(enum.IntEnum):
    """The SA's events; IPoIB uses traps 66 and 67."""

    PORT_IN_SERVICE = 64
    PORT_OUT_OF_SERVICE = 65
    GROUP_CREATED = 66
    GROUP_DELETED = 67


@dataclass(frozen=True, slots=True)
class InformInfo:
    """Subscribe to a trap, or end the subscription; reports go to `qpn` of the subscribing port."""

    trap: int
    subscribe: bool = True
    qpn: int = mad.GSI_QPN
    response_time: int = 18  # 1.07 s to acknowledge a report, as Linux promises

    def pack(self) -> bytes:
        """Return 36 bytes, which subscribe to events of every LID."""
        return _INFORM.pack(
            NO_GID.raw,
            ALL_LIDS,
            0,
            1,
            self.subscribe,
            SUBNET_MANAGEMENT,
            self.trap,
            self.qpn << 8 | self.response_time,
            CLASS_MANAGER,
        )


def inform_untrusted(data: bytes) -> InformInfo:
    """Read a subscription, or the answer to one."""
    if len(data) < INFORM_LEN:
        raise BadFrame("inform_short")
    *_, subscribe, _, trap, shared, _ = _INFORM.unpack_from(data)
    return InformInfo(trap, bool(subscribe), shared >> 8, shared & 0x1F)


@dataclass(frozen=True, slots=True)
class Notice:
    """An event about `gid`: a group for traps 66 and 67, a port for 64 and 65."""

    trap: Trap
    gid: Gid
    issuer_lid: int = 0
    issuer: Gid = NO_GID

    def pack(self) -> bytes:
        """80 bytes."""
        first = 1 << 31 | SUBNET_MANAGEMENT << 24 | CLASS_MANAGER
        return _NOTICE.pack(first, self.trap, self.issuer_lid, 0, self.gid.raw, self.issuer.raw)


def notice_untrusted(data: bytes) -> Notice:
    """Read a report's data; `notice_trap` for an event that this program does not use."""
    if len(data) < NOTICE_LEN:
        raise BadFrame("notice_short")
    first, number, issuer_lid, _, gid, issuer = _NOTICE.unpack_from(data)
    try:
        trap = Trap(number)
    except ValueError:
        raise BadFrame("notice_trap") from None
    if not first >> 31:
        raise BadFrame("notice_trap")  # a vendor's number that equals one of ours
    return Notice(trap, Gid(gid), issuer_lid, Gid(issuer))
