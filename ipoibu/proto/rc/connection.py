# SPDX-License-Identifier: BSD-2-Clause
"""One connection as the policy sees it: its queue pair, and the parameters that both ends declared.

    NONE       no connection, or none any more
    OPENING    ours: the fabric makes the queue pair      INVITED    the peer's: the same
    ASKING     ours: we ask the peer                    REPLYING   the peer's: accepted, not confirmed
    LIVE       may carry packets

`cm_state` has the exchange of CM messages, and `rc_peer` the choice of peers to connect with.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ipoibu.base.addr import DEFAULT_PKEY, Gid, HwAddr, PKey, Qpn
from ipoibu.base.ib import RcAttributes
from ipoibu.base.limits import (
    CONNECTION_IDLE_S,
    CONNECTION_PEERS_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_PORT_MAX,
    ENCAP_LEN,
)
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.machine.table import Table
from ipoibu.proto.rc.events import Cause, Handle, Request, Role
from ipoibu.proto.rc.peer import TxRoute
from ipoibu.wire import cm_private
from ipoibu.wire.cm_code import Reason
from ipoibu.wire.cm_private import Private, ServiceForm


class State(enum.Enum):
    NONE = "none"
    OPENING = "opening"
    INVITED = "invited"
    ASKING = "asking"
    REPLYING = "replying"
    LIVE = "live"


class Input(enum.Enum):
    START = "we want the connection"
    REQUESTED = "the peer wants the connection"
    OPENED = "the fabric has made the queue pair"
    UNOPENED = "the fabric could not make the queue pair"
    REPLIED = "the peer accepts"
    MISFIT = "the peer accepts, with parameters that we cannot use"
    ESTABLISHED = "both ends are ready"
    ENDED = "the connection manager reports the end"
    BROKEN = "the queue pair failed"
    USED = "the connection carried packets"
    TIMEOUT = "the connection carried no packets for long"
    EVICTED = "another connection needs the room, or the peer has a new queue pair"
    DROPPED = "the connection is no longer needed"


class Action(enum.Enum):
    OPEN = "make a queue pair"
    CONNECT = "ask the peer for the connection"
    PROGRAM = "program the queue pair"
    ACCEPT = "accept the peer's request"
    CONFIRM = "confirm the peer's reply"
    REJECT = "reject the peer's request or reply"
    DISCONNECT = "end the connection"
    CLOSE = "destroy the queue pair"
    ARM = "start the idle timer"
    SERVE = "let the connection carry packets"
    FORGET = "remove the connection"
    REPORT = "feed the end to the peer's machine"


_S, _I, _A = State, Input, Action
_GONE: Final = (_S.NONE, (_A.CLOSE, _A.FORGET, _A.REPORT))
_CUT: Final = (_S.NONE, (_A.DISCONNECT, _A.CLOSE, _A.FORGET, _A.REPORT))
_DROPPED: Final = (_S.NONE, (_A.DISCONNECT, _A.CLOSE, _A.FORGET))

# fmt: off
MACHINE: Final = Table("RC connection", State.NONE, {
    (_S.NONE, _I.START):           (_S.OPENING, (_A.OPEN,)),
    (_S.NONE, _I.REQUESTED):       (_S.INVITED, (_A.OPEN,)),
    (_S.OPENING, _I.OPENED):       (_S.ASKING, (_A.CONNECT,)),
    (_S.OPENING, _I.UNOPENED):     (_S.NONE, (_A.FORGET, _A.REPORT)),
    (_S.OPENING, _I.DROPPED):      (_S.NONE, (_A.CLOSE, _A.FORGET)),
    (_S.ASKING, _I.REPLIED):       (_S.ASKING, (_A.PROGRAM, _A.CONFIRM)),
    (_S.ASKING, _I.MISFIT):        (_S.NONE, (_A.REJECT, _A.CLOSE, _A.FORGET, _A.REPORT)),
    (_S.ASKING, _I.ESTABLISHED):   (_S.LIVE, (_A.ARM, _A.SERVE)),
    (_S.ASKING, _I.ENDED):         _GONE,
    (_S.ASKING, _I.BROKEN):        _CUT,
    (_S.ASKING, _I.DROPPED):       _DROPPED,
    (_S.INVITED, _I.OPENED):       (_S.REPLYING, (_A.PROGRAM, _A.ACCEPT)),
    (_S.INVITED, _I.UNOPENED):     (_S.NONE, (_A.REJECT, _A.FORGET, _A.REPORT)),
    (_S.INVITED, _I.ENDED):        _GONE,
    (_S.INVITED, _I.DROPPED):      (_S.NONE, (_A.REJECT, _A.CLOSE, _A.FORGET)),
    (_S.REPLYING, _I.ESTABLISHED): (_S.LIVE, (_A.ARM, _A.SERVE)),
    (_S.REPLYING, _I.ENDED):       _GONE,
    (_S.REPLYING, _I.BROKEN):      _CUT,
    (_S.REPLYING, _I.DROPPED):     _DROPPED,
    (_S.LIVE, _I.USED):            (_S.LIVE, (_A.ARM,)),
    (_S.LIVE, _I.TIMEOUT):         _CUT,
    (_S.LIVE, _I.ENDED):           _GONE,
    (_S.LIVE, _I.BROKEN):          _CUT,
    (_S.LIVE, _I.EVICTED):         _CUT,
    (_S.LIVE, _I.DROPPED):         _DROPPED,
})
# fmt: on


class Profile(enum.Enum):
    """The number of connections that two hosts have (C6)."""

    LINUX = "linux"
    RFC = "rfc"


@dataclass(frozen=True, slots=True)
class RcConfig:
    """The interface's parameters. `datagram_mtu_bytes` is its IP MTU by datagram; no connection has less.

    `receive_mtu_bytes` is the largest message for a buffer of the shared receive queue, encapsulation
    header included (C4); `superframe_bytes` is the largest message with vnet header, 0 for no super-frames.
    `packet_bytes` is the longest payload of a packet, 0 where only the MTUs of InfiniBand are possible;
    `path_mtu_bytes` is the largest of those.
    """

    hwaddr: HwAddr
    datagram_mtu_bytes: int
    path_mtu_bytes: int
    packet_bytes: int = 0
    receive_mtu_bytes: int = cm_private.RECEIVE_MTU_MAX_BYTES
    superframe_bytes: int = 0
    profile: Profile = Profile.LINUX
    pkey: PKey = DEFAULT_PKEY
    idle_s: float = CONNECTION_IDLE_S
    forms: tuple[ServiceForm, ...] = tuple(ServiceForm)
    connections_max: int = CONNECTIONS_MAX
    per_port_max: int = CONNECTIONS_PER_PORT_MAX
    peers_max: int = CONNECTION_PEERS_MAX

    def private(self) -> Private:
        """Return our private data in a REQ (C3)."""
        return Private(
            self.hwaddr.qpn, self.receive_mtu_bytes, self.superframe_bytes, self.packet_bytes
        )

    def reply_private(self, theirs: Private) -> Private:
        """Return our private data in a REP: it declares no more than the peer's REQ did."""
        return replace(
            self.private(),
            superframe_bytes=self.superframe_bytes if theirs.superframe_bytes else 0,
            packet_bytes=self.packet_bytes if theirs.packet_bytes else 0,
        )

    def refusal_private(self) -> Private:
        """Return our private data in a REJ (C3)."""
        return Private(self.hwaddr.qpn, self.receive_mtu_bytes)

    def mtu_bytes(self, theirs: Private) -> int:
        """Return the IP MTU towards a peer (C5): in Linux the receiver's limit counts, in the RFC those of
        both ends."""
        ours = self.receive_mtu_bytes
        if self.profile is Profile.LINUX:
            ours = cm_private.RECEIVE_MTU_MAX_BYTES
        return min(ours, theirs.receive_mtu_bytes) - ENCAP_LEN

    def attributes(self, attributes: RcAttributes, theirs: Private) -> RcAttributes:
        """Return the connection's attributes with packets as long as both ends take them."""
        longest_bytes = min(self.packet_bytes, theirs.packet_bytes)
        if not longest_bytes:
            return attributes
        return replace(attributes, path_mtu_bytes=cm_private.agreed_packet_bytes(longest_bytes))

    def superframes(self, theirs: Private) -> int:
        """Return the largest message with vnet header, if both ends declared that they take them; else
        0."""
        return theirs.superframe_bytes if self.superframe_bytes else 0


# Effects: every `rc_events.Request` is one, too, for the connection manager


@dataclass(frozen=True, slots=True)
class OpenQp:
    """Make a connected queue pair on the shared receive queue, in INIT: `note_opened` or `note_open_failed`
    answers."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class ProgramQp:
    """Take the queue pair to RTR and RTS, for messages with or without vnet header; `broken` on failure."""

    handle: Handle
    attributes: RcAttributes
    has_superframes: bool


@dataclass(frozen=True, slots=True)
class CloseQp:
    """Destroy the queue pair; no event about it follows."""

    handle: Handle


RcEffect = OpenQp | ProgramQp | CloseQp | Request | TxRoute | Count | Log


@dataclass(slots=True)
class RcConnection:
    """One connection; `theirs` is the peer's private data, `since` the time when the connection became
    LIVE."""

    handle: Handle
    hwaddr: HwAddr
    state: State = MACHINE.initial
    since: float = 0.0
    used: float = 0.0
    qpn: Qpn | None = None
    form: ServiceForm | None = None
    theirs: Private | None = None
    attributes: RcAttributes | None = None
    refusal: Reason = Reason.CONSUMER
    cause: Cause = Cause.DISCONNECTED
    refused: str = ""  # why the fabric made no queue pair

    @property
    def why(self) -> str:
        """Why the connection ended, if the peer, its answer or the fabric ended it."""
        return self.refused or self.cause.value


@dataclass(frozen=True, slots=True)
class RcConnectionInfo:
    """A connection as `ipoibu conn` shows it; `mtu_bytes` is 0 if we send no packets by it.

    `path_mtu_bytes` is the payload of the longest InfiniBand packet, 0 before both ends have agreed.

    `age_s` counts from its establishment, `idle_s` from the last known use.
    """

    handle: Handle
    hwaddr: HwAddr
    state: State
    qpn: Qpn | None
    remote_qpn: Qpn | None
    mtu_bytes: int
    path_mtu_bytes: int
    has_superframes: bool
    age_s: float
    idle_s: float


@dataclass(slots=True)
class _Port:
    """A peer's port: its connections, and those of its UD queue pairs that we suspected to be dead."""

    handles: dict[Handle, None] = field(default_factory=dict)
    suspected: set[Qpn] = field(default_factory=set)


class RcConnectionTable:
    """Every connection of an interface: by handle, by the peer's port, by its last use."""

    def __init__(self) -> None:
        self._all: dict[Handle, RcConnection] = {}
        self._used: OrderedDict[Handle, None] = OrderedDict()  # used longest ago first
        self._ports: dict[Gid, _Port] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[RcConnection]:
        return iter(self._all.values())

    def __getitem__(self, handle: Handle) -> RcConnection:
        return self._all[handle]

    def get(self, handle: Handle) -> RcConnection | None:
        return self._all.get(handle)

    def add(self, conn: RcConnection) -> None:
        self._all[conn.handle] = conn
        self._ports.setdefault(conn.hwaddr.gid, _Port()).handles[conn.handle] = None

    def remove(self, conn: RcConnection) -> None:
        del self._all[conn.handle]
        self._used.pop(conn.handle, None)
        port = self._ports[conn.hwaddr.gid]
        del port.handles[conn.handle]
        if not port.handles:
            del self._ports[conn.hwaddr.gid]

    def on(self, gid: Gid) -> list[RcConnection]:
        """Return the connections with peers on a port, the oldest first."""
        port = self._ports.get(gid)
        return [self._all[handle] for handle in port.handles] if port else []

    def of(self, hwaddr: HwAddr) -> list[RcConnection]:
        """Return the connections with one peer."""
        return [conn for conn in self.on(hwaddr.gid) if conn.hwaddr == hwaddr]

    def passive_on(self, gid: Gid) -> int:
        """Return how many connections the hosts on a port have made to us, with those under way."""
        return sum(conn.handle.role is Role.PASSIVE for conn in self.on(gid))

    def touch(self, handle: Handle) -> None:
        """Note a use of the connection."""
        self._used[handle] = None
        self._used.move_to_end(handle)

    def oldest(self) -> RcConnection | None:
        """Return the least recently used connection, of those ever used."""
        return self._all[next(iter(self._used))] if self._used else None

    def suspect(self, hwaddr: HwAddr) -> bool:
        """Return whether we suspect the peer to be dead for the first time while its port has
        connections."""
        suspected = self._ports[hwaddr.gid].suspected
        if hwaddr.qpn in suspected:
            return False
        if len(suspected) >= CONNECTIONS_PER_PORT_MAX:  # no port has more live connections
            suspected.clear()
        suspected.add(hwaddr.qpn)
        return True
