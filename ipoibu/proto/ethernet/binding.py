# SPDX-License-Identifier: BSD-2-Clause
"""The life of one address of a guest, as a table.

NONE        no guest has the address
TENTATIVE   a guest probes for it (RFC 5227 §2.1, RFC 4862 §5.4): a question from us would look
            like a conflict
SEEN        a guest sends packets from it: it has the address, or routes for the host that has it
CLAIMED     a guest says by ARP or neighbour discovery that it has the address
CHECKING    we asked whether it still has it
STATIC      an administrator bound the address to the guest
"""

from __future__ import annotations

import enum
from typing import Final

from ipoibu.proto.machine.table import Table


class State(enum.Enum):
    NONE = "none"
    TENTATIVE = "tentative"
    SEEN = "seen"
    CLAIMED = "claimed"
    CHECKING = "checking"
    STATIC = "static"


class Input(enum.Enum):
    PROBED = "the guest probes for the address"
    SOURCE = "a packet comes from it"
    CLAIM = "the guest names it as its own"
    RIVAL = "another guest names it as its own"
    MOVED = "another guest announces it"
    CONTESTED = "a host of the link names it as its own"
    LEFT = "a host of the link announces it"
    PINNED = "an administrator binds it"
    RELEASED = "the administrator's binding ends"
    TIMEOUT = "the state's time is over"
    SILENT = "the guest did not answer our questions"
    DROPPED = "the table is full"


class Action(enum.Enum):
    TAKE = "give it to the other guest"
    LOOSE = "have the pump deliver to the guest"
    FIRM = "have the pump deliver to the guest, and drop packets of others from it"
    JOIN = "receive its solicited-node group"
    ASK = "ask the guest"
    ANNOUNCE = "announce it on the link"
    ARM = "start the state's timer"
    FORGET = "have the pump forget it, and remove it"


_S, _I, _A = State, Input, Action

# Guests and hosts of the link can cause their inputs in every state.
MACHINE: Final = Table(
    "Address of a guest",
    State.NONE,
    {
        (_S.NONE, _I.PROBED): (_S.TENTATIVE, (_A.JOIN, _A.ARM)),
        (_S.NONE, _I.SOURCE): (_S.SEEN, (_A.LOOSE, _A.ASK, _A.ARM)),
        (_S.NONE, _I.CLAIM): (_S.CLAIMED, (_A.FIRM, _A.JOIN, _A.ARM)),
        (_S.NONE, _I.PINNED): (_S.STATIC, (_A.FIRM, _A.JOIN)),
        (_S.TENTATIVE, _I.PROBED): (_S.TENTATIVE, (_A.ARM,)),
        (_S.TENTATIVE, _I.SOURCE): (_S.CHECKING, (_A.LOOSE, _A.ASK, _A.ARM)),
        (_S.TENTATIVE, _I.CLAIM): (_S.CLAIMED, (_A.FIRM, _A.JOIN, _A.ARM)),
        (_S.TENTATIVE, _I.RIVAL): (_S.CLAIMED, (_A.TAKE, _A.FIRM, _A.JOIN, _A.ARM)),
        (_S.TENTATIVE, _I.MOVED): (_S.CLAIMED, (_A.TAKE, _A.FIRM, _A.JOIN, _A.ARM)),
        (_S.TENTATIVE, _I.CONTESTED): (_S.NONE, (_A.FORGET,)),
        (_S.TENTATIVE, _I.LEFT): (_S.NONE, (_A.FORGET,)),
        (_S.TENTATIVE, _I.TIMEOUT): (_S.CHECKING, (_A.ASK, _A.ARM)),
        (_S.TENTATIVE, _I.DROPPED): (_S.NONE, (_A.FORGET,)),
        (_S.SEEN, _I.PROBED): (_S.SEEN, (_A.JOIN,)),
        (_S.SEEN, _I.SOURCE): (_S.SEEN, ()),
        (_S.SEEN, _I.CLAIM): (_S.CLAIMED, (_A.FIRM, _A.JOIN, _A.ANNOUNCE, _A.ARM)),
        (_S.SEEN, _I.RIVAL): (_S.CLAIMED, (_A.TAKE, _A.FIRM, _A.JOIN, _A.ARM)),
        (_S.SEEN, _I.MOVED): (_S.CLAIMED, (_A.TAKE, _A.FIRM, _A.JOIN, _A.ARM)),
        (_S.SEEN, _I.CONTESTED): (_S.NONE, (_A.FORGET,)),
        (_S.SEEN, _I.LEFT): (_S.NONE, (_A.FORGET,)),
        (_S.SEEN, _I.TIMEOUT): (_S.NONE, (_A.FORGET,)),
        (_S.SEEN, _I.DROPPED): (_S.NONE, (_A.FORGET,)),
        (_S.CLAIMED, _I.PROBED): (_S.CLAIMED, (_A.ARM,)),
        (_S.CLAIMED, _I.SOURCE): (_S.CLAIMED, ()),
        (_S.CLAIMED, _I.CLAIM): (_S.CLAIMED, (_A.ARM,)),
        (_S.CLAIMED, _I.RIVAL): (_S.CHECKING, (_A.ASK, _A.ARM)),
        (_S.CLAIMED, _I.MOVED): (_S.CLAIMED, (_A.TAKE, _A.FIRM, _A.ARM)),
        (_S.CLAIMED, _I.CONTESTED): (_S.CHECKING, (_A.ASK, _A.ARM)),
        (_S.CLAIMED, _I.LEFT): (_S.NONE, (_A.FORGET,)),
        (_S.CLAIMED, _I.TIMEOUT): (_S.CHECKING, (_A.ASK, _A.ARM)),
        (_S.CLAIMED, _I.DROPPED): (_S.NONE, (_A.FORGET,)),
        (_S.CHECKING, _I.PROBED): (_S.TENTATIVE, (_A.ARM,)),
        (_S.CHECKING, _I.SOURCE): (_S.CHECKING, ()),
        (_S.CHECKING, _I.CLAIM): (_S.CLAIMED, (_A.FIRM, _A.JOIN, _A.ARM)),
        (_S.CHECKING, _I.RIVAL): (_S.CHECKING, ()),
        (_S.CHECKING, _I.MOVED): (_S.CLAIMED, (_A.TAKE, _A.FIRM, _A.JOIN, _A.ARM)),
        (_S.CHECKING, _I.CONTESTED): (_S.CHECKING, ()),
        (_S.CHECKING, _I.LEFT): (_S.NONE, (_A.FORGET,)),
        (_S.CHECKING, _I.TIMEOUT): (_S.CHECKING, (_A.ASK, _A.ARM)),
        (_S.CHECKING, _I.SILENT): (_S.NONE, (_A.FORGET,)),
        (_S.CHECKING, _I.DROPPED): (_S.NONE, (_A.FORGET,)),
        (_S.STATIC, _I.PROBED): (_S.STATIC, ()),
        (_S.STATIC, _I.SOURCE): (_S.STATIC, ()),
        (_S.STATIC, _I.CLAIM): (_S.STATIC, ()),
        (_S.STATIC, _I.RIVAL): (_S.STATIC, ()),
        (_S.STATIC, _I.MOVED): (_S.STATIC, ()),
        (_S.STATIC, _I.CONTESTED): (_S.STATIC, ()),
        (_S.STATIC, _I.LEFT): (_S.STATIC, ()),
        (_S.STATIC, _I.RELEASED): (_S.NONE, (_A.FORGET,)),
    },
)
