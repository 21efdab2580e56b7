# SPDX-License-Identifier: BSD-2-Clause
"""The actions of the control socket that change neighbours: `neigh-set`, `neigh-del`, `neigh-flush`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Final

from ipoibu.base.addr import HwAddr
from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.parsers import parse_ip
from ipoibu.endpoint.contract import EndpointContract

_TEXT_MAX: Final = 64


class NeighbourChanges:
    """The actions of one interface."""

    def __init__(self, table: EndpointContract, executor: Executor) -> None:
        self._table = table
        self._executor = executor
        self.actions: Final = {
            "neigh-set": self._set,
            "neigh-del": self._delete,
            "neigh-flush": self._flush,
        }

    async def _set(self, request: Mapping[str, Any]) -> object:
        ip, hwaddr = parse_ip(_text(request, "ip")), HwAddr.parse(_text(request, "lladdr"))
        replaces = _flag(request, "replaces")
        return await self._run(lambda: self._table.set_neighbour(ip, hwaddr, replaces=replaces))

    async def _delete(self, request: Mapping[str, Any]) -> object:
        ip = parse_ip(_text(request, "ip"))
        return await self._run(lambda: self._table.remove_neighbour(ip))

    async def _flush(self, request: Mapping[str, Any]) -> object:
        permanent = _flag(request, "permanent")
        return await self._run(lambda: self._table.flush_neighbours(permanent=permanent))

    async def _run(self, change: Callable[[], None]) -> object:
        await asyncio.get_running_loop().run_in_executor(self._executor, change)
        return {}


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise UsageError(f'"{key}" is a text')
    return value[:_TEXT_MAX]


def _flag(request: Mapping[str, Any], key: str) -> bool:
    value = request.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f'"{key}" is true or false')
    return value
