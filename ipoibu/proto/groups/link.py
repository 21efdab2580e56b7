# SPDX-License-Identifier: BSD-2-Clause
"""The link: it is up once we have joined the broadcast group (RFC 4391 §5, B1).

STOPPED   not started, or stopped
DOWN      started, but the port is down
JOINING   joining the broadcast group; the group's own machine tries until it succeeds
UP        we join groups, probe for addresses and send packets
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from ipoibu.proto.machine.table import Table
from ipoibu.proto.machine.transition import Observer, Topic, ignore, step


class State(enum.Enum):
    STOPPED = "stopped"
    DOWN = "down"
    JOINING = "joining"
    UP = "up"


class Input(enum.Enum):
    START = "start"
    STOP = "stop"
    PORT_UP = "the port came up"
    PORT_DOWN = "the port went down"
    PORT_GID = "the port's GID changed"
    BROADCAST_JOINED = "the broadcast group is joined"


class Action(enum.Enum):
    JOIN_BROADCAST = "join the broadcast group"
    OPEN = "bring groups and addresses up"
    CLOSE = "leave groups, forget neighbours"


_S, _I, _A = State, Input, Action

# fmt: off
MACHINE: Final = Table("IpoibLink", State.STOPPED, {
    (_S.STOPPED, _I.START):            (_S.JOINING, (_A.JOIN_BROADCAST,)),
    (_S.STOPPED, _I.STOP):             (_S.STOPPED, ()),
    (_S.STOPPED, _I.PORT_UP):          (_S.STOPPED, ()),
    (_S.STOPPED, _I.PORT_DOWN):        (_S.STOPPED, ()),
    (_S.STOPPED, _I.PORT_GID):         (_S.STOPPED, ()),
    (_S.STOPPED, _I.BROADCAST_JOINED): (_S.STOPPED, ()),
    (_S.DOWN, _I.STOP):                (_S.STOPPED, ()),
    (_S.DOWN, _I.PORT_UP):             (_S.JOINING, (_A.JOIN_BROADCAST,)),
    (_S.DOWN, _I.PORT_DOWN):           (_S.DOWN, ()),
    (_S.DOWN, _I.PORT_GID):            (_S.DOWN, ()),
    (_S.DOWN, _I.BROADCAST_JOINED):    (_S.DOWN, ()),
    (_S.JOINING, _I.STOP):             (_S.STOPPED, (_A.CLOSE,)),
    (_S.JOINING, _I.PORT_UP):          (_S.JOINING, ()),
    (_S.JOINING, _I.PORT_DOWN):        (_S.DOWN, (_A.CLOSE,)),
    (_S.JOINING, _I.PORT_GID):         (_S.JOINING, (_A.CLOSE, _A.JOIN_BROADCAST)),
    (_S.JOINING, _I.BROADCAST_JOINED): (_S.UP, (_A.OPEN,)),
    (_S.UP, _I.STOP):                  (_S.STOPPED, (_A.CLOSE,)),
    (_S.UP, _I.PORT_UP):               (_S.UP, ()),
    (_S.UP, _I.PORT_DOWN):             (_S.DOWN, (_A.CLOSE,)),
    (_S.UP, _I.PORT_GID):              (_S.JOINING, (_A.CLOSE, _A.JOIN_BROADCAST)),
    (_S.UP, _I.BROADCAST_JOINED):      (_S.UP, ()),
})
# fmt: on

PORT_EVENTS: Final = {"up": Input.PORT_UP, "down": Input.PORT_DOWN, "gid": Input.PORT_GID}


class IpoibLink:
    """The state of the link; `act(now, action)` carries an action out."""

    def __init__(self, act: Callable[[float, Action], None], observe: Observer = ignore) -> None:
        self._act = act
        self._observe = observe
        self.state = MACHINE.initial

    @property
    def is_up(self) -> bool:
        return self.state is State.UP

    def feed(self, now: float, fed: Input) -> None:
        before = self.state
        self.state, actions = MACHINE.step(before, fed)
        if self.state is not before:
            self._observe(step(Topic.LINK, "", before, self.state, fed))
        for action in actions:
            self._act(now, action)
