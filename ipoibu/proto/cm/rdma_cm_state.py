# SPDX-License-Identifier: BSD-2-Clause
"""The state of one connection that the kernel's rdma_cm makes, as `fabric.cm.rdma_cm` sees it.

    CLOSED        no identifier, or none any more
    ASKING        active: the kernel resolves address and route, then asks the peer
    REPLIED       active: the peer accepts; the policy programs the queue pair
    REQUESTED     passive: the peer asks; the policy decides
    ACCEPTED      passive: we accept; the peer has to confirm
    ESTABLISHED   both ends may send
    LEAVING       the policy ended it; the kernel has not notified the peer yet

The kernel may report any event at any time: each event has a row in every state but CLOSED, in which no
identifier exists that an event could name. rdma_cm repeats a request for a minute; ASKING and LEAVING have
a timer of our own, which is much shorter.
"""

from __future__ import annotations

import enum
from typing import Final

from ipoibu.proto.machine.table import Table


class State(enum.Enum):
    CLOSED = "closed"
    ASKING = "asking"
    REPLIED = "replied"
    REQUESTED = "requested"
    ACCEPTED = "accepted"
    ESTABLISHED = "established"
    LEAVING = "leaving"


class Input(enum.Enum):
    CONNECT = "the policy asks for a connection"
    CONFIRM = "the policy has programmed the queue pair for the reply"
    ACCEPT = "the policy accepts the request"
    REJECT = "the policy refuses the request or the reply"
    DISCONNECT = "the policy ends the connection"
    CONNECT_REQUEST = "the kernel reports a peer's request"
    ADDR_RESOLVED = "the kernel has found the address"
    ROUTE_RESOLVED = "the kernel has found the route"
    CONNECT_RESPONSE = "the kernel reports the peer's reply"
    ESTABLISHED = "the kernel reports that the peer has confirmed"
    REJECTED = "the kernel reports the peer's refusal"
    UNREACHABLE = "the kernel finds no address, route, peer or device"
    DISCONNECTED = "the kernel reports the end of the connection"
    TIMEWAIT_EXIT = "the kernel reports the end of time-wait"
    UNEXPECTED = "the kernel reports something else"
    BROKEN = "the kernel refused a call"
    TIMEOUT = "the state's time is over"


class Action(enum.Enum):
    RESOLVE_ADDRESS = "have the kernel look for the address"
    RESOLVE_ROUTE = "have the kernel look for the route"
    SEND_REQUEST = "have the kernel ask the peer"
    SEND_REPLY = "have the kernel accept"
    SEND_REFUSAL = "have the kernel refuse"
    ESTABLISH = "let the connection begin"
    DISCONNECT = "have the kernel notify the peer of the end"
    REPORT_REQUESTED = "report the request to the policy"
    REPORT_REPLIED = "report the reply to the policy"
    REPORT_ESTABLISHED = "report the beginning to the policy"
    REPORT_ENDED = "report the end to the policy"
    COUNT = "count an event that does not fit"
    ARM = "start the state's timer"
    RELEASE = "forget the handle, which the policy has given up"
    FORGET = "close the identifier"


_S, _I, _A = State, Input, Action
_ENDED: Final = (_S.CLOSED, (_A.FORGET, _A.REPORT_ENDED))
_DROPPED: Final = (_S.CLOSED, (_A.FORGET,))
_REFUSED: Final = (_S.CLOSED, (_A.SEND_REFUSAL, _A.FORGET))
_COUNT: Final = (_A.COUNT,)

# fmt: off
MACHINE: Final = Table("RDMA CM connection", State.CLOSED, {
    (_S.CLOSED, _I.CONNECT):         (_S.ASKING, (_A.ARM, _A.RESOLVE_ADDRESS)),
    (_S.CLOSED, _I.CONNECT_REQUEST): (_S.REQUESTED, (_A.REPORT_REQUESTED,)),
    (_S.CLOSED, _I.BROKEN):          _ENDED,  # the kernel did not send our refusal
    (_S.ASKING, _I.ADDR_RESOLVED):    (_S.ASKING, (_A.RESOLVE_ROUTE,)),
    (_S.ASKING, _I.ROUTE_RESOLVED):   (_S.ASKING, (_A.SEND_REQUEST,)),
    (_S.ASKING, _I.CONNECT_RESPONSE): (_S.REPLIED, (_A.REPORT_REPLIED,)),
    (_S.ASKING, _I.ESTABLISHED):      (_S.ASKING, _COUNT),
    (_S.ASKING, _I.REJECTED):         _ENDED,
    (_S.ASKING, _I.UNREACHABLE):      _ENDED,
    (_S.ASKING, _I.DISCONNECTED):     _ENDED,
    (_S.ASKING, _I.TIMEWAIT_EXIT):    (_S.ASKING, _COUNT),
    (_S.ASKING, _I.UNEXPECTED):       (_S.ASKING, _COUNT),
    (_S.ASKING, _I.BROKEN):           _ENDED,
    (_S.ASKING, _I.TIMEOUT):          _ENDED,
    (_S.ASKING, _I.DISCONNECT):       _DROPPED,
    (_S.REPLIED, _I.ADDR_RESOLVED):    (_S.REPLIED, _COUNT),
    (_S.REPLIED, _I.ROUTE_RESOLVED):   (_S.REPLIED, _COUNT),
    (_S.REPLIED, _I.CONNECT_RESPONSE): (_S.REPLIED, _COUNT),
    (_S.REPLIED, _I.ESTABLISHED):      (_S.REPLIED, _COUNT),
    (_S.REPLIED, _I.REJECTED):         _ENDED,
    (_S.REPLIED, _I.UNREACHABLE):      _ENDED,
    (_S.REPLIED, _I.DISCONNECTED):     _ENDED,
    (_S.REPLIED, _I.TIMEWAIT_EXIT):    (_S.REPLIED, _COUNT),
    (_S.REPLIED, _I.UNEXPECTED):       (_S.REPLIED, _COUNT),
    (_S.REPLIED, _I.BROKEN):           _ENDED,
    (_S.REPLIED, _I.CONFIRM):          (_S.ESTABLISHED, (_A.ESTABLISH, _A.REPORT_ESTABLISHED)),
    (_S.REPLIED, _I.REJECT):           _REFUSED,
    (_S.REPLIED, _I.DISCONNECT):       _DROPPED,
    (_S.REQUESTED, _I.ADDR_RESOLVED):    (_S.REQUESTED, _COUNT),
    (_S.REQUESTED, _I.ROUTE_RESOLVED):   (_S.REQUESTED, _COUNT),
    (_S.REQUESTED, _I.CONNECT_RESPONSE): (_S.REQUESTED, _COUNT),
    (_S.REQUESTED, _I.ESTABLISHED):      (_S.REQUESTED, _COUNT),
    (_S.REQUESTED, _I.REJECTED):         _ENDED,
    (_S.REQUESTED, _I.UNREACHABLE):      _ENDED,
    (_S.REQUESTED, _I.DISCONNECTED):     _ENDED,
    (_S.REQUESTED, _I.TIMEWAIT_EXIT):    (_S.REQUESTED, _COUNT),
    (_S.REQUESTED, _I.UNEXPECTED):       (_S.REQUESTED, _COUNT),
    (_S.REQUESTED, _I.BROKEN):           _ENDED,
    (_S.REQUESTED, _I.ACCEPT):           (_S.ACCEPTED, (_A.SEND_REPLY,)),
    (_S.REQUESTED, _I.REJECT):           _REFUSED,
    (_S.REQUESTED, _I.DISCONNECT):       _DROPPED,
    (_S.ACCEPTED, _I.ADDR_RESOLVED):    (_S.ACCEPTED, _COUNT),
    (_S.ACCEPTED, _I.ROUTE_RESOLVED):   (_S.ACCEPTED, _COUNT),
    (_S.ACCEPTED, _I.CONNECT_RESPONSE): (_S.ACCEPTED, _COUNT),
    (_S.ACCEPTED, _I.ESTABLISHED):      (_S.ESTABLISHED, (_A.REPORT_ESTABLISHED,)),
    (_S.ACCEPTED, _I.REJECTED):         _ENDED,
    (_S.ACCEPTED, _I.UNREACHABLE):      _ENDED,
    (_S.ACCEPTED, _I.DISCONNECTED):     _ENDED,
    (_S.ACCEPTED, _I.TIMEWAIT_EXIT):    (_S.ACCEPTED, _COUNT),
    (_S.ACCEPTED, _I.UNEXPECTED):       (_S.ACCEPTED, _COUNT),
    (_S.ACCEPTED, _I.BROKEN):           _ENDED,
    (_S.ACCEPTED, _I.DISCONNECT):       _DROPPED,
    (_S.ESTABLISHED, _I.ADDR_RESOLVED):    (_S.ESTABLISHED, _COUNT),
    (_S.ESTABLISHED, _I.ROUTE_RESOLVED):   (_S.ESTABLISHED, _COUNT),
    (_S.ESTABLISHED, _I.CONNECT_RESPONSE): (_S.ESTABLISHED, _COUNT),
    (_S.ESTABLISHED, _I.ESTABLISHED):      (_S.ESTABLISHED, _COUNT),
    (_S.ESTABLISHED, _I.REJECTED):         _ENDED,
    (_S.ESTABLISHED, _I.UNREACHABLE):      _ENDED,
    (_S.ESTABLISHED, _I.DISCONNECTED):     _ENDED,
    (_S.ESTABLISHED, _I.TIMEWAIT_EXIT):    (_S.ESTABLISHED, _COUNT),
    (_S.ESTABLISHED, _I.UNEXPECTED):       (_S.ESTABLISHED, _COUNT),
    (_S.ESTABLISHED, _I.BROKEN):           _ENDED,
    (_S.ESTABLISHED, _I.DISCONNECT):       (_S.LEAVING, (_A.RELEASE, _A.ARM, _A.DISCONNECT)),
    (_S.LEAVING, _I.ADDR_RESOLVED):    (_S.LEAVING, ()),
    (_S.LEAVING, _I.ROUTE_RESOLVED):   (_S.LEAVING, ()),
    (_S.LEAVING, _I.CONNECT_RESPONSE): (_S.LEAVING, ()),
    (_S.LEAVING, _I.ESTABLISHED):      (_S.LEAVING, ()),
    (_S.LEAVING, _I.REJECTED):         (_S.LEAVING, ()),
    (_S.LEAVING, _I.UNREACHABLE):      (_S.LEAVING, ()),
    (_S.LEAVING, _I.DISCONNECTED):     _DROPPED,
    (_S.LEAVING, _I.TIMEWAIT_EXIT):    _DROPPED,
    (_S.LEAVING, _I.UNEXPECTED):       (_S.LEAVING, ()),
    (_S.LEAVING, _I.BROKEN):           _ENDED,
    (_S.LEAVING, _I.TIMEOUT):          _ENDED,
})
# fmt: on
