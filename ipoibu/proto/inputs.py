# SPDX-License-Identifier: BSD-2-Clause
"""The inputs of the engine and of its parts: methods that return the effects that they cause, in order.

Everything below an input emits its effects to the context, and returns none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Effect


class EnginePart:
    """The engine, or a part of it that has inputs of its own."""

    _context: EngineContext


_Part = TypeVar("_Part", bound=EnginePart)
_Args = ParamSpec("_Args")


def engine_input(
    method: Callable[Concatenate[_Part, float, _Args], None],
) -> Callable[Concatenate[_Part, float, _Args], list[Effect]]:
    """Make an input of a method that emits effects: the input returns them."""

    @functools.wraps(method)
    def wrapper(
        self: _Part, now: float, /, *args: _Args.args, **kwargs: _Args.kwargs
    ) -> list[Effect]:
        method(self, now, *args, **kwargs)
        return self._context.take(now)

    return wrapper
