# SPDX-License-Identifier: BSD-2-Clause
"""One request to the subnet administrator: its state machine, its query and its answer.

QUEUED      not sent yet: too many other requests are outstanding
WAITING     sent, no answer so far
RECEIVING   the answer is a table with missing segments
DONE        answered, given up or cancelled; the client counts late answers
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from ipoibu.proto.machine.table import Table
from ipoibu.proto.sa.rmpp import Transfer
from ipoibu.wire.mad import Method
from ipoibu.wire.sa import Attribute


class State(enum.Enum):
    QUEUED = "queued"
    WAITING = "waiting"
    RECEIVING = "receiving"
    DONE = "done"


class Input(enum.Enum):
    TURN = "the number of outstanding requests allows another"
    ANSWER = "an answer in one datagram"
    BUSY = "the SA is busy"
    GROWN = "a segment of the answer"
    WINDOW = "a segment, and the sender waits for an ACK"
    REPEATED = "a segment that came before"
    WHOLE = "the last segment"
    BROKEN = "an invalid segment"
    STOPPED = "the sender ends the transfer"
    TIMEOUT = "no answer came in time"
    SPENT = "no answer came to the last attempt"
    MOVED = "another port has the SA now"
    CANCEL = "the caller no longer wants the answer"


class Action(enum.Enum):
    RESTART = "count the attempts anew, and forget the segments"
    SEND = "send the request with a new transaction id"
    ARM = "start the state's timer"
    ACKNOWLEDGE = "send an RMPP ACK"
    ABORT = "send an RMPP ABORT"
    FINISH = "report the answer"
    GIVE_UP = "report that there is no answer"


_S, _I, _A = State, Input, Action

# fmt: off
MACHINE: Final = Table("SA request", State.QUEUED, {
    (_S.QUEUED, _I.TURN):        (_S.WAITING, (_A.SEND, _A.ARM)),
    (_S.QUEUED, _I.CANCEL):      (_S.DONE, ()),
    (_S.WAITING, _I.ANSWER):     (_S.DONE, (_A.FINISH,)),
    (_S.WAITING, _I.BUSY):       (_S.WAITING, ()),  # the timer sends the request again
    (_S.WAITING, _I.GROWN):      (_S.RECEIVING, (_A.ARM,)),
    (_S.WAITING, _I.WINDOW):     (_S.RECEIVING, (_A.ACKNOWLEDGE, _A.ARM)),
    (_S.WAITING, _I.WHOLE):      (_S.DONE, (_A.ACKNOWLEDGE, _A.FINISH)),
    (_S.WAITING, _I.BROKEN):     (_S.DONE, (_A.ABORT, _A.GIVE_UP)),
    (_S.WAITING, _I.STOPPED):    (_S.DONE, (_A.GIVE_UP,)),
    (_S.WAITING, _I.TIMEOUT):    (_S.WAITING, (_A.SEND, _A.ARM)),
    (_S.WAITING, _I.SPENT):      (_S.DONE, (_A.GIVE_UP,)),
    (_S.WAITING, _I.MOVED):      (_S.WAITING, (_A.RESTART, _A.SEND, _A.ARM)),
    (_S.WAITING, _I.CANCEL):     (_S.DONE, ()),
    (_S.RECEIVING, _I.ANSWER):   (_S.DONE, (_A.ABORT, _A.FINISH)),  # to an earlier attempt
    (_S.RECEIVING, _I.BUSY):     (_S.RECEIVING, ()),
    (_S.RECEIVING, _I.GROWN):    (_S.RECEIVING, (_A.ARM,)),
    (_S.RECEIVING, _I.WINDOW):   (_S.RECEIVING, (_A.ACKNOWLEDGE, _A.ARM)),
    (_S.RECEIVING, _I.REPEATED): (_S.RECEIVING, (_A.ACKNOWLEDGE,)),  # without progress there is no more time
    (_S.RECEIVING, _I.WHOLE):    (_S.DONE, (_A.ACKNOWLEDGE, _A.FINISH)),
    (_S.RECEIVING, _I.BROKEN):   (_S.DONE, (_A.ABORT, _A.GIVE_UP)),
    (_S.RECEIVING, _I.STOPPED):  (_S.DONE, (_A.GIVE_UP,)),
    (_S.RECEIVING, _I.TIMEOUT):  (_S.WAITING, (_A.ABORT, _A.SEND, _A.ARM)),
    (_S.RECEIVING, _I.SPENT):    (_S.DONE, (_A.ABORT, _A.GIVE_UP)),
    (_S.RECEIVING, _I.MOVED):    (_S.WAITING, (_A.RESTART, _A.SEND, _A.ARM)),
    (_S.RECEIVING, _I.CANCEL):   (_S.DONE, (_A.ABORT,)),
})
# fmt: on


@dataclass(frozen=True, slots=True)
class Query:
    """A request: `data` is the packed record, and `mask` has those of its components that count."""

    method: Method
    attribute: Attribute
    data: bytes = b""
    mask: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The SA's answer; `status` 0 is success, and only tables have `record_bytes`."""

    status: int
    data: bytes
    record_bytes: int = 0


class Failure(enum.Enum):
    TIMEOUT = "the SA did not answer"
    BROKEN = "the answer made no sense"
    STOPPED = "the SA ended the transfer"
    QUEUE_FULL = "too many requests wait"


_RESPONSES: Final = {
    Method.GET: Method.GET_RESPONSE,
    Method.SET: Method.GET_RESPONSE,
    Method.GET_TABLE: Method.GET_TABLE_RESPONSE,
    Method.DELETE: Method.DELETE_RESPONSE,
}


@dataclass(slots=True)
class Transaction:
    """A request under way. Each attempt has a transaction id, of which `tids` holds the lower 32 bits."""

    key: Hashable
    query: Query
    attempts: int  # the most attempts
    is_probe: bool = False
    state: State = State.QUEUED
    since_s: float = 0.0  # time of the first attempt at the present SA
    tids: list[int] = field(default_factory=list)
    elsewhere: int = 0  # attempts at SAs of other ports, before
    transfer: Transfer | None = None
    transfer_tid: int = 0
    answer: Answer | None = None

    @property
    def attempted(self) -> int:
        """Return the number of attempts at the present SA."""
        return len(self.tids) - self.elsewhere

    @property
    def response(self) -> Method:
        """Return the method of the answer."""
        return _RESPONSES[self.query.method]
