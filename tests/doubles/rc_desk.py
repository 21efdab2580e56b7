# SPDX-License-Identifier: BSD-2-Clause
"""A policy of connected mode alone: the test plays fabric and connection manager, step by step.

desk = Desk()
handle = desk.connect()
assert desk.route().tx_mode is TxMode.RC
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Final, TypeVar

from ipoibu.base.addr import RC_FLAG, Gid, HwAddr, Qpn
from ipoibu.base.ib import Destination, RcAttributes
from ipoibu.proto.effects import Count
from ipoibu.proto.machine.transition import Transition
from ipoibu.proto.rc.connection import CloseQp, OpenQp, Profile, RcConfig, RcEffect
from ipoibu.proto.rc.events import (
    Confirm,
    Connect,
    Ended,
    Established,
    Handle,
    Replied,
    Requested,
    Role,
)
from ipoibu.proto.rc.peer import TxMode, TxRoute
from ipoibu.proto.rc.policy import RcPolicy
from ipoibu.wire.cm_private import Private, ServiceForm, service_id

T = TypeVar("T")

GID: Final = Gid.parse("fe80::215:5dff:fd33:ff0b")
OURS: Final = HwAddr(Qpn(0x48), GID, RC_FLAG)
PEER_GID: Final = Gid.parse("fe80::215:5dff:fd33:ff0c")
PEER: Final = HwAddr(Qpn(0x49), PEER_GID, RC_FLAG)
SMALLER: Final = HwAddr(Qpn(0x47), PEER_GID, RC_FLAG)
CONFIG: Final = RcConfig(OURS, 2044, 2048)
RFC: Final = replace(CONFIG, profile=Profile.RFC)
LINUX_MTU: Final = 65524
SUPERFRAME: Final = 65552


def attributes(qpn: int = 0x5A) -> RcAttributes:
    """Return the attributes that a manager reports for a queue pair."""
    return RcAttributes(Destination(PEER_GID, Qpn(qpn)), 2048, 1, 2, 18)


class Desk:
    """A policy with its effects so far; the test answers for the fabric and the manager."""

    def __init__(self, config: RcConfig = CONFIG, *, is_open: bool = True) -> None:
        self.transitions: list[Transition] = []
        self.strangers: set[HwAddr] = set()
        self.connections = RcPolicy(
            config,
            random.Random(1),
            observe=self.transitions.append,
            admits=lambda hwaddr: hwaddr not in self.strangers,
        )
        self.now = 1000.0
        self.effects: list[RcEffect] = []
        self.open_qps: set[Handle] = set()
        self._qpns = itertools.count(0x100)
        self._passive = itertools.count()
        if is_open:
            self.note(self.connections.open(self.now))

    def note(self, effects: list[RcEffect]) -> list[RcEffect]:
        for effect in effects:
            if isinstance(effect, OpenQp):
                assert effect.handle not in self.open_qps
                self.open_qps.add(effect.handle)
            elif isinstance(effect, CloseQp):
                self.open_qps.remove(effect.handle)
        self.effects += effects
        return effects

    def want(self, hwaddr: HwAddr = PEER) -> list[RcEffect]:
        to = Destination(hwaddr.gid, hwaddr.qpn)
        return self.note(self.connections.note_wanted(self.now, hwaddr, to))

    def open(self, handle: Handle) -> list[RcEffect]:
        return self.note(self.connections.note_opened(self.now, handle, Qpn(next(self._qpns))))

    def event(self, event: Requested | Replied | Established | Ended) -> list[RcEffect]:
        return self.note(self.connections.event(self.now, event))

    def wait(self, seconds: float) -> list[RcEffect]:
        until, happened = self.now + seconds, []
        while (at := self.connections.deadline()) is not None and at <= until:
            self.now = at
            happened += self.note(self.connections.timer(at))
        self.now = until
        return happened

    def ask(self, hwaddr: HwAddr = PEER) -> Connect:
        """Go up to our request."""
        (opened,) = pick(OpenQp, self.want(hwaddr))
        (connect,) = pick(Connect, self.open(opened.handle))
        return connect

    def answer(
        self, connect: Connect, hwaddr: HwAddr = PEER, theirs: Private | None = None
    ) -> list[RcEffect]:
        private_data = theirs or Private(hwaddr.qpn, LINUX_MTU)
        private = private_data.pack().ljust(196, b"\0")
        effects = self.event(Replied(connect.handle, attributes(), private))
        if pick(Confirm, effects):
            effects = effects + self.event(Established(connect.handle))
        return effects

    def connect(self, hwaddr: HwAddr = PEER) -> Handle:
        connect = self.ask(hwaddr)
        self.answer(connect, hwaddr)
        return connect.handle

    def request(
        self, hwaddr: HwAddr = PEER, theirs: Private | None = None
    ) -> tuple[Handle, list[RcEffect]]:
        """Report a peer's request to the policy."""
        handle = Handle(Role.PASSIVE, next(self._passive))
        private_data = theirs or Private(hwaddr.qpn, LINUX_MTU)
        private = private_data.pack().ljust(92, b"\0")
        wanted = service_id(ServiceForm.LINUX, OURS.qpn)
        return handle, self.event(Requested(handle, hwaddr.gid, wanted, attributes(), private))

    def accept(self, hwaddr: HwAddr = PEER) -> Handle:
        """Take a peer's request, up to the established connection."""
        handle, _ = self.request(hwaddr)
        self.open(handle)
        self.event(Established(handle))
        return handle

    def route(self, hwaddr: HwAddr = PEER) -> TxRoute:
        return self.connections.route(hwaddr)

    def count(self, reason: str) -> int:
        return sum(it == Count(reason) for it in self.effects)


def pick(kind: type[T], effects: list[RcEffect]) -> list[T]:
    """Return the effects of one kind."""
    return [it for it in effects if isinstance(it, kind)]


def paths(effects: list[RcEffect]) -> list[TxMode]:
    """Return the TX modes of all routes among the effects."""
    return [route.tx_mode for route in pick(TxRoute, effects)]
