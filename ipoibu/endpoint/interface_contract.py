# SPDX-License-Identifier: BSD-2-Clause
"""What the parts of an interface that `Interface` itself makes ask of it: its subnet and its heavy flush.

`ipoibu.endpoint.interface.interface.Interface` fulfils it. They cannot name that class, because it
imports them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable
from typing import Protocol

from ipoibu.base.addr import Gid
from ipoibu.base.ib import PartitionParams
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.fabric.base import Fabric
from ipoibu.fabric.flush import Flush
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.effects import Effect
from ipoibu.proto.engine import Engine


class InterfaceContract(Protocol):
    """An interface; the docstrings of `Interface` say what each member does."""

    # What it has

    config: EndpointConfig
    engine: Engine
    port: SharedPort
    receives_all: bool

    @property
    def counts(self) -> Counter[str]: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def params(self) -> PartitionParams: ...
    @property
    def fabric(self) -> Fabric: ...
    @property
    def place(self) -> str: ...

    # What the subnet reports

    def perform(self, effects: Iterable[Effect]) -> None: ...
    def flush(self, level: Flush, why: str | None = None) -> None: ...
    def sa_silent(self) -> None: ...
    def avoid_rail(self, why: str) -> None: ...
    def joined(self) -> None: ...
    def receiving(self, groups: Collection[Gid]) -> None: ...

    # The steps of a heavy flush

    def sever(self) -> None: ...
    def find_link(self) -> Awaitable[PartitionParams]: ...
    def resume(self, params: PartitionParams) -> None: ...
    def leave_link(self) -> None: ...
    def fail(self, reason: str) -> None: ...
