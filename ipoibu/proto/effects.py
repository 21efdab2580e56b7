# SPDX-License-Identifier: BSD-2-Clause
"""What the engine asks the world to do: plain values, returned in order by every input.

The endpoint carries them out: `Publish`, `Withdraw`, `SendFrame`, `SendPacket`, `Deliver` become
records on the pump's command ring; `Attach`, `Detach` go to the fabric; `FindPath`, `JoinToSend`,
`LeaveToSend` and, where there is one, joins to the subnet administrator; the rest to the host side.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from ipoibu.addr import Gid, HwAddr, IpAddress
from ipoibu.ib import Destination


class NeighAction(enum.IntEnum):
    """What the pump does with a packet whose next hop has this table entry (`ext/pump/neigh.h`)."""

    SEND = 0  # to `destination`
    NOTIFY = 1  # to `destination`, and tell the engine of the first use (`Engine.used`), once
    HOLD = 2  # a counted drop: resolution is under way and the pending queue is full
    UNREACHABLE = 3  # a counted drop, reported to the engine at a bounded rate


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the pump's table entry of `next_hop` (unicast, group or 255.255.255.255).

    `mtu_bytes` bounds the IP packet towards it; `destination` is None for HOLD and UNREACHABLE.
    `hwaddr` is the station behind a unicast destination, as it announced itself: for connected mode.
    """

    next_hop: IpAddress
    forward: NeighAction
    destination: Destination | None
    mtu_bytes: int
    hwaddr: HwAddr | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove the pump's entry: the next packet to `next_hop` is a miss again."""

    next_hop: IpAddress


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send `frame` (encapsulation header and payload) as a UD datagram to `destination`."""

    destination: Destination
    frame: bytes


@dataclass(frozen=True, slots=True)
class SendPacket:
    """Put an IP packet that missed before onto the transmit path again; it must hit now.

    `next_hop` is the entry that it is to hit, where that is known.
    """

    packet: bytes
    next_hop: IpAddress | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand an IP packet to the local stack or application (router advertisements, ICMP errors)."""

    packet: bytes


@dataclass(frozen=True, slots=True)
class Attach:
    """Receive the group's datagrams; answered by `Engine.attached` or `Engine.attach_failed`."""

    mgid: Gid


@dataclass(frozen=True, slots=True)
class Detach:
    """Stop receiving the group's datagrams; needs no answer."""

    mgid: Gid


@dataclass(frozen=True, slots=True)
class FindPath:
    """Ask the SA for the path to a port; answered by `Engine.found` or `Engine.not_found` (B6)."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class JoinToSend:
    """Ask the SA for a membership that only sends; answered as `FindPath` is (M1).

    `detour` is the group of all routers, for packets that go beyond the link to a group nobody made.
    """

    mgid: Gid
    detour: Gid | None = None


@dataclass(frozen=True, slots=True)
class LeaveToSend:
    """Give that membership up; needs no answer."""

    mgid: Gid


@dataclass(frozen=True, slots=True)
class AddressVerdict:
    """Duplicate address detection ended: `duplicate` tells whether another station has the address."""

    address: IpAddress
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Count:
    """Add one to the named counter; `reason` is from a fixed set (docs/counters.md)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """One line for the operator; `level` is a `logging` level."""

    level: int
    text: str


Effect = (
    Publish
    | Withdraw
    | SendFrame
    | SendPacket
    | Deliver
    | Attach
    | Detach
    | FindPath
    | JoinToSend
    | LeaveToSend
    | AddressVerdict
    | Count
    | Log
)
