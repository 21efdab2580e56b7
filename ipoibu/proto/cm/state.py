# SPDX-License-Identifier: BSD-2-Clause
"""The CM state of one connection: InfiniBand volume 1, §12.9, both sides in one machine (X2-X4).

    CLOSED            no connection, or none any more
    REQ_SENT          active: REQ sent, no answer yet
    MRA_RECEIVED      active: REQ sent, the peer asks for time
    REP_RECEIVED      active: REP received, our queue pair is not programmed yet
    MRA_REP_SENT      active: REP received, we asked for time
    REQ_RECEIVED      passive: REQ received, decision pending
    MRA_SENT          passive: REQ received, we asked for time
    REP_SENT          passive: REP sent, no RTU yet
    MRA_REP_RECEIVED  passive: REP sent, the peer asks for time
    ESTABLISHED       both ends may send
    DREQ_SENT         we ended the connection, the peer has not confirmed
    TIME_WAIT         over; a new connection must not take late datagrams for its own

`Cm` does not feed messages that only the other side can receive (an RTU on the active side, say). In
CLOSED, a peer that believes in a connection that does not exist gets an answer; `Cm` limits the rate. A
rejected request leaves no state: if the REJ gets lost, the policy refuses the next REQ again. A connection
that may be established on the other side ends in TIME_WAIT.
"""

from __future__ import annotations

import enum
from typing import Final

from ipoibu.proto.machine.table import Table


class State(enum.Enum):
    CLOSED = "closed"
    REQ_SENT = "req-sent"
    MRA_RECEIVED = "mra-received"
    REP_RECEIVED = "rep-received"
    MRA_REP_SENT = "mra-rep-sent"
    REQ_RECEIVED = "req-received"
    MRA_SENT = "mra-sent"
    REP_SENT = "rep-sent"
    MRA_REP_RECEIVED = "mra-rep-received"
    ESTABLISHED = "established"
    DREQ_SENT = "dreq-sent"
    TIME_WAIT = "time-wait"


class Input(enum.Enum):
    CONNECT = "the policy asks for a connection"
    CONFIRM = "the policy has programmed the queue pair for the reply"
    ACCEPT = "the policy has programmed the queue pair for the request"
    REJECT = "the policy refuses the request or the reply"
    DISCONNECT = "the policy ends the connection"
    REQ = "the peer asks for a connection, for the first time or again"
    MRA = "the peer needs longer"
    REP = "the peer accepts"
    RTU = "the peer is ready"
    REJ = "the peer refuses"
    DREQ = "the peer ends the connection"
    DREP = "the peer confirms the end"
    STALE = "the peer uses its queue pair for another connection"
    TIMEOUT = "the state's time is over"
    SPENT = "the state's time is over, and all retries are sent"


class Action(enum.Enum):
    SEND_REQ = "send the request"
    SEND_MRA = "ask the peer for time"
    SEND_REP = "accept the request"
    SEND_RTU = "confirm the reply"
    SEND_REJ = "refuse"
    SEND_DREQ = "end the connection"
    SEND_DREP = "confirm the end"
    REPORT_REQUESTED = "report the request to the policy"
    REPORT_REPLIED = "report the reply to the policy"
    REPORT_ESTABLISHED = "report to the policy that the connection is established"
    REPORT_ENDED = "report the end to the policy"
    DUPLICATE = "count a repeated message"
    ARM = "start the state's timer"
    FORGET = "remove the connection"


_S, _I, _A = State, Input, Action
_REFUSED: Final = (_S.CLOSED, (_A.REPORT_ENDED, _A.FORGET))
_GIVEN_UP: Final = (_S.CLOSED, (_A.SEND_REJ, _A.REPORT_ENDED, _A.FORGET))
_UNWANTED: Final = (_S.CLOSED, (_A.SEND_REJ, _A.FORGET))
_ENDED: Final = (_S.TIME_WAIT, (_A.REPORT_ENDED, _A.ARM))
_LOST: Final = (_S.DREQ_SENT, (_A.SEND_DREQ, _A.REPORT_ENDED, _A.ARM))
_DUPLICATE: Final = (_A.DUPLICATE,)

# fmt: off
MACHINE: Final = Table("CM connection", State.CLOSED, {
    (_S.CLOSED, _I.CONNECT): (_S.REQ_SENT, (_A.SEND_REQ, _A.ARM)),
    (_S.CLOSED, _I.REQ):     (_S.REQ_RECEIVED, (_A.REPORT_REQUESTED, _A.ARM)),
    (_S.CLOSED, _I.REP):     (_S.CLOSED, (_A.SEND_REJ,)),
    (_S.CLOSED, _I.DREQ):    (_S.CLOSED, (_A.SEND_DREP,)),
    (_S.CLOSED, _I.MRA):     (_S.CLOSED, ()),
    (_S.CLOSED, _I.RTU):     (_S.CLOSED, ()),
    (_S.CLOSED, _I.REJ):     (_S.CLOSED, ()),
    (_S.CLOSED, _I.DREP):    (_S.CLOSED, ()),
    # active: asked. The peer's id comes with the REP, so it cannot end anything before.
    (_S.REQ_SENT, _I.MRA):        (_S.MRA_RECEIVED, (_A.ARM,)),
    (_S.REQ_SENT, _I.REP):        (_S.REP_RECEIVED, (_A.REPORT_REPLIED, _A.ARM)),
    (_S.REQ_SENT, _I.REJ):        _REFUSED,
    (_S.REQ_SENT, _I.STALE):      _GIVEN_UP,  # the REP's queue pair shows it
    (_S.REQ_SENT, _I.TIMEOUT):    (_S.REQ_SENT, (_A.SEND_REQ, _A.ARM)),
    (_S.REQ_SENT, _I.SPENT):      _GIVEN_UP,
    (_S.REQ_SENT, _I.DISCONNECT): _UNWANTED,
    (_S.MRA_RECEIVED, _I.MRA):        (_S.MRA_RECEIVED, _DUPLICATE),  # asking again gives no more time
    (_S.MRA_RECEIVED, _I.REP):        (_S.REP_RECEIVED, (_A.REPORT_REPLIED, _A.ARM)),
    (_S.MRA_RECEIVED, _I.REJ):        _REFUSED,
    (_S.MRA_RECEIVED, _I.STALE):      _GIVEN_UP,
    (_S.MRA_RECEIVED, _I.TIMEOUT):    (_S.REQ_SENT, (_A.SEND_REQ, _A.ARM)),
    (_S.MRA_RECEIVED, _I.SPENT):      _GIVEN_UP,
    (_S.MRA_RECEIVED, _I.DISCONNECT): _UNWANTED,
    # active: answered, and the policy has to confirm
    (_S.REP_RECEIVED, _I.CONFIRM):    (_S.ESTABLISHED, (_A.SEND_RTU, _A.REPORT_ESTABLISHED)),
    (_S.REP_RECEIVED, _I.REJECT):     _UNWANTED,
    (_S.REP_RECEIVED, _I.DISCONNECT): _UNWANTED,
    (_S.REP_RECEIVED, _I.REP):        (_S.REP_RECEIVED, _DUPLICATE),
    (_S.REP_RECEIVED, _I.REJ):        _REFUSED,
    (_S.REP_RECEIVED, _I.DREQ):       (_S.CLOSED, (_A.SEND_DREP, _A.REPORT_ENDED, _A.FORGET)),
    (_S.REP_RECEIVED, _I.DREP):       (_S.REP_RECEIVED, ()),
    (_S.REP_RECEIVED, _I.STALE):      _GIVEN_UP,
    (_S.REP_RECEIVED, _I.TIMEOUT):    (_S.MRA_REP_SENT, (_A.SEND_MRA, _A.ARM)),
    (_S.MRA_REP_SENT, _I.CONFIRM):    (_S.ESTABLISHED, (_A.SEND_RTU, _A.REPORT_ESTABLISHED)),
    (_S.MRA_REP_SENT, _I.REJECT):     _UNWANTED,
    (_S.MRA_REP_SENT, _I.DISCONNECT): _UNWANTED,
    (_S.MRA_REP_SENT, _I.REP):        (_S.MRA_REP_SENT, (_A.DUPLICATE, _A.SEND_MRA)),
    (_S.MRA_REP_SENT, _I.REJ):        _REFUSED,
    (_S.MRA_REP_SENT, _I.DREQ):       (_S.CLOSED, (_A.SEND_DREP, _A.REPORT_ENDED, _A.FORGET)),
    (_S.MRA_REP_SENT, _I.DREP):       (_S.MRA_REP_SENT, ()),
    (_S.MRA_REP_SENT, _I.STALE):      _GIVEN_UP,
    (_S.MRA_REP_SENT, _I.TIMEOUT):    _GIVEN_UP,
    # passive: the policy has to accept or reject
    (_S.REQ_RECEIVED, _I.ACCEPT):     (_S.REP_SENT, (_A.SEND_REP, _A.ARM)),
    (_S.REQ_RECEIVED, _I.REJECT):     _UNWANTED,
    (_S.REQ_RECEIVED, _I.DISCONNECT): _UNWANTED,
    (_S.REQ_RECEIVED, _I.REQ):        (_S.REQ_RECEIVED, _DUPLICATE),
    (_S.REQ_RECEIVED, _I.RTU):        (_S.REQ_RECEIVED, ()),
    (_S.REQ_RECEIVED, _I.REJ):        _REFUSED,
    (_S.REQ_RECEIVED, _I.DREQ):       (_S.REQ_RECEIVED, ()),
    (_S.REQ_RECEIVED, _I.DREP):       (_S.REQ_RECEIVED, ()),
    (_S.REQ_RECEIVED, _I.MRA):        (_S.REQ_RECEIVED, ()),
    (_S.REQ_RECEIVED, _I.TIMEOUT):    (_S.MRA_SENT, (_A.SEND_MRA, _A.ARM)),
    (_S.MRA_SENT, _I.ACCEPT):     (_S.REP_SENT, (_A.SEND_REP, _A.ARM)),
    (_S.MRA_SENT, _I.REJECT):     _UNWANTED,
    (_S.MRA_SENT, _I.DISCONNECT): _UNWANTED,
    (_S.MRA_SENT, _I.REQ):        (_S.MRA_SENT, (_A.DUPLICATE, _A.SEND_MRA)),
    (_S.MRA_SENT, _I.RTU):        (_S.MRA_SENT, ()),
    (_S.MRA_SENT, _I.REJ):        _REFUSED,
    (_S.MRA_SENT, _I.DREQ):       (_S.MRA_SENT, ()),
    (_S.MRA_SENT, _I.DREP):       (_S.MRA_SENT, ()),
    (_S.MRA_SENT, _I.MRA):        (_S.MRA_SENT, ()),
    (_S.MRA_SENT, _I.TIMEOUT):    _GIVEN_UP,
    # passive: accepted. The peer may be ESTABLISHED and its RTU lost. §12.9.7 ends this with a REJ, which
    # is sent once and can be lost as well; a DREQ is repeated, and Linux takes it in every state.
    (_S.REP_SENT, _I.RTU):        (_S.ESTABLISHED, (_A.REPORT_ESTABLISHED,)),
    (_S.REP_SENT, _I.MRA):        (_S.MRA_REP_RECEIVED, (_A.ARM,)),
    (_S.REP_SENT, _I.REQ):        (_S.REP_SENT, (_A.DUPLICATE, _A.SEND_REP)),
    (_S.REP_SENT, _I.REJ):        _ENDED,
    (_S.REP_SENT, _I.DREQ):       (_S.TIME_WAIT, (_A.SEND_DREP, _A.REPORT_ENDED, _A.ARM)),
    (_S.REP_SENT, _I.DREP):       (_S.REP_SENT, ()),
    (_S.REP_SENT, _I.TIMEOUT):    (_S.REP_SENT, (_A.SEND_REP, _A.ARM)),
    (_S.REP_SENT, _I.SPENT):      _LOST,
    (_S.REP_SENT, _I.DISCONNECT): (_S.DREQ_SENT, (_A.SEND_DREQ, _A.ARM)),
    (_S.MRA_REP_RECEIVED, _I.RTU):        (_S.ESTABLISHED, (_A.REPORT_ESTABLISHED,)),
    (_S.MRA_REP_RECEIVED, _I.MRA):        (_S.MRA_REP_RECEIVED, _DUPLICATE),
    (_S.MRA_REP_RECEIVED, _I.REQ):        (_S.MRA_REP_RECEIVED, _DUPLICATE),
    (_S.MRA_REP_RECEIVED, _I.REJ):        _ENDED,
    (_S.MRA_REP_RECEIVED, _I.DREQ):       (_S.TIME_WAIT, (_A.SEND_DREP, _A.REPORT_ENDED, _A.ARM)),
    (_S.MRA_REP_RECEIVED, _I.DREP):       (_S.MRA_REP_RECEIVED, ()),
    (_S.MRA_REP_RECEIVED, _I.TIMEOUT):    (_S.REP_SENT, (_A.SEND_REP, _A.ARM)),
    (_S.MRA_REP_RECEIVED, _I.SPENT):      _LOST,
    (_S.MRA_REP_RECEIVED, _I.DISCONNECT): (_S.DREQ_SENT, (_A.SEND_DREQ, _A.ARM)),
    # both sides
    (_S.ESTABLISHED, _I.REQ):        (_S.ESTABLISHED, _DUPLICATE),
    (_S.ESTABLISHED, _I.REP):        (_S.ESTABLISHED, (_A.DUPLICATE, _A.SEND_RTU)),
    (_S.ESTABLISHED, _I.RTU):        (_S.ESTABLISHED, _DUPLICATE),
    (_S.ESTABLISHED, _I.MRA):        (_S.ESTABLISHED, ()),
    (_S.ESTABLISHED, _I.REJ):        _ENDED,
    (_S.ESTABLISHED, _I.DREQ):       (_S.TIME_WAIT, (_A.SEND_DREP, _A.REPORT_ENDED, _A.ARM)),
    (_S.ESTABLISHED, _I.DREP):       (_S.ESTABLISHED, ()),
    (_S.ESTABLISHED, _I.STALE):      (_S.DREQ_SENT, (_A.SEND_DREQ, _A.REPORT_ENDED, _A.ARM)),
    (_S.ESTABLISHED, _I.DISCONNECT): (_S.DREQ_SENT, (_A.SEND_DREQ, _A.ARM)),
    (_S.DREQ_SENT, _I.REQ):     (_S.DREQ_SENT, _DUPLICATE),
    (_S.DREQ_SENT, _I.REP):     (_S.DREQ_SENT, _DUPLICATE),  # the repeated DREQ answers it
    (_S.DREQ_SENT, _I.RTU):     (_S.DREQ_SENT, _DUPLICATE),
    (_S.DREQ_SENT, _I.MRA):     (_S.DREQ_SENT, ()),
    (_S.DREQ_SENT, _I.REJ):     (_S.TIME_WAIT, (_A.ARM,)),
    (_S.DREQ_SENT, _I.DREQ):    (_S.TIME_WAIT, (_A.SEND_DREP, _A.ARM)),
    (_S.DREQ_SENT, _I.DREP):    (_S.TIME_WAIT, (_A.ARM,)),
    (_S.DREQ_SENT, _I.TIMEOUT): (_S.DREQ_SENT, (_A.SEND_DREQ, _A.ARM)),
    (_S.DREQ_SENT, _I.SPENT):   (_S.TIME_WAIT, (_A.ARM,)),
    (_S.TIME_WAIT, _I.REQ):     (_S.TIME_WAIT, (_A.DUPLICATE, _A.SEND_REJ)),
    (_S.TIME_WAIT, _I.REP):     (_S.TIME_WAIT, (_A.DUPLICATE, _A.SEND_REJ)),
    (_S.TIME_WAIT, _I.RTU):     (_S.TIME_WAIT, _DUPLICATE),
    (_S.TIME_WAIT, _I.MRA):     (_S.TIME_WAIT, ()),
    (_S.TIME_WAIT, _I.REJ):     (_S.TIME_WAIT, ()),
    (_S.TIME_WAIT, _I.DREQ):    (_S.TIME_WAIT, (_A.DUPLICATE, _A.SEND_DREP)),
    (_S.TIME_WAIT, _I.DREP):    (_S.TIME_WAIT, ()),
    (_S.TIME_WAIT, _I.TIMEOUT): (_S.CLOSED, (_A.FORGET,)),
})
# fmt: on

HALF_OPEN: Final = frozenset(
    {State.REQ_RECEIVED, State.MRA_SENT, State.REP_SENT, State.MRA_REP_RECEIVED}
)
"""A peer's request that is not established yet."""

OVER: Final = frozenset({State.CLOSED, State.DREQ_SENT, State.TIME_WAIT})
"""The policy has given the connection up."""
