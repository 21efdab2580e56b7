# SPDX-License-Identifier: BSD-2-Clause
"""Between the policy of connected mode and whoever makes its connections: requests, events, one contract.

The policy (`connection`) knows stations and packets; a `ConnectionManager` knows hand-shakes. One is
`cm.Cm`, which speaks over the queue pair 1 of the built-in HCA; another may stand on librdmacm. What
they say to each other are the plain values below, and a connection's `Handle` is all they share:

    Connect ->                          <- Requested
    <- Replied                          Accept ->
    Confirm ->                          <- Established
    <- Established
               Disconnect ->    or    <- Ended

After `Reject`, `Disconnect` or `Ended` a handle is dead: no more events come with it, and requests with
it are ignored, because they may have crossed with the end.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ipoibu.addr import DEFAULT_PKEY, Gid, PKey, Qpn
from ipoibu.ib import Destination, RcAttributes
from ipoibu.proto.effects import Count, Log
from ipoibu.wire.cm_code import Reason


class Role(enum.Enum):
    """Who asked for a connection."""

    ACTIVE = "active"
    PASSIVE = "passive"


@dataclass(frozen=True, slots=True)
class Handle:
    """The name of a connection: serial numbers are the policy's for ACTIVE, the manager's for PASSIVE."""

    role: Role
    serial: int

    def __str__(self) -> str:
        return f"{self.role.value}-{self.serial}"


class Cause(enum.Enum):
    """Why a connection ended, or never was."""

    NO_ANSWER = "nobody answered"
    NO_SERVICE = "nobody listens there"
    NO_RESOURCES = "the peer has no room"
    DECLINED = "the peer does not want it"
    INCOMPATIBLE = "the peer cannot do what was asked"
    ADDRESS = "the peer has another address"
    REDIRECTED = "the peer sends us elsewhere"
    UNKNOWN = "the peer knows nothing of it"
    STALE = "the queue pair was used before"
    DISCONNECTED = "the peer ended it"
    OVERDUE = "we took too long"
    FULL = "too many connections here"
    BROKEN = "the queue pair failed"


CAUSES: Final[Mapping[int, Cause]] = {
    Reason.NO_QP: Cause.NO_RESOURCES,
    Reason.NO_EEC: Cause.NO_RESOURCES,
    Reason.NO_RESOURCES: Cause.NO_RESOURCES,
    Reason.TIMEOUT: Cause.NO_ANSWER,
    Reason.UNSUPPORTED: Cause.INCOMPATIBLE,
    Reason.INVALID_COMM_ID: Cause.UNKNOWN,
    Reason.INVALID_COMM_INSTANCE: Cause.UNKNOWN,
    Reason.INVALID_SERVICE_ID: Cause.NO_SERVICE,
    Reason.INVALID_TRANSPORT: Cause.INCOMPATIBLE,
    Reason.STALE_CONNECTION: Cause.STALE,
    Reason.INVALID_GID: Cause.ADDRESS,
    Reason.INVALID_LID: Cause.ADDRESS,
    Reason.PORT_CM_REDIRECT: Cause.REDIRECTED,
    Reason.PORT_REDIRECT: Cause.REDIRECTED,
    Reason.CONSUMER: Cause.DECLINED,
    Reason.DUPLICATE_COMM_ID: Cause.STALE,
}
"""What a peer's reason means to us; any other is `Cause.INCOMPATIBLE`."""


# Requests


@dataclass(frozen=True, slots=True)
class Connect:
    """Ask the station behind `destination` (its `qpn` does not matter) for a connection to `qpn` here.

    `pkey` is the partition of both.
    """

    handle: Handle
    destination: Destination
    service_id: int
    qpn: Qpn
    path_mtu_bytes: int
    private: bytes
    pkey: PKey = DEFAULT_PKEY


@dataclass(frozen=True, slots=True)
class Confirm:
    """The answer to `Replied`: the queue pair is programmed, the connection may begin."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Accept:
    """The answer to `Requested`: `qpn` is programmed and waits."""

    handle: Handle
    qpn: Qpn
    private: bytes


@dataclass(frozen=True, slots=True)
class Reject:
    """The other answer to `Requested` or `Replied`."""

    handle: Handle
    reason: Reason
    private: bytes = b""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End it, in whatever state it is."""

    handle: Handle


Request = Connect | Confirm | Accept | Reject | Disconnect


# Events


@dataclass(frozen=True, slots=True)
class Requested:
    """A peer at `gid` asks for a connection; `private` is padded with zeros and not looked into yet."""

    handle: Handle
    gid: Gid
    service_id: int
    attributes: RcAttributes
    private: bytes


@dataclass(frozen=True, slots=True)
class Replied:
    """The peer accepts: program the queue pair, then `Confirm`; or `Reject`."""

    handle: Handle
    attributes: RcAttributes
    private: bytes


@dataclass(frozen=True, slots=True)
class Established:
    """Both ends may send. Said once."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Ended:
    """There is no connection, or none any more. `reason` is the peer's word, 0 if it said none."""

    handle: Handle
    cause: Cause
    reason: int = 0


Event = Requested | Replied | Established | Ended


@dataclass(frozen=True, slots=True)
class SendMad:
    """Send 256 bytes from our queue pair 1 with its Q_Key (`mad.GSI_QKEY`) and, where keys are checked,
    this P_Key."""

    destination: Destination
    raw: bytes
    pkey: PKey = DEFAULT_PKEY


CmEffect = Event | SendMad | Count | Log


class ConnectionManager(Protocol):
    """Whoever makes connections; sans-IO or not, it returns events and never calls back.

    Calls come from one thread. Events that come of themselves are returned by `timer`, or by inputs of
    the implementation's own (`Cm.received`; librdmacm's event channel).
    """

    def listen(self, services: Mapping[int, PKey]) -> None:
        """From now on take requests for these service IDs in these partitions, and for no others."""
        ...

    def request(self, now: float, request: Request) -> list[CmEffect]: ...

    def timer(self, now: float) -> list[CmEffect]: ...

    def deadline(self) -> float | None:
        """When `timer` has something to do next."""
        ...

    def stop(self, now: float) -> list[CmEffect]:
        """End everything with one farewell each, and forget it: nobody answers after this."""
        ...
