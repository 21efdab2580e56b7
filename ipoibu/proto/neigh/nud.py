# SPDX-License-Identifier: BSD-2-Clause
"""Neighbour unreachability detection, one machine for ARP and ND: RFC 4861 §7.3 and its Appendix C
(N10, N12).

    NONE         no entry; the pump reports a miss
    INCOMPLETE   asking all hosts; packets wait here
    REACHABLE    confirmed not long ago                             pump: SEND
    STALE        an address without a recent confirmation           pump: NOTIFY, sends and reports once
    DELAY        in use again: give the upper layers 5 s            pump: sends on
    PROBE        asking the known host itself, three times (A5)     pump: sends on
    FAILED       no answer: refuse for a second, then forget        pump: UNREACHABLE
    PERMANENT    an administrator set the address; no peer's
                 message and no time changes it                     pump: SEND, from the first miss on

FAILED is our negative cache and not in the RFC, which sends the ICMP errors and deletes the entry.
A miss for a usable entry was mostly under way when the pump got the entry. But the pump may have lost it,
and nothing else would tell: so the engine publishes the entry again.
`EVIDENCE` first classifies a peer's message by the flags of a neighbour advertisement (RFC 4861 §7.2.5);
an ARP reply to us counts as solicited and overriding, a gratuitous one as overriding only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from ipoibu.base.limits import (
    DELAY_FIRST_PROBE_S,
    MAX_MULTICAST_SOLICIT,
    MAX_UNICAST_SOLICIT,
    NEIGH_FAILED_HOLD_S,
    NEIGH_STALE_KEEP_S,
    REACHABLE_TIME_S,
    RETRANS_TIMER_S,
    ROUTER_DELAY_S,
    ROUTER_REACHABLE_S,
)
from ipoibu.proto.machine.table import Table


class State(enum.Enum):
    NONE = "none"
    INCOMPLETE = "incomplete"
    REACHABLE = "reachable"
    STALE = "stale"
    DELAY = "delay"
    PROBE = "probe"
    FAILED = "failed"
    PERMANENT = "permanent"


class Input(enum.Enum):
    MISS = "the pump has no entry for a packet"
    USED = "the pump used a NOTIFY entry"
    INTRODUCED = "an unknown peer asked us and gave its address"
    REPEATED = "an unsolicited message repeats the address that we have"
    CONFIRMED = "an answer confirms the address that we have"
    REPLACED = "an answer gives another address"
    MOVED = "an unsolicited message gives another address, and overrides"
    DISPUTED = "a message gives another address, and does not override"
    SUSPECTED = "the host has probably restarted"
    SOURCE_READY = "we now have an address to ask from"
    TIMEOUT = "the state's time is over"
    EXHAUSTED = "the state's time is over, and all solicitations are sent"
    EVICTED = "the table is full"
    FLUSHED = "the link is down"
    PINNED = "an administrator sets the address"
    REMOVED = "an administrator removes the entry"
    REROUTED = "a route changed, by which packets came to this next hop"


class Action(enum.Enum):
    QUEUE = "keep the packet"
    RESEND = "send the packet"
    REFUSE = "answer the packet with unreachable"
    RECORD = "store the address"
    SEND = "publish SEND"
    NOTIFY = "publish NOTIFY"
    BLOCK = "publish UNREACHABLE"
    RELEASE = "send the packets that wait"
    REJECT = "answer the packets that wait with unreachable"
    REROUTE = "look up again the packets that wait"
    ASK = "solicit all hosts"
    PROBE = "solicit the known host"
    ARM = "start the state's timer"
    REVALIDATE = "ask the SA for the path again"
    WITHDRAW = "withdraw the entry, and keep it"
    FORGET = "withdraw the entry, and remove it"


class Cached(enum.Enum):
    """The relation of the hardware address in a message to the address in the entry."""

    NOTHING = "there is none"
    SAME = "it is the same"
    OTHER = "it differs"


# RFC 4861 §7.2.5: (Solicited, Override, cached address) of an advertisement -> input
EVIDENCE: Final[Mapping[tuple[bool, bool, Cached], Input]] = {
    (True, True, Cached.NOTHING): Input.REPLACED,
    (True, False, Cached.NOTHING): Input.REPLACED,
    (False, True, Cached.NOTHING): Input.MOVED,
    (False, False, Cached.NOTHING): Input.MOVED,
    (True, True, Cached.SAME): Input.CONFIRMED,
    (True, False, Cached.SAME): Input.CONFIRMED,
    (False, True, Cached.SAME): Input.REPEATED,
    (False, False, Cached.SAME): Input.REPEATED,
    (True, True, Cached.OTHER): Input.REPLACED,
    (True, False, Cached.OTHER): Input.DISPUTED,
    (False, True, Cached.OTHER): Input.MOVED,
    (False, False, Cached.OTHER): Input.DISPUTED,
}

_N, _I, _R, _S = State.NONE, State.INCOMPLETE, State.REACHABLE, State.STALE
_D, _P, _F, _C = State.DELAY, State.PROBE, State.FAILED, State.PERMANENT
_A = Action

# fmt: off
MACHINE: Final = Table("Neighbour", State.NONE, {
    # no entry: only our own packets, and peers that ask us, make one (R2, N5)
    (_N, Input.MISS):       (_I, (_A.QUEUE, _A.ASK, _A.ARM)),
    (_N, Input.INTRODUCED): (_S, (_A.RECORD, _A.NOTIFY, _A.ARM)),
    (_N, Input.REPLACED):   (_N, ()),
    (_N, Input.MOVED):      (_N, ()),
    (_N, Input.USED):       (_N, ()),
    (_N, Input.SUSPECTED):  (_N, ()),
    (_N, Input.PINNED):     (_C, (_A.RECORD, _A.SEND)),
    (_N, Input.REMOVED):    (_N, ()),
    (_N, Input.REROUTED):   (_N, ()),
    # RFC 4861 §7.2.2: asking
    (_I, Input.MISS):         (_I, (_A.QUEUE,)),
    (_I, Input.SOURCE_READY): (_I, (_A.ASK, _A.ARM)),
    (_I, Input.TIMEOUT):      (_I, (_A.ASK, _A.ARM)),
    (_I, Input.EXHAUSTED):    (_F, (_A.BLOCK, _A.REJECT, _A.ARM)),
    (_I, Input.REPLACED):     (_R, (_A.RECORD, _A.SEND, _A.RELEASE, _A.ARM)),
    (_I, Input.MOVED):        (_S, (_A.RECORD, _A.NOTIFY, _A.RELEASE, _A.ARM)),
    (_I, Input.USED):         (_I, ()),
    (_I, Input.SUSPECTED):    (_I, ()),
    (_I, Input.FLUSHED):      (_N, (_A.REJECT, _A.FORGET)),
    (_I, Input.PINNED):       (_C, (_A.RECORD, _A.SEND, _A.RELEASE)),
    (_I, Input.REMOVED):      (_N, (_A.REJECT, _A.FORGET)),
    (_I, Input.REROUTED):     (_I, (_A.REROUTE,)),
    # confirmed
    (_R, Input.MISS):      (_R, (_A.SEND, _A.RESEND)),
    (_R, Input.USED):      (_R, ()),
    (_R, Input.TIMEOUT):   (_S, (_A.NOTIFY, _A.ARM)),
    (_R, Input.REPEATED):  (_R, ()),
    (_R, Input.CONFIRMED): (_R, (_A.ARM,)),
    (_R, Input.REPLACED):  (_R, (_A.RECORD, _A.SEND, _A.ARM)),
    (_R, Input.MOVED):     (_S, (_A.RECORD, _A.NOTIFY, _A.ARM)),
    (_R, Input.DISPUTED):  (_S, (_A.NOTIFY, _A.ARM)),
    (_R, Input.SUSPECTED): (_P, (_A.PROBE, _A.ARM)),
    (_R, Input.EVICTED):   (_N, (_A.FORGET,)),
    (_R, Input.FLUSHED):   (_N, (_A.FORGET,)),
    (_R, Input.PINNED):    (_C, (_A.RECORD, _A.SEND)),
    (_R, Input.REMOVED):   (_N, (_A.FORGET,)),
    (_R, Input.REROUTED):  (_R, ()),
    # usable, not confirmed lately
    (_S, Input.MISS):      (_S, (_A.NOTIFY, _A.RESEND)),
    (_S, Input.USED):      (_D, (_A.ARM,)),
    (_S, Input.TIMEOUT):   (_N, (_A.FORGET,)),
    (_S, Input.REPEATED):  (_S, ()),
    (_S, Input.CONFIRMED): (_R, (_A.SEND, _A.ARM)),
    (_S, Input.REPLACED):  (_R, (_A.RECORD, _A.SEND, _A.ARM)),
    (_S, Input.MOVED):     (_S, (_A.RECORD, _A.NOTIFY, _A.ARM)),
    (_S, Input.DISPUTED):  (_S, ()),
    (_S, Input.SUSPECTED): (_S, ()),
    (_S, Input.EVICTED):   (_N, (_A.FORGET,)),
    (_S, Input.FLUSHED):   (_N, (_A.FORGET,)),
    (_S, Input.PINNED):    (_C, (_A.RECORD, _A.SEND)),
    (_S, Input.REMOVED):   (_N, (_A.FORGET,)),
    (_S, Input.REROUTED):  (_S, ()),
    # RFC 4861 §7.3.3: in use; the pump keeps sending to the address that we have
    (_D, Input.MISS):      (_D, (_A.SEND, _A.RESEND)),
    (_D, Input.USED):      (_D, ()),
    (_D, Input.TIMEOUT):   (_P, (_A.PROBE, _A.ARM)),
    (_D, Input.REPEATED):  (_D, ()),
    (_D, Input.CONFIRMED): (_R, (_A.SEND, _A.ARM)),
    (_D, Input.REPLACED):  (_R, (_A.RECORD, _A.SEND, _A.ARM)),
    (_D, Input.MOVED):     (_S, (_A.RECORD, _A.NOTIFY, _A.ARM)),
    (_D, Input.DISPUTED):  (_D, ()),
    (_D, Input.SUSPECTED): (_D, ()),
    (_D, Input.FLUSHED):   (_N, (_A.FORGET,)),
    (_D, Input.PINNED):    (_C, (_A.RECORD, _A.SEND)),
    (_D, Input.REMOVED):   (_N, (_A.FORGET,)),
    (_D, Input.REROUTED):  (_D, ()),
    # asking the known host: without an answer the entry goes, and the next packet asks all hosts. If the
    # answer then names the same port, the host was up and its path has changed (B6).
    (_P, Input.MISS):      (_P, (_A.SEND, _A.RESEND)),
    (_P, Input.USED):      (_P, ()),
    (_P, Input.TIMEOUT):   (_P, (_A.PROBE, _A.ARM)),
    (_P, Input.EXHAUSTED): (_N, (_A.REVALIDATE, _A.FORGET)),
    (_P, Input.REPEATED):  (_P, ()),
    (_P, Input.CONFIRMED): (_R, (_A.SEND, _A.ARM)),
    (_P, Input.REPLACED):  (_R, (_A.RECORD, _A.SEND, _A.ARM)),
    (_P, Input.MOVED):     (_S, (_A.RECORD, _A.NOTIFY, _A.ARM)),
    (_P, Input.DISPUTED):  (_P, ()),
    (_P, Input.SUSPECTED): (_P, ()),
    (_P, Input.FLUSHED):   (_N, (_A.FORGET,)),
    (_P, Input.PINNED):    (_C, (_A.RECORD, _A.SEND)),
    (_P, Input.REMOVED):   (_N, (_A.FORGET,)),
    (_P, Input.REROUTED):  (_P, ()),
    # the negative cache; a peer that answers late still gets its entry
    (_F, Input.MISS):      (_F, (_A.REFUSE,)),
    (_F, Input.USED):      (_F, ()),
    (_F, Input.TIMEOUT):   (_N, (_A.FORGET,)),
    (_F, Input.REPLACED):  (_R, (_A.RECORD, _A.SEND, _A.ARM)),
    (_F, Input.MOVED):     (_S, (_A.RECORD, _A.NOTIFY, _A.ARM)),
    (_F, Input.SUSPECTED): (_F, ()),
    (_F, Input.EVICTED):   (_N, (_A.FORGET,)),
    (_F, Input.FLUSHED):   (_N, (_A.FORGET,)),
    (_F, Input.PINNED):    (_C, (_A.RECORD, _A.SEND)),
    (_F, Input.REMOVED):   (_N, (_A.FORGET,)),
    (_F, Input.REROUTED):  (_N, (_A.FORGET,)),
    # an administrator's; the pump forgets it while the link is down, and asks for it again
    (_C, Input.MISS):      (_C, (_A.SEND, _A.RESEND)),
    (_C, Input.USED):      (_C, ()),
    (_C, Input.REPEATED):  (_C, ()),
    (_C, Input.CONFIRMED): (_C, ()),
    (_C, Input.REPLACED):  (_C, ()),
    (_C, Input.MOVED):     (_C, ()),
    (_C, Input.DISPUTED):  (_C, ()),
    (_C, Input.SUSPECTED): (_C, ()),
    (_C, Input.FLUSHED):   (_C, (_A.WITHDRAW,)),
    (_C, Input.PINNED):    (_C, (_A.RECORD, _A.SEND)),
    (_C, Input.REMOVED):   (_N, (_A.FORGET,)),
    (_C, Input.REROUTED):  (_C, ()),
})
# fmt: on

DURATION_S: Final = {
    State.INCOMPLETE: RETRANS_TIMER_S,
    State.REACHABLE: REACHABLE_TIME_S,
    State.STALE: NEIGH_STALE_KEEP_S,
    State.DELAY: DELAY_FIRST_PROBE_S,
    State.PROBE: RETRANS_TIMER_S,
    State.FAILED: NEIGH_FAILED_HOLD_S,
}
# Of a router: with the probes, our host leaves a silent one within 8 s.
ROUTER_DURATION_S: Final = {
    State.REACHABLE: ROUTER_REACHABLE_S,
    State.DELAY: ROUTER_DELAY_S,
}
SOLICITATIONS: Final = {
    State.INCOMPLETE: MAX_MULTICAST_SOLICIT,
    State.PROBE: MAX_UNICAST_SOLICIT,
}
# The states that a full table may evict: no address under resolution or verification.
EVICTABLE: Final = (State.REACHABLE, State.STALE, State.FAILED)
