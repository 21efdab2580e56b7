# SPDX-License-Identifier: BSD-2-Clause
"""What a change of an option calls while the interface runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _whole(value: Any) -> object:
    return value


def _never(before: Any, after: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Change:
    """How a running interface takes another value of an option.

    `call` is PART.METHOD: a method of the `Endpoint` (part `endpoint`), of `HostedInterface` (`interface`),
    `ProxyTable` (`proxies`) or `LogLevel` (`log`). It gets what `takes` makes of the value, and raises
    `UsageError` if only a new interface can have it. Without a `call`, the children that a reload begins and
    ends carry the change out. `needs_restart` gets the value before and the value after.

    The part has the present value of an option with one value as an attribute with the name of the option's
    field, and `show` makes a text of it. For an option with `several`, the method returns a text that says
    what is different, or `show` makes a text of each new value.
    """

    call: str | None
    takes: Callable[[Any], object] = _whole
    show: Callable[[Any], str] = str
    needs_restart: Callable[[Any, Any], bool] = _never
