# SPDX-License-Identifier: BSD-2-Clause
"""Child interfaces at run time: other partitions on the port that the parent has open.

As with the kernel's ipoib, a child is called PARENT.P_KEY unless it has another name, its P_Key always has
the membership bit, 0 and 0x8000 are no partitions, a parent has one child per partition, and a child has no
children.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ipoibu.base.addr import PKey
from ipoibu.base.errors import IpoibuError, NoSuchDevice, UsageError
from ipoibu.base.limits import CHILDREN_MAX
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.config.options import options_of
from ipoibu.daemon.control.server import Action
from ipoibu.daemon.interface.contract import HostedContract

_log = logging.getLogger(__name__)


MakeChild = Callable[[InterfaceConfig, Callable[[str], None], Mapping[str, Action]], HostedContract]


class Children:
    """The children of the interface `parent`; every method runs on the event loop's thread.

    `make` gets the child's configuration, a function to call when the child fails, and the actions of
    its control socket. `Children` starts or ends one child at a time. When the client goes away or the
    parent ends during a start, that start is completed first, so no half-made child stays behind.
    """

    def __init__(self, parent: InterfaceConfig, make: MakeChild) -> None:
        self.mode: Callable[[], str] = lambda: self._parent.endpoint.mode
        """Returns the parent's present mode, which a child that a command adds has unless told otherwise."""
        self._parent = parent
        self._parent_name = parent.name
        self._make = make
        self._running: dict[PKey, HostedContract] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.actions: dict[str, Action] = {
            "child-add": self._child_add,
            "child-del": self._child_del,
            "child-list": self._child_list,
        }

    @property
    def running(self) -> list[HostedContract]:
        """The children that are up; any thread may ask."""
        return list(self._running.values())

    def follow(self, parent: InterfaceConfig) -> None:
        """Take the parent's new configuration, which later children inherit."""
        self._parent = parent

    def rename(self, parent: str) -> None:
        """The parent has another name now, of which later children have theirs."""
        self._parent_name = parent
        for child in self._running.values():
            child.follow_parent(parent)

    def find(self, pkey: PKey) -> HostedContract | None:
        return self._running.get(pkey)

    async def add(self, config: InterfaceConfig) -> None:
        """Start a child."""
        await self._add(config, config.endpoint.pkey)

    async def remove(self, pkey: PKey) -> None:
        """End a child for good, if it runs."""
        if pkey in self._running:
            await self._remove(pkey)

    async def start(self) -> list[str]:
        """Start the children of the configuration file; return the summary of each that came up.

        A child that fails gets a line in the log; the others and the parent go on.
        """
        outcomes = await asyncio.gather(*map(self._start, self._parent.children))
        return [summary for summary in outcomes if summary is not None]

    async def _start(self, config: InterfaceConfig) -> str | None:
        try:
            return await self._add(config, config.endpoint.pkey)
        except IpoibuError as error:
            _log.error("%s: the child did not start: %s", config.name, error)
            return None

    async def close(self) -> None:
        """End every child, and refuse new ones."""
        self._closed = True
        async with self._turn:
            # The end of each child is many notices of the kernel, which all others would read.
            for child in self._running.values():
                child.unfollow()
            for pkey in list(self._running):
                await self._end(pkey)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- the control socket's actions

    async def _child_add(self, request: Mapping[str, Any]) -> object:
        pkey = _pkey_untrusted(request)
        options = {"mode": self.mode(), **_options_untrusted(request)}
        return await self._finish(self._add(self._parent.child(pkey, options), pkey))

    async def _child_del(self, request: Mapping[str, Any]) -> object:
        return await self._finish(self._remove(_pkey_untrusted(request)))

    async def _child_list(self, request: Mapping[str, Any]) -> object:
        return [
            {
                "name": child.current_name,
                "parent": self._parent_name,
                "pkey": str(pkey),
                "vlan": child.config.tap_vlan,
            }
            for pkey, child in sorted(self._running.items())
        ]

    async def _finish(self, work: Coroutine[Any, Any, object]) -> object:
        """Wait for `work`, which goes on even if the client goes away."""
        return await asyncio.shield(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_done)
        return task

    def _note_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # else asyncio logs an error that no client awaits any more

    # ---- one at a time

    async def _add(self, config: InterfaceConfig, pkey: PKey) -> str:
        async with self._turn:
            self._check_new(pkey)
            config = config.below(self._parent_name)
            child = self._make(
                config, lambda reason: self._note_failed(pkey, reason), _refusals(config)
            )
            try:
                await child.start()
            except OSError as error:  # the process has no descriptors or memory left
                child.forget()
                raise IpoibuError(f"{config.name}: {error.strerror}") from error
            except IpoibuError:
                child.forget()
                raise
            self._running[pkey] = child
        await child.settle()
        if self._running.get(pkey) is not child:
            raise IpoibuError(f"{config.name}: another command removed the child while it came up")
        return child.summary()

    def _check_new(self, pkey: PKey) -> None:
        if self._closed:
            raise IpoibuError("the interface is ending and takes no further child")
        if pkey == self._parent.endpoint.pkey.full:
            raise UsageError(f"{pkey} is the partition of {self._parent_name} itself")
        if pkey in self._running:
            name = self._running[pkey].current_name
            raise UsageError(f"{name} has the partition {pkey} already")
        if len(self._running) >= CHILDREN_MAX:
            raise UsageError(f"an interface has at most {CHILDREN_MAX} children")

    async def _remove(self, pkey: PKey) -> None:
        async with self._turn:
            if pkey not in self._running:
                raise NoSuchDevice(f"the interface has no child in partition {pkey}")
            await self._end(pkey)

    async def _end(self, pkey: PKey) -> None:
        child = self._running.pop(pkey)
        try:
            if not self._closed:
                child.forget()
            await child.close()
        except Exception as error:
            # The other children and the parent have to end in spite of this error.
            _log.error("%s: the child did not close cleanly: %s", child.config.name, error)

    def _note_failed(self, pkey: PKey, reason: str) -> None:
        """Remove a child that cannot go on; the parent goes on."""
        self._begin(self._drop(pkey, reason))

    async def _drop(self, pkey: PKey, reason: str) -> None:
        async with self._turn:
            if pkey in self._running:
                _log.error(
                    "%s: %s: the parent removes this child", self._running[pkey].config.name, reason
                )
                await self._end(pkey)


def _refusals(child: InterfaceConfig) -> dict[str, Action]:
    async def refuse(request: Mapping[str, Any]) -> object:
        raise UsageError("a child interface has no children: name its parent instead")

    async def none(request: Mapping[str, Any]) -> object:
        return []

    async def of_parent(request: Mapping[str, Any]) -> object:
        raise UsageError(
            f"reload the parent {child.endpoint.parent}: its file has the children, too"
        )

    async def not_alone(request: Mapping[str, Any]) -> object:
        raise UsageError(
            f"the parent {child.endpoint.parent} ends its children: `ipoibu child del`"
        )

    return {
        "down": not_alone,
        "child-add": refuse,
        "child-del": refuse,
        "child-list": none,
        "reload": of_parent,
    }


def _pkey_untrusted(request: Mapping[str, Any]) -> PKey:
    text = request.get("pkey")
    if not isinstance(text, str):
        raise UsageError('"pkey" is a text such as "0x8001"')
    return PKey.parse(text[:16]).full


def _options_untrusted(request: Mapping[str, Any]) -> dict[str, str | list[str]]:
    texts: dict[str, str | list[str]] = {}
    for option in options_of("child"):
        value = request.get(option.name)
        if value is None:
            continue
        if option.several:
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise UsageError(f'"{option.name}" is a list of texts such as "{option.example}"')
        elif not isinstance(value, str):
            raise UsageError(f'"{option.name}" is a text such as "{option.example}"')
        texts[option.name] = value
    return texts
