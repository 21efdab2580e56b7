# SPDX-License-Identifier: BSD-2-Clause
"""What the parts of the daemon that a running interface serves ask of it.

`ipoibu.daemon.interface.hosted_interface.HostedInterface` fulfils it. It imports `Changes`, which so cannot
name it; `Children` and `Reloader` run in tests with small doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.endpoint.contract import EndpointContract


class HostedContract(Protocol):
    """A running interface, parent or child; the docstrings of `HostedInterface` say what each member does."""

    config: InterfaceConfig

    # Observe

    @property
    def name(self) -> str: ...
    @property
    def current_name(self) -> str: ...
    @property
    def endpoint(self) -> EndpointContract: ...
    @property
    def mtu(self) -> int: ...
    @property
    def parts(self) -> Mapping[str, object]: ...
    def summary(self) -> str: ...

    # Life

    async def start(self) -> None: ...
    async def settle(self) -> None: ...
    def unfollow(self) -> None: ...
    def forget(self) -> None: ...
    async def close(self) -> None: ...
    def follow_parent(self, name: str, /) -> None: ...
