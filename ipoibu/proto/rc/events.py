# SPDX-License-Identifier: BSD-2-Clause
"""Requests and events between the policy of connected mode and a connection manager.

The policy (`rc_policy`) decides by peers and packets; a `ConnectionManager` makes the connections. `cm.Cm`
does so over queue pair 1 of the built-in HCA, `fabric.cm.rdma_cm` by the kernel's rdma_cm. The two
exchange the plain values below, and share nothing but a connection's `Handle`:

    Connect ->                          <- Requested
    <- Replied                          Accept ->
    Confirm ->                          <- Established
    <- Established
               Disconnect ->    or    <- Ended

After `Reject`, `Disconnect` or `Ended` a handle is dead: no more events name it, and the manager ignores
requests that name it, because they may have crossed with the end.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ipoibu.base.addr import DEFAULT_PKEY, Gid, PKey, Qpn
from ipoibu.base.ib import Destination, RcAttributes
from ipoibu.proto.effects import Count, Log
from ipoibu.wire.cm_code import Reason


class Role(enum.Enum):
    """The end that asked for a connection: we (active) or the peer (passive)."""

    ACTIVE = "active"
    PASSIVE = "passive"


@dataclass(frozen=True, slots=True)
class Handle:
    """The name of a connection: the policy numbers ACTIVE ones, the manager PASSIVE ones."""

    role: Role
    serial: int

    def __str__(self) -> str:
        return f"{self.role.value}-{self.serial}"


class Cause(enum.Enum):
    """The reason why a connection ended or failed."""

    NO_ANSWER = "the peer did not answer"
    NO_SERVICE = "no service listens there"
    NO_RESOURCES = "the peer has no room"
    DECLINED = "the peer declined the connection"
    INCOMPATIBLE = "the peer does not support the request"
    ADDRESS = "the peer has another address"
    REDIRECTED = "the peer redirected the request"
    UNKNOWN = "the peer does not know the connection"
    STALE = "the queue pair was used before"
    DISCONNECTED = "the peer ended the connection"
    OVERDUE = "our answer came too late"
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
"""The cause for a peer's reason; for any other it is `Cause.INCOMPATIBLE`."""


# Requests


@dataclass(frozen=True, slots=True)
class Connect:
    """Ask the peer at `destination` (its `qpn` does not matter) for a connection to our `qpn`.

    Both ends are in the partition `pkey`.
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
    """The answer to `Replied`: we have programmed the queue pair, and the connection may begin."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Accept:
    """The answer to `Requested`: we have programmed the queue pair `qpn`, which can receive."""

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
    """End the connection, in any state."""

    handle: Handle


Request = Connect | Confirm | Accept | Reject | Disconnect


# Events


@dataclass(frozen=True, slots=True)
class Requested:
    """A peer at `gid` asks for a connection; `private` is padded with zeros and not parsed yet."""

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
    """Both ends may send; the manager reports this once."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection ended or failed; `reason` is the peer's number, or 0."""

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
    """Makes connections, sans-IO: every input returns events, and no input calls back.

    Calls come from one thread. `timer` and the implementation's own inputs (`Cm.note_received`) return the
    events that no request has caused.
    """

    def listen(self, services: Mapping[int, PKey]) -> None:
        """From now on, take requests for these service IDs in these partitions, and no others."""
        ...

    def request(self, now: float, request: Request) -> list[CmEffect]: ...

    def timer(self, now: float) -> list[CmEffect]: ...

    def deadline(self) -> float | None:
        """Return the time of the next call of `timer`; None without one."""
        ...

    def stop(self, now: float) -> list[CmEffect]:
        """End every connection with one message to the peer, forget it, and ignore answers."""
        ...
