# SPDX-License-Identifier: BSD-2-Clause
"""The state of a DHCP client, RFC 2131 §4.4: `dhcp` carries the actions out.

    WAITING      for the link to come up; a lease that we had goes on until it expires
    SELECTING    asking all servers for an offer
    REQUESTING   asking for what a server offered
    REBOOTING    asking for the lease that we had before the link went down, or before a restart
    CHECKING     granted; ARP probes look for another host with the address (RFC 5227)
    BOUND        ours
    RENEWING     ours, and asking its server for more time (from T1 on)
    REBINDING    ours, and asking any server for more time (from T2 on)
    RELEASING    given back; the message may wait for the hardware address of the server
    PAUSED       a server refused what it offered, or another host has the address: do not ask at once

RFC 2131 calls WAITING INIT or INIT-REBOOT; CHECKING, RELEASING and PAUSED have no name there.
"""

from __future__ import annotations

import enum
from typing import Final

from ipoibu.base.limits import DHCP_REBOOT_TRIES, DHCP_REQUEST_TRIES
from ipoibu.proto.machine.table import Table


class State(enum.Enum):
    WAITING = "waiting"
    SELECTING = "selecting"
    REQUESTING = "requesting"
    REBOOTING = "rebooting"
    CHECKING = "checking"
    BOUND = "bound"
    RENEWING = "renewing"
    REBINDING = "rebinding"
    RELEASING = "releasing"
    PAUSED = "paused"


class Input(enum.Enum):
    READY = "the link is up, and we know no lease"
    RECALLED = "the link is up, and we know a lease"
    LINK_DOWN = "the link is down"
    OFFER = "a server offers a lease"
    ACK = "the server grants the lease"
    NAK = "the server refuses the lease"
    TIMEOUT = "no server answered in time"
    SPENT = "likewise, and all requests are sent"
    DUE = "the lease is to be renewed: T1 or T2"
    EXPIRED = "the lease's time is over"
    UNIQUE = "no other host has the address"
    CONFLICT = "another host has the address"
    NO_ROOM = "the interface has too many addresses"
    STOP = "the interface ends, and gives its address back"


class Action(enum.Enum):
    BEGIN = "begin another exchange"
    DISCOVER = "ask all servers for an offer"
    TAKE = "choose this offer"
    REQUEST = "ask for the lease"
    STORE = "take the lease as the server grants it now"
    CHECK = "look for another host with the address"
    BIND = "use the address, and store the lease"
    RENEW = "ask the lease's server for more time"
    REBIND = "ask any server for more time"
    DECLINE = "report to the server that another host has the address"
    RELEASE = "give the address back to the server"
    LOSE = "use the address no longer, and forget the lease"
    ARM = "start the timer"


_S, _I, _A = State, Input, Action
_ANEW: Final = (_S.SELECTING, (_A.BEGIN, _A.DISCOVER, _A.ARM))
_ANEW_WITHOUT: Final = (_S.SELECTING, (_A.LOSE, _A.BEGIN, _A.DISCOVER, _A.ARM))
_UNPLUGGED: Final = (_S.WAITING, ())
_UNPLUGGED_WITH: Final = (_S.WAITING, (_A.ARM,))
_CONFLICT: Final = (_S.PAUSED, (_A.DECLINE, _A.LOSE, _A.ARM))
_RELEASED: Final = (_S.RELEASING, (_A.RELEASE, _A.ARM))
_RENEWED: Final = (_S.BOUND, (_A.STORE, _A.BIND, _A.ARM))

# fmt: off
MACHINE: Final = Table("DHCP client", State.WAITING, {
    # for the link; a lease that we have may expire
    (_S.WAITING, _I.READY):        _ANEW,
    (_S.WAITING, _I.RECALLED):     (_S.REBOOTING, (_A.BEGIN, _A.REQUEST, _A.ARM)),
    (_S.WAITING, _I.LINK_DOWN):    (_S.WAITING, ()),
    (_S.WAITING, _I.OFFER):        (_S.WAITING, ()),
    (_S.WAITING, _I.ACK):          (_S.WAITING, ()),
    (_S.WAITING, _I.NAK):          (_S.WAITING, ()),
    (_S.WAITING, _I.EXPIRED):      (_S.WAITING, (_A.LOSE,)),
    (_S.WAITING, _I.STOP):         (_S.WAITING, (_A.LOSE,)),
    # RFC 2131 §4.4.1; the first offer is good enough
    (_S.SELECTING, _I.OFFER):      (_S.REQUESTING, (_A.TAKE, _A.REQUEST, _A.ARM)),
    (_S.SELECTING, _I.ACK):        (_S.SELECTING, ()),
    (_S.SELECTING, _I.NAK):        (_S.SELECTING, ()),
    (_S.SELECTING, _I.TIMEOUT):    (_S.SELECTING, (_A.DISCOVER, _A.ARM)),
    (_S.SELECTING, _I.LINK_DOWN):  _UNPLUGGED,
    (_S.SELECTING, _I.STOP):       (_S.WAITING, ()),
    (_S.REQUESTING, _I.OFFER):     (_S.REQUESTING, ()),
    (_S.REQUESTING, _I.ACK):       (_S.CHECKING, (_A.STORE, _A.CHECK)),
    (_S.REQUESTING, _I.NAK):       (_S.PAUSED, (_A.LOSE, _A.ARM)),
    (_S.REQUESTING, _I.TIMEOUT):   (_S.REQUESTING, (_A.REQUEST, _A.ARM)),
    (_S.REQUESTING, _I.SPENT):     _ANEW_WITHOUT,
    (_S.REQUESTING, _I.LINK_DOWN): (_S.WAITING, (_A.LOSE,)),
    (_S.REQUESTING, _I.STOP):      (_S.WAITING, (_A.LOSE,)),
    # RFC 2131 §4.4.2; §3.2: without an answer the lease is good until it expires
    (_S.REBOOTING, _I.OFFER):      (_S.REBOOTING, ()),
    (_S.REBOOTING, _I.ACK):        (_S.CHECKING, (_A.STORE, _A.CHECK)),
    (_S.REBOOTING, _I.NAK):        _ANEW_WITHOUT,
    (_S.REBOOTING, _I.TIMEOUT):    (_S.REBOOTING, (_A.REQUEST, _A.ARM)),
    (_S.REBOOTING, _I.SPENT):      (_S.CHECKING, (_A.CHECK,)),
    (_S.REBOOTING, _I.EXPIRED):    _ANEW_WITHOUT,
    (_S.REBOOTING, _I.UNIQUE):     (_S.REBOOTING, ()),
    (_S.REBOOTING, _I.CONFLICT):   _CONFLICT,
    (_S.REBOOTING, _I.LINK_DOWN):  _UNPLUGGED_WITH,
    (_S.REBOOTING, _I.STOP):       _RELEASED,
    # RFC 2131 §3.1, step 5: a client that finds the address in use declines it
    (_S.CHECKING, _I.OFFER):       (_S.CHECKING, ()),
    (_S.CHECKING, _I.ACK):         (_S.CHECKING, ()),
    (_S.CHECKING, _I.NAK):         (_S.CHECKING, ()),
    (_S.CHECKING, _I.UNIQUE):      (_S.BOUND, (_A.BIND, _A.ARM)),
    (_S.CHECKING, _I.CONFLICT):    _CONFLICT,
    (_S.CHECKING, _I.NO_ROOM):     (_S.PAUSED, (_A.LOSE, _A.ARM)),
    (_S.CHECKING, _I.LINK_DOWN):   _UNPLUGGED_WITH,
    (_S.CHECKING, _I.STOP):        _RELEASED,
    (_S.BOUND, _I.OFFER):          (_S.BOUND, ()),
    (_S.BOUND, _I.ACK):            (_S.BOUND, ()),
    (_S.BOUND, _I.NAK):            (_S.BOUND, ()),
    (_S.BOUND, _I.DUE):            (_S.RENEWING, (_A.BEGIN, _A.RENEW, _A.ARM)),
    (_S.BOUND, _I.UNIQUE):         (_S.BOUND, ()),
    (_S.BOUND, _I.CONFLICT):       _CONFLICT,
    (_S.BOUND, _I.LINK_DOWN):      _UNPLUGGED_WITH,
    (_S.BOUND, _I.STOP):           _RELEASED,
    # RFC 2131 §4.4.5
    (_S.RENEWING, _I.OFFER):       (_S.RENEWING, ()),
    (_S.RENEWING, _I.ACK):         _RENEWED,
    (_S.RENEWING, _I.NAK):         _ANEW_WITHOUT,
    (_S.RENEWING, _I.TIMEOUT):     (_S.RENEWING, (_A.RENEW, _A.ARM)),
    (_S.RENEWING, _I.DUE):         (_S.REBINDING, (_A.BEGIN, _A.REBIND, _A.ARM)),
    (_S.RENEWING, _I.UNIQUE):      (_S.RENEWING, ()),
    (_S.RENEWING, _I.CONFLICT):    _CONFLICT,
    (_S.RENEWING, _I.LINK_DOWN):   _UNPLUGGED_WITH,
    (_S.RENEWING, _I.STOP):        _RELEASED,
    (_S.REBINDING, _I.OFFER):      (_S.REBINDING, ()),
    (_S.REBINDING, _I.ACK):        _RENEWED,
    (_S.REBINDING, _I.NAK):        _ANEW_WITHOUT,
    (_S.REBINDING, _I.TIMEOUT):    (_S.REBINDING, (_A.REBIND, _A.ARM)),
    (_S.REBINDING, _I.EXPIRED):    _ANEW_WITHOUT,
    (_S.REBINDING, _I.UNIQUE):     (_S.REBINDING, ()),
    (_S.REBINDING, _I.CONFLICT):   _CONFLICT,
    (_S.REBINDING, _I.LINK_DOWN):  _UNPLUGGED_WITH,
    (_S.REBINDING, _I.STOP):       _RELEASED,
    # a pause, so that neither server nor client loops (RFC 2131 §3.1, step 5: at least 10 s)
    (_S.PAUSED, _I.OFFER):         (_S.PAUSED, ()),
    (_S.PAUSED, _I.ACK):           (_S.PAUSED, ()),
    (_S.PAUSED, _I.NAK):           (_S.PAUSED, ()),
    (_S.PAUSED, _I.TIMEOUT):       _ANEW,
    (_S.PAUSED, _I.LINK_DOWN):     _UNPLUGGED,
    (_S.PAUSED, _I.STOP):          (_S.WAITING, ()),
    # RFC 2131 §4.4.6: needs no answer
    (_S.RELEASING, _I.OFFER):      (_S.RELEASING, ()),
    (_S.RELEASING, _I.ACK):        (_S.RELEASING, ()),
    (_S.RELEASING, _I.NAK):        (_S.RELEASING, ()),
    (_S.RELEASING, _I.UNIQUE):     (_S.RELEASING, ()),
    (_S.RELEASING, _I.CONFLICT):   (_S.RELEASING, ()),
    (_S.RELEASING, _I.TIMEOUT):    (_S.WAITING, (_A.LOSE,)),
    (_S.RELEASING, _I.LINK_DOWN):  (_S.WAITING, (_A.LOSE,)),
    (_S.RELEASING, _I.STOP):       (_S.RELEASING, ()),
})
# fmt: on

# The requests of a state before `SPENT`
TRIES: Final = {
    State.REQUESTING: DHCP_REQUEST_TRIES,
    State.REBOOTING: DHCP_REBOOT_TRIES,
}
HELD: Final = (State.BOUND, State.RENEWING, State.REBINDING)
