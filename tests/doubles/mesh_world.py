# SPDX-License-Identifier: BSD-2-Clause
"""Hosts of a mesh on a simulated network: every message takes a millisecond, and none is lost."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Final

from ipoibu.base.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.base.limits import MESH_PORT
from ipoibu.proto.mesh.effects import Accept, Dial, Handle, Hangup, MeshEffect, Refuse, SendControl
from ipoibu.proto.mesh.mesh import Mesh, MeshConfig
from ipoibu.proto.mesh.state import State
from ipoibu.wire.mesh import Greeting, Locator

DELAY_S: Final = 0.001
STEP_S: Final = 0.01
End = tuple[int, Handle]  # a host, and its handle of a connection


class MeshWorld:
    """Hosts 1 to `count`; `messages` counts the control messages."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.messages = 0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._other_end: dict[End, End] = {}
        self._confirmed: set[End] = set()
        self.hosts = {number: self._host(number) for number in range(1, count + 1)}
        self._places = {number: Locator(ip_address(number), MESH_PORT) for number in self.hosts}
        self._numbers = {place: number for number, place in self._places.items()}

    def _host(self, number: int) -> Mesh:
        hwaddr = HwAddr(Qpn(number + 1), Gid.parse(f"fe80::{number:x}"))
        greeting = Greeting(hwaddr, 1424, 1, PKey(0xFFFF), MESH_PORT)
        return Mesh(MeshConfig(greeting, 2048, 4096), random.Random(number))

    def seed(self, number: int, *seeds: int) -> None:
        places = {self._places[seed] for seed in seeds}
        self._perform(number, self.hosts[number].seeds(self.now, places))

    def is_full(self) -> bool:
        """Return whether every host is connected with every other, and nothing is under way."""
        return not self._due and all(self.peers(it) == len(self.hosts) - 1 for it in self.hosts)

    def peers(self, number: int) -> int:
        return sum(it.state is State.OPEN for it in self.hosts[number].snapshot())

    def run(self, seconds: float) -> bool:
        """Run until the mesh is full, at most for this time; return whether it is."""
        until = self.now + seconds
        while not self.is_full() and self.now < until:
            self.now += STEP_S
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()
            for number, host in self.hosts.items():
                deadline = host.deadline()
                if deadline is not None and deadline <= self.now:
                    self._perform(number, host.timer(self.now))
        return self.is_full()

    # ---- the network

    def _later(self, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + DELAY_S, next(self._order), act))

    def _perform(self, number: int, effects: list[MeshEffect]) -> None:
        for effect in effects:
            match effect:
                case Dial():
                    self._later(partial(self._dialed, number, effect))
                case Accept(handle):
                    self._later(partial(self._accepted, (number, handle)))
                case Refuse(handle) | Hangup(handle):
                    self._hang_up((number, handle), refuses=isinstance(effect, Refuse))
                case SendControl(handle, message):
                    self.messages += 1
                    self._later(partial(self._said, (number, handle), message))

    def _dialed(self, number: int, dial: Dial) -> None:
        asked = self._numbers[dial.locator]
        mesh = self.hosts[asked]
        handle = mesh.new_handle()
        self._other_end[number, dial.handle] = (asked, handle)
        self._other_end[asked, handle] = (number, dial.handle)
        ours = replace(self.hosts[number].config.ours, is_introduced=dial.is_introduced)
        source = self._places[number].ip
        self._perform(asked, mesh.note_requested(self.now, handle, source, ours.pack()))

    def _accepted(self, end: End) -> None:
        other = self._other_end.get(end)
        if other is not None:
            number, handle = other
            greeting = self.hosts[end[0]].config.ours.pack()
            self._perform(number, self.hosts[number].note_opened(self.now, handle, greeting))

    def _said(self, end: End, message: bytes) -> None:
        other = self._other_end.get(end)
        if other is None:
            return
        number, handle = other
        mesh = self.hosts[number]
        if other not in self._confirmed:
            self._confirmed.add(other)
            self._perform(number, mesh.note_established(self.now, handle))
        self._perform(number, mesh.control(self.now, handle, message))

    def _hang_up(self, end: End, *, refuses: bool) -> None:
        other = self._other_end.pop(end, None)
        if other is None:
            return
        self._other_end.pop(other, None)
        number, handle = other
        private = self.hosts[end[0]].config.ours.pack() if refuses else b""
        self._later(
            lambda: self._perform(number, self.hosts[number].note_ended(self.now, handle, private))
        )
