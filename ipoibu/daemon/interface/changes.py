# SPDX-License-Identifier: BSD-2-Clause
"""Options that change while the interface runs, for `ipoibu set`, `ipoibu log` and a reload.

The rows of `OPTIONS` with a `change` say what carries one out. Every other option needs a new TUN or process,
so the daemon refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.change import Change
from ipoibu.daemon.config.options import BY_NAME, OPTIONS, Option
from ipoibu.daemon.interface.contract import HostedContract

_log = logging.getLogger(__name__)

# A list changes with the configuration file alone: `ipoibu set` has one value.
CHANGEABLE: Final = tuple(it.name for it in OPTIONS if it.change is not None and not it.several)


class Changes:
    """The action `set` of one interface's control socket."""

    def __init__(self, interface: HostedContract, executor: Executor) -> None:
        self._interface = interface
        self._executor = executor
        self.actions: Final = {"set": self._set}

    async def _set(self, request: Mapping[str, Any]) -> object:
        name, text = request.get("option"), request.get("value")
        if not isinstance(name, str) or not isinstance(text, str):
            raise UsageError('"option" and "value" are texts such as "busy-poll" and "50"')
        option, interface = BY_NAME[check(name)], self._interface
        value = option.read(text)
        before = present(option, interface)
        await carry_out(option, value, interface, self._executor)
        _log.warning("%s: %s is %s now, not %s", interface.name, name, text, before)
        return {"dev": interface.name, "option": name, "value": text, "before": before}


def check(name: str) -> str:
    """Return the option's name; `UsageError` says why if it cannot change while the interface runs."""
    if name not in BY_NAME:
        raise UsageError(f"{name[:40]!r} is no option; these can change: {', '.join(CHANGEABLE)}")
    if name not in CHANGEABLE:
        raise UsageError(
            f"{name} cannot change while the interface runs ({', '.join(CHANGEABLE)} can):"
            f" end `ipoibu up` and start it with another --{name}"
        )
    return name


def present(option: Option, interface: HostedContract) -> str:
    """The value that an option with one value has now, as a text."""
    part, _ = _call(_change_of(option))
    value = getattr(interface.parts[part], option.field.rpartition(".")[2])
    return _change_of(option).show(value)


async def carry_out(
    option: Option, value: object, interface: HostedContract, executor: Executor
) -> str | None:
    """Have the running interface take the value; return what is different, if the callee says so."""
    change = _change_of(option)
    if change.call is None:
        return None
    part, method = _call(change)
    call, argument = getattr(interface.parts[part], method), change.takes(value)
    if part == "endpoint":  # it waits for the engine's thread
        said = await asyncio.get_running_loop().run_in_executor(executor, call, argument)
    else:
        said = call(argument)
    return said if isinstance(said, str) else None


def _change_of(option: Option) -> Change:
    assert option.change is not None, f"{option.name} does not change"
    return option.change


def _call(change: Change) -> tuple[str, str]:
    part, _, method = (change.call or "").partition(".")
    return part, method


def difference(before: Sequence[object], after: Sequence[object]) -> str:
    """Say how the lists differ, in one line."""
    added = [f"+{each}" for each in after if each not in before]
    removed = [f"-{each}" for each in before if each not in after]
    return " ".join([*added, *removed]) or "in another order"
