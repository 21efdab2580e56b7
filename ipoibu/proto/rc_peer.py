# SPDX-License-Identifier: BSD-2-Clause
"""One station that accepts connections, as seen by whoever wants to send to it: RFC 4755 §3.

    NONE       no connection; the pump tells us of the next packet to it      by datagram, watched
    TRYING     our request is under way                                       by datagram
    AWAITING   the station's own request is, and is to serve both paths        by datagram
    UP         a connection                                                   by connection
    BACKOFF    failed; not again before a while, twice as long each time      by datagram
    READY      that while is over, its length remembered                      by datagram, watched

AWAITING is there in the `rfc` profile alone, where one connection serves both directions (C6).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from ipoibu.addr import HwAddr
from ipoibu.ib import Destination
from ipoibu.limits import CONNECTION_BACKOFF_MAX_S, CONNECTION_BACKOFF_MIN_S
from ipoibu.proto.backoff import Backoff
from ipoibu.proto.rc_events import Cause, Handle
from ipoibu.proto.table import Table


class State(enum.Enum):
    NONE = "none"
    TRYING = "trying"
    AWAITING = "awaiting"
    UP = "up"
    BACKOFF = "backoff"
    READY = "ready"


class Input(enum.Enum):
    WANTED = "a packet goes to it by datagram"
    EXPECTED = "its own request is to serve"
    SERVED = "a connection is there to send by"
    OTHER_FORM = "nobody listens there; another form of service ID is left"
    FAILED = "what was under way came to nothing"
    LOST = "the connection ended after a good while"
    FLAPPED = "the connection ended soon"
    GONE = "nobody has this address any more, or the link is down"
    TIMEOUT = "the state's time is over"


class Action(enum.Enum):
    START = "make a connection"
    ABANDON = "drop what was there or under way"
    UD_NOTIFY = "route by datagram, and be told of the next packet"
    UD = "route by datagram"
    RC = "route by the connection"
    PENALIZE = "count the failure, wait longer next time"
    ARM = "start the state's timer"
    FORGET = "remove"


_S, _I, _A = State, Input, Action

# fmt: off
MACHINE: Final = Table("RcPeer", State.NONE, {
    (_S.NONE, _I.WANTED):   (_S.TRYING, (_A.UD, _A.START)),
    (_S.NONE, _I.EXPECTED): (_S.AWAITING, (_A.UD,)),
    (_S.NONE, _I.SERVED):   (_S.UP, (_A.RC,)),
    (_S.NONE, _I.GONE):     (_S.NONE, ()),
    (_S.TRYING, _I.WANTED):     (_S.TRYING, ()),
    (_S.TRYING, _I.EXPECTED):   (_S.AWAITING, (_A.ABANDON,)),
    (_S.TRYING, _I.SERVED):     (_S.UP, (_A.ABANDON, _A.RC)),
    (_S.TRYING, _I.OTHER_FORM): (_S.TRYING, (_A.START,)),
    (_S.TRYING, _I.FAILED):     (_S.BACKOFF, (_A.PENALIZE, _A.ARM)),
    (_S.TRYING, _I.GONE):       (_S.NONE, (_A.ABANDON, _A.UD_NOTIFY, _A.FORGET)),
    (_S.AWAITING, _I.WANTED):   (_S.AWAITING, ()),
    (_S.AWAITING, _I.EXPECTED): (_S.AWAITING, ()),
    (_S.AWAITING, _I.SERVED):   (_S.UP, (_A.RC,)),
    (_S.AWAITING, _I.FAILED):   (_S.READY, (_A.UD_NOTIFY, _A.ARM)),  # its failure, so no penalty
    (_S.AWAITING, _I.GONE):     (_S.NONE, (_A.UD_NOTIFY, _A.FORGET)),
    (_S.UP, _I.WANTED):   (_S.UP, ()),
    (_S.UP, _I.EXPECTED): (_S.UP, ()),
    (_S.UP, _I.SERVED):   (_S.UP, (_A.ABANDON, _A.RC)),
    (_S.UP, _I.LOST):     (_S.NONE, (_A.UD_NOTIFY, _A.FORGET)),
    (_S.UP, _I.FLAPPED):  (_S.BACKOFF, (_A.UD, _A.PENALIZE, _A.ARM)),
    (_S.UP, _I.GONE):     (_S.NONE, (_A.ABANDON, _A.UD_NOTIFY, _A.FORGET)),
    (_S.BACKOFF, _I.WANTED):   (_S.BACKOFF, ()),
    (_S.BACKOFF, _I.EXPECTED): (_S.AWAITING, ()),
    (_S.BACKOFF, _I.SERVED):   (_S.UP, (_A.RC,)),
    (_S.BACKOFF, _I.GONE):     (_S.NONE, (_A.UD_NOTIFY, _A.FORGET)),
    (_S.BACKOFF, _I.TIMEOUT):  (_S.READY, (_A.UD_NOTIFY, _A.ARM)),
    (_S.READY, _I.WANTED):   (_S.TRYING, (_A.UD, _A.START)),
    (_S.READY, _I.EXPECTED): (_S.AWAITING, (_A.UD,)),
    (_S.READY, _I.SERVED):   (_S.UP, (_A.RC,)),
    (_S.READY, _I.GONE):     (_S.NONE, (_A.FORGET,)),
    (_S.READY, _I.TIMEOUT):  (_S.NONE, (_A.FORGET,)),
})
# fmt: on

RESTING: Final = frozenset({State.BACKOFF, State.READY})
"""Only a memory of failures: it makes room when there are too many."""


class TxMode(enum.Enum):
    """How unicast packets go to a station."""

    UD_NOTIFY = "watched"  # by datagram, and the first of them is told: `RcPolicy.wanted`
    UD = "datagram"
    RC = "connection"


@dataclass(frozen=True, slots=True)
class TxRoute:
    """How packets go to a station from now on, whatever IP addresses it has.

    By connection `mtu_bytes` bounds the IP packet (C5), else it is 0 and the link's bounds it.
    `superframe_bytes` bounds a message with vnet header, if every message has one; 0 if none has.
    """

    hwaddr: HwAddr
    tx_mode: TxMode
    handle: Handle | None = None
    mtu_bytes: int = 0
    superframe_bytes: int = 0


@dataclass(slots=True)
class RcPeer:
    """What is kept of a station: `attempt` is ours and under way, `serving` is what it is reached by.

    `candidate` is about to serve; `cause` is why the latest connection is no more.
    """

    hwaddr: HwAddr
    destination: Destination | None = None
    state: State = MACHINE.initial
    route: TxRoute | None = None
    attempt: Handle | None = None
    serving: Handle | None = None
    candidate: Handle | None = None
    cause: Cause = Cause.FULL
    forms_tried: int = 0
    backoff: Backoff = field(
        default_factory=lambda: Backoff(CONNECTION_BACKOFF_MIN_S, CONNECTION_BACKOFF_MAX_S)
    )
    rest_s: float = CONNECTION_BACKOFF_MIN_S
