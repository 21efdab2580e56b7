# SPDX-License-Identifier: BSD-2-Clause
"""The state of one peer that accepts connections: how packets go to it (RFC 4755 §3).

                                                                              packets go
    NONE       no connection; the pump reports the next packet                by datagram, notify
    TRYING     our request is under way                                       by datagram, none too long
    AWAITING   the peer's request is under way, for both directions           by datagram, none too long
    UP         a connection is established                                    by connection
    BACKOFF    the last request failed; the wait doubles with each failure    by datagram
    READY      the wait is over, or the peer ended a connection soon;         by datagram, notify
               we remember the length of the wait

A packet that is too long for a datagram gets an ICMP error where no request is under way, and Linux then
sends short packets to that destination for ten minutes. While one is, such packets wait instead, because a
connection follows soon.

AWAITING occurs only in the `rfc` profile, where one connection serves both directions (C6).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from ipoibu.base.addr import HwAddr
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    CONNECTION_BACKOFF_MAX_S,
    CONNECTION_BACKOFF_MIN_S,
    CONNECTION_DISMISSALS_BURST,
    CONNECTION_DISMISSALS_PER_S,
)
from ipoibu.proto.machine.backoff import Backoff
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.table import Table
from ipoibu.proto.rc.events import Cause, Handle


class State(enum.Enum):
    NONE = "none"
    TRYING = "trying"
    AWAITING = "awaiting"
    UP = "up"
    BACKOFF = "backoff"
    READY = "ready"


class Input(enum.Enum):
    WANTED = "a packet went to the peer by datagram"
    EXPECTED = "the peer's request is to serve both directions"
    SERVED = "a connection to send by is established"
    OTHER_FORM = "no service listens at this service ID; another form of it is left"
    FAILED = "the request failed"
    LOST = "the connection ended after a good while"
    DISMISSED = "the peer ended the connection soon, as it does when its user flushes neighbours"
    FLAPPED = "the connection failed soon"
    GONE = "no neighbour has this address any more, or the link is down"
    TIMEOUT = "the state's time is over"


class Action(enum.Enum):
    START = "make a connection"
    ABANDON = "drop the connection, established or under way"
    UD_NOTIFY = "send by datagram, and have the pump report the next packet"
    UD = "send by datagram"
    UD_CONNECTING = "send by datagram, and keep what is too long for it"
    RC = "send by the connection"
    PENALIZE = "count the failure, wait longer next time"
    ARM = "start the state's timer"
    FORGET = "remove the peer"


_S, _I, _A = State, Input, Action

# fmt: off
MACHINE: Final = Table("RC peer", State.NONE, {
    (_S.NONE, _I.WANTED):   (_S.TRYING, (_A.UD_CONNECTING, _A.START)),
    (_S.NONE, _I.EXPECTED): (_S.AWAITING, (_A.UD_CONNECTING,)),
    (_S.NONE, _I.SERVED):   (_S.UP, (_A.RC,)),
    (_S.NONE, _I.GONE):     (_S.NONE, ()),
    (_S.TRYING, _I.WANTED):     (_S.TRYING, ()),
    (_S.TRYING, _I.EXPECTED):   (_S.AWAITING, (_A.ABANDON,)),
    (_S.TRYING, _I.SERVED):     (_S.UP, (_A.ABANDON, _A.RC)),
    (_S.TRYING, _I.OTHER_FORM): (_S.TRYING, (_A.START,)),
    (_S.TRYING, _I.FAILED):     (_S.BACKOFF, (_A.UD, _A.PENALIZE, _A.ARM)),
    (_S.TRYING, _I.GONE):       (_S.NONE, (_A.ABANDON, _A.UD_NOTIFY, _A.FORGET)),
    (_S.AWAITING, _I.WANTED):   (_S.AWAITING, ()),
    (_S.AWAITING, _I.EXPECTED): (_S.AWAITING, ()),
    (_S.AWAITING, _I.SERVED):   (_S.UP, (_A.RC,)),
    (_S.AWAITING, _I.FAILED):   (_S.READY, (_A.UD_NOTIFY, _A.ARM)),  # the peer's failure gives no penalty
    (_S.AWAITING, _I.GONE):     (_S.NONE, (_A.UD_NOTIFY, _A.FORGET)),
    (_S.UP, _I.WANTED):   (_S.UP, ()),
    (_S.UP, _I.EXPECTED): (_S.UP, ()),
    (_S.UP, _I.SERVED):   (_S.UP, (_A.ABANDON, _A.RC)),
    (_S.UP, _I.LOST):     (_S.NONE, (_A.UD_NOTIFY, _A.FORGET)),
    (_S.UP, _I.DISMISSED): (_S.READY, (_A.UD_NOTIFY, _A.ARM)),  # no failure, but we remember it
    (_S.UP, _I.FLAPPED):  (_S.BACKOFF, (_A.UD, _A.PENALIZE, _A.ARM)),
    (_S.UP, _I.GONE):     (_S.NONE, (_A.ABANDON, _A.UD_NOTIFY, _A.FORGET)),
    (_S.BACKOFF, _I.WANTED):   (_S.BACKOFF, ()),
    (_S.BACKOFF, _I.EXPECTED): (_S.AWAITING, (_A.UD_CONNECTING,)),
    (_S.BACKOFF, _I.SERVED):   (_S.UP, (_A.RC,)),
    (_S.BACKOFF, _I.GONE):     (_S.NONE, (_A.UD_NOTIFY, _A.FORGET)),
    (_S.BACKOFF, _I.TIMEOUT):  (_S.READY, (_A.UD_NOTIFY, _A.ARM)),
    (_S.READY, _I.WANTED):   (_S.TRYING, (_A.UD_CONNECTING, _A.START)),
    (_S.READY, _I.EXPECTED): (_S.AWAITING, (_A.UD_CONNECTING,)),
    (_S.READY, _I.SERVED):   (_S.UP, (_A.RC,)),
    (_S.READY, _I.GONE):     (_S.NONE, (_A.FORGET,)),
    (_S.READY, _I.TIMEOUT):  (_S.NONE, (_A.FORGET,)),
})
# fmt: on

RESTING: Final = frozenset({State.BACKOFF, State.READY})
"""A peer in these states is only a memory of failures: it makes room for another."""


class TxMode(enum.Enum):
    """The mode of unicast packets to a peer."""

    UD_NOTIFY = (
        "watched"  # by datagram, and the pump reports the first packet: `RcPolicy.note_wanted`
    )
    UD = "datagram"
    UD_CONNECTING = "connecting"  # by datagram, and what is too long for it waits
    RC = "connection"


@dataclass(frozen=True, slots=True)
class TxRoute:
    """The mode in which packets go to a peer from now on, for all its IP addresses.

    By connection, `mtu_bytes` bounds the IP packet (C5); by datagram it is 0, and the link's MTU bounds the
    packet. `superframe_bytes` bounds a message with vnet header if every message has one, and is 0 if none
    has.
    """

    hwaddr: HwAddr
    tx_mode: TxMode
    handle: Handle | None = None
    mtu_bytes: int = 0
    superframe_bytes: int = 0


@dataclass(slots=True)
class RcPeer:
    """One peer: `attempt` is our connection under way, and packets go by `serving`.

    `candidate` is about to serve; `cause` says why the latest connection ended; `rest_s` is the present
    wait in BACKOFF; `dismissals` bounds the connections that the peer may end soon without being left alone.
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
    dismissals: TokenBucket = field(
        default_factory=lambda: TokenBucket(
            CONNECTION_DISMISSALS_PER_S, CONNECTION_DISMISSALS_BURST
        )
    )
    backoff: Backoff = field(
        default_factory=lambda: Backoff(CONNECTION_BACKOFF_MIN_S, CONNECTION_BACKOFF_MAX_S)
    )
    rest_s: float = CONNECTION_BACKOFF_MIN_S
