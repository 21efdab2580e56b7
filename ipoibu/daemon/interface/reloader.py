# SPDX-License-Identifier: BSD-2-Clause
"""Takes over a changed configuration file without a restart, as far as that costs no packet.

A reload reads the file again and compares it with what is in force. It takes over the keys whose row of
`OPTIONS` has a `change`; every other key that has changed needs a restart, and keeps its value until then. A
faulty file changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final

from ipoibu.base.errors import IpoibuError, UsageError
from ipoibu.daemon.config.change import Change
from ipoibu.daemon.config.config_file import CHILD
from ipoibu.daemon.config.interface_config import InterfaceConfig, default_of
from ipoibu.daemon.config.options import OPTIONS, Option
from ipoibu.daemon.control.server import Action
from ipoibu.daemon.interface.changes import carry_out, present
from ipoibu.daemon.interface.children import Children
from ipoibu.daemon.interface.contract import HostedContract

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """Says what has become of each key: of a child, the key is child.P_KEY.KEY."""

    changed: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    restart: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"changed": self.changed, "failed": self.failed, "restart": self.restart}

    def lines(self) -> list[str]:
        return [
            *(f"{key}: {text}" for key, text in self.changed.items()),
            *(f"{key}: not changed: {text}" for key, text in self.failed.items()),
            *(f"{key}: a change needs a restart" for key in self.restart),
        ]


class Reloader:
    """The action `reload` of an interface's control socket; belongs to the event loop's thread."""

    def __init__(self, interface: HostedContract, children: Children, executor: Executor) -> None:
        self._interface = interface
        self._children = children
        self._executor = executor
        self._turn = asyncio.Lock()
        self.actions: Final[dict[str, Action]] = {"reload": self._note_asked}

    async def _note_asked(self, request: Mapping[str, Any]) -> object:
        return (await self.reload()).to_json()

    async def reload(self) -> Outcome:
        """Read the file and take over what has changed; `UsageError` or `NotPermitted` if it is faulty,
        and then nothing has changed."""
        async with self._turn:
            name = self._interface.name
            try:
                config = self._interface.config.read_again()
            except IpoibuError as error:
                _log.error("%s: reload: %s; the old configuration stays in force", name, error)
                raise
            outcome = Outcome()
            taken = await self._take_all(self._interface, config, "", outcome)
            children = await self._take_children(config, outcome)
            self._interface.config = taken.with_children(children)
            self._children.follow(self._interface.config)
            for line in outcome.lines():
                _log.warning("%s: reload: %s", name, line)
            return outcome

    async def _take_all(
        self, interface: HostedContract, config: InterfaceConfig, prefix: str, outcome: Outcome
    ) -> InterfaceConfig:
        """Take over the interface's own keys; return the configuration that is in force then."""
        values = dict(interface.config.values)
        for option in OPTIONS:
            key = option.name
            before, after = values.get(key), config.values.get(key)
            if before == after:
                continue
            place, change = f"{prefix}{key}", option.change
            if change is None or change.needs_restart(before, after):
                outcome.restart.append(place)
                continue
            try:
                text = await self._take(option, change, after, interface)
            except UsageError:  # a new interface can have this value
                outcome.restart.append(place)
                continue
            except IpoibuError as error:
                outcome.failed[place] = str(error)
                continue
            outcome.changed[place] = text
            values.pop(key, None)
            if key in config.values:
                values[key] = config.values[key]
        return interface.config.with_values(values)

    async def _take(
        self, option: Option, change: Change, value: Any, interface: HostedContract
    ) -> str:
        """Have the interface take the value, the default for None; return what is different."""
        value = default_of(option) if value is None else value
        if option.several:
            said = await carry_out(option, value, interface, self._executor)
            return said or " ".join(map(change.show, value)) or "none"
        before = present(option, interface)
        await carry_out(option, value, interface, self._executor)
        return f"{present(option, interface)} (before: {before})"

    async def _take_children(
        self, config: InterfaceConfig, outcome: Outcome
    ) -> list[InterfaceConfig]:
        """Start, end and change the children that the file names; return those in force."""
        before = {child.endpoint.pkey: child for child in self._interface.config.children}
        wanted = {child.endpoint.pkey: child for child in config.children}
        for pkey in before.keys() - wanted.keys():
            key = f"{CHILD}.{pkey}"
            await self._do(outcome, key, "removed", self._children.remove(pkey))
        in_force = []
        for pkey, child in wanted.items():
            key = f"{CHILD}.{pkey}"
            running = self._children.find(pkey)
            if running is not None and _is_another(running.config, child):
                await self._children.remove(pkey)
                running = None
            if running is None:
                await self._do(outcome, key, "added", self._children.add(child))
                in_force.append(child)
                continue
            own = Outcome()
            running.config = await self._take_all(running, child, f"{key}.", own)
            inherited = {f"{key}.{each}" for each in (*outcome.restart, *outcome.changed)}
            outcome.changed |= {k: v for k, v in own.changed.items() if k not in inherited}
            outcome.failed |= own.failed
            outcome.restart += [each for each in own.restart if each not in inherited]
            in_force.append(running.config)
        return in_force

    async def _do(self, outcome: Outcome, key: str, text: str, work: Awaitable[object]) -> None:
        try:
            await work
        except IpoibuError as error:
            outcome.failed[key] = str(error)
        else:
            outcome.changed[key] = text


def _is_another(running: InterfaceConfig, child: InterfaceConfig) -> bool:
    """Return whether the child needs another device of the kernel."""
    names = [config.values.get("name") for config in (running, child)]
    return running.tap_vlan != child.tap_vlan or names[0] != names[1]
