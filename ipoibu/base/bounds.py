# SPDX-License-Identifier: BSD-2-Clause
"""Sets of allowed values, by which configurations check their fields and options read their texts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ipoibu.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `least` to `most`, `whole` ones or any. `unit` and `noun` appear in error messages
    only."""

    least: int
    most: int
    unit: str = ""
    noun: str = ""
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.least} to {self.most} {self.unit}".rstrip()

    def check(self, field: str, value: float) -> None:
        """Raise `UsageError` unless the `value` of the `field` is inside, `TypeError` if it is no number."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            raise TypeError(f"{field} is a number, {self}, not {value!r}")
        if not self.least <= value <= self.most:
            raise UsageError(f"{field} {value}: expected {self}")

    def read(self, text: str) -> int:
        """Read a whole number; `UsageError` unless the text is one, in ASCII digits, and inside."""
        if not re.fullmatch(r"[0-9]{1,9}", text) or not self.least <= int(text) <= self.most:
            problem = f" is no {self.noun}" if self.noun else ""
            raise UsageError(f"{text!r}{problem}: expected {self}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several `words`; error messages call them by `noun`."""

    noun: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        if len(self.words) == 2:
            return " or ".join(self.words)
        return f"one of {', '.join(self.words)}"

    def check(self, text: str) -> None:
        """Raise `UsageError` unless `text` is one of the words."""
        if text not in self.words:
            raise UsageError(f"{text!r} is no {self.noun}: expected {self}")

    def read(self, text: str) -> str:
        """Return the word that `text` is, in upper or lower case; `UsageError` unless it is one."""
        word = text.lower() if text.isascii() else text
        if word not in self.words:
            raise UsageError(f"{text!r} is no {self.noun}: expected {self}")
        return word
