# SPDX-License-Identifier: BSD-2-Clause
"""Context managers that end with `close`: what holds a descriptor, a process or a thread derives from one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A `with` block closes the object at its end."""

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Starting(Closing):
    """A `with` block starts the object, and closes it at its end or when the start fails half-way."""

    @abstractmethod
    def start(self) -> None:
        """Start what `close` ends."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self
