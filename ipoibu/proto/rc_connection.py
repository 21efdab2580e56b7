# SPDX-License-Identifier: BSD-2-Clause
"""One connection as the policy sees it: its queue pair, and what both ends said of themselves.

    NONE       nothing, or nothing any more
    OPENING    ours: its queue pair is being made        INVITED    the peer's: likewise
    ASKING     ours: asked for                           REPLYING   the peer's: accepted, not confirmed
    LIVE       may carry packets

How the two ends agree is in `handshake`; which stations get a connection in `peer`.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ipoibu.addr import DEFAULT_PKEY, Gid, HwAddr, PKey, Qpn
from ipoibu.ib import RcAttributes
from ipoibu.limits import (
    CONNECTION_IDLE_S,
    CONNECTION_PEERS_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_PORT_MAX,
    ENCAP_LEN,
)
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.rc_events import Cause, Handle, Request, Role
from ipoibu.proto.rc_peer import TxRoute
from ipoibu.proto.table import Table
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
    START = "we want it"
    REQUESTED = "the peer wants it"
    OPENED = "its queue pair is there"
    UNOPENED = "its queue pair could not be made"
    REPLIED = "the peer accepts"
    MISFIT = "the peer accepts something that does not do"
    ESTABLISHED = "both ends are ready"
    ENDED = "the connection manager says that it is over"
    BROKEN = "its queue pair failed"
    USED = "it carried packets"
    TIMEOUT = "it did not for long"
    EVICTED = "another needs the room, or the peer has a new queue pair"
    DROPPED = "nobody wants it"


class Action(enum.Enum):
    OPEN = "make a queue pair"
    CONNECT = "ask the peer"
    PROGRAM = "program the queue pair"
    ACCEPT = "accept"
    CONFIRM = "confirm"
    REJECT = "reject"
    DISCONNECT = "disconnect"
    CLOSE = "destroy the queue pair"
    ARM = "start the idle timer"
    SERVE = "let it carry packets"
    FORGET = "remove"
    REPORT = "tell the peer's machine"


_S, _I, _A = State, Input, Action
_GONE: Final = (_S.NONE, (_A.CLOSE, _A.FORGET, _A.REPORT))
_CUT: Final = (_S.NONE, (_A.DISCONNECT, _A.CLOSE, _A.FORGET, _A.REPORT))
_DROPPED: Final = (_S.NONE, (_A.DISCONNECT, _A.CLOSE, _A.FORGET))

# fmt: off
MACHINE: Final = Table("Connection", State.NONE, {
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
    """How many connections two stations have (C6)."""

    LINUX = "linux"
    RFC = "rfc"


@dataclass(frozen=True, slots=True)
class RcConfig:
    """The interface. `datagram_mtu_bytes` is its IP MTU by datagram, which every connection exceeds.

    `receive_mtu_bytes` is what a buffer of the shared receive queue takes of a message, encapsulation
    header included (C4); `superframe_bytes` the same with vnet header, 0 for no super-frames.
    """

    hwaddr: HwAddr
    datagram_mtu_bytes: int
    path_mtu_bytes: int
    receive_mtu_bytes: int = cm_private.RECEIVE_MTU_MAX_BYTES
    superframe_bytes: int = 0
    profile: Profile = Profile.LINUX
    pkey: PKey = DEFAULT_PKEY
    idle_s: float = CONNECTION_IDLE_S
    forms: tuple[ServiceForm, ...] = tuple(ServiceForm)
    connections_max: int = CONNECTIONS_MAX
    per_port_max: int = CONNECTIONS_PER_PORT_MAX
    peers_max: int = CONNECTION_PEERS_MAX

    def private(self, *, has_superframes: bool) -> bytes:
        """What we say of ourselves (C3)."""
        superframe_bytes = self.superframe_bytes if has_superframes else 0
        return Private(self.hwaddr.qpn, self.receive_mtu_bytes, superframe_bytes).pack()

    def mtu_bytes(self, theirs: Private) -> int:
        """The IP MTU towards a peer (C5): Linux minds what the receiver takes, the RFC both ends."""
        ours = self.receive_mtu_bytes
        if self.profile is Profile.LINUX:
            ours = cm_private.RECEIVE_MTU_MAX_BYTES
        return min(ours, theirs.receive_mtu_bytes) - ENCAP_LEN

    def superframes(self, theirs: Private) -> int:
        """How large a message with vnet header may be, if both ends said that they take such."""
        return theirs.superframe_bytes if self.superframe_bytes else 0


# Effects: besides these, every `rc.Request` is one, for the connection manager


@dataclass(frozen=True, slots=True)
class OpenQp:
    """Make a connected queue pair on the shared receive queue, in INIT: `opened` or `open_failed` answers."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class ProgramQp:
    """Take the queue pair to RTR and RTS, its messages with vnet header or without; `broken` if it fails."""

    handle: Handle
    attributes: RcAttributes
    has_superframes: bool


@dataclass(frozen=True, slots=True)
class CloseQp:
    """Destroy the queue pair. Nothing is said of it any more, and nothing will be."""

    handle: Handle


RcEffect = OpenQp | ProgramQp | CloseQp | Request | TxRoute | Count | Log


@dataclass(slots=True)
class RcConnection:
    """What is kept of a connection. `theirs` is what the peer said of itself, `since` when it became LIVE."""

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


@dataclass(frozen=True, slots=True)
class RcConnectionInfo:
    """A connection as `ipoibu conn` shows it; `mtu_bytes` is 0 where nothing is sent by it.

    `age_s` counts from its establishment, `idle_s` from the last known use.
    """

    handle: Handle
    hwaddr: HwAddr
    state: State
    qpn: Qpn | None
    remote_qpn: Qpn | None
    mtu_bytes: int
    has_superframes: bool
    age_s: float
    idle_s: float


@dataclass(slots=True)
class _Port:
    """A peer's port: the connections with it, and which of its queue pairs were thought dead before."""

    handles: dict[Handle, None] = field(default_factory=dict)
    suspected: set[Qpn] = field(default_factory=set)


class RcConnectionTable:
    """Every connection of an interface: by handle, by the peer's port, by their use."""

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
        """Those with stations on a port, in the order of their making."""
        port = self._ports.get(gid)
        return [self._all[handle] for handle in port.handles] if port else []

    def of(self, hwaddr: HwAddr) -> list[RcConnection]:
        """Those with one station."""
        return [conn for conn in self.on(hwaddr.gid) if conn.hwaddr == hwaddr]

    def passive_on(self, gid: Gid) -> int:
        """How many connections a port has made to us, those under way included."""
        return sum(conn.handle.role is Role.PASSIVE for conn in self.on(gid))

    def touch(self, handle: Handle) -> None:
        """It was used."""
        self._used[handle] = None
        self._used.move_to_end(handle)

    def oldest(self) -> RcConnection | None:
        """The one that was used longest ago, of those that ever were."""
        return self._all[next(iter(self._used))] if self._used else None

    def suspect(self, hwaddr: HwAddr) -> bool:
        """Whether this is the first time that the station is thought dead while its port has connections."""
        suspected = self._ports[hwaddr.gid].suspected
        if hwaddr.qpn in suspected:
            return False
        if len(suspected) >= CONNECTIONS_PER_PORT_MAX:  # more than that are not alive at a time
            suspected.clear()
        suspected.add(hwaddr.qpn)
        return True
