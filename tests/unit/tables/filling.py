# SPDX-License-Identifier: BSD-2-Clause
"""What a test does to a table of the register: fill it as an outsider would, and come as an honest host."""

from __future__ import annotations

import inspect
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Any, ClassVar, Final

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.proto.context import EngineContext, LinkConfig
from ipoibu.proto.effects import Count, Log
from tests.doubles.simulation import TEMPLATE

FEW: Final = 1024  # entries of a table that is made smaller, because the true one takes seconds
HONEST: Final = 0xFFFFF  # the number of the honest entry


class Filling(ABC):
    """A table under test. `cap` is its cap; if that is not the register's, `true_cap` says which one it has
    outside of tests."""

    cap: int
    true_cap: int | None = None
    entries_each: ClassVar[int] = 1  # that one `add` makes

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines = 0  # of the log
        self.now = 1000.0

    @abstractmethod
    def add(self, number: int) -> None:
        """Make entry `number`, as an outsider does."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of entries."""

    @abstractmethod
    def admits_honest(self) -> bool:
        """Come as an honest host to the full table, and return whether there is room, now or when time has
        passed as far as the row promises."""

    def note(self, effects: Iterable[object]) -> None:
        """Count what counts, and forget the rest."""
        for effect in effects:
            if isinstance(effect, Count):
                self.counts[effect.reason] += 1
            elif isinstance(effect, Log):
                self.lines += 1


class EngineFilling(Filling):
    """A table of the engine's machines; `context` is theirs."""

    def __init__(self, config: LinkConfig = TEMPLATE) -> None:
        super().__init__()
        self.context = EngineContext(config, random.Random(1))

    def settle(self) -> None:
        self.note(self.context.take(self.now))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (at := self.context.timers.deadline()) is not None and at <= until:
            self.now = max(at, self.now)
            self.context.timers.run(self.now)
        self.now = until
        self.settle()


def default_cap(make: Callable[..., Any], name: str = "cap") -> int:
    """Return the cap that a table has unless a test gives it another one."""
    cap = inspect.signature(make).parameters[name].default
    assert isinstance(cap, int)
    return cap


def host4(number: int) -> IPv4Address:
    return IPv4Address(0x0A000000 + number)


def host6(number: int) -> IPv6Address:
    return IPv6Address((0xFE80 << 112) + 0x1000 + number)


def group4(number: int) -> IPv4Address:
    return IPv4Address(0xE8000000 + number)


def hwaddr(number: int, flags: int = 0) -> HwAddr:
    return HwAddr(Qpn(0x100 + number), Gid(host6(number).packed), flags)
