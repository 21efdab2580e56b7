# SPDX-License-Identifier: BSD-2-Clause
"""The state of a DHCPv6 client, RFC 8415 §18.2: `dhcp6` carries the actions out.

WAITING      for the link to come up, and for a link-local address that is no duplicate; a lease that
             we had goes on until it expires
SOLICITING   asking all servers for an advertisement
REQUESTING   asking one server for what it advertises
CONFIRMING   asking whether the address that we had fits the link: after it was down, or a restart
CHECKING     granted; duplicate address detection looks for another host with the address
BOUND        ours
RENEWING     ours, and asking its server for more time (from T1 on)
REBINDING    ours, and asking any server for more time (from T2 on)
DECLINING    another host has the address, and the server does not know yet
RELEASING    given back, and the server does not know yet
PAUSED       a server refused what it advertised, or another host has the address: do not ask at once
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from ipoibu.base import limits
from ipoibu.proto.machine.table import Table


class State(enum.Enum):
    WAITING = "waiting"
    SOLICITING = "soliciting"
    REQUESTING = "requesting"
    CONFIRMING = "confirming"
    CHECKING = "checking"
    BOUND = "bound"
    RENEWING = "renewing"
    REBINDING = "rebinding"
    DECLINING = "declining"
    RELEASING = "releasing"
    PAUSED = "paused"


class Input(enum.Enum):
    READY = "link and link-local address are up, and we know no lease"
    RECALLED = "link and link-local address are up, and we know a lease"
    LINK_DOWN = "the link is down"
    CHOSEN = "a server advertises a lease that is good enough"
    GRANTED = "the server grants the lease"
    MOVED = "the server grants another address than the one that we have"
    CONFIRMED = "the address fits the link"
    REFUSED = "the server refuses the address"
    FORGOTTEN = "the server does not know the lease"
    DONE = "the server knows"
    TIMEOUT = "no server answered in time"
    SPENT = "likewise, and the time or the number of messages is over"
    DUE = "the lease is to be renewed: T1 or T2"
    EXPIRED = "the lease's time is over"
    UNIQUE = "no other host has the address"
    CONFLICT = "another host has the address"
    NO_ROOM = "the interface has too many addresses"
    STOP = "the interface ends, and gives its address back"


class Action(enum.Enum):
    BEGIN = "begin another exchange"
    SOLICIT = "ask all servers for an advertisement"
    TAKE = "choose this server"
    REQUEST = "ask the server for the lease"
    CONFIRM = "ask any server whether the address fits the link"
    STORE = "take the lease as the server grants it now"
    CHECK = "look for another host with the address"
    BIND = "use the address, and store the lease"
    RENEW = "ask the lease's server for more time"
    REBIND = "ask any server for more time"
    LEAVE = "use the address no longer"
    DECLINE = "report to the server that another host has the address"
    RELEASE = "give the address back to the server"
    LOSE = "use the address no longer, and forget the lease"
    ARM = "start the timer"


_S, _I, _A = State, Input, Action
_ANEW: Final = (_S.SOLICITING, (_A.BEGIN, _A.ARM))
_ANEW_WITHOUT: Final = (_S.SOLICITING, (_A.LOSE, _A.BEGIN, _A.ARM))
_UNPLUGGED: Final = (_S.WAITING, ())
_UNPLUGGED_WITH: Final = (_S.WAITING, (_A.ARM,))
_CONFLICT: Final = (_S.DECLINING, (_A.LEAVE, _A.BEGIN, _A.DECLINE, _A.ARM))
_RELEASED: Final = (_S.RELEASING, (_A.LEAVE, _A.BEGIN, _A.RELEASE, _A.ARM))
_CHECKED: Final = (_S.CHECKING, (_A.STORE, _A.CHECK))
_RENEWED: Final = (_S.BOUND, (_A.STORE, _A.BIND, _A.ARM))
_ASKED: Final = (_S.REQUESTING, (_A.TAKE, _A.BEGIN, _A.REQUEST, _A.ARM))
_GONE: Final = (_S.WAITING, (_A.LOSE,))

# Replies reach the machine only in the states that ask for them: `dhcp6` counts the others.
# fmt: off
MACHINE: Final = Table("DHCPv6 client", State.WAITING, {
    # for the link; a lease that we have may expire
    (_S.WAITING, _I.READY):         _ANEW,
    (_S.WAITING, _I.RECALLED):      (_S.CONFIRMING, (_A.BEGIN, _A.ARM)),
    (_S.WAITING, _I.LINK_DOWN):     (_S.WAITING, ()),
    (_S.WAITING, _I.EXPIRED):       _GONE,
    (_S.WAITING, _I.UNIQUE):        (_S.WAITING, ()),
    (_S.WAITING, _I.CONFLICT):      _GONE,
    (_S.WAITING, _I.STOP):          _GONE,
    # §18.2.1; the timer first waits for the random delay, then for further advertisements
    (_S.SOLICITING, _I.CHOSEN):     _ASKED,
    (_S.SOLICITING, _I.TIMEOUT):    (_S.SOLICITING, (_A.SOLICIT, _A.ARM)),
    (_S.SOLICITING, _I.LINK_DOWN):  _UNPLUGGED,
    (_S.SOLICITING, _I.STOP):       _UNPLUGGED,
    # §18.2.2; an address that we still have may expire or turn out to be a duplicate meanwhile
    (_S.REQUESTING, _I.GRANTED):    _CHECKED,
    (_S.REQUESTING, _I.MOVED):      _CHECKED,
    (_S.REQUESTING, _I.REFUSED):    (_S.PAUSED, (_A.LOSE, _A.ARM)),
    (_S.REQUESTING, _I.TIMEOUT):    (_S.REQUESTING, (_A.REQUEST, _A.ARM)),
    (_S.REQUESTING, _I.SPENT):      _ANEW_WITHOUT,
    (_S.REQUESTING, _I.EXPIRED):    _ANEW_WITHOUT,
    (_S.REQUESTING, _I.UNIQUE):     (_S.REQUESTING, ()),
    (_S.REQUESTING, _I.CONFLICT):   _CONFLICT,
    (_S.REQUESTING, _I.LINK_DOWN):  _GONE,
    (_S.REQUESTING, _I.STOP):       _GONE,
    # §18.2.3: without an answer the lease is good until it expires
    (_S.CONFIRMING, _I.CONFIRMED):  (_S.CHECKING, (_A.CHECK,)),
    (_S.CONFIRMING, _I.REFUSED):    _ANEW_WITHOUT,
    (_S.CONFIRMING, _I.TIMEOUT):    (_S.CONFIRMING, (_A.CONFIRM, _A.ARM)),
    (_S.CONFIRMING, _I.SPENT):      (_S.CHECKING, (_A.CHECK,)),
    (_S.CONFIRMING, _I.EXPIRED):    _ANEW_WITHOUT,
    (_S.CONFIRMING, _I.UNIQUE):     (_S.CONFIRMING, ()),
    (_S.CONFIRMING, _I.CONFLICT):   _CONFLICT,
    (_S.CONFIRMING, _I.LINK_DOWN):  _UNPLUGGED_WITH,
    (_S.CONFIRMING, _I.STOP):       _RELEASED,
    # §18.2.10.1: duplicate address detection before the first use
    (_S.CHECKING, _I.UNIQUE):       (_S.BOUND, (_A.BIND, _A.ARM)),
    (_S.CHECKING, _I.CONFLICT):     _CONFLICT,
    (_S.CHECKING, _I.NO_ROOM):      (_S.PAUSED, (_A.LOSE, _A.ARM)),
    (_S.CHECKING, _I.LINK_DOWN):    _UNPLUGGED_WITH,
    (_S.CHECKING, _I.STOP):         _RELEASED,
    (_S.BOUND, _I.DUE):             (_S.RENEWING, (_A.BEGIN, _A.RENEW, _A.ARM)),
    (_S.BOUND, _I.EXPIRED):         _ANEW_WITHOUT,
    (_S.BOUND, _I.UNIQUE):          (_S.BOUND, ()),
    (_S.BOUND, _I.CONFLICT):        _CONFLICT,
    (_S.BOUND, _I.LINK_DOWN):       _UNPLUGGED_WITH,
    (_S.BOUND, _I.STOP):            _RELEASED,
    # §18.2.4, §18.2.10.1
    (_S.RENEWING, _I.GRANTED):      _RENEWED,
    (_S.RENEWING, _I.MOVED):        _CHECKED,
    (_S.RENEWING, _I.REFUSED):      _ANEW_WITHOUT,
    (_S.RENEWING, _I.FORGOTTEN):    _ASKED,
    (_S.RENEWING, _I.TIMEOUT):      (_S.RENEWING, (_A.RENEW, _A.ARM)),
    (_S.RENEWING, _I.DUE):          (_S.REBINDING, (_A.BEGIN, _A.REBIND, _A.ARM)),
    (_S.RENEWING, _I.EXPIRED):      _ANEW_WITHOUT,
    (_S.RENEWING, _I.UNIQUE):       (_S.RENEWING, ()),
    (_S.RENEWING, _I.CONFLICT):     _CONFLICT,
    (_S.RENEWING, _I.LINK_DOWN):    _UNPLUGGED_WITH,
    (_S.RENEWING, _I.STOP):         _RELEASED,
    # §18.2.5
    (_S.REBINDING, _I.GRANTED):     _RENEWED,
    (_S.REBINDING, _I.MOVED):       _CHECKED,
    (_S.REBINDING, _I.REFUSED):     _ANEW_WITHOUT,
    (_S.REBINDING, _I.FORGOTTEN):   _ASKED,
    (_S.REBINDING, _I.TIMEOUT):     (_S.REBINDING, (_A.REBIND, _A.ARM)),
    (_S.REBINDING, _I.EXPIRED):     _ANEW_WITHOUT,
    (_S.REBINDING, _I.UNIQUE):      (_S.REBINDING, ()),
    (_S.REBINDING, _I.CONFLICT):    _CONFLICT,
    (_S.REBINDING, _I.LINK_DOWN):   _UNPLUGGED_WITH,
    (_S.REBINDING, _I.STOP):        _RELEASED,
    # §18.2.8, then a pause, so that neither server nor client loops
    (_S.DECLINING, _I.DONE):        (_S.PAUSED, (_A.LOSE, _A.ARM)),
    (_S.DECLINING, _I.TIMEOUT):     (_S.DECLINING, (_A.DECLINE, _A.ARM)),
    (_S.DECLINING, _I.SPENT):       (_S.PAUSED, (_A.LOSE, _A.ARM)),
    (_S.DECLINING, _I.LINK_DOWN):   _GONE,
    (_S.DECLINING, _I.STOP):        _GONE,
    (_S.PAUSED, _I.TIMEOUT):        _ANEW,
    (_S.PAUSED, _I.LINK_DOWN):      _UNPLUGGED,
    (_S.PAUSED, _I.STOP):           _UNPLUGGED,
    # §18.2.7
    (_S.RELEASING, _I.DONE):        _GONE,
    (_S.RELEASING, _I.TIMEOUT):     (_S.RELEASING, (_A.RELEASE, _A.ARM)),
    (_S.RELEASING, _I.SPENT):       _GONE,
    (_S.RELEASING, _I.LINK_DOWN):   _GONE,
    (_S.RELEASING, _I.STOP):        (_S.RELEASING, ()),
})
# fmt: on

HELD: Final = (State.BOUND, State.RENEWING, State.REBINDING)


@dataclass(frozen=True, slots=True)
class Retransmission:
    """The parameters of an exchange, RFC 8415 §15, in seconds: the first wait (IRT), the longest (MRT, 0:
    no limit), the number of messages (MRC, 0: no limit) and the whole time (MRD, 0: no limit)."""

    first_s: float
    longest_s: float
    tries: int = 0
    total_s: float = 0.0


RETRANSMISSIONS: Final = {
    State.SOLICITING: Retransmission(limits.DHCP6_SOL_TIMEOUT_S, limits.DHCP6_SOL_MAX_RT_S),
    State.REQUESTING: Retransmission(
        limits.DHCP6_REQ_TIMEOUT_S, limits.DHCP6_REQ_MAX_RT_S, tries=limits.DHCP6_REQ_MAX_RC
    ),
    State.CONFIRMING: Retransmission(
        limits.DHCP6_CNF_TIMEOUT_S, limits.DHCP6_CNF_MAX_RT_S, total_s=limits.DHCP6_CNF_MAX_RD_S
    ),
    State.RENEWING: Retransmission(limits.DHCP6_REN_TIMEOUT_S, limits.DHCP6_REN_MAX_RT_S),
    State.REBINDING: Retransmission(limits.DHCP6_REN_TIMEOUT_S, limits.DHCP6_REN_MAX_RT_S),
    State.DECLINING: Retransmission(limits.DHCP6_END_TIMEOUT_S, 0.0, tries=limits.DHCP6_END_MAX_RC),
    State.RELEASING: Retransmission(limits.DHCP6_END_TIMEOUT_S, 0.0, tries=limits.DHCP6_END_MAX_RC),
}
