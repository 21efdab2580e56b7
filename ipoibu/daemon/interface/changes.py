# SPDX-License-Identifier: BSD-2-Clause
"""Options that change while the interface runs, for `ipoibu set` and `ipoibu log`.

`CHANGES` names them. Every other option needs a new TUN or process, so the daemon refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Protocol

from ipoibu.base.addr import IpInterface, IpNetwork
from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.config.options import BY_NAME
from ipoibu.daemon.config.parsers import Proxied
from ipoibu.host.kernel_interface import RouteSpec
from ipoibu.proto.ethernet_config import EthernetConfig

_log = logging.getLogger(__name__)


class Changeable(Protocol):
    """The part of a running interface that changes."""

    @property
    def name(self) -> str: ...
    def busy_poll_us(self) -> int | None: ...
    def set_busy_poll(self, busy_poll_us: int | None, /) -> None: ...
    def mode(self) -> str: ...
    def set_mode(self, mode: str, /) -> None: ...
    def mtu(self) -> int: ...
    def set_mtu(self, mtu_bytes: int, /) -> None: ...


class Reloadable(Changeable, Protocol):
    """The part that changes with the configuration file alone."""

    config: InterfaceConfig

    def reset_mtu(self) -> None: ...
    def set_addresses(self, addresses: Sequence[IpInterface], /) -> str: ...
    def set_routes(self, routes: Sequence[RouteSpec], /) -> str: ...
    def set_proxies(self, proxies: Sequence[IpNetwork | Proxied], /) -> str: ...
    def set_peers(self, peers: Sequence[str], /) -> None: ...
    def bind_guests(self, config: EthernetConfig, /) -> None: ...


class Changes:
    """The action `set` of one interface's control socket."""

    def __init__(self, interface: Changeable, executor: Executor) -> None:
        self._interface = interface
        self._executor = executor
        self.actions: Final = {"set": self._set}

    async def _set(self, request: Mapping[str, Any]) -> object:
        name, text = request.get("option"), request.get("value")
        if not isinstance(name, str) or not isinstance(text, str):
            raise UsageError('"option" and "value" are texts such as "busy-poll" and "50"')
        change, value = CHANGES[check(name)], BY_NAME[name].read(text)
        before = await change(self._interface, self._executor, value)
        _log.warning("%s: %s is %s now, not %s", self._interface.name, name, text, before)
        return {"dev": self._interface.name, "option": name, "value": text, "before": before}


def check(name: str) -> str:
    """Return the option's name; `UsageError` says why if it cannot change while the interface runs."""
    if name not in BY_NAME:
        raise UsageError(f"{name[:40]!r} is no option; these can change: {', '.join(CHANGEABLE)}")
    if name not in CHANGES:
        raise UsageError(
            f"{name} cannot change while the interface runs ({', '.join(CHANGEABLE)} can):"
            f" end `ipoibu up` and start it with another --{name}"
        )
    return name


async def _busy_poll(interface: Changeable, executor: Executor, value: Any) -> str:
    before = interface.busy_poll_us()
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(executor, interface.set_busy_poll, value)
    return "auto" if before is None else str(before)


async def _mode(interface: Changeable, executor: Executor, value: Any) -> str:
    before = interface.mode()
    await asyncio.get_running_loop().run_in_executor(executor, interface.set_mode, value)
    return before


async def _mtu(interface: Changeable, executor: Executor, value: Any) -> str:
    before = interface.mtu()
    interface.set_mtu(value)
    return str(before)


async def _log_level(interface: Changeable, executor: Executor, value: Any) -> str:
    root = logging.getLogger()
    before = logging.getLevelName(root.level).lower()
    root.setLevel(logging.getLevelNamesMapping()[value.upper()])
    return str(before)


CHANGES: Final[dict[str, Callable[[Changeable, Executor, Any], Awaitable[str]]]] = {
    "busy-poll": _busy_poll,
    "mode": _mode,
    "mtu": _mtu,
    "log-level": _log_level,
}

CHANGEABLE: Final = tuple(CHANGES)
