# SPDX-License-Identifier: BSD-2-Clause
"""A test as data: steps that send, and steps that say what must come back or must not.

Test(
    "ARP-3", "R1", MUST, "RFC 826", "a request of another hardware type gets no answer",
    Send(encap() / arp(hardware_type=1, sender_hwaddr=MY_HW, sender_ip=ME4, target_ip=PEER4)),
    Silence(encap() / arp(operation=2, target_ip=ME4)),
)
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import Cut, Given, Layer, Packet, Symbol
from ipoibu.conform.symbols import PEER_HW


class Level(enum.Enum):
    """How strong a clause is; a peer that does otherwise fails, is warned about, or is only reported."""

    MUST = "must"
    SHOULD = "should"
    MAY = "may"


MUST: Final = Level.MUST
SHOULD: Final = Level.SHOULD
MAY: Final = Level.MAY

What = Packet | Layer


class Need(enum.Enum):
    """What a test needs of the link or the peer; without it the test is not applicable."""

    IPV4 = "the peer's IPv4 address"
    IPV6 = "the peer's link-local IPv6 address"
    GLOBAL_IPV6 = "a global IPv6 address of the peer"
    CONNECTED = "connected mode, at the peer and here"
    GSI = "queue pair 1 of the tester's port"
    HELPER = "--helper, which acts on the peer"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a packet to a hardware address or IP group.

    A test may leave the encapsulation header away. A packet without any layer goes out as it is.
    """

    packet: What
    to: Given = PEER_HW
    by: QueuePair = QueuePair.MINE
    times: int = 1
    every_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Expect:
    """Such a packet comes within the time, `count` times since the last `Send`.

    With `exactly`, no more come until the time has passed; with `at_most`, no more than that. `apart_s`
    bounds the time between one and the next. `to` is the IP group or hardware address to which the datagram
    must have gone. `keep` gives fields of the (last) packet as symbols to later steps: name to (layer,
    field).
    """

    packet: What
    within_s: float = 2.0
    count: int = 1
    exactly: bool = False
    at_most: int | None = None
    apart_s: tuple[float, float] | None = None
    after_s: float = 0.0  # since the last `Send`; an earlier one fails
    to: Given | None = None
    by: QueuePair | tuple[QueuePair, ...] = QueuePair.MINE  # one of these
    keep: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """No such packet has come since the last `Send`, and none comes in `for_s` seconds.

    Without `for_s`: until the peer has answered a ping sent now, and a moment longer.
    """

    packet: What
    for_s: float | None = None
    to: Given | None = None
    by: QueuePair = QueuePair.MINE


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass. What comes counts as come since the last `Send`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """From now on the tester resolves `ME4` and `ME6` for the peer, or does not; it begins answering. With
    `as_router` its answers have the Router flag. `flags` are those of its hardware address: 0x80 offers
    connections (RFC 4755 §3.1)."""

    on: bool
    as_router: bool = False
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Join:
    """Become a member of an IP group until the test ends."""

    group: Given


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a queue pair for a connection: its number becomes the symbol `RC_QPN`."""


@dataclass(frozen=True, slots=True)
class Establish:
    """Make the connection's queue pair ready, towards the queue pair `their_qpn` of the peer."""

    their_qpn: Given
    path_mtu: Given = 2048
    receive_psn: Given = 0
    send_psn: Given = 0


@dataclass(frozen=True, slots=True)
class Act:
    """Have the helper act on the peer: see `helper.ACTS`."""

    what: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Take these steps until they come out as they say, `tries` times: a peer may lose its first answers."""

    steps: tuple[Step, ...]
    tries: int = 5


@dataclass(frozen=True, slots=True)
class Try:
    """Take these steps; if they do not come out as they say, take the others."""

    steps: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Require:
    """A value that an `Expect` has kept is this one, or follows this rule."""

    kept: Symbol
    wanted: Given


Step = (
    Send
    | Expect
    | Silence
    | Wait
    | Answer
    | Join
    | Connect
    | Establish
    | Act
    | Repeat
    | Try
    | Require
)


_NEEDS: Final = {
    "me4": Need.IPV4,
    "peer4": Need.IPV4,
    "free4": Need.IPV4,
    "me6": Need.IPV6,
    "peer6": Need.IPV6,
    "free6": Need.IPV6,
    "me6_global": Need.GLOBAL_IPV6,
    "peer6_global": Need.GLOBAL_IPV6,
}
"""What a symbol stands for only if the peer has such an address."""


def _needs_of(step: Step) -> Iterator[Need]:
    """Yield what the symbols in a step, or in the steps within it, need."""
    if isinstance(step, Repeat | Try):
        for inner in step.steps:
            yield from _needs_of(inner)
    packets = [step.packet] if isinstance(step, Send | Expect | Silence) else []
    while packets:
        what = packets.pop()
        packet = what if isinstance(what, Packet) else Packet((what,))
        for layer in packet.layers:
            for value in layer.values.values():
                if isinstance(value, Symbol) and value.name in _NEEDS:
                    yield _NEEDS[value.name]
        if isinstance(packet.payload, Cut):
            packets.append(packet.payload.of)
    if isinstance(step, Act):
        yield Need.HELPER


@dataclass(frozen=True, slots=True, init=False)
class Test:
    """`id` is unique; `clauses` are ids of docs/understand/conformance.md, or of this suite, at least one."""

    id: str
    clauses: tuple[str, ...]
    level: Level
    source: str
    title: str
    steps: tuple[Step, ...]
    cleanup: tuple[Step, ...]
    needs: frozenset[Need]
    is_destructive: bool
    __test__: ClassVar[bool] = False  # no class for pytest

    def __init__(
        self,
        id: str,
        clauses: str,
        level: Level,
        source: str,
        title: str,
        *steps: Step | tuple[Step, ...],
        cleanup: tuple[Step, ...] = (),
        needs: tuple[Need, ...] = (),
        destructive: bool = False,
    ) -> None:
        """`clauses` are words; a tuple of steps counts as its steps; the `cleanup` runs whatever came out
        before. The needs of IP versions follow from the symbols, and that of a helper from its acts; `needs`
        are further ones."""
        flat: list[Step] = []
        for it in steps:
            flat.extend(it if isinstance(it, tuple) else (it,))
        set_ = object.__setattr__
        set_(self, "id", id)
        set_(self, "clauses", tuple(clauses.split()))
        set_(self, "level", level)
        set_(self, "source", source)
        set_(self, "title", title)
        set_(self, "steps", tuple(flat))
        set_(self, "cleanup", cleanup)
        derived = (need for step in flat for need in _needs_of(step))
        set_(self, "needs", frozenset((*needs, *derived)))
        set_(self, "is_destructive", destructive)
