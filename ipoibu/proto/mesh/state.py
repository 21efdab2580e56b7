# SPDX-License-Identifier: BSD-2-Clause
"""The state of one connection of an iWARP mesh: `mesh` carries the actions out.

CLOSED      not yet, or no longer
DIALING     we asked; the peer's greeting comes with its answer
ACCEPTING   the peer asked and suits us, and has to confirm
OPEN        both hosts know each other
"""

from __future__ import annotations

import enum
from typing import Final

from ipoibu.proto.machine.table import Table


class State(enum.Enum):
    CLOSED = "closed"
    DIALING = "dialing"
    ACCEPTING = "accepting"
    OPEN = "open"


class Input(enum.Enum):
    WANTED = "a contact is not connected"
    REQUESTED = "a peer that suits us asks"
    GREETED = "the peer that we asked suits us"
    ESTABLISHED = "the peer that asked has confirmed"
    UNSUITABLE = "the peer that we asked does not suit us"
    REDUNDANT = "an older connection with the same peer stays"
    REPLACED = "a newer connection with the same peer stays"
    ENDED = "the connection ended, or could not be made"
    TIMEOUT = "the peer did not answer in time"


class Action(enum.Enum):
    DIAL = "ask the peer"
    ACCEPT = "accept the request"
    NAME = "send packets for the peer by this connection"
    REGISTER = "enter the peer into the list, and accept its packets"
    INTRODUCE = "send our groups and addresses, and introduce the peer to all others"
    HANG_UP = "end the connection"
    COUNT = "count the missing answer"
    ARM = "start the timer"
    FORGET = "remove the connection, and try its contact again later"


_S, _I, _A = State, Input, Action
_CUT: Final = (_S.CLOSED, (_A.HANG_UP, _A.FORGET))
_OVERDUE: Final = (_S.CLOSED, (_A.COUNT, _A.HANG_UP, _A.FORGET))
_ENDED: Final = (_S.CLOSED, (_A.FORGET,))

# fmt: off
MACHINE: Final = Table("Mesh connection", State.CLOSED, {
    (_S.CLOSED, _I.WANTED):         (_S.DIALING, (_A.ARM, _A.DIAL)),
    (_S.CLOSED, _I.REQUESTED):      (_S.ACCEPTING, (_A.ARM, _A.ACCEPT, _A.NAME)),
    (_S.DIALING, _I.GREETED):       (_S.OPEN, (_A.NAME, _A.REGISTER, _A.INTRODUCE)),
    (_S.DIALING, _I.UNSUITABLE):    _CUT,
    (_S.DIALING, _I.REDUNDANT):     _CUT,
    (_S.DIALING, _I.ENDED):         _ENDED,
    (_S.DIALING, _I.TIMEOUT):       _OVERDUE,
    (_S.ACCEPTING, _I.ESTABLISHED): (_S.OPEN, (_A.REGISTER, _A.INTRODUCE)),
    (_S.ACCEPTING, _I.REDUNDANT):   _CUT,
    (_S.ACCEPTING, _I.ENDED):       _ENDED,
    (_S.ACCEPTING, _I.TIMEOUT):     _OVERDUE,
    (_S.OPEN, _I.REPLACED):         _CUT,
    (_S.OPEN, _I.ENDED):            _ENDED,
})
# fmt: on
